package lease

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/policy"
)

func leaseAlways(always bool) func(*Config) { return func(c *Config) { c.always = always } }

// Waiting calls that use a lease count as its use, so a hot key's leases grow with any number of
// callers.
func TestLeasesGrowUnderManyCallers(t *testing.T) {
	for _, callers := range []int{1, 64, 256} {
		in(t, must(policy.FixedWindow(1_000_000, time.Hour)), func(t *testing.T, l *Leases, _ *memory, _ *wire) {
			const calls = 1 << 16
			var all sync.WaitGroup
			for range callers {
				all.Go(func() {
					for range calls / callers {
						d, err := takeFrom(l, "key", 1, time.Minute)
						assert.NoError(t, err)
						assert.True(t, d.Allowed)
					}
				})
			}
			all.Wait()
			assert.Less(t, l.Stats().Exchanges, uint64(40), "round trips for %d calls by %d callers", calls, callers)
		}, leaseAlways(false))
	}
}

func TestKeyInUseIsNotForgotten(t *testing.T) {
	in(t, must(policy.FixedWindow(1_000_000, time.Hour)), func(t *testing.T, l *Leases, _ *memory, _ *wire) {
		for l.Held("key") < 1000 { // calls follow their answers
			d, err := takeFrom(l, "key", 1, time.Minute)
			require.NoError(t, err)
			require.True(t, d.Allowed)
		}
		for until := time.Now().Add(l.term() * 9 / 10); time.Now().Before(until); time.Sleep(5 * time.Millisecond) {
			d, ok := l.Try("key", 1)
			require.True(t, ok && d.Allowed, "%v before the lease ends", time.Until(until))
		}
		assert.Equal(t, 1, l.Stats().Keys)
	}, leaseAlways(false))
}
