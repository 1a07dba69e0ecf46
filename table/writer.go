package table

import (
	"math"

	"github.com/ral-limiter/ral/policy"
)

// Only the writer calls the methods in this file.

// Points lists the points at which the writer calls Options.Fault, in the order of a key's life.
func Points() []string {
	return []string{
		"file: begin", "file: in the map", "file: in the index", "file: out of the slot",
		"sweep: begin", "sweep: refiled",
		"evict: dead", "evict: gone",
		"room: begin",
		"change: begin", "change: made", "move: announced", "move: dead", "change: over", "adopt: begin", "recover: begin", "recover: shard", "recover: some",
	}
}

// Running tells callers whether the writer runs, so that they yield only to a writer that does not.
func (t *Table[K]) Running(running bool) { t.running.Store(running) }

// File moves the entries in the nursery's slot of the hash to the map and the index, and returns
// their number. File leaves none behind, except to Settle: callers that land behind another send no
// command.
func (t *Table[K]) File(hash uint64, now policy.Instant) (filed int) {
	slot := t.slotOf(hash)
	for node := slot.Load(); node != nil; node = slot.Load() {
		if filed%touchStep == 0 {
			t.touch(node)
		}
		if filed == fileBudget {
			t.lostFiling.Store(true)
			break
		}
		t.file(slot, node, now)
		filed++
	}
	return filed
}

const touchStep = 8

// touch loads the memory that file needs of the next touchStep nodes. Every atomic store of file
// waits for the loads before it; here their cache misses overlap. The overlap saved an eighth of
// File's time.
func (t *Table[K]) touch(node *node[K]) {
	for left := touchStep; left > 0 && node != nil; left-- {
		node.entry.word.Load()
		i, rest := t.shardOf(node.hash)
		if shard := t.shards[i].Load(); shard != nil {
			shard.buckets[shard.place(node.hash, rest).bucket].tags.Load()
		}
		node = node.next.Load()
	}
}

func (t *Table[K]) file(slot *slot[K], node *node[K], now policy.Instant) {
	t.fault("file: begin")
	entry, hash := node.entry, node.hash
	t.stepPoint("file: in the slot")
	// The entry may still be tentative, with its caller stopped at any point. That caller will find
	// the word changed, and go on from there.
	t.secondLook(hash, entry)
	t.stepPoint("file: confirmed")
	t.land(entry)
	if !entry.dead() {
		t.stepPoint("file: judged")
		if t.insert(hash, entry) {
			t.fault("file: in the map")
			if i, _ := t.shardOf(hash); t.isIndexed(i) {
				if t.changing {
					entry = t.move(hash, entry)
				}
				word := entry.word.Load()
				fresh := t.dueAt(t.freshAt(word), now)
				if word&^epochBit == 0 {
					// A key that was never used is not due at once.
					fresh = now
				}
				t.index.Add(filing[K]{fresh, entry})
				if fresh-t.firm < policy.Instant(t.firmUntil.Load()) {
					t.firmUntil.Store(0)
				}
			}
			t.fault("file: in the index")
		}
	}
	// Callers that miss it in the slot from here on find it in the map.
	t.unlink(slot, node)
	t.fault("file: out of the slot")
}

// Unsettled reports whether Settle has anything to do.
func (t *Table[K]) Unsettled() bool {
	return t.lostFiling.Load() || t.adopted < len(t.nursery) || !t.recovered() || t.changing
}

func (t *Table[K]) recovered() bool { return t.indexed == len(t.shards) && len(t.pending) == 0 }

// Settle does a bounded part of the work that lost commands and a dead writer have left.
func (t *Table[K]) Settle(now policy.Instant) {
	// Filings lost during a pass wait for the next pass. If each started a new pass, the last slots
	// would starve while callers keep losing commands.
	if t.adopted == len(t.nursery) && t.lostFiling.Swap(false) {
		t.adopted = 0
	}
	if t.adopted < len(t.nursery) {
		t.fault("adopt: begin")
		for budget := settleStep; budget > 0 && t.adopted < len(t.nursery); budget-- {
			slot := &t.nursery[t.adopted]
			if node := slot.Load(); node != nil {
				if budget%touchStep == 0 {
					t.touch(node)
				}
				t.file(slot, node, now)
			} else {
				t.adopted++
			}
		}
	}
	if !t.recovered() {
		t.reindex(now)
	}
	if t.changing && t.adopted == len(t.nursery) && t.recovered() {
		t.finishChange()
	}
}

// Recover begins the work of a new writer. Recover discards the index, which may be in any state;
// Settle rebuilds it from the map. Recover starts after the last writer's shard. So even if every
// writer dies early, each shard's idle keys are found once a writer lives through that shard.
func (t *Table[K]) Recover() {
	t.endMove()
	t.index = newIndex[K]()
	t.firmUntil.Store(0)
	t.first, t.indexed = t.nextShard(), 0
	t.pending = nil
	t.adopted = 0
	t.fault("recover: begin")
	t.passEmpty()
}

func (t *Table[K]) passEmpty() {
	for t.indexed < len(t.shards) && t.shards[t.nextShard()].Load() == nil {
		t.indexed++
	}
}

func (t *Table[K]) nextShard() int { return (t.first + t.indexed) % len(t.shards) }

// isIndexed reports whether the index has all entries of the shard except those pending.
func (t *Table[K]) isIndexed(shard int) bool {
	return (shard-t.first+len(t.shards))%len(t.shards) < t.indexed
}

// reindex indexes some pending entries, collecting the next shard's first if there are none.
// Entries filed in a collected shard are indexed at once. reindex evicts due entries: if writers
// keep dying before the index is complete, hardly any sweep reaches them.
func (t *Table[K]) reindex(now policy.Instant) {
	t.fault("recover: shard")
	if len(t.pending) == 0 {
		t.pending = t.collectShard(t.nextShard())
		t.indexed++
		t.passEmpty()
	}
	some := t.pending[:min(settleStep, len(t.pending))]
	for _, entry := range some {
		if t.changing {
			entry = t.move(t.hash(entry.Key()), entry)
		}
		if fresh, gone := t.evict(entry, now-t.idle, now); !gone {
			t.index.Add(filing[K]{t.dueAt(fresh, now), entry})
		}
	}
	t.fault("recover: some")
	if t.pending = t.pending[len(some):]; len(t.pending) == 0 {
		// An empty slice would keep the replaced entries alive.
		t.pending = nil
	}
}

// collectShard returns a shard's entries and finishes the evictions begun there.
func (t *Table[K]) collectShard(i int) (entries []*Entry[K]) {
	shard := t.shards[i].Load()
	if shard == nil {
		return nil
	}
	for entry := range shard.all() {
		if entry.dead() {
			t.remove(t.hash(entry.Key()), entry)
		} else {
			entries = append(entries, entry)
		}
	}
	return entries
}

// SweepResult is the result of a sweep.
type SweepResult struct {
	Evicted int
	// More is set if the budget ran out while more entries are due.
	More bool
}

// Sweep looks at due entries, oldest first, at most budget. Sweep evicts the entries that owed
// nothing for the idle time, and files the others under the instant from which they will owe
// nothing.
func (t *Table[K]) Sweep(now policy.Instant, budget int) (sweepResult SweepResult) {
	t.fault("sweep: begin")
	t.nearlyFull = t.nearlyFull && t.places.taken() > t.maxKeys-t.maxKeys/8
	due := now - t.idle
	for ; budget > 0; budget-- {
		oldest, ok := t.index.Min()
		if !ok || oldest.fresh > due {
			return sweepResult
		}
		if t.evictIf(oldest, due, now) {
			sweepResult.Evicted++
		}
	}
	oldest, ok := t.index.Min()
	sweepResult.More = ok && oldest.fresh <= due
	return sweepResult
}

// headroom returns the number of places that a nearly full table keeps free.
func (t *Table[K]) headroom() int64 { return min(roomStep, t.maxKeys/roomShare) }

// MakeRoom evicts keys until want places are free, those with the least debt first, looking at most
// at budget entries. MakeRoom evicts none while the index is being rebuilt, because the least debt
// is not known.
func (t *Table[K]) MakeRoom(now policy.Instant, want int64, budget int) {
	t.fault("room: begin")
	if !t.recovered() {
		return
	}
	occupied := t.terms.Load().Occupier != nil
	if occupied {
		t.looking.Store(true)
		if t.vain == 0 && t.reset.Load() {
			t.lookAgain()
		}
	}
	// Counted once: a caller that takes a place just made must not cost another key its own.
	short := t.places.taken() - (t.maxKeys - want)
	for ; short > 0 && budget > 0; budget-- {
		oldest, ok := t.index.Min()
		if !ok {
			// The other entries are in the nursery, about to be filed.
			return
		}
		// Unless units were given back, an entry that owes is never fresh sooner than filed. So if
		// the first filing is accurate, its entry has the least debt that the writer knows of.
		due := oldest.fresh
		if occupied {
			// A key in use keeps its place. A pass that met no other key spares callers the next.
			due = min(due, now)
			if t.vain >= t.index.Len() && t.reset.Load() {
				t.lookAgain()
				continue
			}
			if t.vain >= t.index.Len() {
				t.firmUntil.Store(int64(t.soonest))
				t.looking.Store(false)
				t.vain, t.soonest = 0, math.MaxInt64
				return
			}
		}
		if t.firm != 0 && due > now+t.firm {
			// And so are all others, except keys reset since they were filed.
			if t.reset.Swap(false) {
				t.Recover()
			} else {
				t.firmUntil.Store(int64(due - t.firm))
			}
			return
		}
		if t.evictIf(oldest, due, now) {
			short--
			t.vain, t.soonest = 0, math.MaxInt64
		} else {
			t.vain++
		}
	}
}

// lookAgain begins a pass of MakeRoom at keys in use, because a key may be in use no more. It first
// forgets the result of the pass before: a caller must not be refused for that once reset is
// cleared.
func (t *Table[K]) lookAgain() {
	t.firmUntil.Store(0)
	t.reset.Store(false)
	t.vain, t.soonest = 0, math.MaxInt64
}

// dueAt returns the instant under which a key is filed that owes nothing from fresh on. Units in use may
// be released long before, and no release tells the writer. So a key in use is looked at again within
// twice the idle time.
func (t *Table[K]) dueAt(fresh, now policy.Instant) policy.Instant {
	if fresh > now && t.terms.Load().Occupier != nil {
		return now + t.idle
	}
	return fresh
}

// evictIf evicts the entry of the first filing if it is fresh at due, and otherwise refiles it.
func (t *Table[K]) evictIf(oldest filing[K], due, now policy.Instant) bool {
	fresh, gone := t.evict(oldest.entry, due, now)
	t.index.DeleteMin()
	if !gone {
		if t.terms.Load().Occupier != nil {
			t.soonest = min(t.soonest, fresh)
			t.index.Add(filing[K]{t.dueAt(fresh, now), oldest.entry})
		} else {
			t.index.Add(filing[K]{max(fresh, oldest.fresh), oldest.entry})
		}
		t.fault("sweep: refiled")
	}
	return gone
}

// evict evicts an entry if the entry is fresh at due, and returns the instant from which the entry
// is fresh.
func (t *Table[K]) evict(entry *Entry[K], due, now policy.Instant) (fresh policy.Instant, gone bool) {
	word := entry.word.Load()
	fresh = t.freshAt(word)
	t.stepPoint("evict: judged")
	if fresh > due {
		// The entry is fresh later than filed.
		return fresh, false
	}
	// The horizon must be there before the key is gone.
	t.forgetAt(now)
	hash := t.hash(entry.Key())
	if left := t.terms.Load().left; left != nil {
		// The mark must be there before the key is gone, too.
		left[hash&uint64(len(left)-1)].Store(true)
	}
	if !entry.word.CompareAndSwap(word, tombstone) {
		// The entry is in use at this moment.
		return fresh, false
	}
	t.counters.Evicted.Add(1)
	if fresh > now {
		t.counters.Forgiven.Add(1)
	}
	t.fault("evict: dead")
	t.remove(hash, entry)
	t.fault("evict: gone")
	return fresh, true
}

func (t *Table[K]) forgetAt(now policy.Instant) {
	if int64(now) > t.horizon.Load() {
		t.horizon.Store(int64(now))
	}
}

// Clear forgets all keys. Clear is the last operation on a table, and the places taken are not
// given back. It leaves the writer's fields alone, since a writer that could not be stopped may be
// at work.
func (t *Table[K]) Clear() {
	for i := range t.shards {
		t.shards[i].Store(nil)
	}
	for i := range t.nursery {
		t.nursery[i].Store(nil)
	}
}
