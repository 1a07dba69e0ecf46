package cell

import (
	"context"
	"hash/maphash"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ral-limiter/ral/internal/core/seam"
	"github.com/ral-limiter/ral/policy"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func inFlight(n int64) policy.Policy { return policy.Must(policy.InFlight(n, time.Minute)) }

// The key's word would come back to the value that the release has read.
// Promise: A `Reset` between a release's look and its swap, and a take after it, keep the release from freeing that take's unit.
func TestResetDuringARelease(t *testing.T) {
	for _, n := range []int64{1, 3, 1000} {
		d := newDesk(t, inFlight(n), nil)
		d.now.Store(int64(time.Hour))
		old := d.Reserve("key", n, 0)
		require.True(t, old.Allowed)
		d.settle()
		var next reservation
		d.on(map[string]func(){"release: read": func() {
			d.on(nil)
			assert.True(t, d.Reset("key"))
			next = d.Reserve("key", n, 0)
			assert.True(t, next.Allowed)
		}})
		old.Keep(0)
		assert.Zero(t, d.Peek("key").Remaining, "the release freed another call's units")
		next.Keep(0)
		assert.EqualValues(t, n, d.Peek("key").Remaining)
		assert.Zero(t, d.control.Stats().Overstayed)
	}
}

// A take may come after a reset has announced itself, and before its swap. The reset then covers the take, so
// the take's release must free no unit of a later call. This is tried for the first reset of a key and later.
func TestTakeDuringAReset(t *testing.T) {
	d := newDesk(t, inFlight(2), nil)
	d.now.Store(int64(time.Hour))
	for range 4 {
		first := d.Reserve("key", 1, 0)
		require.True(t, first.Allowed)
		d.settle()
		var during reservation
		e := d.view.Look(d.hashOf("key"), "key")
		d.on(map[string]func(){
			"reset: undone": func() {
				locked := false
				d.on(map[string]func(){"takes: locked": func() {
					// The take waits for the lock, which a policy may hold that calls the engine.
					if !locked {
						locked = true
						e.UnlockReturn()
					}
				}})
				during = d.Reserve("key", 1, 0)
				require.Equal(t, locked, e.LockReturn())
			},
		})
		require.True(t, d.Reset("key"))
		require.True(t, during.Allowed)
		after := d.Reserve("key", 2, 0)
		require.True(t, after.Allowed)
		for _, r := range []*reservation{&first, &during} {
			copied := *r
			assert.False(t, copied.Extend())
			r.Keep(0)
			require.Zero(t, d.Peek("key").Remaining)
		}
		after.Keep(0)
		require.EqualValues(t, 2, d.Peek("key").Remaining)
	}
}

// Until a reset is over its key's units count. A release that returned before would seem to have done nothing.
func TestReleaseWaitsForAReset(t *testing.T) {
	d := newDesk(t, inFlight(2), nil)
	for range 3 {
		held := d.Reserve("key", 2, 0)
		require.True(t, held.Allowed)
		d.settle()
		waits, e := 0, d.view.Look(d.hashOf("key"), "key")
		d.on(map[string]func(){
			"reset: undone": func() {
				held.Keep(0)
				require.True(t, e.LockReturn())
			},
			// The reset gives its lock away once the release waits for it.
			"release: after a reset": func() {
				waits++
				e.UnlockReturn()
			},
		})
		assert.True(t, d.Reset("key"))
		assert.Equal(t, 1, waits, "the release must not wait")
		assert.EqualValues(t, 2, d.Peek("key").Remaining)
	}
}

// Other calls may change the word between the look and the swap of a release, and the writer may replace the
// entry for another limit.
func TestReleaseIsNotLost(t *testing.T) {
	for point, meanwhile := range map[string]func(d *desk){
		"a take":                func(d *desk) { d.Take("key", 1) },
		"another limit":         func(d *desk) { d.change(inFlight(500)) },
		"another longest time":  func(d *desk) { d.change(policy.Must(policy.InFlight(20, time.Hour))) },
		"two limits in a row":   func(d *desk) { d.change(inFlight(11)); d.change(inFlight(12)) },
		"a time and back again": func(d *desk) { d.change(policy.Must(policy.InFlight(20, time.Hour))); d.change(inFlight(9)) },
	} {
		for _, step := range []string{"release: read", "release: judged"} {
			d := newDesk(t, inFlight(10), nil)
			d.now.Store(int64(time.Hour))
			r := d.Reserve("key", 4, 0)
			d.settle()
			// The path with a lock begins with a Reset.
			if step == "release: judged" {
				d.Reset("key")
				r = d.Reserve("key", 4, 0)
			}
			d.on(map[string]func(){step: func() {
				d.on(nil)
				meanwhile(d)
			}})
			r.Keep(0)
			used := int64(0)
			if point == "a take" {
				used = 1
			}
			now := d.Peek("key")
			assert.Equal(t, used, now.Limit-now.Remaining, "%s at %q: another number of units is used than expected", point, step)
			assert.Zero(t, d.control.Stats().Overstayed, "%s at %q: a release in time counted as too late", point, step)
		}
	}
}

// Promise: A key that was released leaves the table within twice its idle time, and a key in use never.
func TestReleasedKeyLeaves(t *testing.T) {
	d := newDesk(t, policy.Must(policy.InFlight(1, 24*time.Hour)), nil)
	d.now.Store(int64(time.Hour))
	r := d.Reserve("key", 1, 0)
	for range 20 {
		d.advance(idle)
		d.forget()
		require.False(t, d.Take("key", 1).Allowed)
	}
	r.Keep(0)
	d.advance(2 * idle)
	d.forget()
	assert.Zero(t, d.Len())
}

// No offer is made for a key that a call waits for.
func TestNoOfferPassesTheLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, inFlight(3), nil)
		d.now.Store(int64(time.Hour))
		held := d.Reserve("key", 1, 0)
		d.settle()
		require.NotNil(t, d.offer("key").Level)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			_, err := d.Acquire(ctx, "key", 3, time.Hour)
			assert.ErrorIs(t, err, ErrCancelled)
		}()
		synctest.Wait()
		assert.Nil(t, d.offer("key").Level)
		cancel()
		synctest.Wait()
		assert.NotNil(t, d.offer("key").Level)
		held.Keep(0)
	})
}

// A take reads the count of resets after the word. Read before it, the count would be of another generation
// than the word if a reset came in between, and the take's release would take nothing.
//
// Promise: A `Reset` within a take, before it or after it, loses no release of that take.
func TestResetWithinATake(t *testing.T) {
	for _, c := range []struct {
		point   string
		general bool
	}{{"read: the terms", false}, {"read: the word", false}, {"read: the terms", true}, {"read: the word", true}} {
		point := c.point
		for _, before := range []string{"never reset", "reset", "reset and released"} {
			d := newDesk(t, inFlight(2), func(string) policy.Policy { return nil })
			d.now.Store(int64(time.Hour))
			first := d.Reserve("key", 1, 0)
			require.True(t, first.Allowed)
			d.settle()
			if before != "never reset" {
				require.True(t, d.Reset("key"))
				first = d.Reserve("key", 1, 0)
			}
			inUse := before != "reset and released"
			if !inUse {
				first.Keep(0)
			}
			resets := 0
			within := steps{do: map[string]func(){point: func() {
				if resets++; resets == 1 {
					assert.Equal(t, inUse, d.Reset("key"))
				}
			}}}
			seam.Give(d.table, seeded{within, d.table.View().Seed()})
			var taken reservation
			if c.general {
				d.reserve("key", &request{n: 1}, &taken.Decision, &taken.Held)
			} else {
				taken = d.Reserve("key", 1, 0)
			}
			require.True(t, taken.Allowed)
			require.Positive(t, resets)
			first.Keep(0)
			assert.EqualValues(t, 1, d.Peek("key").Remaining, point)
			taken.Keep(0)
			assert.EqualValues(t, 2, d.Peek("key").Remaining, "the release is lost: %s of a key that was %s", point, before)
		}
	}
}

// meddler is a limit of units in use that calls meanwhile between the look of a take and its swap.
type meddler struct {
	policy.Policy
	policy.Occupier
	policy.Relative
	meanwhile func()
}

func (m *meddler) Take(word uint64, now policy.Instant, n int64, patience time.Duration) (uint64, policy.Decision) {
	next, d := m.Policy.Take(word, now, n, patience)
	if meanwhile := m.meanwhile; n > 0 && meanwhile != nil {
		m.meanwhile = nil
		meanwhile()
	}
	return next, d
}

// The reset and takes after it bring the key's word back to the value from which the take was decided, so the
// take's swap would succeed.
//
// Promise: A `Reset` within a take loses no release of that take, also if no unit is in use or if others are taken after.
func TestResetWithinATakeMayBringTheWordBack(t *testing.T) {
	for inUse := range int64(3) {
		p := inFlight(4)
		m := &meddler{Policy: p, Occupier: p.(policy.Occupier), Relative: p.(policy.Relative)}
		d := newDesk(t, m, nil)
		d.now.Store(int64(time.Hour))
		d.Take("key", 4)
		d.settle()
		require.True(t, d.Reset("key"))
		d.Take("key", inUse)
		m.meanwhile = func() {
			assert.Equal(t, inUse > 0, d.Reset("key"))
			d.Take("key", inUse)
		}
		taken := d.Reserve("key", 1, 0)
		require.True(t, taken.Allowed)
		require.Nil(t, m.meanwhile)
		require.EqualValues(t, 3-inUse, d.Peek("key").Remaining)
		assert.True(t, taken.Extend(), "the units of a take after the reset must count")
		taken.Keep(0)
		assert.EqualValues(t, 4-inUse, d.Peek("key").Remaining, "the release is lost")
	}
}

// seeded is a scheduler of a table, whose seed stays.
type seeded struct {
	steps
	seed maphash.Seed
}

func (s seeded) Seed() maphash.Seed { return s.seed }
