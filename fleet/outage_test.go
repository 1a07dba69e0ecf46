package fleet

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/fleet/internal/redistest"
	"github.com/ral-limiter/ral/fleet/internal/share"
	"github.com/ral-limiter/ral/fleet/internal/store"
	"github.com/ral-limiter/ral/fleet/internal/storetest"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

var fallbacks = []struct {
	outage Fallback
	source limits.Source
}{{FallbackShare, limits.SourceShare}, {FallbackOpen, limits.SourceOpen}, {FallbackClosed, limits.SourceClosed}}

// Promise: Without Redis the chosen fallback answers, and says so.
func TestOutageIsAnsweredByTheFallback(t *testing.T) {
	for _, f := range fallbacks {
		t.Run(f.source.String(), func(t *testing.T) {
			inBubble(t, func(t *testing.T, redis *storetest.Redis) {
				var events log
				c := on(redis, funnel(10, 1, time.Hour))
				c.Outage, c.OnEvent = f.outage, events.add
				l := open(t, c)
				require.Equal(t, limits.SourceRedis, take(t, l, canary, 4).Source())
				for _, key := range []string{"b", "c", "d"} {
					// The share knows the key then.
					require.Equal(t, limits.SourceRedis, take(t, l, key, 0).Source())
				}

				redis.Set(gone)
				a := take(t, l, canary, 1)
				require.Equal(t, f.source, a.Source())
				require.ErrorIs(t, a.Err(), ErrOutage)
				require.Equal(t, f.outage != FallbackClosed, a.Allowed)
				if f.outage == FallbackClosed {
					require.Equal(t, retry, a.RetryAfter)
				}
				for range 5 {
					a = take(t, l, "b", 2)
				}
				require.ErrorIs(t, a.Err(), ErrBreakerOpen)
				require.ErrorIs(t, l.Health(), ErrOutage)
				require.Equal(t, f.outage != FallbackClosed, l.Choke(t.Context(), "c"))

				asked := must.Get(l.Admit(t.Context(), "c", 1))
				require.Equal(t, f.source, asked.Source())
				require.False(t, asked.Exact())
				g := must.Get(l.Hold(t.Context(), limits.Call[string]{Key: "c", N: 1, Patience: time.Millisecond}))
				require.Equal(t, f.source, g.Source())
				require.Equal(t, f.outage != FallbackClosed, asked.Allowed && g.Allowed)
				require.NoError(t, g.Cancel(t.Context()))

				// Every fallback refuses more than the limit, and admits looks.
				for _, n := range []int64{-1, 11} {
					a = take(t, l, "b", n)
					require.False(t, a.Allowed)
					require.Equal(t, policy.Never, a.RetryAfter)
				}
				require.True(t, take(t, l, "b", 0).Allowed)

				a = must.Get(l.Refund(t.Context(), "b", 1))
				require.Equal(t, f.outage == FallbackShare, a.Allowed)
				_, err := l.Reset(t.Context(), "never")
				require.ErrorIs(t, err, ErrOutage)
				_, err = l.Take(t.Context(), strings.Repeat("x", 1<<16+1), 1)
				require.ErrorIs(t, err, ErrKeyTooLong)
				r := must.Get(l.Reserve(t.Context(), "d", 1, 0))
				require.NoError(t, r.Cancel(t.Context()))

				redis.Set(well)
				eventually(t, func() bool { return l.Health() == nil }, "the breaker closes by itself, without a call")
				// used is the use before the outage.
				used := int64(4)
				if f.outage == FallbackShare {
					// 1 of a, 10 less 1 of b, 2 of c, none of d.
					eventually(t, func() bool { return l.Stats().Charged == 12 }, "what still counts is charged")
					used++
					require.EqualValues(t, 1, inRedis(t, l, "b"))
				}
				require.EqualValues(t, 10-used, inRedis(t, l, canary), "Redis must still know the units")
				require.EqualValues(t, 10, inRedis(t, l, "d"))
				eventually(t, func() bool { return len(events.events()) >= 2 }, "events")
				require.Equal(t, []EventKind{OutageBegan, OutageEnded}, events.kinds()[:2])
				require.ErrorIs(t, events.events()[0].Err, ErrOutage)
			})
		})
	}
}

// If Redis answers but is unfit, each fallback answers with the cause, and nothing is reset.
// Promise: A Redis that may evict, is read-only or full is untrusted.
func TestUnfitRedisIsNotTrusted(t *testing.T) {
	for _, cause := range []error{ErrEvictionPolicy, ErrReadOnly, ErrFull, store.ErrNoReplicas, store.ErrUnsaved} {
		for _, f := range fallbacks {
			t.Run(fmt.Sprint(cause, f.source), func(t *testing.T) {
				inBubble(t, func(t *testing.T, redis *storetest.Redis) {
					redis.SetUnfit(cause)
					config := on(redis, funnel(10, 1, time.Hour))
					config.Outage = f.outage
					l := launch(t, config)
					for range 2 {
						a := take(t, l, canary, 3)
						require.Equal(t, f.source, a.Source())
						for _, err := range []error{a.Err(), l.Health()} {
							require.ErrorIs(t, err, cause)
							require.ErrorIs(t, err, ErrUnfit)
							require.ErrorIs(t, err, ErrOutage)
						}
						require.Equal(t, f.outage == FallbackOpen, a.Allowed, "an unknown key's share begins with nothing")
					}
					require.Zero(t, l.Stats().Openings, "the breaker opened though Redis answers")
					redis.SetUnfit(nil)
					eventually(t, func() bool { return l.Health() == nil && take(t, l, "b", 1).Source() == limits.SourceRedis }, "it is fit now")
					require.EqualValues(t, 10, take(t, l, canary, 0).Remaining)
				})
			})
		}
	}
}

func TestForbiddenCheckOfRedisIsReported(t *testing.T) {
	redis := redistest.Start(t, redistest.Options{})
	redis.Do(t, "ACL", "SETUSER", "default", "-info")
	var events log
	c := at(redis.Addr(), funnel(10, 1, time.Hour))
	c.OnEvent = events.add
	l := open(t, c)
	require.Equal(t, limits.SourceRedis, take(t, l, "a", 1).Source())
	eventually(t, func() bool { return len(events.events()) > 0 }, "it is told")
	require.Equal(t, Unchecked, events.events()[0].Kind)
	require.ErrorContains(t, events.events()[0].Err, "INFO")
}

// A share charges its units once the foreign value is gone.
// Promise: Values other than words are errors and stay.
func TestForeignValuesAreErrorsAndStay(t *testing.T) {
	for _, f := range fallbacks {
		for _, p := range []policy.Policy{funnel(10, 1, time.Hour), window(10, time.Hour), policy.Must(SlidingLog(10, time.Hour))} {
			inBubble(t, func(t *testing.T, redis *storetest.Redis) {
				c := on(redis, p)
				c.Outage = f.outage
				l := open(t, c)
				take(t, l, "good", 1)
				// The share knows the key then.
				take(t, l, canary, 0)
				redis.SetForeign(l.own.Load().limit, canary, "abc")
				for range 2 * failures {
					a := take(t, l, canary, 1)
					require.Equal(t, f.source, a.Source())
					require.ErrorIs(t, a.Err(), ErrForeignValue)
					require.NotErrorIs(t, a.Err(), ErrOutage)
					require.ErrorContains(t, a.Err(), "key "+store.Fingerprint("{"+canary+"}"))
				}
				must.Get(l.Refund(t.Context(), canary, 1))
				require.NoError(t, l.Health())
				require.Zero(t, l.Stats().Openings)
				require.EqualValues(t, 9, take(t, l, "good", 0).Remaining)
				time.Sleep(2 * beat)
				require.Zero(t, l.Stats().Charged)
				redis.SetForeign(l.own.Load().limit, canary, "")
				if f.outage == FallbackShare {
					const used = 2*failures - 1
					eventually(t, func() bool { return l.Stats().Charged > 0 }, "charged")
					require.EqualValues(t, used, l.Stats().Charged)
					require.EqualValues(t, 10-used, take(t, l, canary, 0).Remaining)
				}
			})
		}
	}
}

// A key is hammered for some beats while Redis is late now and then. Charges are sent each beat.
// Redis and the share keep the limit together, except for calls late before Redis said more.
// Promise: Late answers serve no other call and count as charged.
func TestLateCallsKeepTheLimit(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		const capacity = 5
		c := on(redis, funnel(capacity, 1, time.Hour))
		l := open(t, c)
		admitted := map[limits.Source]int{}
		take(t, l, "a", 0)
		for begun := time.Now(); time.Since(begun) < 3500*time.Millisecond; {
			redis.Set(still)
			for range 2 {
				if a := take(t, l, "a", 1); a.Allowed {
					admitted[a.Source()]++
				}
			}
			redis.Set(well)
			for range 20 {
				if a := take(t, l, "a", 1); a.Allowed {
					admitted[a.Source()]++
				}
				time.Sleep(time.Millisecond)
			}
		}
		charged := func() bool { return l.Stats().Charged == uint64(admitted[limits.SourceShare]) }
		eventually(t, charged, "what the share let pass is charged")
		require.NotZero(t, admitted[limits.SourceShare])
		require.LessOrEqual(t, admitted[limits.SourceRedis]+admitted[limits.SourceShare], capacity+2, "the share must go on from the figure that Redis told")
		time.Sleep(2 * beat)
		require.True(t, charged(), "the units were not charged exactly once")
	})
}

func TestWaitInAnOutage(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		c := on(redis, funnel(1, 1, 20*time.Millisecond))
		byShare := open(t, c)
		c.Name, c.Outage = name(), FallbackClosed
		closed := open(t, c)
		redis.Set(gone)
		begun := time.Now()
		for range 4 {
			require.NoError(t, byShare.Wait(t.Context(), "a", 1))
		}
		require.Equal(t, 60*time.Millisecond, time.Since(begun))
		require.Equal(t, uint64(4), byShare.Stats().Local)

		waited := make(chan error, 1)
		go func() { waited <- closed.Wait(t.Context(), "a", 1) }()
		time.Sleep(20 * time.Millisecond)
		require.Empty(t, waited)
		redis.Set(well)
		require.NoError(t, <-waited)
		require.EqualValues(t, 1, closed.Stats().Exact)
	})
}

func TestTakeAllInAnOutage(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		first := open(t, on(redis, funnel(1, 1, time.Hour)))
		with := func(capacity int64, outage Fallback) *Limiter {
			c := via(first, funnel(capacity, 1, time.Hour))
			c.Outage = outage
			l := open(t, c)
			// The share knows the key then.
			take(t, l, "a", 0)
			return l
		}
		five, two, opened, closed := with(5, FallbackShare), with(2, FallbackShare), with(5, FallbackOpen), with(5, FallbackClosed)
		redis.Set(gone)
		all := func(allowed bool, n int64, limiters ...*Limiter) limits.Outcome {
			t.Helper()
			var claims []Claim
			for _, l := range limiters {
				claims = append(claims, l.Claim("a", n))
			}
			out := must.Get(TakeAll(t.Context(), claims...))
			require.Equal(t, allowed, out.Allowed)
			return out
		}
		out := all(true, 2, five, two, opened)
		for i, source := range []limits.Source{limits.SourceShare, limits.SourceShare, limits.SourceOpen} {
			require.Equal(t, source, out.Answers[i].Source())
			require.ErrorIs(t, out.Answers[i].Err(), ErrOutage)
		}
		require.Equal(t, 1, all(false, 1, five, two, opened).Binding)
		require.Equal(t, limits.SourceClosed, all(false, 1, five, closed).Answers[1].Source())
		require.EqualValues(t, 3, five.local.Peek("a", 0).Remaining, "refused calls must take nothing")
		redis.Set(well)
		eventually(t, func() bool { return five.Stats().Charged == 2 && two.Stats().Charged == 2 }, "charged")
	})
}

// Promise: Late or lost answers charge nothing twice.
func TestLostAnswerIsChargedOnce(t *testing.T) {
	sliding := policy.Must(SlidingLog(10, time.Hour))
	word := funnel(10, 1, time.Hour)
	for _, c := range []struct {
		name string
		p    policy.Policy
		// late is by how much each answer is late.
		late time.Duration
	}{
		{"in time", word, 0}, {"late", word, 1300 * time.Millisecond}, {"late, of a log", sliding, 1300 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, redis *storetest.Redis) {
				config := on(redis, c.p)
				config.Budget = time.Second
				l, other := open(t, config), open(t, config)

				redis.Set(redistest.Weather{Answers: c.late})
				k := keeper{Limiter: l}
				done := k.charge(l.own.Load(), []share.Debt{{Name: store.Tail("a"), Units: 3}})[0]
				require.True(t, done.charged)
				require.Equal(t, c.late > 0, done.stop)
				time.Sleep(2 * c.late)
				redis.Set(well)
				require.EqualValues(t, 7, take(t, other, "a", 0).Remaining)
			})
		})
	}
}

// If the answer is late, Redis does it and the share does not. The answer says that the outcome is
// unknown.
// Promise: Late or lost answers return nothing twice.
func TestLostRefundIsDoneOnce(t *testing.T) {
	for _, n := range []int64{2, -2} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			inBubble(t, func(t *testing.T, redis *storetest.Redis) {
				config := on(redis, funnel(10, 1, time.Hour))
				config.Budget = 300 * time.Millisecond
				l := open(t, config)
				// The share knows the key then.
				take(t, l, "a", 0)
				must.Get(redis.Store(l.storeOptions()).Take(t.Context(), l.own.Load().limit, "a", 6, 0))
				passWithoutRedis(l, "a", 4)

				redis.Set(redistest.Weather{Answers: 700 * time.Millisecond})
				a := must.Get(l.Refund(t.Context(), "a", n))
				require.ErrorIs(t, a.Err(), ErrBudget)
				require.Equal(t, limits.SourceShare, a.Source())
				require.False(t, a.Allowed)
				require.EqualValues(t, 6, a.Remaining, "the figure is not the share's")
				require.EqualValues(t, 6, l.local.Peek("a", 0).Remaining)
				redis.Set(well)
				eventually(t, func() bool { return l.Health() == nil && take(t, l, "a", 0).Source() == limits.SourceRedis }, "it is asked again")
				require.EqualValues(t, 4+n, take(t, l, "a", 0).Remaining)
				require.Zero(t, l.Stats().Charged)
			})
		})
	}
}

// passWithoutRedis has the share let n units pass and owe them.
func passWithoutRedis(l *Limiter, key string, n int64) {
	l.local.Refund(key, -n)
	for debt := range l.local.Owed() {
		l.local.Paid(debt)
	}
}

// The highest of the last counts and Config.Servers divides: a new server may count itself alone.
// Promise: Shares shrink at once and grow later.
func TestSharesShrinkAtOnceAndGrowLater(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		c := on(redis, funnel(30, 1, time.Hour))
		c.Servers = 3
		l := open(t, c)
		eventually(t, func() bool { return l.Stats().Servers == 1 }, "it counts itself")
		require.Equal(t, 3, l.Stats().Divisor)

		var last counts
		now := time.Now()
		count := func(servers int) int {
			now = now.Add(beat)
			return last.add(now, servers)
		}
		for _, step := range []struct{ counted, divisor int }{{1, 1}, {5, 5}, {4, 5}, {1, 5}} {
			require.Equal(t, step.divisor, count(step.counted))
		}
		for beat := range remembered {
			want := 5
			if beat >= remembered-2 {
				want = 4
			}
			if beat >= remembered-1 {
				want = 1
			}
			require.Equal(t, want, count(1), "beat %d", beat)
		}
	})
}

// Promise: A `TakeAll` that a blocked key refuses in an outage charges no other key.
func TestTakeAllInAnOutageWithABlockedKey(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		l := open(t, on(redis, funnel(5, 1, time.Hour)))
		// The share knows the key then.
		take(t, l, "free", 0)
		take(t, l, "blocked", 0)
		require.NoError(t, l.Block(t.Context(), "blocked", time.Hour))
		redis.Set(gone)
		for _, claims := range [][]Claim{
			{l.Claim("free", 2), l.Claim("blocked", 1)}, {l.Claim("blocked", 1), l.Claim("free", 2)},
		} {
			out := must.Get(TakeAll(t.Context(), claims...))
			require.False(t, out.Allowed)
			require.ErrorIs(t, out.Answers[out.Binding].Err(), limits.ErrBlocked)
			require.EqualValues(t, 5, l.local.Peek("free", 0).Remaining)
			require.EqualValues(t, 5, l.local.Peek("blocked", 0).Remaining)
		}
		redis.Set(well)
		time.Sleep(2 * beat)
		require.Zero(t, l.Stats().Charged)
	})
}

// Another server blocks a key. Redis says so to a call of this server, too late, and is gone then.
// Promise: A block that Redis told in a late answer holds in an outage.
func TestLateAnswerTellsOfABlock(t *testing.T) {
	for _, outage := range []Fallback{FallbackShare, FallbackOpen} {
		inBubble(t, func(t *testing.T, redis *storetest.Redis) {
			c := on(redis, funnel(5, 1, time.Hour))
			c.Outage = outage
			l, other := open(t, c), open(t, c)
			take(t, l, canary, 0)
			require.NoError(t, other.Block(t.Context(), canary, time.Hour))
			// The answers come after the budget.
			redis.Set(redistest.Weather{Answers: 20 * time.Millisecond})
			require.True(t, take(t, l, canary, 1).Allowed, "the limiter knew of the outage too early")
			time.Sleep(50 * time.Millisecond)
			redis.Set(well)
			time.Sleep(2 * beat)
			redis.Set(gone)
			a := take(t, l, canary, 1)
			require.False(t, a.Allowed)
			require.ErrorIs(t, a.Err(), limits.ErrBlocked)
		})
	}
}
