package table

import (
	"container/heap"

	"github.com/ral-limiter/ral/policy"
)

// Reading is the state of a key at a moment, and the terms by which it is read.
type Reading struct {
	Terms *Terms
	State uint64
	// Foreign is Entry.HasForeignTurn.
	Foreign bool
}

// State reads the state of an entry's key, in the entry or its successor. ok is false if the key
// has no live entry.
func (v View[K]) State(entry *Entry[K]) (reading Reading, ok bool) {
	for {
		if entry = v.t.follow(entry); entry == nil {
			return Reading{}, false
		}
		word, terms := v.Read(entry)
		if word != moved {
			state, alive := terms.State(word)
			return Reading{terms, state, entry.HasForeignTurn()}, alive
		}
	}
}

// Drain ends all keys and calls each with every key's last state. No call can advance such a word
// from then on. Drain ends the keys that landed before it began, and perhaps later keys. A table is
// drained at its end, when the writer has stopped, and then cleared.
func (t *Table[K]) Drain(each func(*Entry[K], Reading)) {
	// The nursery first: a writer that could not be stopped may move entries from there to the map.
	for i := range t.nursery {
		for n := t.nursery[i].Load(); n != nil; n = n.next.Load() {
			t.drain(n.entry, each)
		}
		t.stepPoint("drain: next slot")
	}
	for i := range t.shards {
		shard := t.shards[i].Load()
		if shard == nil {
			continue
		}
		for entry := range shard.all() {
			t.drain(entry, each)
		}
		t.stepPoint("drain: next shard")
	}
}

// drain ends an entry unless it is dead. The swap that succeeds fixes the last word: a call that
// has taken by then is in it, any other finds a tombstone.
func (t *Table[K]) drain(entry *Entry[K], each func(*Entry[K], Reading)) {
	for {
		// The writer may have died while it replaced it.
		if entry = t.follow(entry); entry == nil {
			return
		}
		word, terms := t.View().Read(entry)
		if word == moved {
			continue
		}
		state, alive := terms.State(word)
		if !alive {
			return
		}
		t.stepPoint("drain: read")
		if entry.word.CompareAndSwap(word, tombstone) {
			each(entry, Reading{terms, state, entry.HasForeignTurn()})
			return
		}
	}
}

// Loader fills a new table with saved keys. Table.Loader makes a Loader. One goroutine must use it,
// before the table has a writer or a caller. The writer indexes the loaded keys.
type Loader[K comparable] struct {
	t *Table[K]
	// least orders the entries by debt once the table is full. Some may be out of the map.
	least byDebt[K]
}

func (t *Table[K]) Loader() *Loader[K] { return &Loader[K]{t: t} }

// Add puts a key into the map, with a state of the table's policy and the mark of
// Entry.HasForeignTurn. Add replaces a key that was added before. If the table is full, the key
// that owes least is left out, perhaps this key, and its debt is forgiven.
func (l *Loader[K]) Add(key K, state uint64, foreign bool) {
	table := l.t
	hash := table.hash(key)
	if old := table.find(hash, key); old != nil {
		l.drop(old)
	}
	fresh := table.freshAt(state)
	if table.places.full(table.maxKeys) && !l.makeRoom(fresh) {
		return
	}
	entry := newEntry(key, table.texts)
	entry.word.Store(state | table.terms.Load().EpochBit)
	if foreign {
		entry.MarkForeignTurn()
	}
	table.places.take(table.maxKeys)
	table.places.confirm()
	table.insert(hash, entry)
	if l.least != nil {
		heap.Push(&l.least, filing[K]{fresh, entry})
	}
}

// makeRoom drops the entry that owes least, unless it owes at least as much as a key with this
// fresh.
func (l *Loader[K]) makeRoom(fresh policy.Instant) bool {
	if l.least == nil {
		for i := range l.t.shards {
			shard := l.t.shards[i].Load()
			if shard == nil {
				continue
			}
			for entry := range shard.all() {
				l.least = append(l.least, filing[K]{l.t.freshAt(entry.word.Load()), entry})
			}
		}
		heap.Init(&l.least)
	}
	l.t.counters.Forgiven.Add(1)
	for {
		switch least := l.least[0]; {
		case least.entry.dead():
			heap.Pop(&l.least)
		case least.fresh >= fresh:
			return false
		default:
			heap.Pop(&l.least)
			l.drop(least.entry)
			return true
		}
	}
}

func (l *Loader[K]) drop(entry *Entry[K]) {
	entry.word.Store(tombstone)
	l.t.remove(l.t.hash(entry.Key()), entry)
}

// Done ends the loading and sets the table's policy, which reads the same words as before. No key
// that is opened takes before the instant now: a key that was not loaded was as good as new by
// then.
func (l *Loader[K]) Done(limit policy.Policy, now policy.Instant) {
	l.t.terms.Store(newTerms(limit, 0, nil, nil))
	l.t.horizon.Store(int64(now))
}

type byDebt[K comparable] []filing[K]

func (h byDebt[K]) Len() int           { return len(h) }
func (h byDebt[K]) Less(i, j int) bool { return h[i].fresh < h[j].fresh }
func (h byDebt[K]) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *byDebt[K]) Push(x any)        { *h = append(*h, x.(filing[K])) }
func (h *byDebt[K]) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}
