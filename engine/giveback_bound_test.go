package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A call takes 3 units. Other calls take and give back before it gives back. If their takes are
// remembered, all comes back. If a take is not remembered, the units that do not fit into the
// bucket beside the other takes stay charged, and never more than it took.
func TestGiveBackLosesUnitsTakenBeyondTheBucket(t *testing.T) {
	const capacity, units = 60, 3
	for pairs, want := range map[int]int64{0: 0, 1: 0, 5: 0, 9: 0, 10: 3, 12: 3, 40: 3} {
		for _, remembered := range []bool{true, false} {
			e := open[string](t, Config{Policy: funnel(capacity, 1, time.Hour), Clock: newHandClock().Now})
			late := e.Reserve("key", units, 0)
			require.True(t, late.Allowed)
			for range pairs {
				// The first is not the last take, so its return is announced.
				first, second := e.Reserve("key", units, 0), e.Reserve("key", units, 0)
				require.True(t, first.Allowed && second.Allowed)
				first.Cancel()
				second.Cancel()
			}
			left := capacity - e.Peek("key", 0).Remaining
			require.EqualValues(t, units, left, "after %d pairs the others have left nothing", pairs)
			if remembered {
				late.Cancel()
				assert.EqualValues(t, capacity, e.Peek("key", 0).Remaining, "after %d pairs", pairs)
				continue
			}
			require.True(t, e.Choke("key"))
			late.Cancel()
			assert.Equal(t, max(want, 0), capacity-e.Peek("key", 0).Remaining-1, "after %d pairs", pairs)
		}
	}
}
