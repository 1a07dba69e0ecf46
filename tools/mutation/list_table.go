package main

import "time"

// The mechanisms of package table: one entry a key, nothing forgiven, bounded.
var ofTable = []mutation{
	// writer.go
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
		tests: "TestSweepNeverTakesWhoOwes|TestSweepFilesAgainWhoIsInUse",
	},
	{
		name: "refiling no sooner than before", without: "a key given back to is looked at all the time",
		file:  "table/writer.go",
		old:   "filing[K]{max(fresh, oldest.fresh), oldest.entry}",
		new:   "filing[K]{fresh, oldest.entry}",
		tests: "TestSweepFilesNobodyAgainSooner",
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
		tests: "TestRoomForgivesOnlyWhoOwes",
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
		old:   "			t.stray.Store(true)\n			break",
		new:   "			break",
		tests: "TestFileEmptiesTheSlot",
	},
	{
		name: "map first, slot last", without: "a key is for a moment in neither, and gets a second entry",
		file: "table/writer.go",
		old: `	t.renew(e)
	if word := e.word.Load(); word != tombstone {
		t.between("file: judged")
		if t.insert(hash, e) {
			t.fault("file: in the map")
			if i, _ := t.shardOf(hash); t.isIndexed(i) {
				fresh := t.freshAt(word)
				if word&^odd == 0 {
					fresh = now // one that was not taken from yet is not due at once
				}
				t.index.Add(filing[K]{fresh, e})
			}
			t.fault("file: in the index")
		}
	}
	// The map has it: callers who miss it in the slot from here on find it there.
	t.unlink(slot, n)
`,
		new: `	t.renew(e)
	t.unlink(slot, n)
	t.between("file: out of the slot")
	if word := e.word.Load(); word != tombstone {
		t.between("file: judged")
		if t.insert(hash, e) {
			t.fault("file: in the map")
			if i, _ := t.shardOf(hash); t.isIndexed(i) {
				fresh := t.freshAt(word)
				if word&^odd == 0 {
					fresh = now // one that was not taken from yet is not due at once
				}
				t.index.Add(filing[K]{fresh, e})
			}
			t.fault("file: in the index")
		}
	}
	// The map has it: callers who miss it in the slot from here on find it there.
`,
		tests: "TestSchedules/a_key_is_looked_for|TestSchedules/two_callers_open_a_key$",
	},
	{
		name: "filing renews the word", without: "what the writer files stays in limbo, or means what it meant to the policy before",
		file:  "table/writer.go",
		old:   "	t.renew(e)\n	if word := e.word.Load(); word != tombstone {",
		new:   "	if word := e.word.Load(); word != tombstone {",
		tests: "TestSettleHelpsTheTentative",
	},
	{
		name: "the untaken are not due at once", without: "a key is evicted before its first take, again and again",
		file:  "table/writer.go",
		old:   "if word&^odd == 0 {",
		new:   "if false {",
		tests: "TestSweepGivesTheUntakenTheirTime",
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
		old:   "t.adopted == len(t.nursery) && t.stray.Swap(false)",
		new:   "false",
		tests: "TestSettleAdoptsStrays",
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
		old:  "			if d.Allowed && !e.word.CompareAndSwap(word, next|terms.Mark) {\n				continue\n			}",
		new: `			if d.Allowed {
				e.word.Store(next | terms.Mark)
			}`,
		tests: "TestApplyTakeIsNotLostToACaller",
	},
	// view.go
	{
		name: "second look", without: "a key that was filed meanwhile gets a second entry, and twice its limit",
		file:  "table/view.go",
		old:   "	if t.find(hash, e.key) == nil {\n		return true\n	}",
		new:   "	if true {\n		return true\n	}",
		tests: "TestSchedules/a_key_is_filed_and_evicted|TestSchedules/two_callers_open_a_key$",
	},
	{
		name: "second look for whom one meets", without: "who joins a tentative entry takes from a second one",
		file:  "table/view.go",
		old:   "			if t.confirm(hash, e) {\n				return e, status\n			}\n			continue",
		new:   "			return e, status",
		tests: "TestSchedules/a_key_is_filed_and_evicted|TestSchedules/two_callers_open_a_key$",
	},
	{
		name: "dying is a swap too", without: "an entry in use is marked dead, and what it took is forgotten",
		file:  "table/view.go",
		old:   "	if !e.word.CompareAndSwap(tentative, tombstone) {\n		t.places.keep()\n		return true\n	}",
		new:   "	e.word.Store(tombstone)",
		tests: "TestSchedules/a_key_is_filed_and_evicted|TestSchedules/two_callers_open_a_key$|TestSchedules/a_key_is_evicted,_opened",
	},
	{
		name: "the dead give their place back", without: "places leak until the table is full of nobody",
		file:  "table/view.go",
		old:   "	t.places.giveBack()\n	t.stray.Store(true) // for",
		new:   "	t.places.keep()\n	t.stray.Store(true) // for",
		tests: "TestSchedules/two_callers_open_a_key$",
	},
	{
		name: "a dying entry's place is in doubt", without: "a table is called full for the sake of an entry that is no key",
		file:  "table/view.go",
		old:   "	t.places.doubt()\n	t.between(\"confirm: in doubt\")\n",
		new:   "	defer t.places.doubt()\n",
		tests: "TestOpenIsNotFullForADeadDuplicate",
	},
	{
		name: "a slot is emptied", without: "who landed behind others is filed by nobody",
		file:  "table/writer.go",
		old:   "		t.file(slot, n, now)\n		filed++\n",
		new:   "		t.file(slot, n, now)\n		filed++\n		break\n",
		tests: "TestFileEmptiesTheSlot",
	},
	{
		name: "what a command leaves is a stray", without: "those beyond the budget are filed by nobody",
		file:  "table/writer.go",
		old:   "			t.stray.Store(true)\n			break\n",
		new:   "			break\n",
		tests: "TestFileEmptiesTheSlot",
	},
	{
		name: "who begins a slot sends the command", without: "who landed behind a dead entry is filed by nobody",
		file:  "table/view.go",
		old:   "			status = Landed // whatever becomes of this entry: others may join it\n",
		new:   "			if t.find(hash, key) == nil {\n				status = Landed\n			}\n",
		tests: "TestOpenAsksForTheSlotThatItBegan",
	},
	{
		name: "recovery evicts what is due", without: "if writers die before they are asked to sweep, idle keys never leave",
		file:  "table/writer.go",
		old:   "if fresh, gone := t.evict(e, now-t.idle, now); !gone {",
		new:   "if fresh := t.freshAt(e.word.Load()); true {",
		tests: "TestRecoverGoesOnWhereThePredecessorWas",
	},
	{
		name: "recovery goes on where the last one was", without: "if writers keep dying idle keys never leave",
		file:  "table/writer.go",
		old:   "	t.first, t.indexed = t.nextShard(), 0\n",
		new:   "	t.first, t.indexed = 0, 0\n",
		tests: "TestRecoverGoesOnWhereThePredecessorWas",
	},
	{
		name: "a leaf of one instant gives up its range", without: "another leaf takes its place, and its keys never leave",
		file:  "table/index.go",
		old:   "			l.low = fresh\n		}\n	}\n	if right",
		new:   "		}\n	}\n	if right",
		tests: "TestIndexKeepsALeafWhoseRangeIsGone",
	},
	{
		name: "a cleared table has nobody to remove", without: "a writer that outlives Close runs in circles",
		file:  "table/shard.go",
		old:   "	if s == nil || !s.has(s.place(hash, rest), e) {",
		new:   "	if s == nil {",
		tests: "TestClearedTableDoesNotHoldUpAWriter",
		limit: 30 * time.Second,
	},
	{
		name: "the dead are reported", without: "a slot that holds only a dead entry has no command under way",
		file:  "table/view.go",
		old:   "	t.stray.Store(true) // for the writer to take it out of its slot",
		new:   "",
		tests: "TestDeadEntryOfATurnedAwayCallerIsTakenOut",
	},
	{
		name: "a pushed place is uncertain", without: "a full table turns a key away that is in it",
		file:  "table/view.go",
		old:   "			if !t.has(hash, key) {",
		new:   "			if true {",
		tests: "TestOpenIsNotFullForWhoIsThere",
	},
	{
		name: "a failed push gives its place back", without: "places leak until the table is full of nobody",
		file:  "table/view.go",
		old:   "			t.places.giveBack()\n",
		new:   "",
		tests: "TestSchedules/two_keys_share_a_slot",
	},
	{
		name: "Look looks again", without: "a key that is being filed looks as if it were new",
		file:  "table/view.go",
		old:   "	// The entry may have moved from the nursery to the map in between.\n	return v.t.find(hash, key)",
		new:   "	return nil",
		tests: "TestSchedules/a_key_is_looked_for",
	},
	{
		name: "All passes by whom it has seen", without: "All shows a key twice",
		file:  "table/view.go",
		old:   "if !landed[e] && !e.dead() && !yield(e) {",
		new:   "if !e.dead() && !yield(e) {",
		tests: "TestAll",
	},
	{
		name: "All shows no dead", without: "All shows a key that was given up",
		file:  "table/view.go",
		old:   "if !landed[e] && !e.dead() && !yield(e) {",
		new:   "if !landed[e] && !yield(e) {",
		tests: "TestAll",
	},
	// places.go
	{
		name: "MaxKeys bound", without: "the table grows with the keys that are invented",
		file:  "table/places.go",
		old:   "case n&certain < most:",
		new:   "case n&certain < most || most > 0:",
		tests: "TestPlacesNeverOvershoot|TestOpenIsFull",
	},
	{
		name: "places by compare-and-swap", without: "two callers take the last place",
		file:  "table/places.go",
		old:   "			if p.word.CompareAndSwap(n, n+1+uncertain) {\n				return Landed\n			}",
		new:   "			p.word.Add(1 + uncertain)\n			return Landed",
		tests: "TestLastPlaceGoesToOne",
	},
	{
		name: "uncertain places", without: "a key is refused for a place that is about to come free",
		file:  "table/places.go",
		old:   "case n < uncertain:",
		new:   "case n >= 0:",
		tests: "TestOpenIsBusyWhileAPlaceIsUncertain",
	},
	{
		name: "full for certain", without: "a key is given up for room that is there",
		file:  "table/places.go",
		old:   "return p.word.Load() == most",
		new:   "return p.taken() == most",
		tests: "TestApplyRoomWaitsForTheUncertain",
	},
	// nursery.go
	{
		name: "the dead in a slot are passed by", without: "a caller spins on an entry that died",
		file:  "table/nursery.go",
		old:   " && !n.entry.dead() {",
		new:   " {",
		tests: "TestOpenPassesByTheDead",
	},
	{
		name: "unlinking is a swap", without: "who lands at that moment is lost, and takes for nothing",
		file:  "table/nursery.go",
		old:   "	if s.CompareAndSwap(n, next) {\n		return\n	}",
		new:   "	if s.Load() == n {\n		t.between(\"unlink: first\")\n		s.Store(next)\n		return\n	}",
		tests: "TestSchedules/two_keys_share_a_slot",
	},
	{
		name: "an unlinked node leads on", without: "who stands on it misses those behind, and opens them again",
		file:  "table/nursery.go",
		old:   "	next := n.next.Load()\n",
		new:   "	next := n.next.Load()\n	defer n.next.Store(nil)\n",
		tests: "TestSlotLeadsOnFromAnUnlinkedNode",
	},
	// index.go
	{
		name: "first leaf of the index sorted", without: "keys leave in any order, offenders first perhaps",
		file:  "table/index.go",
		old:   "	if !first.sorted {",
		new:   "	if false {",
		tests: "TestIndexGivesFilingsInOrder",
	},
	{
		name: "a sorted leaf stays sorted", without: "keys leave in any order, offenders first perhaps",
		file:  "table/index.go",
		old:   "	if l.sorted {\n		at, _",
		new:   "	if false {\n		at, _",
		tests: "TestIndexGivesFilingsInOrder",
	},
	{
		name: "the last leaf is forgotten when it goes", without: "keys are filed where nobody looks, and never leave",
		file:  "table/index.go",
		old:   "	if x.last == first {",
		new:   "	if false {",
		tests: "TestIndexGivesFilingsInOrder",
	},
	{
		name: "leaves of one instant told apart", without: "a leaf of filings replaces another, and its keys never leave",
		file:  "table/index.go",
		old:   "		right.serial = l.serial + 1",
		new:   "		right.serial = l.serial",
		tests: "TestIndex",
	},
	{
		name: "leaves are split", without: "sorting the first leaf holds the writer up for as long as it likes",
		file:  "table/index.go",
		old:   "	if len(l.filings) == leafSize {",
		new:   "	if false {",
		tests: "TestIndex",
	},
	// shard.go
	{
		name: "overflow count of the buckets", without: "a key whose bucket was full is not found, and gets a second entry",
		file:  "table/shard.go",
		old:   "		if tags < passedOne {\n			return nil",
		new:   "		if tags < 1<<63 {\n			return nil",
		tests: "TestMapHoldsWhatAPlainMapHolds",
	},
	{
		name: "saturation of that count", without: "it wraps, and keys further on are not found",
		file:  "table/shard.go",
		old:   "		if tags>>56 != manyPassed {\n			b.tags.Store(tags + passedOne)\n		}",
		new:   "		b.tags.Store(tags + passedOne)",
		tests: "TestMapLosesCountSafely",
	},
	{
		name: "a saturated count stays", without: "it falls to nothing while keys are still further on",
		file:  "table/shard.go",
		old:   "		if tags>>56 != manyPassed {\n			b.tags.Store(tags - passedOne)\n		}",
		new:   "		b.tags.Store(tags - passedOne)",
		tests: "TestMapLosesCountSafely",
	},
	{
		name: "no tag is 0", without: "a key's slot is taken for a free one, and overwritten",
		file:  "table/shard.go",
		old:   "max(hash&0xff, 1)",
		new:   "hash & 0xff",
		tests: "TestMapHoldsWhatAPlainMapHolds",
	},
	{
		name: "keys of one tag compared", without: "one key takes from another's bucket",
		file:  "table/shard.go",
		old:   "if e != nil && e.key == key && !e.dead() {",
		new:   "if e != nil && !e.dead() {",
		tests: "TestMapHoldsWhatAPlainMapHolds",
	},
	{
		name: "a dead entry hides no new one", without: "a key that came back is not found",
		file:  "table/shard.go",
		old:   "if e != nil && e.key == key && !e.dead() {",
		new:   "if e != nil && e.key == key {",
		tests: "TestADeadEntryHidesNoNewOne",
	},
	{
		name: "filing twice does nothing", without: "a command given again counts a key twice",
		file:  "table/shard.go",
		old:   "	case s.has(s.place(hash, rest), e):\n		return false\n",
		new:   "",
		tests: "TestApplyFileTwice|TestRecoverFromDeathAtEachPoint",
	},
	{
		name: "shards grow", without: "the map has no slot left, and the writer looks for one for ever",
		file:  "table/shard.go",
		old:   "	case t.filed[i] >= fullBucket*len(s.buckets):",
		new:   "	case false:",
		tests: "TestMapHoldsWhatAPlainMapHolds",
	},
	{
		name: "shards shrink", without: "the memory of a flood is never given back",
		file:  "table/shard.go",
		old:   "	case buckets > leastBuckets && t.filed[i] < fullBucket*buckets/8:",
		new:   "	case false:",
		tests: "TestMapHoldsWhatAPlainMapHolds",
	},
	{
		name: "an evicted key's place comes free", without: "places leak until the table is full of nobody",
		file:  "table/shard.go",
		old:   "	t.places.free()\n",
		new:   "",
		tests: "TestSweep",
	},
	// terms.go
	{
		name: "odd bit", without: "words of two policies are taken for each other",
		file:  "table/terms.go",
		old:   "now.Mark^odd",
		new:   "now.Mark",
		tests: "TestChangeReachesAllKeys",
	},
	{
		name: "terms read again", without: "a word is read by a policy that did not leave it",
		file:  "table/terms.go",
		old:   "if terms.Current(word) || v.t.terms.Load() == terms {",
		new:   "if word <= tombstone {",
		tests: "TestSchedules/the_policy_changes_while_two_take|TestSchedules/the_policy_changes_twice_while_one_takes$",
	},
	{
		name: "held() asks who reads by old terms", without: "a take of two policies ago lands as one of the present",
		file:  "table/terms.go",
		old:   "return t.before.Value() != nil || t.during.Value() != nil",
		new:   "return false",
		tests: "TestChangeWaitsForWhoHoldsTheTermsBefore",
	},
	{
		name: "ChangeHeld", without: "a take of two policies ago lands as one of the present",
		file:  "table/terms.go",
		old:   "	case t.held():",
		new:   "	case false:",
		tests: "TestChangeWaitsForWhoHoldsTheTermsBefore",
	},
	{
		name: "one change at a time", without: "words of three policies are about",
		file:  "table/terms.go",
		old:   "	case t.changing:",
		new:   "	case false:",
		tests: "TestChangeAnswers|TestSchedules/two_change",
	},
	{
		name: "change within the family", without: "words are read by a policy that does not understand them",
		file:  "table/terms.go",
		old:   "	case !now.May(c.policy):",
		new:   "	case false:",
		tests: "TestChangeAnswers",
	},
	{
		name: "a change is answered once", without: "a repeated command undoes a later change",
		file:  "table/terms.go",
		old:   "	case c.given.Load():",
		new:   "	case false:",
		tests: "TestChange",
	},
	{
		name: "a change survives the writer that made it", without: "its caller is told that it failed, or it is made twice",
		file:  "table/terms.go",
		old:   "	case now.by == c:",
		new:   "	case false:",
		tests: "TestChangeIsMadeByWhoDiesOfIt",
	},
	{
		name: "words translated as of the change", without: "what a key owes depends on who comes to it first",
		file:  "table/terms.go",
		old:   "next.since = now.Number+1, c.at",
		new:   "next.since = now.Number+1, 0",
		tests: "TestStateIsThatOfTheInstantOfTheChange",
	},
	{
		name: "translated words are bounded", without: "a policy's mistake reads as a tombstone",
		file:  "table/terms.go",
		old:   "return min(state, policy.MaxWord), true",
		new:   "return state, true",
		tests: "TestStateCutsWhatIsTooLarge",
	},
	// command.go
	{
		name: "room made ahead of need", without: "each new key of a flood waits for the writer",
		file:  "table/command.go",
		old:   "			t.crowded = true\n",
		new:   "",
		tests: "TestRoomIsMadeAheadOfNeed",
	},
	{
		name: "an abandoned take is counted", without: "what a dropped command let pass goes unseen",
		file:  "table/command.go",
		old:   "		t.counters.Overadmitted.Add(uint64(c.n))",
		new:   "",
		tests: "TestApplyTake|TestAbandon",
	},
	// entry.go
	{
		name: "compare-and-swap", without: "takes overwrite each other, and callers pass on one unit",
		file:  "table/entry.go",
		old:   "	return e.word.CompareAndSwap(old, next)",
		new:   "	_ = old\n	e.word.Store(next)\n	return true",
		pkg:   "engine",
		tests: "TestWhoIsOvertakenDecidesAgain",
	},
}
