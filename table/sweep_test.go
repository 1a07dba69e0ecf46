package table

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/policy"
)

// Promise: Keys in debt are forgotten only to make room.
func TestSweepNeverEvictsOwingKeys(t *testing.T) {
	r := newRig[string](t, Options{Idle: 1})
	e := r.add("a", 1)
	for now := policy.Instant(1); now < 1+hour; now += 7 * hour / 100 {
		r.sweep(now)
		require.Same(t, e, r.open("a"))
		require.False(t, r.take(e, now))
	}
	require.Zero(t, r.sweep(1+hour), "a key left a nanosecond early")
	require.Equal(t, 1, r.sweep(1+hour+1))
}

// Promise: Keys in use are never forgotten.
func TestSweepFilesKeysInUseAgain(t *testing.T) {
	r := newRig[string](t, Options{})
	e := r.add("a", 1)
	r.add("b", 2)
	require.True(t, r.take(e, 2*hour), "a drained key must admit a take")

	require.Equal(t, SweepResult{Evicted: 1}, r.Sweep(2*hour, 10))
	require.True(t, r.has("a"))
	require.False(t, r.has("b"))
	first, _ := r.index.Min()
	require.Equal(t, 3*hour, first.fresh, "the key must be filed under the instant from which it owes nothing")
	require.Equal(t, 1, r.sweep(3*hour+61*second))
}

// A caller takes between the writer's look at a word and its swap: the key stays.
//
// Promise: No take is lost between evicting and taking.
func TestSweepLosesAgainstACaller(t *testing.T) {
	var r rig[string]
	var e *Entry[string]
	r = newRig[string](t, Options{})
	e = r.add("a", 1)
	r.once("evict: judged", func() { require.True(t, r.take(e, 2*hour)) })
	require.Equal(t, SweepResult{More: true}, r.Sweep(2*hour, 1))
	require.Same(t, e, r.open("a"))
	require.False(t, r.take(e, 2*hour))
	require.Zero(t, r.sweep(2*hour))
}

// Promise: The writer works in bounded steps.
func TestSweepGoesByBudgetAndOrder(t *testing.T) {
	r := newRig[string](t, Options{})
	for i := range 10 {
		// The last key is the oldest.
		r.add(fmt.Sprint(i), 1+policy.Instant(9-i))
	}
	for left := 10; left > 0; left -= 4 {
		require.Equal(t, SweepResult{Evicted: min(left, 4), More: left > 4}, r.Sweep(2*hour, 4))
		for i := range 10 {
			require.Equal(t, i < left-4, r.has(fmt.Sprint(i)))
		}
	}
	r.add("x", 3*hour)
	require.Equal(t, SweepResult{}, r.Sweep(3*hour, 0))
	require.Equal(t, SweepResult{More: true}, r.Sweep(9*hour, 0), "Sweep must report more, although more work might do nothing")
	require.Equal(t, SweepResult{More: true}, r.Sweep(9*hour, -1))
}

func TestSweepGivesUntakenKeysTheirIdleTime(t *testing.T) {
	r := newRig[string](t, Options{})
	e := r.open("a")
	r.fileOne(e, hour)
	require.Zero(t, e.Word(), "the entry was not landed by the writer")
	require.Zero(t, r.sweep(hour+59*second))
	require.Equal(t, 1, r.sweep(hour+60*second))
}

// An entry filed before its first take is ordered by its filing, even if a take comes between the
// sweep's look and its swap.
func TestSweepFilesNoKeyAgainSooner(t *testing.T) {
	r := newRig[string](t, Options{})
	e := r.open("a")
	r.fileOne(e, hour)
	r.once("evict: judged", func() { require.True(t, r.take(e, 3*hour)) })
	require.Equal(t, SweepResult{More: true}, r.Sweep(3*hour, 1))
	first, _ := r.index.Min()
	require.Equal(t, hour, first.fresh)
}
