package lease

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/fleet/internal/store"
	"github.com/ral-limiter/ral/internal/testkit/race"
	"github.com/ral-limiter/ral/policy"
)

// Only the hash of a long key is kept after the bank's answer. It finds, renews and returns the
// lease.
func TestLongKeysAreNotKept(t *testing.T) {
	in(t, policy.Must(policy.FixedWindow(10_000, time.Hour)), func(t *testing.T, l *Leases, m *memory, w *wire) {
		const keys, calls = 20, 200
		long := func(i int) string { return strings.Repeat("k", 1<<16) + fmt.Sprint(i) }
		requireShort := func(keys int) {
			t.Helper()
			if race.Enabled {
				return // the detector does not know that the bubble is at rest
			}
			bytes := 0
			for _, a := range l.book.accounts {
				bytes += len(a.name)
			}
			for name := range l.words.All() {
				bytes += len(name)
			}
			require.LessOrEqual(t, bytes, 2*128*keys)
		}
		for range calls {
			for i := range keys {
				d, err := l.Take(long(i), 1, budget, nil)
				require.NoError(t, err)
				require.True(t, d.Allowed)
			}
			time.Sleep(100 * time.Microsecond)
		}
		time.Sleep(2 * time.Millisecond) // until the last renewals are answered
		assert.Equal(t, keys, l.Stats().Keys)
		requireShort(keys)
		for i := range keys {
			assert.Equal(t, m.payment(store.Short(long(i)))-calls, l.Held(long(i)))
		}
		w.change(time.Millisecond, func() fault { return fault{lost: true} })
		_, err := l.Take(long(keys), 1, time.Minute, nil)
		require.ErrorIs(t, err, errWire)
		requireShort(keys + 1) // also of a key that the bank was asked about in vain
		w.change(time.Millisecond, nil)
		time.Sleep(2 * l.plan.Term)
		for i := range keys {
			assert.EqualValues(t, calls, m.payment(store.Short(long(i))), "all that was not used came back")
		}
	}, func(c *Config) { c.Name = store.Short })
}
