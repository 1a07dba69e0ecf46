package fleet

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/fleet/internal/redistest"
	"github.com/ral-limiter/ral/fleet/internal/storetest"
	"github.com/ral-limiter/ral/httplimit"
	"github.com/ral-limiter/ral/internal/testkit/limitstest"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// Promise: A fleet's limiter keeps `limits.Limiter`'s contract.
func TestFleetKeepsTheLimiterContract(t *testing.T) {
	// In both modes Redis decides a key with few calls.
	for name, mode := range map[string]Mode{"exact": Exact, "leased": Leased} {
		for _, c := range limitstest.Cases {
			t.Run(name+"/"+c.Name, func(t *testing.T) {
				inBubble(t, func(t *testing.T, redis *storetest.Redis) {
					s := limitstest.Subject{Source: limits.SourceRedis, Promised: mode == Exact, Turns: mode == Exact}
					s.New = func(t *testing.T, p policy.Policy) limits.Limiter[string] {
						c := on(redis, p)
						c.Mode = mode
						return open(t, c)
					}
					c.Run(t, s)
				})
			})
		}
	}
}

func twoOfOneRedis(t *testing.T, redis *storetest.Redis, p, q policy.Policy) (a, b *Limiter) {
	t.Helper()
	a = open(t, on(redis, p))
	return a, open(t, via(a, q))
}

// Promise: A refusal by a limit costs other limits nothing.
func TestRefusedCallsOnTwoLimitsCostNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		requests, tokens := twoOfOneRedis(t, redis, funnel(1000, 1, time.Hour), funnel(150, 1, time.Hour))
		const callers, calls = 16, 25
		before := requests.Stats().RoundTrips + tokens.Stats().RoundTrips
		var admitted atomic.Int64
		var all sync.WaitGroup
		for range callers {
			all.Go(func() {
				for range calls {
					out := must.Get(limits.AskAll(t.Context(), 0,
						limits.NewClaim(requests, limits.Call[string]{Key: "a", N: 1}),
						limits.NewClaim(tokens, limits.Call[string]{Key: "a", N: 3})))
					if out.Allowed {
						admitted.Add(1)
					}
				}
			})
		}
		all.Wait()
		assert.Equal(t, int64(50), admitted.Load())
		assert.Equal(t, int64(950), take(t, requests, "a", 0).Remaining)
		assert.Equal(t, int64(0), take(t, tokens, "a", 0).Remaining)
		// One exchange a call, besides the servers' heartbeats.
		assert.Less(t, requests.Stats().RoundTrips+tokens.Stats().RoundTrips-before, uint64(callers*calls*3/2))
	})
}

func TestGrantsOfOneExchangeAreSettledAlone(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		requests, tokens := twoOfOneRedis(t, redis, window(10, time.Hour), window(100, time.Hour))
		out := must.Get(limits.AskAll(t.Context(), 0,
			limits.NewClaim(requests, limits.Call[string]{Key: "a", N: 2}),
			limits.NewClaim(tokens, limits.Call[string]{Key: "a", N: 30})))
		require.True(t, out.Allowed)
		require.NoError(t, out.Settle(t.Context(), 1, 45))
		assert.Equal(t, int64(9), take(t, requests, "a", 0).Remaining)
		assert.Equal(t, int64(55), take(t, tokens, "a", 0).Remaining)

		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := limits.AskAll(ctx, 0,
			limits.NewClaim(requests, limits.Call[string]{Key: "a", N: 2}),
			limits.NewClaim(tokens, limits.Call[string]{Key: "a", N: 30}))
		assert.ErrorIs(t, err, engine.ErrCancelled)
		assert.Equal(t, int64(9), take(t, requests, "a", 0).Remaining)
	})
}

// Promise: Taken units are returned although the context ended.
func TestGivesBackAfterContext(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		p := policy.Must(policy.FixedWindow(5, 24*time.Hour))
		first, second := open(t, on(redis, p)), open(t, on(redis, p))
		ctx, cancel := context.WithCancel(t.Context())
		out, err := limits.AskAll(ctx, 0,
			limits.NewClaim(first, limits.Call[string]{Key: "key", N: 2}),
			limits.NewClaim(ending{second, cancel}, limits.Call[string]{Key: "key", N: 2}))
		assert.ErrorIs(t, err, context.Canceled)
		assert.False(t, out.Allowed)
		assert.Equal(t, int64(5), take(t, first, "key", 0).Remaining)
		assert.Equal(t, int64(5), take(t, second, "key", 0).Remaining)
	})
}

type ending struct {
	*Limiter
	cancel func()
}

func (e ending) Hold(ctx context.Context, call limits.Call[string]) (limits.Grant, error) {
	e.cancel()
	return e.Limiter.Hold(ctx, call)
}

// Units of long ago, or of a lease, come back only as far as they still count.
func TestUnitsThatStillCountAreSettled(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		for _, mode := range []Mode{Exact, Leased} {
			c := on(redis, funnel(1000, 1000, time.Minute))
			c.Mode = mode
			drains := &granted{began: time.Now().Add(-600 * time.Millisecond)}
			drains.ask.terms = open(t, c).own.Load()
			assert.LessOrEqual(t, drains.counting(15), int64(5), "10 units must have drained")
			assert.Zero(t, drains.counting(5))
			c = on(redis, policy.Must(policy.FixedWindow(100, time.Minute)))
			c.Mode = mode
			counts := &granted{began: time.Now()}
			counts.ask.terms = open(t, c).own.Load()
			counts.Answer.ResetAfter = time.Hour
			assert.Equal(t, int64(15), counts.counting(15))
			counts.began = counts.began.Add(-time.Minute)
			assert.Zero(t, counts.counting(15), "no unit must count, as the window is over")
		}
	})
}

func TestHoldAfterItsContextEnds(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		c := on(redis, policy.Must(policy.FixedWindow(5, 24*time.Hour)))
		c.Budget = time.Second
		l := open(t, c)
		require.True(t, take(t, l, "key", 1).Allowed)
		redis.Set(redistest.Weather{Answers: 100 * time.Millisecond})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		g, err := l.Hold(ctx, limits.Call[string]{Key: "key", N: 3})
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.False(t, g.Allowed)
		assert.Equal(t, int64(4), take(t, l, "key", 0).Remaining)
	})
}

func TestHoldInACrowd(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		c := on(redis, funnel(1, 1, time.Hour))
		c.MaxWaiting = 1
		l := open(t, c)
		_ = take(t, l, "key", 1)
		ctx, cancel := context.WithCancel(t.Context())
		call := limits.Call[string]{Key: "key", N: 1, Patience: 3 * time.Hour}
		ended := make(chan error)
		go func() {
			_, err := l.Hold(ctx, call)
			ended <- err
		}()
		eventually(t, func() bool { return l.Stats().Waiting == 1 }, "the call waits")
		g := must.Get(l.Hold(t.Context(), call))
		assert.False(t, g.Allowed)
		assert.ErrorIs(t, g.Err(), engine.ErrCrowded)
		assert.Greater(t, g.RetryAfter, time.Minute)
		cancel()
		assert.ErrorIs(t, <-ended, context.Canceled)
		assert.Zero(t, l.Stats().Waiting)
	})
}

func TestSettlesUnderTheLimitOfTheTake(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		fast, slow := funnel(20, 1000, time.Hour), funnel(20, 500, time.Hour)
		var now atomic.Pointer[policy.Policy]
		now.Store(&fast)
		c := on(redis, fast)
		c.PolicyFor = func(string) policy.Policy { return *now.Load() }
		l := open(t, c)
		for _, used := range []int64{1, 12} {
			now.Store(&fast)
			key, oracle := fmt.Sprint("key", used), fmt.Sprint("oracle", used)
			g := must.Get(l.Hold(t.Context(), limits.Call[string]{Key: key, N: 8}))
			require.True(t, g.Allowed)
			require.True(t, take(t, l, key, 8).Allowed)
			require.True(t, take(t, l, oracle, 8).Allowed)
			must.Get(l.Refund(t.Context(), oracle, -used))
			now.Store(&slow)
			require.NoError(t, g.Settle(t.Context(), used))
			assert.InDelta(t, take(t, l, oracle, 0).Remaining, take(t, l, key, 0).Remaining, 1)
		}
	})
}

// Redis gives back a share's units only once charged: before, it would give back others' units.
func TestUnitsOfAShareAreSettled(t *testing.T) {
	for _, charged := range []bool{false, true} {
		t.Run(fmt.Sprint("charged ", charged), func(t *testing.T) {
			inBubble(t, func(t *testing.T, redis *storetest.Redis) {
				ended, goOn := make(chan struct{}), make(chan struct{})
				c := on(redis, funnel(20, 1, time.Hour))
				c.Servers = 1
				c.OnEvent = func(e Event) {
					// The keeper, which charges, waits.
					if e.Kind == OutageEnded {
						close(ended)
						<-goOn
					}
				}
				l := open(t, c)
				require.True(t, take(t, l, "a", 7).Allowed)
				redis.Set(gone)
				eventually(t, func() bool { return l.Health() != nil }, "an outage")
				g := must.Get(l.Hold(t.Context(), limits.Call[string]{Key: "a", N: 10}))
				require.True(t, g.Allowed)
				require.Equal(t, limits.SourceShare, g.Source())
				require.True(t, take(t, l, "a", 1).Allowed, "the call that keeps the key busy was refused")
				redis.Set(well)
				<-ended
				charge := func() {
					close(goOn)
					eventually(t, func() bool { return l.Stats().Charged != 0 }, "it is charged")
				}
				if charged {
					charge()
				}
				require.NoError(t, g.Settle(t.Context(), 4))
				if !charged {
					assert.Equal(t, int64(13), inRedis(t, l, "a"), "Redis must know the 7 units of its own count, and nothing else")
					charge()
				}
				assert.Contains(t, []int64{20 - 7 - 4 - 1, 20 - 7 - 4 - 1 - 1}, inRedis(t, l, "a"), "7 and 4 units must be used, of which one may have drained meanwhile")
			})
		})
	}
}

var byAddr = httplimit.ByString(httplimit.ByAddr)

func served(t *testing.T, h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func request(fields ...string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	for i := 0; i < len(fields); i += 2 {
		r.Header.Set(fields[i], fields[i+1])
	}
	return r
}

var nothing = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})

// Promise: An outage that refuses is 503, not 429.
func TestOutageInWebServer(t *testing.T) {
	for outage, want := range map[Fallback][]int{
		FallbackClosed: {503, 503, 503, 503}, FallbackShare: {200, 200, 429, 429}, FallbackOpen: {200, 200, 200, 200},
	} {
		inBubble(t, func(t *testing.T, redis *storetest.Redis) {
			c := on(redis, policy.Must(policy.FixedWindow(4, 24*time.Hour)))
			c.Outage, c.Servers = outage, 2
			l := open(t, c)
			h := httplimit.Must(httplimit.New(l, byAddr, httplimit.Options{})).Handler(nothing)
			// The share of a key that this server does not know may be used up.
			require.True(t, take(t, l, "192.0.2.1", 0).Allowed)
			redis.Set(gone)
			for i, code := range want {
				w := served(t, h, request())
				assert.Equal(t, code, w.Code, "%v, %d", outage, i)
				assert.NotContains(t, w.Header(), "Ratelimit")
				assert.Equal(t, code == 429, w.Header().Get("Retry-After") != "", "a 429 must have a Retry-After, which is a guess")
				if code >= 429 {
					assert.Contains(t, w.Body.String(), "#temporary-reduced-capacity")
				}
			}
		})
	}
}

// A request waits for Redis for its budget, and for another if it is settled.
// Promise: Web servers keep time budgets while Redis dies and returns.
func TestRequestsWaitNoLongerThanTheirBudgets(t *testing.T) {
	for _, mode := range []Mode{Exact, Leased} {
		for _, f := range fallbacks {
			t.Run(fmt.Sprint(mode, f.source), func(t *testing.T) {
				inBubble(t, func(t *testing.T, redis *storetest.Redis) {
					c := on(redis, policy.Must(policy.FixedWindow(1_000_000, 24*time.Hour)))
					c.Mode, c.Outage, c.Servers = mode, f.outage, 2
					l := open(t, c)
					h := httplimit.Must(httplimit.New(l, byAddr, httplimit.Options{Charge: func(*http.Request, httplimit.Served) int64 { return 0 }})).Handler(nothing)
					for _, fault := range faults {
						answered := func() bool { return l.Health() == nil && served(t, h, request()).Code == http.StatusOK }
						eventually(t, answered, "well")
						for _, w := range fault.weather {
							redis.Set(w)
						}
						for range 100 {
							begun := time.Now()
							served(t, h, request())
							require.LessOrEqual(t, time.Since(begun), 2*defaultBudget, fault.name)
						}
						redis.Set(well)
					}
				})
			})
		}
	}
}

// Promise: A process dying between claims leaves at most units of unfinished calls.
func TestProcessDiesBetweenClaims(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		const capacity, before, after = 100, 5, 7
		c := on(redis, policy.Must(policy.FixedWindow(capacity, 24*time.Hour)))
		first, second := open(t, c), open(t, on(redis, c.Policy))
		dies := make(chan struct{})
		var all sync.WaitGroup
		for i := range before + after {
			all.Go(func() {
				_, _ = limits.AskAll(t.Context(), 0,
					limits.NewClaim(stuck{first, i < before, dies}, limits.Call[string]{Key: "tenant", N: 1}),
					limits.NewClaim(stuck{second, true, dies}, limits.Call[string]{Key: "address", N: 1}))
			})
		}
		synctest.Wait()
		assert.Equal(t, int64(capacity-after), take(t, open(t, c), "tenant", 0).Remaining)
		close(dies)
		all.Wait()
	})
}

// stuck is a limiter whose calls stop before or after they asked Redis.
type stuck struct {
	*Limiter
	before bool
	dies   <-chan struct{}
}

func (s stuck) Hold(ctx context.Context, call limits.Call[string]) (limits.Grant, error) {
	if s.before {
		<-s.dies
	}
	g, err := s.Limiter.Hold(ctx, call)
	<-s.dies
	return g, err
}

// A hundred requests of a key come at once while Redis is away, and come back twice when told. Each
// is told a turn by the pace of this server's share, and none fails; without turns most do.
// Promise: In an outage refused requests are told turns of the server's share.
func TestHerdInAnOutage(t *testing.T) {
	for _, spread := range []time.Duration{0, time.Minute} {
		for _, p := range []policy.Policy{policy.Must(policy.FixedWindow(10, time.Second)), policy.Must(policy.SlidingWindow(10, time.Second)), funnel(2, 2, time.Second)} {
			inBubble(t, func(t *testing.T, redis *storetest.Redis) {
				c := on(redis, p)
				// The other server does not run.
				c.Servers = 2
				l := open(t, c)
				h := httplimit.Must(httplimit.New(l, byAddr, httplimit.Options{Spread: spread})).Handler(nothing)
				require.True(t, take(t, l, "192.0.2.1", 0).Allowed)
				redis.Set(gone)
				time.Sleep(beat)
				var failed atomic.Int64
				var herd sync.WaitGroup
				for range 100 {
					herd.Go(func() {
						for try := 0; ; try++ {
							w := served(t, h, request())
							if w.Code == 200 {
								return
							}
							if try == 2 {
								failed.Add(1)
								return
							}
							time.Sleep(time.Duration(must.Get(strconv.Atoi(w.Header().Get("Retry-After")))) * time.Second)
						}
					})
				}
				herd.Wait()
				t.Logf("%v, spread over %v: %d of 100 fail", p, spread, failed.Load())
				if spread == 0 {
					assert.Greater(t, failed.Load(), int64(50), "%v", p)
				} else {
					assert.Zero(t, failed.Load(), "%v", p)
				}
			})
		}
	}
}
