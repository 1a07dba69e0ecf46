package fleet

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/fleet/internal/storetest"
	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/internal/testkit/testenv"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

func TestSetPolicyKeepsUsedUnits(t *testing.T) {
	for _, f := range families(t) {
		small, large := f[0], f[1]
		if strings.Contains(small.String(), "bursty") {
			small = policy.Must(policy.Bursty(10, 100*24*time.Hour, 9))
			// Both limits have the same pace.
			large = policy.Must(policy.Bursty(10, 100*24*time.Hour, 19))
		}
		t.Run(small.String(), func(t *testing.T) {
			inBubble(t, func(t *testing.T, redis *storetest.Redis) {
				c := on(redis, small)
				l, other := open(t, c), open(t, c)
				require.True(t, take(t, l, "a", 4).Allowed)
				require.NoError(t, l.SetPolicy(large))
				require.Equal(t, large, l.Limit())
				require.Equal(t, large, l.LimitFor("a"))
				require.Equal(t, small, other.Limit())
				before := take(t, l, "a", 0)
				require.LessOrEqual(t, before.Remaining, shape.AtOnce(large)-4, "used units were forgotten by the change")
				if strings.Contains(small.String(), "funnel") {
					require.Equal(t, small.Limit(), before.Limit, "of two rates, the answer must tell the lower")
				} else {
					require.Equal(t, large.Limit(), before.Limit)
				}
				require.Equal(t, small.Limit(), take(t, other, "a", 0).Limit)
				require.NoError(t, other.SetPolicy(large))
				require.Equal(t, before.Remaining, take(t, other, "a", 0).Remaining)
			})
		})
	}
}

func TestSetPolicyIsRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		p := policy.Must(policy.FixedWindow(10, time.Hour))
		c := on(redis, p)
		l := open(t, c)
		refused := func(l *Limiter, p policy.Policy, say string) {
			t.Helper()
			err := l.SetPolicy(p)
			var field *policy.FieldError
			require.ErrorAs(t, err, &field)
			require.Equal(t, "SetPolicy", field.Of)
			require.ErrorContains(t, err, say)
		}
		refused(l, nil, "nil")
		refused(l, funnel(1, 1, time.Hour), "reads the words of "+p.String())
		refused(l, policy.Must(policy.FixedWindow(10, time.Minute)), "the same period")
		refused(l, policy.Must(policy.AtMost(10, time.Hour)), "SlidingLog")
		require.Equal(t, p, l.Limit())
		require.Empty(t, l.change.before)
		bursty := open(t, on(redis, policy.Must(policy.Bursty(1, time.Hour, 9))))
		refused(bursty, policy.Must(policy.Bursty(2, time.Hour, 9)), "same count and per")
		chosen := c
		chosen.PolicyFor = func(string) policy.Policy { return nil }
		refused(open(t, chosen), p, "PolicyFor")
		require.ErrorIs(t, open(t, inLeases(on(redis, p))).SetPolicy(p), ErrModeUnsupported)
		require.NoError(t, l.Close())
		require.ErrorIs(t, l.SetPolicy(p), engine.ErrClosed)
	})
}

// However limits differ, servers admit at most the higher rate with the larger burst.
// Promise: During a change servers admit at most the higher rate and larger burst.
func TestServersChangeOneAfterTheOther(t *testing.T) {
	const servers, unit = 3, time.Second
	for run := range 9 {
		inBubble(t, func(t *testing.T, redis *storetest.Redis) {
			seed := testenv.Seed(t) + uint64(run)
			random := rand.New(rand.NewPCG(seed, 0))
			anyLimit := func() (p policy.Policy, burst, rate int64) {
				burst, rate = 1+random.Int64N(40), 1+random.Int64N(20)
				if run%3 == 2 {
					return policy.Must(policy.Queue(burst-1, rate, unit)), burst, rate
				}
				return funnel(burst, rate, unit), burst, rate
			}
			first, burst, rate := anyLimit()
			var clock atomic.Int64
			clock.Store(time.Hour.Microseconds())
			c := on(redis, first)
			c.clock = clock.Load
			var all [servers]*Limiter
			for i := range all {
				all[i] = open(t, c)
			}
			// beatAll has all servers say their limit, and hear the others'.
			beatAll := func(times int) {
				for range times {
					clock.Add(beat.Microseconds())
					for i, l := range all {
						k := keeper{Limiter: l, id: fmt.Sprint("test ", i)}
						require.NoError(t, k.heartbeat(generous))
					}
				}
			}
			type admission struct{ at, n int64 }
			var admitted []admission
			kept := []string{first.String()}
			for range 2 {
				next, b, r := anyLimit()
				kept = append(kept, next.String())
				burst, rate = max(burst, b), max(rate, r)
				for _, changes := range random.Perm(servers + 1) {
					for range 40 {
						clock.Add(random.Int64N(2 * unit.Microseconds() / rate))
						n := 1 + random.Int64N(3)
						l := all[random.IntN(servers)]
						a := take(t, l, "a", n)
						require.Equal(t, limits.SourceRedis, a.Source(), a.Err())
						if a.Allowed {
							admitted = append(admitted, admission{clock.Load() + a.Wait.Microseconds(), n})
						}
					}
					beatAll(1)
					if changes < servers {
						require.NoError(t, all[changes].SetPolicy(next))
						beatAll(random.IntN(2))
					}
				}
				beatAll(5)
				for _, l := range all {
					eventually(t, func() bool {
						l.change.mu.Lock()
						defer l.change.mu.Unlock()
						return len(l.change.before) == 0
					}, "it goes by the new limit alone")
					require.Equal(t, next, l.own.Load().limit.Policy())
				}
			}
			require.NotEmpty(t, admitted)
			for i, from := range admitted {
				units := int64(0)
				for _, a := range admitted[i:] {
					units += a.n
					span := time.Duration(a.at-from.at) * time.Microsecond
					most := float64(burst) + float64(rate)*span.Seconds() + 1e-3
					require.LessOrEqual(t, float64(units), most, "%v, seed %d: in %v", kept, seed, span)
				}
			}
		})
	}
}

func TestSetPolicyInAnOutage(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		c := on(redis, policy.Must(policy.FixedWindow(10, 366*24*time.Hour)))
		c.Servers = 1
		l := open(t, c)
		require.Equal(t, limits.SourceRedis, take(t, l, "a", 2).Source())
		redis.Set(gone)
		require.EqualValues(t, 5, take(t, l, "a", 3).Remaining)
		require.NoError(t, l.SetPolicy(policy.Must(policy.FixedWindow(100, 366*24*time.Hour))))
		a := take(t, l, "a", 0)
		require.Equal(t, limits.SourceShare, a.Source())
		require.EqualValues(t, 100, a.Limit)
		require.LessOrEqual(t, a.Remaining, int64(95))
		redis.Set(well)
		eventually(t, func() bool { return l.Health() == nil && l.Stats().Charged == 3 }, "it is charged")
		require.EqualValues(t, 95, take(t, l, "a", 0).Remaining)
	})
}

// Two servers and an engine take under two limits of a family, and change from one to the other.
// Promise: `ChangeLimit` matches an engine's.
func TestChangeLimitAgreesWithAnEngine(t *testing.T) {
	all := families(t)
	// An engine counts aligned windows from elsewhere, and has no log.
	for seed, pair := range all[:4] {
		inBubble(t, func(t *testing.T, redis *storetest.Redis) {
			r := rand.New(rand.NewPCG(uint64(seed), 78))
			var clock atomic.Int64
			c := on(redis, pair[0])
			c.clock = clock.Load
			servers := []*Limiter{open(t, c), open(t, c)}
			e := must.Get(engine.New[string](engine.Config{Name: c.Name, Policy: pair[0], Clock: func() policy.Instant {
				return policy.Instant(max(clock.Load()*1000, 1))
			}}))
			defer e.Close()
			clock.Store(int64(366 * 24 * time.Hour / time.Microsecond))
			changed := 0
			for step := range 300 {
				l, i := servers[r.IntN(2)], r.IntN(2)
				switch r.IntN(6) {
				case 0:
					clock.Add(r.Int64N(int64(30 * 24 * time.Hour / time.Microsecond)))
				case 1:
					keep := []engine.Keep{engine.KeepUsed, engine.KeepShare}[r.IntN(2)]
					from, to := pair[i], pair[1-i]
					if i == 0 && r.IntN(2) == 0 {
						from = nil
					}
					before := e.TakeWith(to, "a", 0)
					require.NoError(t, e.ChangeLimit("a", from, to, keep))
					require.NoError(t, l.ChangeLimit(t.Context(), "a", from, to, keep))
					if e.TakeWith(to, "a", 0) != before {
						changed++
					}
				default:
					n := r.Int64N(8)
					require.Equal(t, e.TakeWith(pair[i], "a", n), must.Get(l.TakeWith(t.Context(), pair[i], "a", n)).Decision, "%v step %d", pair, step)
				}
			}
			require.Positive(t, changed)
		})
	}
}

func TestChangeLimitIsRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		ctx, small, large := t.Context(), policy.Must(policy.FixedWindow(10, time.Hour)), policy.Must(policy.FixedWindow(1000, time.Hour))
		c := on(redis, small)
		l := open(t, c)
		take(t, l, "a", 10)
		left := func(p policy.Policy) int64 { return must.Get(l.TakeWith(ctx, p, "a", 0)).Remaining }
		var field *policy.FieldError
		require.ErrorAs(t, l.ChangeLimit(ctx, "a", small, large, 7), &field)
		require.Equal(t, "keep", field.Field)
		for _, other := range []policy.Policy{funnel(1, 1, time.Hour), policy.Must(policy.FixedWindow(10, time.Minute))} {
			require.ErrorIs(t, l.ChangeLimit(ctx, "a", other, large), ErrMisfit)
			require.ErrorIs(t, l.ChangeLimit(ctx, "a", small, other), ErrMisfit)
		}
		require.ErrorIs(t, l.ChangeLimit(ctx, string(make([]byte, 1<<17)), small, large), ErrKeyTooLong)
		require.ErrorIs(t, open(t, inLeases(on(redis, small))).ChangeLimit(ctx, "a", small, large), ErrModeUnsupported)
		redis.Set(gone)
		require.ErrorIs(t, l.ChangeLimit(ctx, "a", small, large), ErrOutage)
		redis.Set(well)
		eventually(t, func() bool { return l.Health() == nil }, "Redis is back")
		require.EqualValues(t, 0, left(small))
		require.NoError(t, l.ChangeLimit(ctx, "a", small, large))
		require.EqualValues(t, 990, left(large))
		require.NoError(t, l.ChangeLimit(ctx, "unused", small, large))
		require.NoError(t, l.Close())
		require.ErrorIs(t, l.ChangeLimit(ctx, "a", small, large), engine.ErrClosed)
	})
}
