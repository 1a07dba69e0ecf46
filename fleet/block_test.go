package fleet

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/fleet/internal/storetest"
	"github.com/ral-limiter/ral/httplimit"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// blockable are limits of all kinds with the same clock.
func blockable(t testing.TB) []policy.Policy {
	t.Helper()
	log := policy.Must(SlidingLog(5, 3*time.Second))
	return []policy.Policy{
		funnel(5, 2, time.Second), log,
		policy.Must(policy.FixedWindow(5, 2*time.Second)), policy.Must(policy.SlidingWindow(5, 2*time.Second)),
		policy.Must(policy.Queue(3, 2, time.Second)), policy.Must(policy.Bursty(2, time.Second, 3)),
	}
}

// asking are the verbs that ask for a unit of a key, or look at it.
func asking(t *testing.T, l *Limiter, p policy.Policy) map[string]func(key string) (limits.Answer, error) {
	ctx := t.Context()
	acquire := func(n int64, patience time.Duration) func(key string) (limits.Answer, error) {
		return func(key string) (limits.Answer, error) {
			r, err := l.Acquire(ctx, key, n, patience)
			if !r.Allowed && errors.Is(err, engine.ErrDeadline) {
				err = nil
			}
			return r.Answer, err
		}
	}
	besides := 0
	second := func(out limits.Outcome, err error) (limits.Answer, error) {
		besides++
		require.Equal(t, out.Allowed, out.Answers[1].Allowed)
		return out.Answers[1], err
	}
	claim := func(key string) limits.Claim { return limits.NewClaim(l, limits.Call[string]{Key: key, N: 1}) }
	return map[string]func(key string) (limits.Answer, error){
		"Choke": func(key string) (limits.Answer, error) {
			return limits.Answer{Decision: policy.Decision{Allowed: l.Choke(ctx, key)}}, nil
		},
		"Take":            func(key string) (limits.Answer, error) { return l.Take(ctx, key, 1) },
		"TakeWith":        func(key string) (limits.Answer, error) { return l.TakeWith(ctx, p, key, 1) },
		"Take of nothing": func(key string) (limits.Answer, error) { return l.TakeWith(ctx, nil, key, 0) },
		"Peek":            func(key string) (limits.Answer, error) { return l.Peek(ctx, key, 0) },
		"Admit":           func(key string) (limits.Answer, error) { return l.Admit(ctx, key, 1) },
		"Reserve": func(key string) (limits.Answer, error) {
			r, err := l.Reserve(ctx, key, 1, time.Second)
			return r.Answer, err
		},
		"Acquire": acquire(1, 0), "Acquire of nothing": acquire(0, time.Hour),
		"Hold": func(key string) (limits.Answer, error) {
			g, err := l.Hold(ctx, limits.Call[string]{Key: key, N: 1, NoWait: true})
			return g.Answer, err
		},
		"TakeAll": func(key string) (limits.Answer, error) {
			return second(TakeAll(ctx, l.Claim(fmt.Sprint("beside ", besides), 1), l.Claim(key, 1)))
		},
		"AskAll": func(key string) (limits.Answer, error) {
			return second(limits.AskAll(ctx, 0, claim(fmt.Sprint("beside ", besides)), claim(key)))
		},
	}
}

// Promise: In `Exact` mode a block holds everywhere at once.
func TestBlockedKeyIsRefusedByEveryVerbOfTheFleet(t *testing.T) {
	for _, p := range blockable(t) {
		for _, chosen := range []bool{false, true} {
			t.Run(fmt.Sprint(p, " chosen ", chosen), func(t *testing.T) {
				inBubble(t, func(t *testing.T, redis *storetest.Redis) {
					var clock atomic.Int64
					clock.Store(time.Hour.Microseconds())
					c := on(redis, p)
					c.clock = clock.Load
					if chosen {
						c.PolicyFor = func(string) policy.Policy { return p }
					}
					a, b := open(t, c), open(t, c)
					verbs := asking(t, b, p)
					expect := func(allowed bool) {
						t.Helper()
						for name, verb := range verbs {
							got, err := verb("key of " + name)
							require.NoError(t, err, name)
							require.Equal(t, allowed, got.Allowed, name)
						}
					}
					for name, verb := range verbs {
						require.NoError(t, a.Block(t.Context(), "key of "+name, 2*time.Hour))
						got, err := verb("key of " + name)
						require.NoError(t, err, name)
						require.False(t, got.Allowed, name)
						if name != "Choke" {
							assert.Equal(t, policy.Decision{Limit: got.Limit, RetryAfter: 2 * time.Hour, ResetAfter: 2 * time.Hour}, got.Decision, name)
							assert.Equal(t, limits.SourceRedis, got.Source(), name)
							assert.True(t, got.Exact(), name)
							assert.ErrorIs(t, got.Err(), limits.ErrBlocked, name)
						}
						got, err = verb("another key of " + name)
						require.NoError(t, err, name)
						require.True(t, got.Allowed, name)
					}
					clock.Add(2*time.Hour.Microseconds() - 1)
					expect(false)
					clock.Add(1)
					expect(true)
				})
			})
		}
	}
}

// Within a term of Block a server is told, and refuses by itself until another resets the key.
// Promise: In `Leased` mode a block holds everywhere after a term.
func TestBlockHoldsInLeasedModeWithinATerm(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		c := on(redis, funnel(1_000_000, 1_000_000, time.Second))
		c.Mode, c.Term = Leased, 250*time.Millisecond
		a, b := open(t, c), open(t, c)
		verbs := asking(t, b, c.Policy)
		each := func() (admitted int) {
			for _, name := range []string{"Choke", "Take", "Hold", "Acquire"} {
				if must.Get(verbs[name]("k")).Allowed {
					admitted++
				}
			}
			return admitted
		}
		eventually(t, func() bool {
			each()
			return take(t, b, "k", 1).Source() == limits.SourceLease
		}, "a lease")
		require.NoError(t, a.Block(t.Context(), "k", time.Hour))
		made := time.Now()
		var got limits.Answer
		eventually(t, func() bool {
			if begun := time.Now(); each() > 0 {
				require.LessOrEqual(t, begun.Sub(made), c.Term)
			}
			got = take(t, b, "k", 1)
			return errors.Is(got.Err(), limits.ErrBlocked) && time.Since(made) > c.Term
		}, "the block")
		assert.Greater(t, got.RetryAfter, 50*time.Minute)
		assert.False(t, got.Exact())
		look := must.Get(b.Peek(t.Context(), "k", 0))
		assert.False(t, look.Allowed)
		assert.Zero(t, look.Remaining)
		blocked := b.Stats().Blocked
		assert.Positive(t, blocked)
		for range 3 * worth {
			require.False(t, b.Choke(t.Context(), "k"))
		}
		assert.Equal(t, blocked+3*worth, b.Stats().Blocked)
		must.Get(a.Reset(t.Context(), "k"))
		eventually(t, func() bool { return b.Choke(t.Context(), "k") }, "it is lifted")
	})
}

// worth is how many calls a term make a key worth a lease.
const worth = 8

// Blocks hold under every fallback, and outlast Redis and servers. Block without Redis holds here,
// and says so. When Redis is back its word holds.
// Promise: Without Redis servers refuse keys known as blocked.
func TestBlocksHoldWhileRedisIsAway(t *testing.T) {
	for _, f := range fallbacks {
		inBubble(t, func(t *testing.T, redis *storetest.Redis) {
			c := on(redis, funnel(100, 1, time.Hour))
			c.Outage, c.Servers = f.outage, 1
			a, b := open(t, c), open(t, c)
			for key, asked := range map[string]string{"told": "told", "untold": "free"} {
				require.NoError(t, a.Block(t.Context(), key, time.Hour))
				require.Equal(t, limits.SourceRedis, take(t, b, asked, 1).Source())
			}
			redis.Set(gone)
			eventually(t, func() bool { return b.Health() != nil }, "an outage")

			for _, n := range []int64{0, 1, 100, 101} {
				got := take(t, b, "told", n)
				assert.False(t, got.Allowed)
				assert.ErrorIs(t, got.Err(), limits.ErrBlocked)
				assert.ErrorIs(t, got.Err(), ErrOutage)
				assert.Zero(t, got.Remaining)
				assert.Greater(t, got.RetryAfter, 50*time.Minute)
				assert.Equal(t, n > 100, got.RetryAfter == policy.Never)
			}
			assert.Equal(t, f.outage != FallbackClosed, take(t, b, "free", 1).Allowed)
			assert.Equal(t, f.outage != FallbackClosed, take(t, b, "untold", 2).Allowed, "only FallbackClosed must refuse a key of which nothing is known")
			assert.Equal(t, f.outage == FallbackOpen, take(t, b, "untold", 1).Allowed, "only FallbackOpen must admit a second call")
			out := must.Get(TakeAll(t.Context(), b.Claim("free", 1), b.Claim("told", 1)))
			assert.False(t, out.Allowed)
			assert.ErrorIs(t, out.Answers[1].Err(), limits.ErrBlocked)
			assert.NotErrorIs(t, out.Answers[0].Err(), limits.ErrBlocked)
			left, err := b.Blocked(t.Context(), "told")
			assert.ErrorIs(t, err, ErrOutage)
			assert.Greater(t, left, 50*time.Minute)

			require.ErrorIs(t, b.Block(t.Context(), "here", time.Hour), ErrOutage)
			assert.ErrorIs(t, take(t, b, "here", 1).Err(), limits.ErrBlocked)
			_, err = b.Reset(t.Context(), "told")
			require.ErrorIs(t, err, ErrOutage)
			require.ErrorIs(t, a.Block(t.Context(), "untold", 0), ErrOutage)
			for l, key := range map[*Limiter]string{a: "untold", b: "told"} {
				assert.NotErrorIs(t, take(t, l, key, 1).Err(), limits.ErrBlocked, "the block was not lifted on this server")
			}

			redis.Set(well)
			for _, l := range []*Limiter{a, b, open(t, c)} {
				for _, key := range []string{"told", "untold"} {
					eventually(t, func() bool { return take(t, l, key, 1).Source() == limits.SourceRedis }, "Redis is back")
					assert.ErrorIs(t, take(t, l, key, 1).Err(), limits.ErrBlocked, "the block must outlast all of this")
				}
				eventually(t, func() bool { return take(t, l, "here", 1).Allowed }, "Redis knows nothing of it")
			}
		})
	}
}

// A turn that comes during a block goes back, if the server was told of it. A call without the time
// is told at once.
// Promise: Waiting calls continue within a second of a block's end.
func TestCallsWaitForTheEndOfABlock(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		l := open(t, on(redis, funnel(1, 1, time.Second)))
		const d = 1500 * time.Millisecond
		require.NoError(t, l.Wait(t.Context(), "k", 1))
		ends := make(chan error, 2)
		wait := func() { ends <- l.Wait(context.Background(), "k", 1) }
		// The turn of this call is a second after the first call's.
		go wait()
		eventually(t, func() bool { return l.Stats().Admitted == 2 }, "it is promised a turn")
		blocked := time.Now()
		require.NoError(t, l.Block(t.Context(), "k", d))
		go wait()
		for range 2 {
			require.NoError(t, <-ends)
			assert.GreaterOrEqual(t, time.Since(blocked), d)
		}

		require.NoError(t, l.Block(t.Context(), "k", time.Hour))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		soon := l.Wait(ctx, "k", 1)
		require.ErrorIs(t, soon, context.DeadlineExceeded)
		r, err := l.Acquire(t.Context(), "k", 1, time.Minute)
		require.NotErrorIs(t, err, context.DeadlineExceeded)
		_, nothing := l.Acquire(t.Context(), "k", 0, time.Minute)
		for _, err := range []error{soon, err, nothing} {
			require.ErrorIs(t, err, engine.ErrDeadline)
			require.ErrorIs(t, err, limits.ErrBlocked)
			require.ErrorContains(t, err, "the key is blocked for ")
		}
		assert.ErrorIs(t, r.Err(), limits.ErrBlocked)
		assert.Greater(t, r.RetryAfter, 50*time.Minute)
		require.NoError(t, l.Wait(t.Context(), "unblocked", 1))
		_, err = l.Acquire(t.Context(), "unblocked", 1, time.Millisecond)
		require.ErrorIs(t, err, engine.ErrDeadline)
		require.NotErrorIs(t, err, limits.ErrBlocked)

		ctx, leave := context.WithCancel(t.Context())
		go func() { ends <- l.Wait(ctx, "k", 1) }()
		eventually(t, func() bool { return l.Stats().Waiting == 1 }, "it waits")
		leave()
		require.ErrorIs(t, <-ends, engine.ErrCancelled)
	})
}

// Checking whether a block was lifted is not counted.
func TestResetWakesCallsThatWaitForABlock(t *testing.T) {
	for _, mode := range []Mode{Exact, Leased} {
		inBubble(t, func(t *testing.T, redis *storetest.Redis) {
			c := on(redis, funnel(1000, 1000, time.Second))
			c.Mode = mode
			a, b := open(t, c), open(t, c)
			key := "192.0.2.1"
			require.NoError(t, a.Block(t.Context(), key, time.Hour))
			var all sync.WaitGroup
			for _, l := range []*Limiter{a, b} {
				all.Go(func() { assert.NoError(t, l.Wait(context.Background(), key, 1)) })
				all.Go(func() {
					must.Get(l.Acquire(context.Background(), key, 1, 2*time.Hour))
				})
			}
			h := httplimit.Must(httplimit.New(b, byAddr, httplimit.Options{WaitUpTo: 2 * time.Hour})).Handler(nothing)
			all.Go(func() { assert.Equal(t, http.StatusOK, served(t, h, request()).Code) })
			eventually(t, func() bool { return a.Stats().Waiting == 2 && b.Stats().Waiting == 3 }, "they wait")
			eventually(t, func() bool { return b.Stats().Blocked == 3 }, "all are refused")
			if mode == Exact {
				must.Get(a.Reset(t.Context(), key))
			} else {
				require.NoError(t, a.Block(t.Context(), key, 0))
			}
			all.Wait()
			assert.LessOrEqual(t, a.Stats().Blocked+b.Stats().Blocked, uint64(5*3), "looks must not be counted")
		})
	}
}

func TestChargeTakesWhateverTheLimitSays(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		c := on(redis, funnel(10, 1, time.Hour))
		c.Outage = FallbackClosed
		l := open(t, c)
		charge := func(n int64) { require.NoError(t, l.Charge(t.Context(), "k", n)) }
		charge(4)
		assert.Equal(t, int64(6), take(t, l, "k", 0).Remaining)
		charge(-3)
		charge(0)
		assert.Equal(t, int64(9), take(t, l, "k", 0).Remaining)
		charge(12)
		assert.Greater(t, take(t, l, "k", 1).RetryAfter, 3*time.Hour, "the key must owe more than its limit")
		charge(-10)
		require.NoError(t, l.Block(t.Context(), "k", time.Hour))
		charge(2)
		require.NoError(t, l.Block(t.Context(), "k", 0))
		assert.Equal(t, int64(5), take(t, l, "k", 0).Remaining)
		charge(math.MinInt64)
		assert.Equal(t, int64(10), take(t, l, "k", 0).Remaining)
		require.ErrorIs(t, l.Charge(t.Context(), string(make([]byte, 1<<17)), 1), ErrKeyTooLong)

		redis.Set(gone)
		eventually(t, func() bool { return errors.Is(l.Health(), ErrOutage) }, "an outage")
		require.ErrorIs(t, l.Charge(t.Context(), "k", 1), ErrOutage, "a charge that counts nowhere must be an error")
	})
}

func TestBlocksAreChecked(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		l := open(t, on(redis, funnel(2, 1, time.Hour)))
		for _, d := range []time.Duration{-1, 4*365*24*time.Hour + 1} {
			require.Equal(t, &policy.FieldError{Of: "fleet.Block", Field: "d", Value: d, Want: "0 to 35040h0m0s"}, l.Block(t.Context(), "k", d))
		}
		c := on(redis, funnel(2, 1, time.Hour))
		c.clock = func() int64 { return (9*365*24*time.Hour + 3*24*time.Hour).Microseconds() }
		last := open(t, c)
		// The first call changes nothing.
		for range 2 {
			require.ErrorContains(t, last.Block(t.Context(), "k", 2*365*24*time.Hour), "d is 17520h0m0s, want a time before the end of blocks")
			require.Zero(t, must.Get(last.Blocked(t.Context(), "k")))
		}
		require.Zero(t, last.Stats().Blocks)
		long := string(make([]byte, 1<<17))
		require.ErrorIs(t, l.Block(t.Context(), long, 0), ErrKeyTooLong)
		_, err := l.Blocked(t.Context(), long)
		require.ErrorIs(t, err, ErrKeyTooLong)
		require.NoError(t, l.Close())
		require.ErrorIs(t, l.Block(t.Context(), "k", 1), engine.ErrClosed)
		_, err = l.Blocked(t.Context(), "k")
		require.ErrorIs(t, err, engine.ErrClosed)
	})
}
