package connectlimit

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ral-limiter/ral/internal/testkit/race"
	"github.com/ral-limiter/ral/internal/testkit/rpctest"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/rpclimit"
)

type quiet struct {
	h      http.Header
	status int
}

func (q *quiet) Header() http.Header         { return q.h }
func (q *quiet) Write(b []byte) (int, error) { return len(b), nil }
func (q *quiet) WriteHeader(status int)      { q.status = status }

// repeated is a unary request of the Connect protocol that is sent again and again.
func repeated(t testing.TB, h http.Handler) (send func()) {
	t.Helper()
	body, err := proto.Marshal(wrapperspb.String("hello"))
	require.NoError(t, err)
	reader := bytes.NewReader(body)
	r := httptest.NewRequest(http.MethodPost, echo, nil)
	r.Header.Set("Content-Type", "application/proto")
	r.Body = io.NopCloser(reader)
	w := &quiet{h: http.Header{}}
	return func() {
		clear(w.h)
		w.status = 0
		reader.Reset(body)
		h.ServeHTTP(w, r)
		if w.status != 0 && w.status != http.StatusOK {
			t.Fatal(w.status)
		}
	}
}

// The interceptor allocates the limits' call, the value of RateLimit, and connect's map of fields.
func TestAdmittedPathAllocates(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	e := open[netip.Addr](t, policy.Must(policy.Funnel(1_000_000, 1, time.Second)))
	atGate := rpctest.AtTap(e, rpclimit.Options{})
	bare := testing.AllocsPerRun(1000, repeated(t, service()))
	for _, c := range []struct {
		name string
		h    http.Handler
		most float64
	}{
		{"interceptor", service(connect.WithInterceptors(NewInterceptor(rpctest.ByAddr(e, rpclimit.Options{})))), 6},
		{"shadow", service(connect.WithInterceptors(NewInterceptor(rpctest.ByAddr(e, rpclimit.Options{Shadow: true})))), 2},
		{"gate and interceptor", newGate(t, atGate).Handler(service(connect.WithInterceptors(NewInterceptor(atGate)))), 14},
	} {
		send := repeated(t, c.h)
		send()
		more := testing.AllocsPerRun(1000, send) - bare
		t.Logf("%-24s %v allocations more than the %v of the bare handler", c.name, more, bare)
		assert.LessOrEqual(t, more, c.most, c.name)
	}
}
