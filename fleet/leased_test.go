package fleet

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/fleet/internal/redistest"
	"github.com/ral-limiter/ral/fleet/internal/storetest"
	"github.com/ral-limiter/ral/internal/testkit/race"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

func leased(c Config) Config {
	c.Mode = Leased
	return c
}

func TestLeasedConfiguration(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		log, err := SlidingLog(5, time.Hour)
		require.NoError(t, err)
		for _, p := range []policy.Policy{
			policy.Must(policy.Queue(4, 1, time.Hour)), policy.Must(policy.Bursty(1, time.Second, 3)), log, funnel(1, 1, time.Hour),
		} {
			_, err := New(leased(on(redis, p)))
			var field *policy.FieldError
			require.ErrorAs(t, err, &field, p.String())
			require.Equal(t, "Policy", field.Field)
		}
		c := leased(on(redis, funnel(100, 10, time.Second)))
		c.Term = time.Millisecond
		_, err = New(c)
		require.ErrorContains(t, err, "Term")
	})
}

// Four servers take all they can while Redis dies and returns, and keep to the limit.
func TestLeasedFleet(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		const capacity, rate, servers = 200, 1000, 4
		redis.Set(redistest.Weather{Answers: time.Millisecond})
		c := leased(on(redis, funnel(capacity, rate, time.Second)))
		c.Outage = FallbackClosed
		var fleet [servers]*Limiter
		for i := range fleet {
			fleet[i] = open(t, c)
		}
		begun := time.Now()
		var all sync.WaitGroup
		for _, l := range fleet {
			all.Go(func() {
				for time.Since(begun) < 2*time.Second {
					a, err := l.Take(t.Context(), "a", 1)
					assert.NoError(t, err)
					if !a.Allowed {
						time.Sleep(min(a.RetryAfter, time.Millisecond))
					}
				}
			})
		}
		time.Sleep(700 * time.Millisecond)
		redis.Set(gone)
		time.Sleep(100 * time.Millisecond)
		redis.Set(redistest.Weather{Answers: time.Millisecond})
		all.Wait()
		admitted, most := uint64(0), capacity+rate*time.Since(begun).Seconds()
		for _, l := range fleet {
			admitted += l.Stats().Admitted
			require.NoError(t, l.Health(), "it is back")
			require.NotZero(t, l.Stats().Closed)
		}
		require.LessOrEqual(t, float64(admitted), most)
		require.GreaterOrEqual(t, float64(admitted), 0.8*most, "little is lost with the outage")
	})
}

// Promise: Calls on leases allocate nothing.
func TestLeasedAllocatesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		if race.Enabled {
			t.Skip("the race detector allocates")
		}
		c := leased(on(redis, policy.Must(policy.FixedWindow(1_000_000, time.Hour))))
		c.Term = time.Minute
		l := open(t, c)
		ctx := context.Background()
		for range 10_000 { // leases grow with the demand
			require.True(t, l.Choke(ctx, "a"))
		}
		require.InDelta(t, 0, testing.AllocsPerRun(1000, func() { l.Choke(ctx, "a") }), 0.2, "a lease is renewed now and then")
	})
}

func refusing(t testing.TB, redis *storetest.Redis) *Limiter {
	c := leased(on(redis, policy.Must(policy.FixedWindow(100, 366*24*time.Hour))))
	c.Term = time.Minute
	l := open(t, c)
	for {
		a := take(t, l, "a", 1)
		if !a.Allowed && a.Source() == limits.SourceLease && a.RetryAfter > time.Second {
			return l
		}
	}
}

func TestLeasedChokeIsTake(t *testing.T) {
	for name, call := range map[string]func(*testing.T, *Limiter) bool{
		"choke": func(_ *testing.T, l *Limiter) bool { return l.Choke(context.Background(), "a") },
		"take":  func(t *testing.T, l *Limiter) bool { return take(t, l, "a", 1).Allowed },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, redis *storetest.Redis) {
				c := leased(on(redis, policy.Must(policy.FixedWindow(10_000, 366*24*time.Hour))))
				c.Term = time.Minute
				l := open(t, c)
				var admitted, refused uint64
				for refused < 100 {
					if call(t, l) {
						admitted++
					} else {
						refused++
					}
					s := l.Stats()
					require.Equal(t, []uint64{admitted, refused}, []uint64{s.Admitted, s.Refused})
					require.Equal(t, admitted+refused, s.Exact+s.Leased)
				}
				require.EqualValues(t, 10_000, admitted)
				require.Greater(t, l.Stats().Leased, l.Stats().Exact)
				gone, cancel := context.WithCancel(context.Background())
				cancel()
				require.False(t, l.Choke(gone, "b"))
				require.NoError(t, l.Close())
				require.False(t, l.Choke(context.Background(), "b"))
			})
		})
	}
}

// Redis's figures are promises in Exact mode. In Leased mode this server may remember a refusal.
func TestPromised(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		l := refusing(t, redis)
		a := take(t, l, "a", 1)
		require.Equal(t, limits.SourceLease, a.Source())
		require.False(t, a.Exact())
		require.Less(t, a.RetryAfter, 365*24*time.Hour, "and it is not kept: the window has not ended then")
		a = take(t, l, "a", 0)
		require.Equal(t, limits.SourceRedis, a.Source())
		require.False(t, a.Exact())
		require.Less(t, open(t, leased(on(redis, funnel(1000, 1000, time.Second)))).LimitFor("a").Limit(), int64(1000))
		back, err := l.Refund(t.Context(), "b", -1)
		require.NoError(t, err)
		require.False(t, back.Exact())
		exact := open(t, on(redis, funnel(1, 1, time.Hour)))
		out, err := TakeAll(t.Context(), exact.Claim("a", 1))
		require.NoError(t, err)
		require.True(t, out.Answers[0].Exact())
		a = take(t, exact, "a", 1)
		require.False(t, a.Allowed)
		require.True(t, a.Exact())
		back, err = exact.Refund(t.Context(), "a", 1)
		require.NoError(t, err)
		require.True(t, back.Exact())
	})
}
