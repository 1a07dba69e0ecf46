package fleet

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/fleet/internal/storetest"
	"github.com/ral-limiter/ral/httplimit"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// blockable are limits of all kinds with the same clock.
func blockable(t testing.TB) []policy.Policy {
	t.Helper()
	log, err := SlidingLog(5, 3*time.Second)
	require.NoError(t, err)
	return []policy.Policy{
		funnel(5, 2, time.Second), log,
		policy.Must(policy.FixedWindow(5, 2*time.Second)), policy.Must(policy.SlidingWindow(5, 2*time.Second)),
		policy.Must(policy.Queue(3, 2, time.Second)), policy.Must(policy.Bursty(2, time.Second, 3)),
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
					besides := 0
					beside := func() string { besides++; return fmt.Sprint("beside ", besides) }
					verbs := map[string]func(key string) (limits.Answer, error){
						"Choke": func(key string) (limits.Answer, error) {
							return limits.Answer{Decision: policy.Decision{Allowed: b.Choke(t.Context(), key)}}, nil
						},
						"Take":     func(key string) (limits.Answer, error) { return b.Take(t.Context(), key, 1) },
						"TakeWith": func(key string) (limits.Answer, error) { return b.TakeWith(t.Context(), p, key, 1) },
						"Peek":     func(key string) (limits.Answer, error) { return b.Peek(t.Context(), key, 0) },
						"Take of nothing": func(key string) (limits.Answer, error) {
							return b.TakeWith(t.Context(), nil, key, 0)
						},
						"Reserve": func(key string) (limits.Answer, error) {
							r, err := b.Reserve(t.Context(), key, 1, time.Second)
							return r.Answer, err
						},
						"Acquire": func(key string) (limits.Answer, error) {
							r, err := b.Acquire(t.Context(), key, 1, 0)
							if !r.Allowed {
								require.ErrorIs(t, err, engine.ErrDeadline)
								err = nil
							}
							return r.Answer, err
						},
						"Acquire of nothing": func(key string) (limits.Answer, error) {
							r, err := b.Acquire(t.Context(), key, 0, time.Hour)
							if !r.Allowed {
								require.ErrorIs(t, err, engine.ErrDeadline)
								err = nil
							}
							return r.Answer, err
						},
						"Hold": func(key string) (limits.Answer, error) {
							g, err := b.Hold(t.Context(), limits.Call[string]{Key: key, N: 1, NoWait: true})
							return g.Answer, err
						},
						"Ask": func(key string) (limits.Answer, error) {
							a, err := b.Ask(t.Context(), key, 1)
							return a, err
						},
						"TakeAll": func(key string) (limits.Answer, error) {
							out, err := TakeAll(t.Context(), b.Claim(beside(), 1), b.Claim(key, 1))
							require.Equal(t, out.Allowed, out.Answers[1].Allowed)
							return out.Answers[1], err
						},
						"AskAll": func(key string) (limits.Answer, error) {
							out, err := limits.AskAll(t.Context(), 0, limits.NewClaim(b, limits.Call[string]{Key: beside(), N: 1}), limits.NewClaim(b, limits.Call[string]{Key: key, N: 1}))
							a := out.Answers[1]
							require.Equal(t, out.Allowed, a.Allowed)
							return a, err
						},
					}
					for name, verb := range verbs {
						key := "key of " + name
						require.NoError(t, a.Block(t.Context(), key, 2*time.Hour))
						got, err := verb(key)
						require.NoError(t, err, name)
						require.False(t, got.Allowed, name)
						if name != "Choke" {
							assert.Equal(t, policy.Decision{Limit: got.Limit, RetryAfter: 2 * time.Hour, ResetAfter: 2 * time.Hour}, got.Decision, name)
							assert.Equal(t, limits.SourceRedis, got.Source(), name)
							assert.True(t, got.Exact(), name)
							assert.ErrorIs(t, got.Err(), limits.ErrBlocked, name)
						}
						got, err = verb(key + " or another")
						require.NoError(t, err, name)
						require.True(t, got.Allowed, name)
					}
					clock.Add(2*time.Hour.Microseconds() - 1)
					for name, verb := range verbs {
						got, err := verb("key of " + name)
						require.NoError(t, err, name)
						require.False(t, got.Allowed, name)
					}
					clock.Add(1)
					for name, verb := range verbs {
						got, err := verb("key of " + name)
						require.NoError(t, err, name)
						require.True(t, got.Allowed, name)
					}
				})
			})
		}
	}
}

// Within a term of Block a server is told, and refuses by itself until another resets the key.
//
// Promise: In `Leased` mode a block holds everywhere after a term.
func TestBlockHoldsInLeasedModeWithinATerm(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		c := on(redis, funnel(1_000_000, 1_000_000, time.Second))
		c.Mode, c.Term = Leased, 250*time.Millisecond
		a, b := open(t, c), open(t, c)
		verbs := []func() (allowed bool){
			func() bool { return b.Choke(t.Context(), "k") },
			func() bool { return take(t, b, "k", 1).Allowed },
			func() bool {
				g, err := b.Hold(t.Context(), limits.Call[string]{Key: "k", N: 1, NoWait: true})
				require.NoError(t, err)
				return g.Allowed
			},
			func() bool {
				r, _ := b.Acquire(t.Context(), "k", 1, 0)
				return r.Allowed
			},
		}
		eventually(t, func() bool {
			for _, verb := range verbs {
				verb()
			}
			return take(t, b, "k", 1).Source() == limits.SourceLease
		}, "a lease")
		require.NoError(t, a.Block(t.Context(), "k", time.Hour))
		made := time.Now()
		var got limits.Answer
		eventually(t, func() bool {
			for _, verb := range verbs {
				begun := time.Now()
				if allowed := verb(); begun.Sub(made) > c.Term {
					require.False(t, allowed)
				}
			}
			got = take(t, b, "k", 1)
			return errors.Is(got.Err(), limits.ErrBlocked) && time.Since(made) > c.Term
		}, "the block")
		assert.Greater(t, got.RetryAfter, 50*time.Minute)
		assert.False(t, got.Exact())
		look, err := b.Peek(t.Context(), "k", 0)
		require.NoError(t, err)
		assert.False(t, look.Allowed)
		assert.Zero(t, look.Remaining)
		blocked := b.Stats().Blocked
		assert.Positive(t, blocked)
		for range 3 * worth {
			require.False(t, b.Choke(t.Context(), "k"))
		}
		assert.Equal(t, blocked+3*worth, b.Stats().Blocked)
		_, err = a.Reset(t.Context(), "k")
		require.NoError(t, err)
		eventually(t, func() bool { return b.Choke(t.Context(), "k") }, "it is lifted")
	})
}

// worth is how many calls a term make a key worth a lease.
const worth = 8

// Blocks hold under every fallback, and outlast Redis and servers. Block without Redis holds here,
// and says so. When Redis is back its word holds.
//
// Promise: Without Redis servers refuse keys known as blocked.
func TestBlocksHoldWhileRedisIsAway(t *testing.T) {
	for _, outage := range []Fallback{FallbackShare, FallbackOpen, FallbackClosed} {
		t.Run(fmt.Sprint(outage), func(t *testing.T) {
			inBubble(t, func(t *testing.T, redis *storetest.Redis) {
				c := on(redis, funnel(100, 1, time.Hour))
				c.Outage, c.Servers = outage, 1
				a, b := open(t, c), open(t, c)
				eventually(t, func() bool { return a.Block(t.Context(), "told", time.Hour) == nil }, "a block")
				eventually(t, func() bool { return take(t, b, "told", 1).Source() == limits.SourceRedis }, "it is told")
				eventually(t, func() bool { return a.Block(t.Context(), "untold", time.Hour) == nil }, "another")
				eventually(t, func() bool { return take(t, b, "free", 1).Source() == limits.SourceRedis }, "another key")
				redis.Set(gone)
				eventually(t, func() bool { return b.Health() != nil }, "an outage")

				passes := outage != FallbackClosed
				for _, n := range []int64{0, 1, 100, 101} {
					got := take(t, b, "told", n)
					assert.False(t, got.Allowed)
					assert.ErrorIs(t, got.Err(), limits.ErrBlocked)
					assert.ErrorIs(t, got.Err(), ErrOutage)
					assert.Zero(t, got.Remaining)
					assert.Greater(t, got.RetryAfter, 50*time.Minute)
					assert.Equal(t, n > 100, got.RetryAfter == policy.Never)
				}
				assert.Equal(t, passes, take(t, b, "free", 1).Allowed)
				assert.Equal(t, passes && outage == FallbackOpen, take(t, b, "untold", 2).Allowed, "nothing is known of it")
				out, err := TakeAll(t.Context(), b.Claim("free", 1), b.Claim("told", 1))
				require.NoError(t, err)
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
				assert.NotErrorIs(t, take(t, b, "told", 1).Err(), limits.ErrBlocked)

				redis.Set(well)
				fresh := open(t, c)
				for _, l := range []*Limiter{b, fresh} {
					for _, key := range []string{"told", "untold"} {
						eventually(t, func() bool { return take(t, l, key, 1).Source() == limits.SourceRedis }, "Redis is back")
						assert.ErrorIs(t, take(t, l, key, 1).Err(), limits.ErrBlocked, "the block outlasts all")
					}
					eventually(t, func() bool { return take(t, l, "here", 1).Allowed }, "Redis knows nothing of it")
				}
			})
		})
	}
}

// A turn that comes during a block goes back, if the server was told of it. A call without the time
// is told at once.
//
// Promise: Waiting calls continue within a second of a block's end.
func TestCallsWaitForTheEndOfABlock(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		l := open(t, on(redis, funnel(1, 1, time.Second)))
		const d = 1500 * time.Millisecond
		require.NoError(t, l.Wait(t.Context(), "k", 1))
		ends := make(chan error, 2)
		wait := func() { ends <- l.Wait(context.Background(), "k", 1) }
		go wait() // its turn is a second after that of the first
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
		err := l.Wait(ctx, "k", 1)
		require.ErrorIs(t, err, engine.ErrDeadline)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, limits.ErrBlocked)
		require.ErrorContains(t, err, "the key is blocked for ")
		r, err := l.Acquire(t.Context(), "k", 1, time.Minute)
		require.ErrorIs(t, err, engine.ErrDeadline)
		require.ErrorIs(t, err, limits.ErrBlocked)
		require.ErrorContains(t, err, "the key is blocked for ")
		require.NotErrorIs(t, err, context.DeadlineExceeded)
		_, err = l.Acquire(t.Context(), "k", 0, time.Minute)
		require.ErrorIs(t, err, engine.ErrDeadline)
		require.ErrorIs(t, err, limits.ErrBlocked)
		_, err = l.Acquire(t.Context(), "unblocked", 1, 0)
		require.NoError(t, err)
		_, err = l.Acquire(t.Context(), "unblocked", 1, time.Millisecond)
		require.ErrorIs(t, err, engine.ErrDeadline)
		require.NotErrorIs(t, err, limits.ErrBlocked)
		assert.ErrorIs(t, r.Err(), limits.ErrBlocked)
		assert.Greater(t, r.RetryAfter, 50*time.Minute)
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
			ends := make(chan error, 5)
			for _, l := range []*Limiter{a, b} {
				go func() { ends <- l.Wait(context.Background(), key, 1) }()
				go func() {
					_, err := l.Acquire(context.Background(), key, 1, 2*time.Hour)
					ends <- err
				}()
			}
			h := httplimit.Must(httplimit.New(b, byAddr, httplimit.Options{WaitUpTo: 2 * time.Hour})).Handler(nothing)
			go func() {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, request())
				if w.Code != http.StatusOK {
					ends <- fmt.Errorf("answered %d", w.Code)
					return
				}
				ends <- nil
			}()
			eventually(t, func() bool { return a.Stats().Waiting == 2 && b.Stats().Waiting == 3 }, "they wait")
			eventually(t, func() bool { return b.Stats().Blocked == 3 }, "all are refused")
			if mode == Exact {
				_, err := a.Reset(t.Context(), key)
				require.NoError(t, err)
			} else {
				require.NoError(t, a.Block(t.Context(), key, 0))
			}
			for range 5 {
				require.NoError(t, <-ends)
			}
			assert.LessOrEqual(t, a.Stats().Blocked+b.Stats().Blocked, uint64(5*3), "looks are not counted")
		})
	}
}

func TestCallsThatWaitForABlockEnd(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		c := on(redis, funnel(1, 1, time.Second))
		l, err := New(c)
		require.NoError(t, err)
		eventually(t, func() bool { return l.Block(t.Context(), "k", time.Hour) == nil }, "a block")
		ctx, cancel := context.WithCancel(t.Context())
		ends := make(chan error, 2)
		wait := func(ctx context.Context) { ends <- l.Wait(ctx, "k", 1) }
		go wait(ctx)
		go wait(context.Background())
		eventually(t, func() bool { return l.Stats().Blocked == 2 }, "both wait")
		cancel()
		require.ErrorIs(t, <-ends, engine.ErrCancelled)
		require.NoError(t, l.Close())
		require.ErrorIs(t, <-ends, engine.ErrClosed)
	})
}

// A Block of 0 keeps the used units. Without Redis it lifts the block of its own server.
func TestBlockOfZeroLiftsABlockAlone(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		c := on(redis, funnel(10, 1, time.Hour))
		c.Penalty = engine.Penalty{Refusals: 2, Within: time.Hour, For: time.Minute, Max: time.Hour}
		a, b := open(t, c), open(t, c)
		lift := func() { require.NoError(t, b.Block(t.Context(), "k", 0)) }
		lift()
		require.True(t, take(t, a, "k", 7).Allowed)
		require.NoError(t, a.Block(t.Context(), "k", time.Hour))
		require.ErrorIs(t, take(t, b, "k", 1).Err(), limits.ErrBlocked)
		lift()
		for _, l := range []*Limiter{a, b} {
			assert.Equal(t, int64(3), take(t, l, "k", 0).Remaining, "what it has used goes on counting")
			left, err := l.Blocked(t.Context(), "k")
			require.NoError(t, err)
			assert.Zero(t, left)
		}
		require.True(t, take(t, b, "k", 3).Allowed)
		for range 2 { // each time it takes two refusals, and the first block's length
			require.NotErrorIs(t, take(t, a, "k", 1).Err(), limits.ErrBlocked)
			take(t, b, "k", 1)
			left, err := a.Blocked(t.Context(), "k")
			require.NoError(t, err)
			assert.InDelta(t, 60, left.Seconds(), 59)
			lift()
		}
		require.ErrorIs(t, a.Block(t.Context(), string(make([]byte, 1<<17)), 0), ErrKeyTooLong)

		require.NoError(t, a.Block(t.Context(), "k", time.Hour))
		redis.Set(gone)
		eventually(t, func() bool { return errors.Is(a.Health(), ErrOutage) }, "an outage")
		require.ErrorIs(t, take(t, a, "k", 1).Err(), limits.ErrBlocked)
		require.ErrorIs(t, a.Block(t.Context(), "k", 0), ErrOutage)
		assert.NotErrorIs(t, take(t, a, "k", 1).Err(), limits.ErrBlocked)
	})
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
		assert.Greater(t, take(t, l, "k", 1).RetryAfter, 3*time.Hour, "it owes more than its limit")
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
		require.ErrorIs(t, l.Charge(t.Context(), "k", 1), ErrOutage, "it counts nowhere")
	})
}

func TestBlockAndPenaltyAreChecked(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		l := open(t, on(redis, funnel(2, 1, time.Hour)))
		for _, d := range []time.Duration{-1, 4*365*24*time.Hour + 1} {
			err := l.Block(t.Context(), "k", d)
			field := &policy.FieldError{}
			require.ErrorAs(t, err, &field)
			assert.Equal(t, policy.FieldError{Of: "fleet.Block", Field: "d", Value: d, Want: "0 to 35040h0m0s"}, *field)
		}
		require.ErrorIs(t, l.Block(t.Context(), string(make([]byte, 1<<17)), 1), ErrKeyTooLong)
		_, err := l.Blocked(t.Context(), string(make([]byte, 1<<17)))
		require.ErrorIs(t, err, ErrKeyTooLong)

		good := engine.Penalty{Refusals: 3, Within: time.Minute, For: time.Minute}
		for field, bad := range map[string]func(*Config){
			"Penalty.Refusals": func(c *Config) { c.Penalty.Refusals = 1025 },
			"Penalty.Within":   func(c *Config) { c.Penalty.Within = -1 },
			"Penalty.For":      func(c *Config) { c.Penalty.For = 0 },
			"Penalty.Max":      func(c *Config) { c.Penalty.Max = time.Second },
			"Penalty.Forget":   func(c *Config) { c.Penalty.Forget = time.Second },
			"Penalty":          func(c *Config) { c.Mode = Leased },
		} {
			c := on(redis, funnel(1000, 1000, time.Second))
			c.Penalty = good
			bad(&c)
			_, err := New(c)
			found := &policy.FieldError{}
			require.ErrorAs(t, err, &found)
			assert.Equal(t, field, found.Field)
			assert.Equal(t, "fleet.Config", found.Of)
			assert.NotEmpty(t, found.Want)
		}
		require.NoError(t, l.Close())
		require.ErrorIs(t, l.Block(t.Context(), "k", 1), engine.ErrClosed)
		_, err = l.Blocked(t.Context(), "k")
		require.ErrorIs(t, err, engine.ErrClosed)
	})
}
