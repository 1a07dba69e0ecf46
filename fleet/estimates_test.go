package fleet

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/fleet/internal/storetest"
	"github.com/ral-limiter/ral/httplimit"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// estimated has 50 clients estimate 400 units, be answered after 200 ms and settle with 40, for that
// long. It returns the number of answered calls.
func estimated(ctx context.Context, lasts time.Duration, hold func() (settle func(used int64), ok bool)) int64 {
	var calls atomic.Int64
	var clients sync.WaitGroup
	ctx, cancel := context.WithTimeout(ctx, lasts)
	defer cancel()
	for range 50 {
		clients.Go(func() {
			for ctx.Err() == nil {
				settle, ok := hold()
				if !ok {
					time.Sleep(10 * time.Millisecond)
					continue
				}
				time.Sleep(200 * time.Millisecond)
				settle(40)
				calls.Add(1)
			}
		})
	}
	clients.Wait()
	return calls.Load()
}

// holding returns a call of one limiter.
func holding(t *testing.T, l limits.Limiter[string]) func() (func(int64), bool) {
	return func() (func(int64), bool) {
		g, err := l.Hold(t.Context(), limits.Call[string]{Key: "tenant", N: 400})
		assert.NoError(t, err)
		return func(used int64) { assert.NoError(t, g.Settle(context.Background(), used)) }, g.Allowed
	}
}

// Only takes that may return later cost a record: of Reserve, Acquire and Hold, and of requests that
// are charged afterwards.
func TestTakesThatCannotReturnAreNotNoted(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		ctx := t.Context()
		p := funnel(100, 1, time.Hour)
		l := open(t, on(redis, p))
		other := open(t, via(l, p))
		notes := func(of *Limiter, key string) int { return redis.Notes(of.own.Load().limit, key) }
		call := limits.Call[string]{Key: "brief", N: 1, Brief: true}
		take(t, l, "brief", 1)
		assert.NoError(t, l.Wait(ctx, "brief", 1))
		must.Get(l.Hold(ctx, call))
		must.Get(limits.AskAll(ctx, 0, limits.NewClaim[string](l, call), limits.NewClaim[string](other, call)))
		must.Get(TakeAll(ctx, l.Claim("brief", 1), other.Claim("brief", 1)))
		assert.Zero(t, notes(l, "brief")+notes(other, "brief"))
		must.Get(l.Reserve(ctx, "late", 1, 0))
		must.Get(l.Acquire(ctx, "late", 1, time.Minute))
		must.Get(l.Hold(ctx, limits.Call[string]{Key: "late", N: 1}))
		assert.Equal(t, 3, notes(l, "late"))
		for _, charge := range []func(*http.Request, httplimit.Served) int64{nil, func(*http.Request, httplimit.Served) int64 { return 0 }} {
			h := httplimit.Must(httplimit.NewAll(httplimit.Options{Charge: charge},
				httplimit.Limit[string]{Name: "a", Limiter: l, Key: byAddr}, httplimit.Limit[string]{Name: "b", Limiter: other, Key: byAddr},
			)).Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				assert.Equal(t, charge != nil, notes(l, "192.0.2.1")+notes(other, "192.0.2.1") == 2)
			}))
			assert.Equal(t, 200, served(t, h, request()).Code)
			assert.Zero(t, notes(l, "192.0.2.1")+notes(other, "192.0.2.1"))
		}
	})
}

// Estimates that are settled late come back over a fleet as they do in process: alone, and beside a
// limit on requests.
// Promise: Over a fleet, estimates settled late come back as in process.
func TestLateEstimatesComeBack(t *testing.T) {
	const lasts = 6 * time.Second
	for _, p := range []policy.Policy{funnel(4000, 1000, time.Second), policy.Must(policy.Bursty(1000, time.Second, 4000))} {
		inBubble(t, func(t *testing.T, redis *storetest.Redis) {
			near := must.Get(engine.New[string](engine.Config{Policy: p}))
			defer near.Close()
			time.Sleep(time.Hour)
			want := estimated(t.Context(), lasts, holding(t, near))
			tokens := open(t, on(redis, p))
			alone := estimated(t.Context(), lasts, holding(t, tokens))
			requests := open(t, via(tokens, funnel(1000, 1000, time.Second)))
			time.Sleep(time.Minute)
			beside := estimated(t.Context(), lasts, func() (func(int64), bool) {
				out, err := limits.AskAll(t.Context(), 0,
					limits.NewClaim[string](requests, limits.Call[string]{Key: "tenant", N: 1}),
					limits.NewClaim[string](tokens, limits.Call[string]{Key: "tenant", N: 400}))
				assert.NoError(t, err)
				return func(used int64) { assert.NoError(t, out.Settle(context.Background(), 1, used)) }, out.Allowed
			})
			possible := (4000 + int64(1000*lasts.Seconds())) / 40
			t.Logf("%v: %d in process, %d over a fleet, %d beside a limit on requests, %d possible", p, want, alone, beside, possible)
			// Calls of one instant come in any order.
			for _, got := range []int64{alone, beside} {
				assert.GreaterOrEqual(t, got, want*9/10, "%v", p)
				assert.LessOrEqual(t, got, possible+10, "%v", p)
			}
		})
	}
}
