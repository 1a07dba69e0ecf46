package fleet

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/fleet/internal/redistest"
	"github.com/ral-limiter/ral/fleet/internal/store"
	"github.com/ral-limiter/ral/fleet/internal/storetest"
	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/internal/core/warn"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/observe/metrics"
	"github.com/ral-limiter/ral/policy"
)

// warningsOf returns such as ["k 0.5 5", "k 0.8 2"], with the units left, the oldest first.
func warningsOf(l *Limiter) (all []string) {
	for _, w := range l.LatestWarnings(warn.MaxLatest) {
		all = append(all, fmt.Sprintf("%s %g %d", w.Key, w.Share, w.Decision.Remaining))
	}
	slices.Reverse(all)
	return all
}

func warning(c Config, shares ...float64) Config {
	c.WarnAt = shares
	return c
}

// warningVerbs take n units of a key by each verb, and report whether they are allowed.
var warningVerbs = map[string]func(ctx context.Context, l *Limiter, key string, n int64) bool{
	"Choke": func(ctx context.Context, l *Limiter, key string, n int64) (allowed bool) {
		for range n {
			allowed = l.Choke(ctx, key)
		}
		return allowed
	},
	"Take": func(ctx context.Context, l *Limiter, key string, n int64) bool {
		return must.Get(l.Take(ctx, key, n)).Allowed
	},
	"TakeWith": func(ctx context.Context, l *Limiter, key string, n int64) bool {
		return must.Get(l.TakeWith(ctx, l.Limit(), key, n)).Allowed
	},
	"TakeUpTo": func(ctx context.Context, l *Limiter, key string, n int64) bool {
		_, a, err := l.TakeUpTo(ctx, key, n)
		return err == nil && a.Allowed
	},
	"Reserve": func(ctx context.Context, l *Limiter, key string, n int64) bool {
		return must.Get(l.Reserve(ctx, key, n, 0)).Allowed
	},
	"Acquire": func(ctx context.Context, l *Limiter, key string, n int64) bool {
		r, err := l.Acquire(ctx, key, n, time.Millisecond)
		return err == nil && r.Allowed
	},
	"Hold": func(ctx context.Context, l *Limiter, key string, n int64) bool {
		return must.Get(l.Hold(ctx, limits.Call[string]{Key: key, N: n})).Allowed
	},
	"TakeAll": func(ctx context.Context, l *Limiter, key string, n int64) bool {
		return must.Get(TakeAll(ctx, l.Claim(key, n-1), l.Claim("other", 0), l.Claim(key, 1))).Allowed
	},
	"Charge": func(ctx context.Context, l *Limiter, key string, n int64) bool {
		return must.Get(l.Peek(ctx, key, n)).Allowed && l.Charge(ctx, key, n) == nil
	},
}

// Promise: In Exact mode the call of any verb that passes a share warns, once in a period, and no other call.
func TestExactWarns(t *testing.T) {
	for verb, call := range warningVerbs {
		t.Run(verb, func(t *testing.T) {
			inBubble(t, func(t *testing.T, redis *storetest.Redis) {
				l := open(t, warning(on(redis, funnel(10, 1, time.Minute)), 0.5, 0.8))
				warned := func(key string) (shares []float64) {
					for _, w := range l.LatestWarnings(warn.MaxLatest) {
						if w.Key == key {
							shares = append(shares, w.Share)
						}
					}
					return shares
				}
				require.True(t, call(t.Context(), l, "k", 4))
				require.Empty(t, warned("k"))
				require.True(t, call(t.Context(), l, "k", 1))
				require.Equal(t, []float64{0.5}, warned("k"))
				require.True(t, call(t.Context(), l, "k", 2))
				take(t, l, "k", 0)
				require.False(t, must.Get(TakeAll(t.Context(), l.Claim("k", 1), l.Claim("j", 11))).Allowed, "a call above the limit passed")
				require.Equal(t, []float64{0.5}, warned("k"))
				require.True(t, call(t.Context(), l, "k", 3))
				require.Equal(t, []float64{0.8, 0.5}, warned("k"))
				require.False(t, call(t.Context(), l, "k", 1))
				require.True(t, call(t.Context(), l, "j", 10))
				require.Equal(t, []float64{0.8, 0.5}, warned("j"), "a call that passes both shares must cause both warnings")
				must.Get(l.Refund(t.Context(), "k", 5))
				require.True(t, call(t.Context(), l, "k", 5))
				require.EqualValues(t, 4, l.Stats().Warnings)
				time.Sleep(11 * time.Minute)
				require.True(t, call(t.Context(), l, "k", 5))
				require.EqualValues(t, 5, l.Stats().Warnings)
			})
		})
	}
}

// Promise: Under every limit of a fleet a key is warned of when it passes a share, by Redis and by a share.
func TestEveryFleetLimitWarns(t *testing.T) {
	shares := []float64{0.3, 0.7, 0.95}
	for _, limit := range []policy.Policy{
		funnel(10, 1, time.Hour), window(10, time.Hour), policy.Must(policy.SlidingWindow(10, time.Hour)),
		policy.Must(policy.AlignedWindow(10, time.Hour)), policy.Must(policy.Bursty(10, time.Hour, 10)), must.Get(SlidingLog(10, time.Hour)),
	} {
		for _, outage := range []bool{false, true} {
			t.Run(fmt.Sprint(limit, " outage ", outage), func(t *testing.T) {
				inBubble(t, func(t *testing.T, redis *storetest.Redis) {
					c := warning(on(redis, limit), shares...)
					c.Servers = 1
					l := open(t, c)
					// The share knows the key then.
					take(t, l, "k", 0)
					if outage {
						redis.Set(gone)
					}
					most := shape.AtOnce(limit)
					var want []string
					for range most + 1 {
						before := peek(t, l, "k", 0).Remaining
						a := take(t, l, "k", 1)
						for _, share := range shares {
							bound := most - int64(math.Ceil(share*float64(most)))
							if a.Allowed && before > bound && a.Remaining <= bound {
								want = append(want, fmt.Sprintf("k %g %d", share, a.Remaining))
							}
						}
						require.Equal(t, outage, a.Source() == limits.SourceShare)
					}
					require.Len(t, want, len(shares))
					require.Equal(t, want, warningsOf(l))
				})
			})
		}
	}
}

// Promise: Of the servers of a fleet the one whose call passes the share warns.
func TestOneServerWarns(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		c := warning(on(redis, funnel(10, 1, time.Hour)), 0.8)
		servers := []*Limiter{open(t, c), open(t, c), open(t, c)}
		for i := range 10 {
			require.True(t, take(t, servers[i%3], "k", 1).Allowed)
			total := 0
			for _, l := range servers {
				total += len(warningsOf(l))
			}
			require.Equal(t, i >= 7, total == 1, i)
		}
		require.Equal(t, []string{"k 0.8 2"}, warningsOf(servers[7%3]))
	})
}

// Promise: A limit by `TakeWith` or `SetPolicy` warns by its own shares, anew.
func TestOtherLimitWarnsAnew(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		l := open(t, warning(on(redis, window(10, time.Hour)), 0.8))
		for range 8 {
			take(t, l, "k", 1)
		}
		require.Equal(t, []string{"k 0.8 2"}, warningsOf(l))
		more := window(20, time.Hour)
		for range 7 {
			require.True(t, must.Get(l.TakeWith(t.Context(), more, "k", 1)).Allowed)
		}
		require.Len(t, warningsOf(l), 1)
		require.True(t, must.Get(l.TakeWith(t.Context(), more, "k", 1)).Allowed)
		require.Equal(t, "k 0.8 4", warningsOf(l)[1])
		require.NoError(t, l.SetPolicy(window(40, time.Hour)))
		require.True(t, take(t, l, "k", 16).Allowed)
		require.Equal(t, "k 0.8 8", warningsOf(l)[2])
	})
}

// A log has no words: what remained before a call follows from what remains after it.
func TestLogWarnsByItsCalls(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		c := warning(on(redis, must.Get(SlidingLog(20, time.Hour))), 0.5)
		l := open(t, c)
		other := open(t, via(l, window(1, time.Hour)))
		take(t, l, "k", 9)
		less := must.Get(SlidingLog(15, time.Hour))
		require.True(t, must.Get(l.TakeWith(t.Context(), less, "k", 1)).Allowed)
		require.False(t, must.Get(TakeAll(t.Context(), l.Claim("k", 1), other.Claim("k", 2))).Allowed)
		require.Empty(t, warningsOf(l), "half of 15 units were used before, and a refused call takes nothing, so there must be no warning")
		take(t, l, "j", 9)
		take(t, l, "j", 1)
		require.Equal(t, []string{"j 0.5 10"}, warningsOf(l))
	})
}

// Promise: A leased key is warned of once, at the latest when its calls use the share, by all servers together.
func TestLeasedWarns(t *testing.T) {
	for _, limit := range []policy.Policy{window(1000, time.Hour), policy.Must(policy.SlidingWindow(1000, time.Hour)), funnel(1000, 1, time.Minute)} {
		for _, choke := range []bool{false, true} {
			inBubble(t, func(t *testing.T, redis *storetest.Redis) {
				c := warning(inLeases(on(redis, limit)), 0.5, 0.9)
				servers := []*Limiter{open(t, c), open(t, c)}
				most := servers[0].LimitFor("k").Limit()
				bounds := []int64{most - (most+1)/2, most - (9*most+9)/10}
				var admitted int64
				for i := 0; ; i++ {
					time.Sleep(5 * time.Millisecond)
					l := servers[i%2]
					if choke && !l.Choke(t.Context(), "k") || !choke && !take(t, l, "k", 1).Allowed {
						break
					}
					admitted++
					all := append(warningsOf(servers[0]), warningsOf(servers[1])...)
					for j, bound := range bounds {
						if admitted >= most-bound {
							require.GreaterOrEqual(t, len(all), j+1, "warning %d of %d is missing", admitted, most)
						}
					}
					require.True(t, len(all) == 0 || admitted > 4*most/10, "a warning came more than a lease early, at call %d: %v", admitted, all)
				}
				require.Greater(t, servers[0].Stats().Leased, servers[0].Stats().Exact)
				require.Len(t, append(warningsOf(servers[0]), warningsOf(servers[1])...), 2, "there must be one warning for each share")
			})
		}
	}
}

// Promise: In an outage a key is warned of by this server's part of the limit, and other fallbacks warn of none.
func TestFallbacksWarn(t *testing.T) {
	for _, f := range fallbacks {
		inBubble(t, func(t *testing.T, redis *storetest.Redis) {
			c := warning(on(redis, funnel(20, 1, time.Hour)), 0.5, 0.8)
			c.Outage, c.Servers = f.outage, 2
			l := open(t, c)
			for _, key := range []string{"k", "j", "blocked"} {
				// The share knows the key then.
				take(t, l, key, 0)
			}
			require.NoError(t, l.Block(t.Context(), "blocked", time.Hour))
			redis.Set(gone)
			require.False(t, take(t, l, "blocked", 10).Allowed)
			for range 4 {
				take(t, l, "k", 1)
			}
			require.Empty(t, warningsOf(l))
			take(t, l, "k", 1)
			must.Get(TakeAll(t.Context(), l.Claim("k", 1), l.Claim("j", 11)))
			must.Get(TakeAll(t.Context(), l.Claim("k", 1), l.Claim("j", 9)))
			want := []string{"k 0.5 5", "j 0.5 1", "j 0.8 1"}
			if f.outage != FallbackShare {
				want = nil
			}
			require.Equal(t, want, warningsOf(l), f.source)
		})
	}
}

// Promise: Redis has warned of a key in a period, so the share of an outage does not, and the reverse.
func TestOutageRepeatsNoWarning(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		c := warning(on(redis, window(10, time.Hour)), 0.8)
		c.Servers = 1
		l := open(t, c)
		take(t, l, "k", 8)
		must.Get(l.Refund(t.Context(), "k", 2))
		redis.Set(gone)
		take(t, l, "k", 2)
		require.Len(t, warningsOf(l), 1)
	})
}

// Promise: Warnings reach the hook and the log, without keys, and a hook that panics or blocks stops no call.
func TestFleetWarningsReachHookAndEvents(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		var events log
		var hooked []engine.Warning[string]
		block := make(chan struct{})
		c := warning(on(redis, funnel(10, 1, time.Hour)), 0.8)
		c.OnEvent = events.add
		c.OnWarn = func(w engine.Warning[string]) {
			hooked = append(hooked, w)
			if len(hooked) == 1 {
				panic("hook")
			}
			<-block
		}
		l := open(t, c)
		for i := range 1030 {
			require.True(t, take(t, l, fmt.Sprint("k", i), 9).Allowed)
			if i == 0 {
				time.Sleep(time.Second)
				require.Len(t, slices.DeleteFunc(events.events(), func(e Event) bool { return e.Kind != SharePassed && e.Kind != HookFailed }), 2, "the hook must be called at once")
			}
		}
		close(block)
		require.NoError(t, l.Close())
		// Some of so many keys may not be warned of, as others' hashes are too alike.
		require.InDelta(t, 1030, l.Stats().Warnings, 20)
		require.Equal(t, "k0", hooked[0].Key)
		require.Equal(t, 0.8, hooked[0].Share)
		require.EqualValues(t, 1, hooked[0].Decision.Remaining)
		missed := 0
		for _, w := range hooked {
			missed += w.Missed
		}
		require.LessOrEqual(t, len(hooked)+missed, int(l.Stats().Warnings))
		require.GreaterOrEqual(t, len(hooked), 1024)
		var passed, failed []string
		for _, e := range events.events() {
			switch e.Kind {
			case SharePassed:
				passed = append(passed, e.Err.Error())
			case HookFailed:
				failed = append(failed, e.Err.Error())
			}
		}
		require.NotEmpty(t, passed)
		require.Regexp(t, `^key [0-9a-f]{16} has passed 80% of its limit, 1 of 10 left$`, passed[0])
		require.Len(t, failed, 1)
		require.Contains(t, failed[0], "hook")
	})
}

// Promise: The events of warnings before a `Close` are told.
func TestCloseTellsWarnings(t *testing.T) {
	for range 20 {
		inBubble(t, func(t *testing.T, redis *storetest.Redis) {
			passed, release := 0, make(chan struct{})
			c := warning(on(redis, funnel(10, 1, time.Hour)), 0.8)
			c.OnEvent = func(e Event) {
				if e.Kind == SharePassed {
					passed++
					<-release
				}
			}
			l := open(t, c)
			take(t, l, "a", 9)
			synctest.Wait()
			take(t, l, "b", 9)
			go func() {
				// Close waits for OnEvent.
				time.Sleep(time.Second)
				close(release)
			}()
			require.NoError(t, l.Close())
			require.Equal(t, 2, passed)
		})
	}
}

// Promise: The log and the metrics of a fleet tell of warnings as an engine's do.
func TestFleetWarningsAreShown(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		c := warning(on(redis, funnel(10, 1, time.Hour)), 0.8)
		l := open(t, c)
		take(t, l, canary, 9)
		require.NoError(t, l.Close())
		lines := strings.Join(loggedAbout(c.Name), "\n")
		require.Contains(t, lines, `level=WARN msg="ral: a key has passed a share of its limit"`)
		require.Contains(t, lines, `has passed 80% of its limit, 1 of 10 left`)
		source := l.Metrics()
		i := slices.IndexFunc(source.Series(), func(s metrics.Series) bool { return s.Metric.Name == "ral.warnings" })
		require.Equal(t, 1.0, source.Read(nil)[i])
	})
}

// Promise: Redis's own scripts tell what remained before a call, by which it warns.
func TestRealRedisWarns(t *testing.T) {
	inBubbleOf(t, shared, func(t *testing.T, line *redistest.Line) {
		for _, limit := range []policy.Policy{funnel(10, 1, time.Hour), window(10, time.Hour), policy.Must(policy.SlidingWindow(10, time.Hour)), must.Get(SlidingLog(10, time.Hour))} {
			l := open(t, warning(over(line, limit), 0.5, 0.8))
			require.True(t, take(t, l, "k", 5).Allowed)
			must.Get(l.Refund(t.Context(), "k", -3))
			require.Equal(t, []string{"k 0.5 5", "k 0.8 2"}, warningsOf(l), limit)
		}
		leased := open(t, warning(inLeases(over(line, window(100, time.Hour))), 0.5))
		for range 100 {
			require.True(t, leased.Choke(t.Context(), "k"))
		}
		require.Len(t, warningsOf(leased), 1)
	})
}

func TestWarnAtIsChecked(t *testing.T) {
	c := Config{Name: "x", Policy: funnel(10, 1, time.Hour), WarnAt: []float64{0.8, 0.5}, fake: func(o store.Options) decider { return storetest.New().Store(o) }}
	_, err := New(c)
	require.EqualError(t, err, "ral: fleet.Config: WarnAt[1] is 0.5, want a share above 0 and below 1, such as 0.8, each above the one before")
	c.WarnAt, c.OnWarn = nil, func(engine.Warning[string]) {}
	_, err = New(c)
	require.EqualError(t, err, "ral: fleet.Config: WarnAt is empty, want shares such as 0.8 and 0.95, for OnWarn")
}
