package table

import (
	"time"

	"github.com/ral-limiter/ral/policy"
)

// The methods in this file are the writer's.

// Points lists the places at which the writer calls Options.Fault, in the order
// in which the life of a key comes by them.
func Points() []string {
	return []string{
		"file: begin", "file: in the map", "file: in the index", "file: out of the slot",
		"sweep: begin", "sweep: refiled",
		"evict: dead", "evict: gone",
		"room: begin", "take: begin", "take: done",
		"change: begin", "change: made", "change: over", "adopt: begin", "recover: begin", "recover: shard", "recover: some",
	}
}

// File empties the slot of the nursery that an entry of the key would land in: it
// moves the entries from there to the map and the index, and returns how many.
//
// Whoever lands behind another sends no command, and relies on the slot being
// emptied. So File leaves none behind, unless it leaves that to Settle.
func (t *Table[K]) File(key K, now policy.Instant) (filed int) {
	slot := t.slotOf(t.hash(key))
	for n := slot.Load(); n != nil; n = slot.Load() {
		if filed == fileBudget {
			t.lostFiling.Store(true)
			break
		}
		t.file(slot, n, now)
		filed++
	}
	return filed
}

// file files the entry of a node of that slot.
func (t *Table[K]) file(slot *slot[K], n *node[K], now policy.Instant) {
	t.fault("file: begin")
	e, hash := n.entry, n.hash
	t.between("file: in the slot")
	// Still tentative: its caller may be anywhere. He will find the word changed
	// under him, and go on from there.
	t.confirm(hash, e)
	t.between("file: confirmed")
	t.renew(e)
	if word := e.word.Load(); word != tombstone {
		t.between("file: judged")
		if t.insert(hash, e) {
			t.fault("file: in the map")
			if i, _ := t.shardOf(hash); t.isIndexed(i) {
				fresh := t.freshAt(word)
				if word&^epochBit == 0 {
					fresh = now // one that was not taken from yet is not due at once
				}
				t.index.Add(filing[K]{fresh, e})
			}
			t.fault("file: in the index")
		}
	}
	// The map has it: callers who miss it in the slot from here on find it there.
	t.unlink(slot, n)
	t.fault("file: out of the slot")
}

// Unsettled tells whether Settle has anything to do.
func (t *Table[K]) Unsettled() bool {
	return t.lostFiling.Load() || t.adopted < len(t.nursery) || !t.recovered()
}

// recovered tells whether the index has all that the map has.
func (t *Table[K]) recovered() bool { return t.indexed == len(t.shards) && len(t.pending) == 0 }

// Settle does a bounded piece of what lost commands and a lost writer have left
// behind: it files what it finds in a part of the nursery, and indexes some of what
// is in the map.
func (t *Table[K]) Settle(now policy.Instant) {
	// Strays that come while a pass is under way wait for the next one. Beginning
	// anew for each would never come to the last slots while callers keep losing
	// commands.
	if t.adopted == len(t.nursery) && t.lostFiling.Swap(false) {
		t.adopted = 0
	}
	if t.adopted < len(t.nursery) {
		t.fault("adopt: begin")
		for budget := settleStep; budget > 0 && t.adopted < len(t.nursery); budget-- {
			slot := &t.nursery[t.adopted]
			if n := slot.Load(); n != nil {
				t.file(slot, n, now)
			} else {
				t.adopted++
			}
		}
	}
	if !t.recovered() {
		t.reindex(now)
	}
	if t.changing && t.adopted == len(t.nursery) && t.recovered() {
		t.changed()
	}
}

// Recover is what a new writer begins with. It forgets the index, which its
// predecessor may have left in any state; Settle builds it again from the map. It
// begins with the shard after the one that the predecessor was at: if all writers die
// before they have come to the end, the idle keys of a shard are found nevertheless, by
// one that lives until it has gone through it.
func (t *Table[K]) Recover() {
	t.index = newIndex[K]()
	t.first, t.indexed = t.nextShard(), 0
	t.pending = nil
	t.adopted = 0
	t.fault("recover: begin")
	for t.indexed < len(t.shards) && t.shards[t.nextShard()].Load() == nil {
		t.indexed++
	}
}

// nextShard is the one that is indexed after those that have been.
func (t *Table[K]) nextShard() int { return (t.first + t.indexed) % len(t.shards) }

// isIndexed tells whether the index has, but for what is pending, all that the shard has.
func (t *Table[K]) isIndexed(shard int) bool {
	return (shard-t.first+len(t.shards))%len(t.shards) < t.indexed
}

// reindex indexes some of the entries of the shard that it is at, and gathers
// those of the next when it has done with that. From then on what is filed there
// is indexed at once. It evicts those that are due: where writers die more often than
// the index is complete, hardly any sweep comes to them.
func (t *Table[K]) reindex(now policy.Instant) {
	t.fault("recover: shard")
	if len(t.pending) == 0 {
		t.pending = t.gather(t.nextShard())
		t.indexed++
	}
	some := t.pending[:min(settleStep, len(t.pending))]
	for _, e := range some {
		t.renew(e)
		if fresh, gone := t.evict(e, now-t.idle, now); !gone {
			t.index.Add(filing[K]{fresh, e})
		}
	}
	t.fault("recover: some")
	t.pending = t.pending[len(some):]
}

// gather returns the entries of a shard, and finishes the evictions that the
// writer's predecessor had begun there.
func (t *Table[K]) gather(i int) (entries []*Entry[K]) {
	s := t.shards[i].Load()
	if s == nil {
		return nil
	}
	for e := range s.all() {
		if e.dead() {
			t.remove(t.hash(e.key), e)
		} else {
			entries = append(entries, e)
		}
	}
	return entries
}

// SweepResult says how a sweep went.
type SweepResult struct {
	Evicted int
	More    bool // there are more entries due: the budget ran out
}

// Sweep looks at the entries that are due, oldest first, budget of them at the
// most. It evicts those that have owed nothing for the idle time, and files the
// others again under the instant from which they will owe nothing.
func (t *Table[K]) Sweep(now policy.Instant, budget int) (r SweepResult) {
	t.fault("sweep: begin")
	t.crowded = t.crowded && t.places.taken() > t.maxKeys-t.maxKeys/8
	due := now - t.idle
	for ; budget > 0; budget-- {
		oldest, ok := t.index.Min()
		if !ok || oldest.fresh > due {
			return r
		}
		if t.evictIf(oldest, due, now) {
			r.Evicted++
		}
	}
	oldest, ok := t.index.Min()
	r.More = ok && oldest.fresh <= due
	return r
}

// ahead is how many places a crowded table keeps free.
func (t *Table[K]) ahead() int64 { return min(roomStep, t.maxKeys/roomShare) }

// MakeRoom gives up keys until want places are free, those with the least debt
// first, looking at budget entries at the most. While the index is being rebuilt
// it gives up nobody, because it could not tell who has the least.
func (t *Table[K]) MakeRoom(now policy.Instant, want int64, budget int) {
	t.fault("room: begin")
	if !t.recovered() {
		return
	}
	// Counted once: whoever takes a place that was made must not cost another.
	short := t.places.taken() - (t.maxKeys - want)
	for ; short > 0 && budget > 0; budget-- {
		oldest, ok := t.index.Min()
		if !ok {
			return // the others are in the nursery, about to be filed
		}
		// But for what was given back since, an entry that owes is never fresh sooner
		// than its filing says. So one whose filing is first, and true, has the least
		// debt of all that the writer knows of.
		if t.evictIf(oldest, oldest.fresh, now) {
			short--
		}
	}
}

// evictIf evicts the entry of the index's first filing if it is fresh from the
// instant due on or earlier, and otherwise files it again.
func (t *Table[K]) evictIf(oldest filing[K], due, now policy.Instant) bool {
	fresh, gone := t.evict(oldest.entry, due, now)
	t.index.DeleteMin()
	if !gone {
		t.index.Add(filing[K]{max(fresh, oldest.fresh), oldest.entry})
		t.fault("sweep: refiled")
	}
	return gone
}

// evict evicts an entry if it is fresh from the instant due on or earlier. Otherwise it
// says from when on it is.
func (t *Table[K]) evict(e *Entry[K], due, now policy.Instant) (fresh policy.Instant, gone bool) {
	word := e.word.Load()
	fresh = t.freshAt(word)
	t.between("evict: judged")
	if int64(now) > t.horizon.Load() {
		t.horizon.Store(int64(now)) // before the key is gone
	}
	if fresh > due || !e.word.CompareAndSwap(word, tombstone) {
		return fresh, false // later than it was filed, or in use this very moment
	}
	// Dead: no caller will use it any more, so nobody need find it.
	t.counters.Evicted.Add(1)
	if fresh > now {
		t.counters.Forgiven.Add(1)
	}
	t.fault("evict: dead")
	t.remove(t.hash(e.key), e)
	t.fault("evict: gone")
	return fresh, true
}

// charge records a take that its caller has let pass on what it had read. What
// the limit does not allow is counted, and not recorded.
func (t *Table[K]) charge(e *Entry[K], now policy.Instant, n int64, patience time.Duration) {
	t.fault("take: begin")
	for {
		word := e.word.Load()
		terms := t.terms.Load()
		state, ok := terms.State(word)
		if ok {
			next, d := terms.Policy.Take(state, now, n, patience)
			d.Allowed = d.Allowed && next <= policy.MaxWord
			if d.Allowed && !e.word.CompareAndSwap(word, next|terms.EpochBit) {
				continue
			}
			ok = d.Allowed
		}
		if !ok {
			t.counters.Overadmitted.Add(uint64(n))
		}
		t.fault("take: done")
		return
	}
}

// Clear forgets all keys, so that callers find none. It is the last that happens
// to a table; the places taken are not given back. A writer that could not be made
// to end may be at work still: what it needs for itself is left alone.
func (t *Table[K]) Clear() {
	for i := range t.shards {
		t.shards[i].Store(nil)
	}
	for i := range t.nursery {
		t.nursery[i].Store(nil)
	}
}
