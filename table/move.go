package table

// A move replaces a filed entry during a change of policy. The swap of from's word to moved makes
// to the key's entry; before it only the writer uses to.
type move[K comparable] struct{ from, to *Entry[K] }

// Successor returns the entry that has replaced a moved entry, for a reservation of the same terms.
// Its Returned continues the moved entry's count. Successor returns nil if the successor has left,
// or might have: another entry of the key lacks that count. The successor might have left once any
// key of the same slot has left under these terms.
func (v View[K]) Successor(entry *Entry[K], terms *Terms) *Entry[K] {
	hash := v.t.hash(entry.Key())
	to := v.t.find(hash, entry.Key())
	v.t.stepPoint("successor: found")
	if terms.left == nil || terms.left[hash&uint64(len(terms.left)-1)].Load() {
		return nil
	}
	return to
}

// Moved reports whether a change of policy has replaced the entry.
func (e *Entry[K]) Moved() bool { return e.word.Load() == moved }

// follow returns the entry, its successor if a change of policy has replaced it, or nil if the
// successor has left. The result may be replaced at any time: call follow again for a word that is
// moved.
func (t *Table[K]) follow(entry *Entry[K]) *Entry[K] {
	if entry.Moved() {
		return t.find(t.hash(entry.Key()), entry.Key())
	}
	t.stepPoint("follow: not moved")
	return entry
}

// Only the writer calls the methods below.

// move replaces a filed entry by another with a word of the present policy, and returns the other
// entry, which is announced first: calls that meet the old entry after the swap find the new entry
// in t.moving until the map has it. If the writer dies in between, the next calls endMove.
func (t *Table[K]) move(hash uint64, entry *Entry[K]) *Entry[K] {
	to := newEntry(entry.Key(), t.texts)
	t.moving.Store(&move[K]{entry, to})
	t.fault("move: announced")
	terms := t.terms.Load()
	for {
		word := entry.word.Load()
		t.stepPoint("move: read")
		state, alive := terms.State(word)
		if !alive {
			t.moving.Store(nil)
			// Drain has ended the entry, because this writer could not be stopped.
			return entry
		}
		to.word.Store(state | terms.EpochBit)
		// After the word: see HasForeignTurn, and View.Successor for the count.
		to.returned.Store(entry.returned.Load() &^ returning)
		t.stepPoint("move: judged")
		if entry.word.CompareAndSwap(word, moved) {
			break
		}
	}
	t.fault("move: dead")
	t.putMoved(hash, move[K]{entry, to})
	return to
}

func (t *Table[K]) putMoved(hash uint64, move move[K]) {
	i, rest := t.shardOf(hash)
	// The shard is nil if it was cleared.
	if shard := t.shards[i].Load(); shard != nil {
		shard.replace(shard.place(hash, rest), move.from, move.to)
	}
	t.stepPoint("move: in the map")
	t.moving.Store(nil)
}

// endMove ends the move in which the last writer died, if any and if its old entry is dead.
func (t *Table[K]) endMove() {
	if move := t.moving.Load(); move != nil && move.from.word.Load() == moved {
		t.putMoved(t.hash(move.from.Key()), *move)
	}
	t.moving.Store(nil)
}
