package main

// What the writer of package table does: one entry a key, nothing forgiven, bounded.
var ofWriter = []mutation{
	{
		name: "tombstone swapped in, not stored", without: "a take between judging and evicting is lost",
		file: "table/writer.go",
		old:  "	if fresh > due || !e.word.CompareAndSwap(word, tombstone) {",
		new: `	if fresh <= due {
		e.word.Store(tombstone)
	}
	if fresh > due {`,
		tests: "TestSweepLosesAgainstACaller",
	},
	{
		name: "tombstone before removal", without: "a caller goes on taking from an entry that nobody else finds",
		file:  "table/writer.go",
		old:   "if fresh > due || !e.word.CompareAndSwap(word, tombstone) {",
		new:   "if fresh > due {",
		tests: "TestSchedules/a_key_is_filed_and_evicted",
	},
	{
		name: "debt check of Sweep", without: "a key that owes is forgotten",
		file:  "table/writer.go",
		old:   "if fresh > due || !e.word.CompareAndSwap(word, tombstone) {",
		new:   "if !e.word.CompareAndSwap(word, tombstone) {",
		tests: "TestSweepNeverEvictsOwingKeys|TestSweepFilesKeysInUseAgain",
	},
	{
		name: "refiling no sooner than before", without: "a key given back to is looked at all the time",
		file:  "table/writer.go",
		old:   "filing[K]{max(fresh, oldest.fresh), oldest.entry}",
		new:   "filing[K]{fresh, oldest.entry}",
		tests: "TestSweepFilesNoKeyAgainSooner",
	},
	{
		name: "least-debt choice of MakeRoom", without: "the oldest is given up, though it owes more than others",
		file:  "table/writer.go",
		old:   "if t.evictIf(oldest, oldest.fresh, now) {",
		new:   "if t.evictIf(oldest, 1<<62, now) {",
		tests: "TestRoomIsMadeByTheLeastDebt",
	},
	{
		name: "no room made while the index is rebuilt", without: "a key is given up that may not owe least",
		file:  "table/writer.go",
		old:   "	if !t.recovered() {\n		return\n	}",
		new:   "",
		tests: "TestRoomIsNotMadeDuringRecovery",
	},
	{
		name: "budget of MakeRoom", without: "one command for room searches the whole table",
		file:  "table/writer.go",
		old:   "for ; short > 0 && budget > 0; budget-- {",
		new:   "for ; short > 0; budget-- {",
		tests: "TestRoomGivesUpLooking",
	},
	{
		name: "room counted once", without: "whoever takes a place that was made costs another key",
		file:  "table/writer.go",
		old:   "for ; short > 0 && budget > 0; budget-- {",
		new:   "for ; t.places.taken() > t.maxKeys-want && budget > 0; budget-- {",
		tests: "TestRoomIsMadeOnce",
	},
	{
		name: "forgiven are counted", without: "debts given up to make room go unseen",
		file:  "table/writer.go",
		old:   "	if fresh > now {\n		t.counters.Forgiven.Add(1)",
		new:   "	if false {\n		t.counters.Forgiven.Add(1)",
		tests: "TestRoomForgivesOnlyOwingKeys",
	},
	{
		name: "horizon kept", without: "a clock that goes back finds a forgotten key fresh",
		file:  "table/writer.go",
		old:   "t.horizon.Store(int64(now)) // before the key is gone",
		new:   "_ = now",
		pkg:   "engine",
		tests: "TestTakeIsNotDatedBackBeyondEviction|TestClockGoingBackBeforeAnEvictionMintsNothing",
	},
	{
		name: "budget of Sweep", without: "the writer is held up by one sweep for as long as keys are due",
		file:  "table/writer.go",
		old:   "for ; budget > 0; budget-- {\n		oldest, ok := t.index.Min()\n		if !ok || oldest.fresh > due {",
		new:   "for ; ; budget-- {\n		oldest, ok := t.index.Min()\n		if !ok || oldest.fresh > due {",
		tests: "TestSweepGoesByBudgetAndOrder",
	},
	{
		name: "Sweep says when there is more", without: "expired keys leave a step a tick, and pile up",
		file:  "table/writer.go",
		old:   "r.More = ok && oldest.fresh <= due",
		new:   "r.More = ok && oldest.fresh > now",
		tests: "TestSweep",
	},
	{
		name: "File empties the slot", without: "who landed behind another is not filed",
		file:  "table/writer.go",
		old:   "		t.file(slot, n, now)\n		filed++\n	}",
		new:   "		t.file(slot, n, now)\n		filed++\n		break\n	}",
		tests: "TestFileEmptiesTheSlot",
	},
	{
		name: "what File leaves is for Settle", without: "the rest of a very long slot is never filed",
		file:  "table/writer.go",
		old:   "			t.lostFiling.Store(true)\n			break",
		new:   "			break",
		tests: "TestFileEmptiesTheSlot",
	},
	{
		name: "map first, slot last", without: "a key is for a moment in neither, and gets a second entry",
		file: "table/writer.go",
		old: `	t.retag(e)
	if word := e.word.Load(); word != tombstone {
		t.stepPoint("file: judged")
		if t.insert(hash, e) {
			t.fault("file: in the map")
			if i, _ := t.shardOf(hash); t.isIndexed(i) {
				fresh := t.freshAt(word)
				if word&^epochBit == 0 {
					fresh = now // a key that was never taken from is not due at once
				}
				t.index.Add(filing[K]{fresh, e})
			}
			t.fault("file: in the index")
		}
	}
	// The map has it: callers that miss it in the slot from here on find it there.
	t.unlink(slot, n)
`,
		new: `	t.retag(e)
	t.unlink(slot, n)
	t.stepPoint("file: out of the slot")
	if word := e.word.Load(); word != tombstone {
		t.stepPoint("file: judged")
		if t.insert(hash, e) {
			t.fault("file: in the map")
			if i, _ := t.shardOf(hash); t.isIndexed(i) {
				fresh := t.freshAt(word)
				if word&^epochBit == 0 {
					fresh = now // a key that was never taken from is not due at once
				}
				t.index.Add(filing[K]{fresh, e})
			}
			t.fault("file: in the index")
		}
	}
	// The map has it: callers that miss it in the slot from here on find it there.
`,
		tests: "TestSchedules/a_key_is_looked_for|TestSchedules/two_callers_open_a_key$",
	},
	{
		name: "filing renews the word", without: "what the writer files stays in limbo, or means what it meant to the policy before",
		file:  "table/writer.go",
		old:   "	t.retag(e)\n	if word := e.word.Load(); word != tombstone {",
		new:   "	if word := e.word.Load(); word != tombstone {",
		tests: "TestSettleLandsTentativeEntries",
	},
	{
		name: "the untaken are not due at once", without: "a key is evicted before its first take, again and again",
		file:  "table/writer.go",
		old:   "if word&^epochBit == 0 {",
		new:   "if false {",
		tests: "TestSweepGivesUntakenKeysTheirIdleTime",
	},
	{
		name: "index rebuilt", without: "after a crash keys never leave",
		file:  "table/writer.go",
		old:   "	t.first, t.indexed = t.nextShard(), 0\n",
		new:   "	t.first, t.indexed = t.nextShard(), len(t.shards)\n",
		tests: "TestRecoverIndexesInSteps",
	},
	{
		name: "rebuilding begins anew", without: "after two crashes keys are indexed twice",
		file:  "table/writer.go",
		old:   "	t.pending = nil\n	t.adopted = 0",
		new:   "	t.adopted = 0",
		tests: "TestRecover",
	},
	{
		name: "strays adopted after a crash", without: "keys whose command died with the writer are never filed",
		file:  "table/writer.go",
		old:   "	t.pending = nil\n	t.adopted = 0",
		new:   "	t.pending = nil",
		tests: "TestRecover|TestSettle",
	},
	{
		name: "strays adopted", without: "keys whose command found the queue full are never filed",
		file:  "table/writer.go",
		old:   "t.adopted == len(t.nursery) && t.lostFiling.Swap(false)",
		new:   "false",
		tests: "TestSettleAdoptsLostFilings",
	},
	{
		name: "recovery ends begun evictions", without: "a dead key keeps its place for ever",
		file:  "table/writer.go",
		old:   "		if e.dead() {\n			t.remove(t.hash(e.key), e)",
		new:   "		if false {\n			t.remove(t.hash(e.key), e)",
		tests: "TestRecoverFromDeathAtEachPoint",
	},
	{
		name: "a change is over when all words are", without: "the next change meets words of two policies before",
		file:  "table/writer.go",
		old:   "if t.changing && t.adopted == len(t.nursery) && t.recovered() {",
		new:   "if t.changing {",
		tests: "TestChangeIsOverWhenTheLastKeyIsReached",
	},
	{
		name: "charge swaps", without: "Queued overwrites what others have recorded",
		file: "table/writer.go",
		old:  "			if d.Allowed && !e.word.CompareAndSwap(word, next|terms.EpochBit) {\n				continue\n			}",
		new: `			if d.Allowed {
				e.word.Store(next | terms.EpochBit)
			}`,
		tests: "TestApplyTakeIsNotLostToACaller",
	},
}
