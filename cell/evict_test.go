package cell

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/table"
)

// takesOfOne are the fast paths and the slow path of a take.
var takesOfOne = map[string]func(d *desk) bool{
	"Choke": func(d *desk) bool { return d.Choke("key") },
	"Take":  func(d *desk) bool { return d.Take("key", 1).Allowed },
	"Slow":  func(d *desk) bool { return d.TakeWith(nil, "key", 1).Allowed },
}

// Promise: A forgotten key's units never count as drained earlier.
func TestTakeIsNotDatedBackBeyondEviction(t *testing.T) {
	for name, take := range takesOfOne {
		for _, filed := range []bool{false, true} {
			d := newDesk(t, funnel(1, 1, time.Second), nil)
			d.reads = func() {
				require.True(t, d.Choke("key"))
				d.advance(time.Second + idle)
				d.forget()
				require.Zero(t, d.Len(), "the key was not forgotten")
				if filed {
					hash := d.hashOf("key")
					entry, status := d.table.View().Open(hash, "key")
					require.Equal(t, table.Landed, status)
					d.table.Apply(table.FileCommand[string](hash, d.instant()))
					require.Same(t, entry, d.table.View().Load(hash, "key"))
					require.Zero(t, entry.Word())
				}
			}
			assert.True(t, take(d), "%s, %v", name, filed)
			assert.False(t, d.Choke("key"), "%s, %v: the key was admitted twice at one instant", name, filed)
		}
	}
}

// The writer stands between the end of an entry and its leaving the map.
func TestDeadEntryInTheMapRefusesNoCall(t *testing.T) {
	for name, take := range takesOfOne {
		d := &desk{t: t}
		d.now.Store(1)
		died := 0
		d.set(table.Options{Policy: funnel(1, 1, time.Hour), Fault: func(point string) {
			if point == "evict: dead" {
				died++
				assert.True(t, take(d), name)
				assert.False(t, take(d), name)
			}
		}}, Options[string]{Clock: d.instant})
		require.True(t, d.Choke("key"))
		d.advance(time.Hour + idle)
		d.forget()
		assert.Equal(t, 1, died)
		assert.False(t, take(d), name)
	}
}

// Nor does a clock that goes back to before the key was forgotten.
// Promise: A clock going backwards mints nothing.
func TestClockGoingBackMintsNothing(t *testing.T) {
	for _, forgotten := range []bool{false, true} {
		d := newDesk(t, funnel(10, 1, time.Second), nil)
		d.advance(time.Hour)
		admitted := 0
		for range 2000 {
			for d.Choke("key") {
				admitted++
			}
			d.advance(time.Second*10 + idle)
			if forgotten {
				d.forget()
			}
			d.advance(-time.Second*10 - idle)
		}
		if forgotten {
			assert.LessOrEqual(t, admitted, 10+10+300, "more calls were admitted than the time until then allows")
			assert.Positive(t, d.table.View().Counters().Evicted.Load())
		} else {
			assert.Equal(t, 10, admitted)
		}
	}
}

// A call that was under way at Close lands its key afterwards. That limits no call.
func TestLandedAfterCloseIsNotLookedAt(t *testing.T) {
	d := newDesk(t, funnel(1, 1, time.Hour), nil)
	d.control.Close()
	hash := d.hashOf("late")
	entry, _ := d.table.View().Open(hash, "late")
	require.True(t, entry.Advance(entry.Word(), policy.MaxWord))
	assert.True(t, d.Choke("late"))
	assert.True(t, d.Take("late", 1).Allowed)
}
