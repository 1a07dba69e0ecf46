package table

// move is the replacement of a filed entry by another one of its key, during a change
// of policy. The swap of from's word to moved makes to the key's entry, in one step.
// Before the swap only the writer uses to.
type move[K comparable] struct{ from, to *Entry[K] }

// Only the writer calls the methods below.

// move replaces a filed entry by one whose word is of the present policy, and returns
// that. It is announced first: calls that meet the old entry after the swap find the
// new one in t.moving until the map has it. If the writer dies in between, the next
// one calls endMove.
func (t *Table[K]) move(hash uint64, e *Entry[K]) *Entry[K] {
	to := &Entry[K]{key: e.key}
	t.moving.Store(&move[K]{e, to})
	t.fault("move: announced")
	terms := t.terms.Load()
	for {
		word := e.word.Load()
		t.stepPoint("move: read")
		state, _ := terms.State(word)
		to.word.Store(state | terms.EpochBit)
		// After the word: see HasForeignTurn. Units given back to the old entry are
		// not counted, because no reservation refers to the new one yet.
		to.returned.Store(e.returned.Load() & foreignTurn)
		t.stepPoint("move: judged")
		if e.word.CompareAndSwap(word, moved) {
			break
		}
	}
	t.fault("move: dead")
	t.putMoved(hash, move[K]{e, to})
	return to
}

// putMoved puts the successor of a moved entry into the map, and ends the move.
func (t *Table[K]) putMoved(hash uint64, m move[K]) {
	i, rest := t.shardOf(hash)
	if s := t.shards[i].Load(); s != nil { // nil if cleared
		s.replace(s.place(hash, rest), m.from, m.to)
	}
	t.stepPoint("move: in the map")
	t.moving.Store(nil)
}

// endMove ends the move in which the last writer died, if there is one. If the old
// entry is alive, nothing has happened.
func (t *Table[K]) endMove() {
	if m := t.moving.Load(); m != nil && m.from.word.Load() == moved {
		t.putMoved(t.hash(m.from.key), *m)
	}
	t.moving.Store(nil)
}
