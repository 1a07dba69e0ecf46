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
	"google.golang.org/grpc/status"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/rpc/grpclimit"
	"github.com/ral-limiter/ral/rpclimit"
)

// contender limits unary calls to n an hour, and as many at once.
type contender struct {
	name string
	keys bool // reports whether each address has a limit of its own
	code codes.Code
	make func(tb testing.TB, n int) grpc.UnaryServerInterceptor
}

var contenders = []contender{
	{"bare", false, codes.OK, func(testing.TB, int) grpc.UnaryServerInterceptor { return pass }},
	{"ral", true, codes.ResourceExhausted, ral},
	{"failsafe-go", false, codes.Unknown, func(_ testing.TB, n int) grpc.UnaryServerInterceptor {
		return failsafegrpc.NewUnaryServerInterceptor[any](ratelimiter.NewBursty[any](uint(n), time.Hour))
	}},
	{"middleware", false, codes.ResourceExhausted, func(_ testing.TB, n int) grpc.UnaryServerInterceptor {
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

func TestContendersAdmitAndRefuse(t *testing.T) {
	const limit = 3
	for _, c := range contenders {
		t.Run(c.name, func(t *testing.T) {
			call := chained(c.make(t, limit))
			one, other := from("203.0.113.9"), from("203.0.113.10")
			for range limit {
				response, err := call(one)
				require.NoError(t, err)
				assert.Same(t, answer, response)
			}
			for range 2 {
				response, err := call(one)
				assert.Equal(t, c.code, status.Code(err))
				assert.Equal(t, c.code == codes.OK, response == answer)
			}
			_, err := call(other)
			assert.Equal(t, c.keys || c.code == codes.OK, err == nil, "a limit of its own for each address")
		})
	}
}
