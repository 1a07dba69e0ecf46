package fleet

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/fleet/internal/storetest"
	"github.com/ral-limiter/ral/internal/testkit/race"
	"github.com/ral-limiter/ral/policy"
)

func leased(c Config) Config {
	c.Mode = Leased
	return c
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

// Promise: Leased `Choke` answers and counts as `Take` of 1.
func TestLeasedChokeIsTake(t *testing.T) {
	for _, choke := range []bool{false, true} {
		inBubble(t, func(t *testing.T, redis *storetest.Redis) {
			c := leased(on(redis, window(10_000, 366*24*time.Hour)))
			c.Term = time.Minute
			l := open(t, c)
			var admitted, refused uint64
			for refused < 100 {
				if choke && l.Choke(t.Context(), "a") || !choke && take(t, l, "a", 1).Allowed {
					admitted++
				} else {
					refused++
				}
				s := l.Stats()
				require.Equal(t, []uint64{admitted, refused, admitted + refused}, []uint64{s.Admitted, s.Refused, s.Exact + s.Leased})
			}
			require.EqualValues(t, 10_000, admitted)
			require.Greater(t, l.Stats().Leased, l.Stats().Exact)
			gone, cancel := context.WithCancel(t.Context())
			cancel()
			require.False(t, l.Choke(gone, "b"))
			require.NoError(t, l.Close())
			require.False(t, l.Choke(t.Context(), "b"))
		})
	}
}
