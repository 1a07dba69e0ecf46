package lease

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/ral-limiter/ral/policy"
)

func leaseAlways(always bool) func(*Config) { return func(c *Config) { c.always = always } }

// Promise: A hot key costs few commands, however many callers.
func TestLeasesGrowUnderManyCallers(t *testing.T) {
	for _, callers := range []int{1, 64, 256} {
		in(t, policy.Must(policy.FixedWindow(1_000_000, time.Hour)), func(t *testing.T, l *Leases, _ *memory, _ *wire) {
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
