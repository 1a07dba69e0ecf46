package sidebyside

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"strings"
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

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/rpc/grpclimit"
	"github.com/ral-limiter/ral/rpclimit"
)

const plenty = 1_000_000_000

const calls = 1000

// BenchmarkSideBySide compares the time and allocations of a call, the bare handler included. An
// operation is a round with a turn of each contender, beginning further on each time, so that other
// load slows all alike. The figures are medians of the turns.
func BenchmarkSideBySide(b *testing.B) {
	for _, refused := range []bool{false, true} {
		name, limit := "admitted", plenty
		if refused {
			name, limit = "refused", 1
		}
		b.Run(name, func(b *testing.B) {
			var turns []*turn
			for _, c := range contenders {
				if refused && c.name == "bare" {
					continue
				}
				t := &turn{contender: c, call: chained(c.make(b, limit)), ctx: from("203.0.113.9"), refused: refused}
				_, _ = t.call(t.ctx) // uses up the small limit
				t.take(b)
				t.costs = nil
				turns = append(turns, t)
			}
			round := 0
			for b.Loop() {
				for _, i := range bench.Order(round, len(turns)) {
					turns[i].take(b)
				}
				round++
			}
			b.ReportMetric(0, "ns/op") // a round means nothing
			b.Log("\n" + table(turns))
		})
	}
}

// turn holds a contender's calls and costs.
type turn struct {
	contender
	call    func(context.Context) (any, error)
	ctx     context.Context
	refused bool
	costs   []cost
}

type cost struct{ nanoseconds, allocations float64 }

// take makes the calls. All must have the answer that the benchmark is about.
func (t *turn) take(b *testing.B) {
	others := 0
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	began := time.Now()
	for range calls {
		if _, err := t.call(t.ctx); (err != nil) != t.refused {
			others++
		}
	}
	took := time.Since(began)
	runtime.ReadMemStats(&after)
	if others > 0 {
		b.Errorf("%s: %d of %d calls were answered otherwise", t.name, others, calls)
	}
	if _, err := t.call(t.ctx); t.refused && status.Code(err) != t.code {
		b.Errorf("%s refuses with %v", t.name, err)
	}
	t.costs = append(t.costs, cost{float64(took) / calls, float64(after.Mallocs-before.Mallocs) / calls})
}

func table(turns []*turn) string {
	var s strings.Builder
	s.WriteString("| | ns | allocations |\n|---|---|---|\n")
	for _, t := range turns {
		median := func(figure func(cost) float64) float64 {
			var all []float64
			for _, c := range t.costs {
				all = append(all, figure(c))
			}
			slices.Sort(all)
			return all[len(all)/2]
		}
		fmt.Fprintf(&s, "| %s | %.0f | %.1f |\n", t.name,
			median(func(c cost) float64 { return c.nanoseconds }), median(func(c cost) float64 { return c.allocations }))
	}
	return s.String()
}

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
