package httplimit

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/internal/testkit/admissiontest"
	"github.com/ral-limiter/ral/policy"
)

func open[K comparable](t testing.TB, p policy.Policy) *engine.Engine[K] {
	t.Helper()
	return admissiontest.NewEngine[K](t, p)
}

func hourly(t testing.TB, n int64) *engine.Engine[netip.Addr] {
	t.Helper()
	return admissiontest.Hourly[netip.Addr](t, n)
}

const (
	alice = "192.0.2.1:1"
	bob   = "192.0.2.2:1"
)

var aliceKey = netip.MustParseAddr("192.0.2.1")

var done = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("done")) })

// from returns a request from an address, with header fields in pairs.
func from(addr string, fields ...string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.RemoteAddr = addr
	for i := 0; i < len(fields); i += 2 {
		r.Header.Add(fields[i], fields[i+1])
	}
	return r
}

func ask(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func prefixList(list ...string) (all []netip.Prefix) {
	for _, p := range list {
		all = append(all, netip.MustParsePrefix(p))
	}
	return all
}

func clientAddr(t testing.TB, config AddrConfig) *ClientAddr {
	t.Helper()
	c, err := NewClientAddr(config)
	require.NoError(t, err)
	return c
}

// refusedBy checks that an error is a *policy.FieldError about a field.
func refusedBy(t *testing.T, err error, owner, field string) {
	t.Helper()
	var fault *policy.FieldError
	if assert.ErrorAs(t, err, &fault) {
		assert.Equal(t, owner, fault.Of)
		assert.Equal(t, field, fault.Field)
		assert.NotEmpty(t, fault.Want)
	}
}
