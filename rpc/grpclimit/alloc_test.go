package grpclimit

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/ral-limiter/ral/internal/testkit/race"
	"github.com/ral-limiter/ral/internal/testkit/rpctest"
	"github.com/ral-limiter/ral/rpclimit"
)

// quiet is a call's stream that allocates nothing. A server's would copy the metadata.
type quiet struct{}

func (quiet) Method() string               { return info.FullMethod }
func (quiet) SetHeader(metadata.MD) error  { return nil }
func (quiet) SendHeader(metadata.MD) error { return nil }
func (quiet) SetTrailer(metadata.MD) error { return nil }

// Promise: Admitted unary calls allocate at most 3 times, refused calls 16 times.
func TestCallsAllocateLittle(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	ctx := grpc.NewContextWithServerTransportStream(from("203.0.113.9:4711"), quiet{})
	for want, c := range map[codes.Code]struct {
		limit int64
		most  float64
	}{
		codes.OK:                {1_000_000_000, 3}, // the call, and the two parts of a map
		codes.ResourceExhausted: {1, 16},            // half of them are the copy that package status makes of a status
	} {
		intercept := UnaryServerInterceptor(rpctest.ByAddr(open[netip.Addr](t, hourly(c.limit), nil), rpclimit.Options{}))
		_ = direct(ctx, intercept)
		assert.Equal(t, want, status.Code(direct(ctx, intercept)))
		assert.LessOrEqual(t, testing.AllocsPerRun(1000, func() { _ = direct(ctx, intercept) }), c.most, want)
	}
}
