package sidebyside

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/failsafe-go/failsafe-go/failsafegrpc"
	"github.com/failsafe-go/failsafe-go/ratelimiter"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/ratelimit"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/rpc/grpclimit"
	"github.com/ral-limiter/ral/rpclimit"
)

// contender limits unary calls to n an hour, and as many at once.
type contender struct {
	name string
	code codes.Code
	make func(tb testing.TB, n int) grpc.UnaryServerInterceptor
}

var contenders = []contender{
	{"bare", codes.OK, func(testing.TB, int) grpc.UnaryServerInterceptor { return pass }},
	{"ral", codes.ResourceExhausted, ral},
	{"failsafe-go", codes.Unknown, func(_ testing.TB, n int) grpc.UnaryServerInterceptor {
		return failsafegrpc.NewUnaryServerInterceptor[any](ratelimiter.NewBursty[any](uint(n), time.Hour))
	}},
	{"middleware", codes.ResourceExhausted, func(_ testing.TB, n int) grpc.UnaryServerInterceptor {
		return ratelimit.UnaryServerInterceptor(xtime{rate.NewLimiter(rate.Every(time.Hour/time.Duration(n)), n)})
	}},
}

func ral(tb testing.TB, n int) grpc.UnaryServerInterceptor {
	tb.Helper()
	limiter, err := engine.New[netip.Addr](engine.Config{Policy: policy.Must(policy.Funnel(int64(n), int64(n), time.Hour))})
	require.NoError(tb, err)
	tb.Cleanup(func() { assert.NoError(tb, limiter.Close()) })
	return grpclimit.UnaryServerInterceptor(rpclimit.Must(rpclimit.New(rpclimit.Options{},
		rpclimit.Limit[netip.Addr]{Name: "address", Limiter: limiter, Key: rpclimit.ByAddr})))
}

// xtime is the Limiter of a server without keys, as in the middleware's example.
type xtime struct{ limiter *rate.Limiter }

var errExceeded = errors.New("the limit is exceeded")

func (x xtime) Limit(context.Context) error {
	if !x.limiter.Allow() {
		return errExceeded
	}
	return nil
}

func pass(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	return handler(ctx, request)
}

var info = &grpc.UnaryServerInfo{FullMethod: "/shop.v1.Shop/Order"}

type quiet struct{}

func (quiet) Method() string               { return info.FullMethod }
func (quiet) SetHeader(metadata.MD) error  { return nil }
func (quiet) SendHeader(metadata.MD) error { return nil }
func (quiet) SetTrailer(metadata.MD) error { return nil }

func from(addr string) context.Context {
	ctx := grpc.NewContextWithServerTransportStream(context.Background(), quiet{})
	return peer.NewContext(ctx, &peer.Peer{Addr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(addr), 4711))})
}

var answer any = new(int)

// chained calls a handler like grpc.ChainUnaryInterceptor. The first interceptor passes all.
func chained(second grpc.UnaryServerInterceptor) func(ctx context.Context) (any, error) {
	handle := func(context.Context, any) (any, error) { return answer, nil }
	return func(ctx context.Context) (any, error) {
		return pass(ctx, nil, info, func(ctx context.Context, request any) (any, error) {
			return second(ctx, request, info, handle)
		})
	}
}
