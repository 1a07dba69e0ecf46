package connectlimit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/rpclimit"
)

func gated(e *engine.Engine[netip.Addr], o rpclimit.Options) *rpclimit.Limits {
	return rpclimit.Must(rpclimit.New(o, rpclimit.Limit[netip.Addr]{Name: "address", Limiter: e, Key: rpclimit.ByAddr, AtTap: true}))
}

func newGate(t testing.TB, limited *rpclimit.Limits) *Gate {
	t.Helper()
	gate, err := NewGate(limited)
	require.NoError(t, err)
	return gate
}

func TestGateAnswersInEveryProtocol(t *testing.T) {
	for _, p := range protocols {
		t.Run(p.name, func(t *testing.T) {
			e := open[netip.Addr](t, policy.Must(policy.Funnel(1, 1, 10*time.Minute)))
			limited := gated(e, rpclimit.Options{})
			s := serve(t, newGate(t, limited).Handler(service(connect.WithInterceptors(NewInterceptor(limited)))))
			c := p.client(t, s.URL, echo)
			response, err := call(c, "hello")
			require.NoError(t, err)
			assert.Regexp(t, `^"address";r=0;t=\d+$`, response.Header().Get("RateLimit"), "the interceptor tells of the gate's limits")
			assert.EqualValues(t, 1, taken(e, local, 1), "once, and not again by the interceptor")

			_, err = call(c, "hello")
			require.Equal(t, connect.CodeResourceExhausted, connect.CodeOf(err), err)
			after := retryInfo(t, err)
			assert.Greater(t, after, 9*time.Minute)
			assert.Equal(t, fmt.Sprint(after.Milliseconds()), meta(t, err).Get("Grpc-Retry-Pushback-Ms"))
			assert.Equal(t, fmt.Sprint(retrySeconds(after)), meta(t, err).Get("Retry-After"))
			assert.NotEmpty(t, meta(t, err).Get("RateLimit"))
			assert.NotNil(t, quotaFailure(t, err))
		})
	}
	for _, p := range streams {
		e := open[netip.Addr](t, policy.Must(policy.Funnel(1, 1, 10*time.Minute)))
		limited := gated(e, rpclimit.Options{})
		s := serve(t, newGate(t, limited).Handler(service(connect.WithInterceptors(NewInterceptor(limited)))))
		c := p.client(t, s.URL, split)
		_, _, err := letters(c, "a")
		require.NoError(t, err, p.name)
		n, _, err := letters(c, "a")
		assert.Zero(t, n)
		require.Equal(t, connect.CodeResourceExhausted, connect.CodeOf(err), "%s: %v", p.name, err)
		assert.Positive(t, retryInfo(t, err), p.name)
		assert.NotEmpty(t, meta(t, err).Get("Retry-After"), p.name)
	}
}

type unread struct{ t *testing.T }

func (u unread) Read([]byte) (int, error) {
	u.t.Error("the body of a refused request is read")
	return 0, io.ErrUnexpectedEOF
}

// Promise: A gate refuses before reading a message.
func TestGateReadsNoBody(t *testing.T) {
	e := open[netip.Addr](t, policy.Must(policy.Funnel(1, 1, time.Hour)))
	gate := newGate(t, gated(e, rpclimit.Options{})).Handler(http.NotFoundHandler())
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

// Without an interceptor the units stay taken.
func TestGateAndInterceptorSettleOnce(t *testing.T) {
	e := open[netip.Addr](t, policy.Must(policy.Funnel(100, 1, 24*time.Hour)))
	byText := open[string](t, policy.Must(policy.Funnel(1, 1, 24*time.Hour)))
	var charged atomic.Int64
	options := rpclimit.Options{
		Cost: func(*rpclimit.Call) int64 { return 10 },
	}
	limited := rpclimit.Must(rpclimit.New(options,
		rpclimit.Limit[netip.Addr]{Name: "address", Limiter: e, Key: rpclimit.ByAddr, AtTap: true,
			Charge: func(_ *rpclimit.Call, served rpclimit.Served) int64 {
				charged.Add(1)
				if served.Code == rpclimit.CodeOK {
					return 1
				}
				return 7
			}},
		rpclimit.Limit[string]{Name: "text", Limiter: byText, Cost: func(*rpclimit.Call) int64 { return 1 },
			Key: rpclimit.ByMessage(func(m *text) string { return m.GetValue() })},
	))
	s := serve(t, newGate(t, limited).Handler(service(connect.WithInterceptors(NewInterceptor(limited)))))
	for i, p := range protocols {
		c := p.client(t, s.URL, echo)
		before := taken(e, local, 100)
		_, err := call(c, fmt.Sprint("hello", i))
		require.NoError(t, err, p.name)
		assert.EqualValues(t, 1, taken(e, local, 100)-before, p.name)
		assert.EqualValues(t, i+1, charged.Load(), p.name)
	}
	before := taken(e, local, 100)
	c := protocols[0].client(t, s.URL, echo)
	_, err := call(c, "hello0")
	require.Equal(t, connect.CodeResourceExhausted, connect.CodeOf(err), "by the limit behind the gate")
	assert.Equal(t, "text", quotaFailure(t, err).GetViolations()[0].GetQuotaId())
	assert.Equal(t, before, taken(e, local, 100), "what the call had taken at the gate went back")

	_, err = call(protocols[0].client(t, s.URL, "/test.v1.Text/None"), "hello")
	require.Equal(t, connect.CodeUnimplemented, connect.CodeOf(err))
	assert.EqualValues(t, 7, taken(e, local, 100)-before)
}

// A gate lets no more through, and answers all requests.
func TestGateUnderAttack(t *testing.T) {
	long := strings.Repeat("x", 200_000)
	for name, change := range map[string]func(r *http.Request, try int){
		"nothing":           func(*http.Request, int) {},
		"forged address":    func(r *http.Request, try int) { r.Header.Set("X-Forwarded-For", fmt.Sprintf("6.6.6.%d", try)) },
		"forwarded":         func(r *http.Request, try int) { r.Header.Set("Forwarded", fmt.Sprintf("for=6.6.6.%d", try)) },
		"real IP":           func(r *http.Request, try int) { r.Header.Set("X-Real-Ip", fmt.Sprintf("6.6.6.%d", try)) },
		"unknown procedure": func(r *http.Request, try int) { r.URL.Path = fmt.Sprintf("/none/%d", try) },
		"exempt and back":   func(r *http.Request, _ int) { r.URL.Path = "/grpc.health.v1.Health/../test.v1.Text/Echo" },
		"exempt and more":   func(r *http.Request, _ int) { r.URL.Path = "/grpc.health.v1.Health/Check/x" },
		"exempt, slashes":   func(r *http.Request, _ int) { r.URL.Path = "//grpc.health.v1.Health/Check" },
		"no path":           func(r *http.Request, _ int) { r.URL.Path = "" },
		"long path":         func(r *http.Request, try int) { r.URL.Path = fmt.Sprint("/", try, long) },
		"content type":      func(r *http.Request, try int) { r.Header.Set("Content-Type", fmt.Sprintf("application/%d", try)) },
		"garbage type":      func(r *http.Request, _ int) { r.Header.Set("Content-Type", "application/grpc;;\x7f=\"") },
		"gRPC with options": func(r *http.Request, _ int) { r.Header.Set("Content-Type", "Application/GRPC; a=b") },
		"long gRPC type":    func(r *http.Request, _ int) { r.Header.Set("Content-Type", "application/grpc+"+long) },
		"no type":           func(r *http.Request, _ int) { r.Header.Del("Content-Type") },
		"method":            func(r *http.Request, try int) { r.Method = []string{"GET", "PUT", "HEAD", "OPTIONS", "X"}[try%5] },
		"encoding":          func(r *http.Request, _ int) { r.Header.Set("Content-Encoding", "bogus") },
		"version":           func(r *http.Request, _ int) { r.Header.Set("Connect-Protocol-Version", "99") },
		"gRPC garbage": func(r *http.Request, _ int) {
			r.Header.Set("Content-Type", "application/grpc")
			r.Header.Set("Grpc-Timeout", "forever")
			r.Header.Set("Grpc-Encoding", "bogus")
		},
		"host": func(r *http.Request, try int) { r.Host = fmt.Sprint("host", try, long) },
	} {
		for _, major := range []int{1, 2} {
			const limit, tries = 3, 20
			e := open[netip.Addr](t, policy.Must(policy.Funnel(limit, 1, 24*time.Hour)))
			limited := gated(e, rpclimit.Options{})
			gate := newGate(t, limited)
			passed := 0
			behind := service(connect.WithInterceptors(NewInterceptor(limited)))
			h := gate.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
			assert.EqualValues(t, limit, taken(e, netip.MustParseAddr("192.0.2.1"), limit), "%s, HTTP/%d", name, major)
		}
	}
}

func TestExpiredCallsTakeNothing(t *testing.T) {
	e := open[netip.Addr](t, policy.Must(policy.Funnel(3, 1, time.Hour)))
	limited := gated(e, rpclimit.Options{})
	served := connect.UnaryInterceptorFunc(func(connect.UnaryFunc) connect.UnaryFunc {
		return func(context.Context, connect.AnyRequest) (connect.AnyResponse, error) {
			panic("an expired call is served")
		}
	})
	h := newGate(t, limited).Handler(service(connect.WithInterceptors(NewInterceptor(limited), served)))
	for range 10 {
		r := httptest.NewRequest(http.MethodPost, echo, strings.NewReader(`"hello"`))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Connect-Timeout-Ms", "-1")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		assert.Equal(t, http.StatusGatewayTimeout, w.Code)
	}
	assert.Zero(t, taken(e, netip.MustParseAddr("192.0.2.1"), 3))
}

// They are found alike at the gate and behind it.
func TestKeysOfClientsAreBounded(t *testing.T) {
	for _, name := range []string{"x-api-key", "host"} {
		for _, tap := range []bool{true, false} {
			e := open[string](t, policy.Must(policy.Funnel(1, 1, time.Hour)))
			limited := rpclimit.Must(rpclimit.New(rpclimit.Options{}, rpclimit.Limit[string]{Limiter: e, Key: rpclimit.ByMetadata(name), AtTap: tap}))
			h := http.Handler(service(connect.WithInterceptors(NewInterceptor(limited))))
			if tap {
				h = newGate(t, limited).Handler(h)
			}
			for _, value := range []string{"short", strings.Repeat("k", 1<<20), "\x00\xff", strings.Repeat("é", 10_000)} {
				for i, want := range []int{http.StatusOK, http.StatusTooManyRequests} {
					r := httptest.NewRequest(http.MethodPost, echo, strings.NewReader(`"hello"`))
					r.Header.Set("Content-Type", "application/json")
					r.Header.Set(name, value)
					r.Host = value
					w := httptest.NewRecorder()
					h.ServeHTTP(w, r)
					assert.Equal(t, want, w.Code, "%s, at the gate %v, %.10q, try %d: %s", name, tap, value, i, w.Body)
				}
			}
			for key := range e.All() {
				assert.LessOrEqual(t, len(key), 64, "%.80q", key)
			}
		}
	}
}

// The client declares a body and never sends it, over a real connection.
func TestGateDoesNotWaitForTheBody(t *testing.T) {
	e := open[netip.Addr](t, policy.Must(policy.Funnel(1, 1, time.Hour)))
	require.True(t, e.Choke(local))
	s := serve(t, newGate(t, gated(e, rpclimit.Options{})).Handler(http.NotFoundHandler()))
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	require.NoError(t, err)
	defer conn.Close()
	_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: a\r\nContent-Type: application/proto\r\nContent-Length: 1000000\r\n\r\n", echo)
	require.NoError(t, err)
	var answer bytes.Buffer
	line := make([]byte, 4096)
	n, err := conn.Read(line)
	require.NoError(t, err)
	answer.Write(line[:n])
	assert.Contains(t, answer.String(), "HTTP/1.1 429")
}

// The session is settled once, also if an interceptor never runs.
func TestGateSettlesWhenTheHandlerPanics(t *testing.T) {
	e := open[netip.Addr](t, policy.Must(policy.Funnel(10, 1, 24*time.Hour)))
	settled := 0
	limited := gated(e, rpclimit.Options{Charge: func(*rpclimit.Call, rpclimit.Served) int64 { settled++; return 3 }})
	h := newGate(t, limited).Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(errors.New("of the test")) }))
	assert.Panics(t, func() { h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, echo, nil)) })
	assert.Equal(t, 1, settled)
	assert.EqualValues(t, 3, taken(e, netip.MustParseAddr("192.0.2.1"), 10))
}

func TestNewGateRefuses(t *testing.T) {
	e := open[netip.Addr](t, policy.Must(policy.Funnel(1, 1, time.Hour)))
	for _, limited := range []*rpclimit.Limits{nil, byAddr(e, rpclimit.Options{})} {
		_, err := NewGate(limited)
		var field *policy.FieldError
		require.ErrorAs(t, err, &field)
		assert.Equal(t, "limits", field.Field)
	}
}
