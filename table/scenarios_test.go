package table

import (
	"runtime/debug"
	"testing"
	"time"

	"github.com/ral-limiter/ral/internal/testkit/race"
)

// a and b share a slot; c, by its lowest bit, has its own.
var (
	sameSlot = map[string]uint64{"a": 2 << 20, "b": 4 << 20, "c": 1}
	sameHash = map[string]uint64{"a": 6, "b": 6, "c": 6}
)

// A scenario prepares a world with its callers and script, and says how many takes there should be.
// The writer is added to all.
type scenario struct {
	name        string
	preemptions int
	maxKeys     int
	hashes      map[string]uint64
	prepare     func(w *world)
}

var scenarios = []scenario{
	{"two callers open a key", 4, 4, sameSlot, func(w *world) {
		w.caller("a")
		w.caller("a")
		w.want = 1
	}},
	{"two callers open a key that is filed twice", 3, 4, sameSlot, func(w *world) {
		w.caller("a")
		w.caller("a")
		w.twice = true
		w.want = 1
	}},
	{"three callers open a key", 3, 4, sameSlot, func(w *world) {
		w.caller("a")
		w.caller("a")
		w.caller("a")
		w.want = 1
	}},
	{"a key is evicted while two take from it", 4, 4, sameSlot, func(w *world) {
		w.known("a")
		w.now += 2 * hour
		w.script = []func(){w.sweep}
		w.caller("a")
		w.caller("a")
		w.want = 2
	}},
	{"a key is filed and evicted while two open it", 3, 4, sameSlot, func(w *world) {
		w.landed("a")
		w.now += 2 * hour
		w.script = []func(){w.sweep}
		w.caller("a")
		w.caller("a")
		w.want = 2
	}},
	{"a key is looked for while it is filed", 4, 4, sameSlot, func(w *world) {
		w.caller("a")
		w.peeker("a")
		w.want = 1
	}},
	{"a key is sought while it is filed", 4, 4, sameSlot, func(w *world) {
		w.caller("a")
		w.seeker("a")
		w.want = 1
	}},
	{"a key is evicted and its shard copied while two open it", 3, 4, sameHash, func(w *world) {
		w.known("a")
		w.now += 2 * hour
		w.known("b")
		w.script = []func(){w.sweep, func() { w.table.resize(0, 2*leastBuckets) }}
		w.caller("a")
		w.caller("b", "a")
		w.want = 3
	}},
	{"a key is evicted, opened again, and its first command comes late", 3, 4, sameSlot, func(w *world) {
		e := w.known("a")
		w.now += 2 * hour
		w.script = []func(){w.sweep, w.again(e)}
		w.caller("a")
		w.caller("a")
		w.want = 2
	}},
	{"a call that opens a key stalls, and others want key and slot", 2, 4, sameSlot, func(w *world) {
		w.caller("a")
		w.caller("a")
		w.caller("b")
		w.want = 2
	}},
	{"two keys share a slot", 3, 4, sameSlot, func(w *world) {
		w.caller("a")
		w.caller("b")
		w.want = 2
	}},
	{"two keys share a hash", 2, 4, sameHash, func(w *world) {
		w.caller("a", "b")
		w.caller("b", "a")
		w.want = 2
	}},
	{"one of a chain is evicted while all are taken from", 3, 8, sameHash, func(w *world) {
		w.known("a")
		w.now += 2 * hour
		w.known("b")
		w.known("c")
		w.script = []func(){w.sweep}
		w.caller("a", "b")
		w.caller("c", "a")
		w.want = 4
	}},
	{"a table of one is filled with one key by three", 2, 1, sameSlot, func(w *world) {
		w.caller("a")
		w.caller("a")
		w.caller("a")
		w.want = 1
	}},
	{"a table of two is filled with two keys by two", 2, 2, sameSlot, func(w *world) {
		w.caller("a", "b")
		w.caller("b", "a")
		w.want = 2
	}},
	{"the table is full", 2, 1, sameSlot, func(w *world) {
		w.caller("a")
		w.caller("b")
		w.nearlyFull, w.want = true, 2
	}},
	{"the table is full of another key", 3, 1, sameSlot, func(w *world) {
		w.known("a")
		w.caller("b")
		w.caller("a")
		w.nearlyFull, w.want = true, 2
	}},
	{"commands are lost", 2, 4, sameSlot, func(w *world) {
		w.losses = 2
		w.caller("a")
		w.caller("a", "b")
		w.want = 2
	}},
	{"the writer is killed while a key is opened", 3, 4, sameSlot, func(w *world) {
		w.deaths = 1
		w.caller("a")
		w.caller("a")
		w.want = 1
	}},
	{"the writer is killed while a key is evicted", 3, 4, sameSlot, func(w *world) {
		w.known("a")
		w.now += 2 * hour
		w.deaths = 1
		w.script = []func(){w.sweep}
		w.caller("a")
		w.caller("a")
		w.want = 2
	}},
	{"the writer is killed again and again", 2, 4, sameHash, func(w *world) {
		w.known("a")
		w.now += 2 * hour
		w.deaths = 2
		w.script = []func(){w.sweep}
		w.caller("a", "b")
		w.want = 3
	}},
	{"time passes", 2, 4, sameSlot, func(w *world) {
		w.aging = true
		w.script = []func(){w.passes(2 * time.Hour), w.sweep}
		w.caller("a")
		w.caller("a", "a")
	}},
	{"the policy changes while two take from a key", 2, 4, sameSlot, func(w *world) {
		w.tallied()
		w.known("a")
		w.caller("a")
		w.caller("a")
		w.changer(2)
		w.want = 3
	}},
	{"the policy changes while two open a key", 2, 2, sameSlot, func(w *world) {
		w.tallied()
		w.caller("a")
		w.caller("a")
		w.changer(2)
		w.want = 2
	}},
	{"the policy changes while a key is filed, evicted and opened again", 2, 2, sameSlot, func(w *world) {
		w.tallied()
		w.landed("a")
		w.now += 2 * hour
		w.script = []func(){w.sweep}
		w.caller("a")
		w.changer(2)
		w.want = 2
	}},
	{"the policy changes while keys come to one hash", 2, 2, sameHash, func(w *world) {
		w.tallied()
		w.known("a")
		w.caller("b", "a")
		w.changer(2)
		w.want = 3
	}},
	{"the policy changes twice while one takes", 3, 2, sameSlot, func(w *world) {
		w.tallied()
		w.known("a")
		w.caller("a")
		w.changer(2, 3)
		w.want = 2
	}},
	// A word that looks the same under every policy.
	{"the policy changes twice while a call takes from a key that was never used", 2, 2, sameSlot, func(w *world) {
		w.tallied()
		w.unused("a")
		w.caller("a")
		w.changer(2, 3)
		w.want = 1
	}},
	{"the policy changes twice while one opens a key", 2, 2, sameSlot, func(w *world) {
		w.tallied()
		w.caller("a")
		w.changer(2, 3)
		w.want = 1
	}},
	{"two change the policy", 2, 2, sameSlot, func(w *world) {
		w.tallied()
		w.known("a")
		w.changer(2)
		w.changer(3)
		w.holds = 0
		w.want = 1
	}},
	{"the policy changes, and commands are lost", 2, 2, sameSlot, func(w *world) {
		w.tallied()
		w.losses = 1
		w.caller("a")
		w.changer(2)
		w.want = 1
	}},
	{"the policy changes, and commands are carried out twice", 2, 2, sameSlot, func(w *world) {
		w.tallied()
		w.twice = true
		w.caller("a")
		w.changer(2)
		w.want = 1
	}},
	{"the writer is killed while the policy changes", 2, 2, sameSlot, func(w *world) {
		w.tallied()
		w.known("a")
		w.deaths = 1
		w.caller("a")
		w.changer(2)
		w.want = 2
	}},
	{"the writer is killed while the policy changes twice", 1, 2, sameSlot, func(w *world) {
		w.tallied()
		w.known("a")
		w.deaths = 2
		w.caller("a")
		w.changer(2, 3)
		w.want = 2
	}},
	{"the writer is killed by a change again and again", 1, 2, sameSlot, func(w *world) {
		w.tallied()
		w.known("a")
		w.deaths = 4
		w.changer(2)
		w.want = 1
	}},
	{"all keys are looked at while the policy changes", 3, 4, sameHash, func(w *world) {
		w.tallied()
		w.known("b")
		w.landed("a")
		w.walker("a")
		w.changer(2)
		w.want = 2
	}},
	{"a key is looked for while the policy changes", 3, 4, sameHash, func(w *world) {
		w.tallied()
		w.known("b")
		w.known("a")
		w.peeker("a")
		w.changer(2)
		w.want = 2
	}},
	{"all keys are looked at while one of them is filed", 6, 4, sameHash, func(w *world) {
		w.tallied()
		w.known("b")
		w.landed("a")
		w.walker("a")
		w.want = 2
	}},
}

// TestSchedules runs every scenario under every schedule with so many preemptions. See world for
// the properties.
//
// Promise: In any order of steps a key has at most one usable entry.
func TestSchedules(t *testing.T) {
	// Each schedule has its own table: collecting them would take most of the time.
	percent := debug.SetGCPercent(800)
	t.Cleanup(func() { debug.SetGCPercent(percent) })
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			preemptions := s.preemptions
			switch {
			case race.Enabled:
				preemptions = 0 // processes are coroutines, between which there are no races
			case testing.Short():
				preemptions = max(preemptions-1, 1)
			}
			explore(t, preemptions, func(x *explorer) (each, end func() string) {
				w := newWorld(x, s.maxKeys, s.hashes)
				s.prepare(w)
				w.writer()
				return w.each, w.end
			})
		})
	}
}
