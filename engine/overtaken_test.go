package engine

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/policy"
)

// overtaken calls meanwhile once, after the limit has decided on a word, and before its caller
// swaps it.
type overtaken struct {
	policy.Policy
	meanwhile func()
}

func (o *overtaken) Take(word uint64, now policy.Instant, n int64, patience time.Duration) (uint64, policy.Decision) {
	next, d := o.Policy.Take(word, now, n, patience)
	if n > 0 {
		o.meanwhile()
	}
	return next, d
}

func (o *overtaken) Choke(word uint64, now policy.Instant) (uint64, bool) {
	next, allowed := o.Policy.(policy.Choker).Choke(word, now)
	o.meanwhile()
	return next, allowed
}

// Two callers cannot spend the same unit, however goroutines run.
//
// Promise: An overtaken call decides again.
func TestOvertakenCallDecidesAgain(t *testing.T) {
	limit := &overtaken{funnel(3, 1, time.Hour), func() {}}
	e := open[string](t, Config{Policy: limit})
	for name, call := range map[string]func(key string) bool{
		"Choke":   e.Choke,
		"Take":    func(key string) bool { return e.Take(key, 1).Allowed },
		"Reserve": func(key string) bool { return e.Reserve(key, 1, 0).Allowed },
	} {
		for _, known := range []bool{true, false} {
			key := name
			if known {
				require.True(t, e.Choke(key))
				settled(t, e)
			} else {
				key += " of a new key"
			}
			left := e.Peek(key, 0).Remaining
			struck := false
			limit.meanwhile = once(func() {
				struck = true
				require.True(t, e.Take(key, left).Allowed)
			})
			assert.False(t, call(key), key)
			assert.True(t, struck, key)
			assert.Zero(t, e.Peek(key, 0).Remaining, key)
			assert.False(t, e.Choke(key), key)
		}
	}
}

// A call that took during a Reset, before its swap, gives nothing back: its units went back to all.
func TestCancelOfUnitsTakenDuringReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := &hooked{Policy: funnel(5, 1, time.Hour)}
		e := open[string](t, Config{Policy: limit, Clock: newHandClock().Now})
		require.True(t, e.Choke("key"))
		synctest.Wait()
		var during Reservation[string]
		limit.fresh = once(func() { during = e.Reserve("key", 2, 0) })
		require.True(t, e.Reset("key"))
		require.True(t, e.Take("key", 3).Allowed)
		during.Cancel()
		assert.EqualValues(t, 2, e.Peek("key", 0).Remaining, "the call must take from the units that the later call left")
	})
}

// A Cancel is held up after reading the clock. Meanwhile its units drain, and another call takes.
// Drained units do not come back.
func TestCancelIsNotDatedBack(t *testing.T) {
	// In a bubble, the writer and the janitor, which read the clock too, stand still here.
	synctest.Test(t, func(t *testing.T) {
		const interval = 4 * time.Millisecond
		var now policy.Instant
		var heldUp func()
		e := open[string](t, Config{
			Policy: policy.Must(policy.Funnel(3, 1, interval)),
			Clock: func() policy.Instant {
				then := now
				if during := heldUp; during != nil {
					heldUp = nil
					during()
				}
				return then
			},
		})
		for name, giveBack := range map[string]func(r *Reservation[string]){
			"all":  func(r *Reservation[string]) { r.Cancel() },
			"some": func(r *Reservation[string]) { r.Keep(1) },
		} {
			r := e.Reserve(name, 2, 0)
			require.True(t, r.Allowed)
			require.True(t, e.Choke(name), "a first take must pass, so that the clock matters to the cancel")
			synctest.Wait()
			heldUp = func() {
				now += policy.Instant(3 * interval)
				require.True(t, e.Choke(name))
			}
			giveBack(&r)
			require.Nil(t, heldUp, "giving back must read the clock")
			require.EqualValues(t, 2, e.Peek(name, 0).Remaining, "%s: one unit must be taken", name)
		}
	})
}
