package connectlimit

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/internal/testkit/admissiontest"
	"github.com/ral-limiter/ral/internal/testkit/rpctest"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/rpclimit"
)

func newGate(t testing.TB, limited *rpclimit.Guard) *Gate {
	t.Helper()
	gate, err := NewGate(limited)
	require.NoError(t, err)
	return gate
}

type unread struct{ t *testing.T }

func (u unread) Read([]byte) (int, error) {
	u.t.Error("the body of a refused request is read")
	return 0, io.ErrUnexpectedEOF
}

// Promise: A gate refuses before reading a message.
func TestGateReadsNoBody(t *testing.T) {
	e := admissiontest.Hourly[netip.Addr](t, 1)
	gate := newGate(t, rpctest.AtTap(e, rpclimit.Options{})).Handler(http.NotFoundHandler())
	require.True(t, e.Choke(netip.MustParseAddr("192.0.2.1")))
	for _, kind := range []string{"application/json", "application/proto", "application/connect+proto", "application/grpc", "application/grpc-web", "text/html"} {
		r := httptest.NewRequest(http.MethodPost, echo, unread{t})
		r.Header.Set("Content-Type", kind)
		r.ProtoMajor = 2
		w := httptest.NewRecorder()
		gate.ServeHTTP(w, r)
		if strings.HasPrefix(kind, "application/connect") || strings.HasPrefix(kind, "application/grpc") {
			assert.Equal(t, http.StatusOK, w.Code, kind)
			assert.Equal(t, kind, w.Header().Get("Content-Type"))
		} else {
			assert.Equal(t, http.StatusTooManyRequests, w.Code, kind)
			assert.Contains(t, w.Body.String(), `"code":"resource_exhausted"`, kind)
		}
		if strings.HasPrefix(kind, "application/grpc") {
			assert.Equal(t, "8", w.Header().Get("Grpc-Status"), kind)
			assert.Empty(t, w.Body.String(), "%s: Trailers-Only", kind)
			assert.Empty(t, w.Header().Get("Trailer"), kind)
		}
	}
}

// Promise: Units taken at a gate are settled once, also after panics.
func TestGateAndInterceptorSettleOnce(t *testing.T) {
	e, byHost := admissiontest.Hourly[netip.Addr](t, 100), admissiontest.Hourly[string](t, 6)
	var settled []rpclimit.Code
	l := rpclimit.Must(rpclimit.New(rpclimit.Options{},
		rpclimit.Limit[netip.Addr]{Name: "address", Limiter: e, Key: rpclimit.ByAddr, AtTap: true,
			Cost:   func(*rpclimit.Call) int64 { return 10 },
			Charge: func(_ *rpclimit.Call, served rpclimit.Served) int64 { settled = append(settled, served.Code); return 1 }},
		rpclimit.Limit[string]{Name: "host", Limiter: byHost, AtTap: true, Key: rpclimit.ByMetadata("host")},
		rpclimit.Limit[string]{Name: "text", Limiter: admissiontest.Hourly[string](t, 1),
			Key: rpclimit.ByMessage(func(m *text) string { return m.GetValue() })},
	))
	s := serve(t, limited(t, l, true))
	for i, p := range protocols {
		_, err := call(p.client(t, s.URL, echo), fmt.Sprint("hello", i))
		require.NoError(t, err, p.name)
		assert.EqualValues(t, i+1, rpctest.Taken(e, rpctest.Local, 100), p.name)
		assert.Len(t, settled, i+1, p.name)
	}
	host := strings.TrimPrefix(s.URL, "http://")
	assert.EqualValues(t, len(protocols), rpctest.Taken(byHost, host, 6), "the host of a request is in no field")
	byHost.Reset(host)
	_, err := call(protocols[0].client(t, s.URL, echo), "hello0")
	require.Equal(t, connect.CodeResourceExhausted, connect.CodeOf(err), "by the limit behind the gate")
	assert.Equal(t, []string{"text"}, quotaIDs(t, err))
	assert.EqualValues(t, len(protocols), rpctest.Taken(e, rpctest.Local, 100), "what the call had taken at the gate went back")

	panics := newGate(t, l).Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("as asked") }))
	assert.Panics(t, func() { panics.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, echo, nil)) })
	assert.Equal(t, rpclimit.Code(connect.CodeUnimplemented), settled[len(settled)-1])
	assert.Len(t, settled, len(protocols)+1)
}

// Metadata is found alike at the gate and behind it.
func TestMetadataKeyIsAlikeAtTheGate(t *testing.T) {
	for _, atGate := range []bool{false, true} {
		h := limited(t, rpclimit.Must(rpclimit.New(rpclimit.Options{}, rpclimit.Limit[string]{
			Limiter: admissiontest.Hourly[string](t, 1), Key: rpclimit.ByMetadata("x-api-key"), AtTap: atGate,
		})), atGate)
		for _, want := range []int{http.StatusOK, http.StatusTooManyRequests} {
			r := httptest.NewRequest(http.MethodPost, echo, strings.NewReader(`"hello"`))
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("X-Api-Key", "key")
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			assert.Equal(t, want, w.Code, "at the gate %v: %s", atGate, w.Body)
		}
	}
}

// A gate lets no more through, and answers all requests.
func TestGateLetsNoMorePassUnderAttack(t *testing.T) {
	for name, change := range map[string]func(r *http.Request, try int){
		"nothing":           func(*http.Request, int) {},
		"unknown procedure": func(r *http.Request, try int) { r.URL.Path = fmt.Sprintf("/none/%d", try) },
		"exempt and back":   func(r *http.Request, _ int) { r.URL.Path = "/grpc.health.v1.Health/../test.v1.Text/Echo" },
		"exempt and more":   func(r *http.Request, _ int) { r.URL.Path = "/grpc.health.v1.Health/Check/x" },
		"exempt, slashes":   func(r *http.Request, _ int) { r.URL.Path = "//grpc.health.v1.Health/Check" },
		"no path":           func(r *http.Request, _ int) { r.URL.Path = "" },
		"content type":      func(r *http.Request, try int) { r.Header.Set("Content-Type", fmt.Sprintf("application/%d", try)) },
		"garbage type":      func(r *http.Request, _ int) { r.Header.Set("Content-Type", "application/grpc;;\x7f=\"") },
		"gRPC with options": func(r *http.Request, _ int) { r.Header.Set("Content-Type", "Application/GRPC; a=b") },
		"method":            func(r *http.Request, try int) { r.Method = []string{"GET", "PUT", "HEAD", "OPTIONS", "X"}[try%5] },
		"gRPC garbage": func(r *http.Request, _ int) {
			r.Header.Set("Content-Type", "application/grpc")
			r.Header.Set("Grpc-Timeout", "forever")
			r.Header.Set("Grpc-Encoding", "bogus")
		},
	} {
		for _, major := range []int{1, 2} {
			const limit, tries = 3, 20
			e := admissiontest.Hourly[netip.Addr](t, limit)
			l := rpctest.AtTap(e, rpclimit.Options{})
			passed, behind := 0, limited(t, l, false)
			h := newGate(t, l).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				passed++
				behind.ServeHTTP(w, r)
			}))
			for try := range tries {
				r := httptest.NewRequest(http.MethodPost, echo, strings.NewReader(`"hello"`))
				r.ProtoMajor = major
				r.Header.Set("Content-Type", "application/json")
				change(r, try)
				w := httptest.NewRecorder()
				require.NotPanics(t, func() { h.ServeHTTP(w, r) }, name)
				refused := w.Code == http.StatusTooManyRequests
				if kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), "+"); kind == "application/grpc" && r.Method == http.MethodPost {
					refused = w.Header().Get("Grpc-Status") == "8" || w.Result().Trailer.Get("Grpc-Status") == "8"
				}
				assert.Equal(t, try >= limit, refused, "%s, HTTP/%d, try %d: %d %v", name, major, try, w.Code, w.Header())
			}
			assert.Equal(t, limit, passed, "%s, HTTP/%d", name, major)
			assert.EqualValues(t, limit, rpctest.Taken(e, netip.MustParseAddr("192.0.2.1"), limit), "%s, HTTP/%d", name, major)
		}
	}
}

func TestNewGateRefuses(t *testing.T) {
	e := admissiontest.Hourly[netip.Addr](t, 1)
	for _, limited := range []*rpclimit.Guard{nil, rpctest.ByAddr(e, rpclimit.Options{})} {
		_, err := NewGate(limited)
		var field *policy.FieldError
		require.ErrorAs(t, err, &field)
		assert.Equal(t, "guard", field.Field)
	}
}
