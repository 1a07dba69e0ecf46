package table

import (
	"runtime/debug"
	"testing"
	"time"

	"github.com/ral-limiter/ral/internal/testkit/testenv"
)

// a and b share a slot; c, by its lowest bit, has its own.
var (
	sameSlot = map[string]uint64{"a": 2 << 20, "b": 4 << 20, "c": 1}
	sameHash = map[string]uint64{"a": 6, "b": 6, "c": 6}
)

// A scenario prepares a world with its callers and script. The writer is added to all.
type scenario struct {
	name        string
	preemptions int
	maxKeys     int
	hashes      map[string]uint64
	// want is the number of takes.
	want    int
	prepare func(w *world)
}

var scenarios = []scenario{
	{"two callers open a key", 4, 4, sameSlot, 1, func(w *world) { w.callers("a", "a") }},
	{"two callers open a key that is filed twice", 3, 4, sameSlot, 1, func(w *world) {
		w.callers("a", "a")
		w.twice = true
	}},
	{"three callers open a key", 3, 4, sameSlot, 1, func(w *world) { w.callers("a", "a", "a") }},
	{"a key is evicted while two take from it", 4, 4, sameSlot, 2, func(w *world) {
		w.known("a")
		w.now += 2 * hour
		w.script = []func(){w.sweep}
		w.callers("a", "a")
	}},
	{"a key is filed and evicted while two open it", 3, 4, sameSlot, 2, func(w *world) {
		w.landed("a")
		w.now += 2 * hour
		w.script = []func(){w.sweep}
		w.callers("a", "a")
	}},
	{"a key is looked for while it is filed", 4, 4, sameSlot, 1, func(w *world) {
		w.callers("a")
		w.finder("a", View[string].Look)
	}},
	{"a key is sought while it is filed", 4, 4, sameSlot, 1, func(w *world) {
		w.callers("a")
		w.finder("a", View[string].Seek)
	}},
	{"a key is evicted and its shard copied while two open it", 3, 4, sameHash, 3, func(w *world) {
		w.known("a")
		w.now += 2 * hour
		w.known("b")
		w.script = []func(){w.sweep, func() { w.table.resize(0, 2*minBuckets) }}
		w.callers("a", "b a")
	}},
	{"a key is evicted, opened again, and its first command comes late", 3, 4, sameSlot, 2, func(w *world) {
		e := w.known("a")
		w.now += 2 * hour
		w.script = []func(){w.sweep, w.again(e)}
		w.callers("a", "a")
	}},
	{"a call that opens a key stalls, and others want key and slot", 2, 4, sameSlot, 2, func(w *world) { w.callers("a", "a", "b") }},
	{"two keys share a slot", 3, 4, sameSlot, 2, func(w *world) { w.callers("a", "b") }},
	{"two keys share a hash", 2, 4, sameHash, 2, func(w *world) { w.callers("a b", "b a") }},
	{"one of a chain is evicted while all are taken from", 3, 8, sameHash, 4, func(w *world) {
		w.known("a")
		w.now += 2 * hour
		w.known("b")
		w.known("c")
		w.script = []func(){w.sweep}
		w.callers("a b", "c a")
	}},
	{"a table of one is filled with one key by three", 2, 1, sameSlot, 1, func(w *world) { w.callers("a", "a", "a") }},
	{"a table of two is filled with two keys by two", 2, 2, sameSlot, 2, func(w *world) { w.callers("a b", "b a") }},
	{"the table is full", 2, 1, sameSlot, 2, func(w *world) {
		w.callers("a", "b")
		w.nearlyFull = true
	}},
	{"the table is full of another key", 3, 1, sameSlot, 2, func(w *world) {
		w.known("a")
		w.callers("b", "a")
		w.nearlyFull = true
	}},
	{"commands are lost", 2, 4, sameSlot, 2, func(w *world) {
		w.losses = 2
		w.callers("a", "a b")
	}},
	{"the writer is killed while a key is opened", 3, 4, sameSlot, 1, func(w *world) {
		w.deaths = 1
		w.callers("a", "a")
	}},
	{"the writer is killed while a key is evicted", 3, 4, sameSlot, 2, func(w *world) {
		w.known("a")
		w.now += 2 * hour
		w.deaths = 1
		w.script = []func(){w.sweep}
		w.callers("a", "a")
	}},
	{"the writer is killed again and again", 2, 4, sameHash, 3, func(w *world) {
		w.known("a")
		w.now += 2 * hour
		w.deaths = 2
		w.script = []func(){w.sweep}
		w.callers("a b")
	}},
	{"time passes", 2, 4, sameSlot, 0, func(w *world) {
		w.aging = true
		w.script = []func(){w.passes(2 * time.Hour), w.sweep}
		w.callers("a", "a a")
	}},
}

// changes are scenarios in which the policy is a tally, and may change.
var changes = []scenario{
	{"the policy changes while two take from a key", 2, 4, sameSlot, 3, func(w *world) {
		w.known("a")
		w.callers("a", "a")
		w.changer(2)
	}},
	{"the policy changes while two open a key", 2, 2, sameSlot, 2, func(w *world) {
		w.callers("a", "a")
		w.changer(2)
	}},
	{"the policy changes while a key is filed, evicted and opened again", 2, 2, sameSlot, 2, func(w *world) {
		w.landed("a")
		w.now += 2 * hour
		w.script = []func(){w.sweep}
		w.callers("a")
		w.changer(2)
	}},
	{"the policy changes while keys come to one hash", 2, 2, sameHash, 3, func(w *world) {
		w.known("a")
		w.callers("b a")
		w.changer(2)
	}},
	{"the policy changes twice while one takes", 3, 2, sameSlot, 2, func(w *world) {
		w.known("a")
		w.callers("a")
		w.changer(2, 3)
	}},
	// A word that looks the same under every policy.
	{"the policy changes twice while a call takes from a key that was never used", 2, 2, sameSlot, 1, func(w *world) {
		w.unused("a")
		w.callers("a")
		w.changer(2, 3)
	}},
	{"the policy changes twice while one opens a key", 2, 2, sameSlot, 1, func(w *world) {
		w.callers("a")
		w.changer(2, 3)
	}},
	{"two change the policy", 2, 2, sameSlot, 1, func(w *world) {
		w.known("a")
		w.changer(2)
		w.changer(3)
		w.holds = 0
	}},
	{"the policy changes, and commands are lost", 2, 2, sameSlot, 1, func(w *world) {
		w.losses = 1
		w.callers("a")
		w.changer(2)
	}},
	{"the policy changes, and commands are carried out twice", 2, 2, sameSlot, 1, func(w *world) {
		w.twice = true
		w.callers("a")
		w.changer(2)
	}},
	{"the writer is killed while the policy changes", 2, 2, sameSlot, 2, func(w *world) {
		w.known("a")
		w.deaths = 1
		w.callers("a")
		w.changer(2)
	}},
	{"the writer is killed while the policy changes twice", 1, 2, sameSlot, 2, func(w *world) {
		w.known("a")
		w.deaths = 2
		w.callers("a")
		w.changer(2, 3)
	}},
	{"the writer is killed by a change again and again", 1, 2, sameSlot, 1, func(w *world) {
		w.known("a")
		w.deaths = 4
		w.changer(2)
	}},
	{"all keys are looked at while the policy changes", 3, 4, sameHash, 2, func(w *world) {
		w.known("b")
		w.landed("a")
		w.walker("a")
		w.changer(2)
	}},
	{"a key is looked for while the policy changes", 3, 4, sameHash, 2, func(w *world) {
		w.known("b")
		w.known("a")
		w.finder("a", View[string].Look)
		w.changer(2)
	}},
	{"all keys are looked at while one of them is filed", 6, 4, sameHash, 2, func(w *world) {
		w.known("b")
		w.landed("a")
		w.walker("a")
	}},
}

// TestSchedules runs every scenario under every schedule with so many preemptions. See world for
// the properties.
//
// Promise: In any order of steps a key has at most one usable entry.
// Promise: Only a certainly full table turns keys away.
// Promise: A stalled take leaves no word of an earlier limit.
func TestSchedules(t *testing.T) {
	// Each schedule has its own table: collecting them would take most of the time.
	percent := debug.SetGCPercent(800)
	t.Cleanup(func() { debug.SetGCPercent(percent) })
	for i, s := range append(scenarios, changes...) {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			preemptions := s.preemptions
			switch {
			case testenv.Race:
				// Processes are coroutines, between which there are no races.
				preemptions = 0
			case testing.Short():
				preemptions = max(preemptions-1, 1)
			}
			explore(t, preemptions, func(x *explorer) (each, end func() string) {
				w := newWorld(x, s.maxKeys, s.hashes)
				if w.want = s.want; i >= len(scenarios) {
					w.tallied()
				}
				s.prepare(w)
				w.writer()
				return w.each, w.end
			})
		})
	}
}
