package grpclimit

import (
	"context"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/ral-limiter/ral/internal/testkit/race"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/rpclimit"
)

// quiet is a call's stream that allocates nothing. A server's would copy the metadata.
type quiet struct{}

func (quiet) Method() string               { return info.FullMethod }
func (quiet) SetHeader(metadata.MD) error  { return nil }
func (quiet) SendHeader(metadata.MD) error { return nil }
func (quiet) SetTrailer(metadata.MD) error { return nil }

func plenty() policy.Policy {
	return policy.Must(policy.Funnel(1_000_000_000, 1_000_000_000, time.Second))
}

func admitted(tb testing.TB) (ctx context.Context, intercept grpc.UnaryServerInterceptor) {
	ctx = grpc.NewContextWithServerTransportStream(context.Background(), quiet{})
	ctx = peer.NewContext(ctx, &peer.Peer{Addr: net.TCPAddrFromAddrPort(netip.MustParseAddrPort("203.0.113.9:4711"))})
	return ctx, UnaryServerInterceptor(byAddr(open[netip.Addr](tb, plenty(), nil), rpclimit.Options{}))
}

func handle(context.Context, any) (any, error) { return nil, nil }

// Promise: Admitted unary calls allocate at most 3 times.
func TestAdmittedCallsAllocateLittle(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	ctx, intercept := admitted(t)
	allocations := testing.AllocsPerRun(1000, func() { _, _ = intercept(ctx, nil, info, handle) })
	// The call, and the two parts of a map.
	assert.LessOrEqual(t, allocations, 3.0)
}

func TestRefusedCallsAllocateLittle(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	ctx, _ := admitted(t)
	refuse := UnaryServerInterceptor(byAddr(open[netip.Addr](t, hourly(1), nil), rpclimit.Options{}))
	_, err := refuse(ctx, nil, info, handle)
	require.NoError(t, err)
	allocations := testing.AllocsPerRun(1000, func() { _, err = refuse(ctx, nil, info, handle) })
	assert.Len(t, status.Convert(err).Details(), 2)
	// Half of them are the copy that package status makes of a status.
	assert.LessOrEqual(t, allocations, 16.0)
}
