package table

import (
	"math"
	"testing"
	"time"

	"github.com/ral-limiter/ral/policy"
	"github.com/stretchr/testify/require"
)

func newTally[K comparable](t testing.TB, o Options) rig[K] {
	t.Helper()
	o.Policy = tally{1}
	return newRig[K](t, o)
}

func (r rig[K]) change(p policy.Policy, now policy.Instant) ChangeResult {
	r.t.Helper()
	c := NewChange(p, now)
	r.Apply(ChangeCommand[K](c))
	require.Len(r.t, c.Answer(), 1, "the request was not answered at once")
	return <-c.Answer()
}

// mustChange replaces the policy and has all words carried over.
func (r rig[K]) mustChange(p policy.Policy, now policy.Instant) {
	r.t.Helper()
	require.Equal(r.t, ChangeMade, r.change(p, now))
	r.settle(now)
	require.NoError(r.t, r.Check())
}

// A word is read by its epoch bit: present or of the terms before. None above MaxWord is alive.
func TestStateIsReadByItsEpochBit(t *testing.T) {
	word := func(id uint64) uint64 { return id<<tallyID | 5<<tallyCount | 7 }
	second := newTerms(tally{2}, epochBit, tally{1}, nil)
	third := newTerms(tally{3}, 0, tally{2}, nil)
	for i, c := range []struct {
		terms *Terms
		word  uint64
		state uint64
		alive bool
		own   bool
	}{
		{second, epochBit, 0, true, true},
		{second, word(2) | epochBit, word(2), true, true},
		{second, policy.MaxWord | epochBit, policy.MaxWord, true, true},
		{second, 0, 0, true, false},
		{second, word(1), word(2), true, false},
		{third, word(3), word(3), true, true},
		{third, word(2) | epochBit, word(3), true, false},
		{third, tentative, 0, true, false},
		{third, tombstone, 0, false, false},
		{third, policy.MaxWord + 1, 0, false, false},
		{third, policy.MaxWord + 1 | epochBit, 0, false, false},
	} {
		state, alive := c.terms.State(c.word)
		require.Equal(t, []any{c.state, c.alive, c.own}, []any{state, alive, c.terms.Current(c.word)}, "row %d", i)
	}
}

// excessive carries all words over to a word that is too large.
type excessive struct{ policy.Policy }

func (excessive) Reads(policy.Policy) bool { return true }
func (excessive) Carry(policy.Policy, uint64, policy.Instant) (uint64, bool) {
	return tombstone, true
}

// A policy that breaks its contract does not break the table. Such a policy never sees a key's
// first word, 0.
func TestStateCutsValuesThatAreTooLarge(t *testing.T) {
	plain := policy.Must(policy.Funnel(1, 1, time.Hour))
	terms := newTerms(excessive{plain}, epochBit, plain, nil)
	for word, want := range map[uint64]uint64{0: 0, 1: policy.MaxWord} {
		state, alive := terms.State(word)
		require.True(t, alive)
		require.Equal(t, want, state)
	}
}

func TestTermsOfPoliciesThatOfferLess(t *testing.T) {
	funnel := policy.Must(policy.Funnel(1, 1, time.Hour))
	other := policy.Must(policy.Funnel(2, 1, time.Hour))
	full := newTerms(funnel, 0, nil, nil)
	require.NotNil(t, full.Choker)
	require.True(t, full.ReadsWordsOf(other))
	require.True(t, full.CanReplace(other))
	require.False(t, full.ReadsWordsOf(tally{1}))
	require.False(t, full.CanReplace(tally{1}), "a policy of another family must not replace the table's")

	plain := newTerms(struct{ policy.Policy }{funnel}, 0, nil, nil)
	require.Nil(t, plain.Choker)
	require.False(t, plain.ReadsWordsOf(funnel))
	require.False(t, full.CanReplace(plain.Policy), "a policy that is not policy.Relative must not be replaced")
	require.False(t, plain.CanReplace(funnel), "a policy that is not policy.Relative must replace no other")
}

// Filed, landed, tentative and unused keys keep their counts, are carried over once, and end with
// the new epoch bit.
func TestChangeReachesAllKeys(t *testing.T) {
	r := newTally[string](t, Options{})
	filed := r.add("filed", 1)
	unused := r.open("unused")
	r.fileOne(unused, 1)
	idle := r.open("idle")
	landed := r.open("landed")
	require.True(t, r.take(landed, 1))

	require.Equal(t, ChangeMade, r.change(tally{2}, 1))
	require.Equal(t, policy.Policy(tally{2}), r.View().Terms().Policy, "the change must hold from the next call on")
	require.True(t, r.Unsettled())
	require.True(t, r.take(filed, 1), "the caller must reach the entry before the writer")
	late := r.open("late")
	require.True(t, r.take(late, 1))
	r.settle(1)
	for old, count := range map[*Entry[string]]uint64{filed: 2, unused: 0, idle: 0, landed: 1, late: 1} {
		e := r.now(old)
		require.True(t, r.terms.Load().Current(e.Word()), e.Key())
		require.Equal(t, count, tallied(e.Word()), e.Key())
		require.Same(t, e, r.View().Load(r.hash(e.Key()), e.Key()), "an entry whose command was lost must be adopted")
	}
	require.False(t, r.changing)
	r.mustChange(tally{3}, 1)
	require.EqualValues(t, 2, tallied(r.now(filed).Word()))
}

// In a table too large for a step, the change is under way until the last slot and the last key
// were visited, whichever is later. Check compares the words.
func TestChangeIsOverWhenTheLastKeyIsReached(t *testing.T) {
	for name, c := range map[string]struct{ maxKeys, filed int }{
		"the nursery is last": {5 * keysPerShard, 1},
		"the map is last":     {2 * keysPerShard, 9 * settleStep},
	} {
		t.Run(name, func(t *testing.T) {
			r := newTally[int](t, Options{MaxKeys: c.maxKeys})
			for key := range c.filed {
				r.add(key, 1)
			}
			for key := range 200 {
				require.True(t, r.take(r.open(-1-key), 1))
			}
			require.Equal(t, ChangeMade, r.change(tally{2}, 1))
			steps := 0
			for ; r.Unsettled(); steps++ {
				require.True(t, r.changing)
				r.Settle(1)
				require.NoError(t, r.Check())
			}
			require.Greater(t, steps, 4)
			require.False(t, r.changing)
		})
	}
}

func TestStalledTakeFailsIfTheKeyIsInUse(t *testing.T) {
	r := newTally[string](t, Options{})
	e := r.open("a")
	r.fileOne(e, 1)
	require.Equal(t, ChangeMade, r.change(tally{2}, 1))
	require.True(t, r.take(e, 1))
	word := e.Word()
	require.NoError(t, r.Check())
	r.settle(1)
	require.False(t, e.Advance(word, word+1), "an entry that was left under two policies must not see a third")
	require.EqualValues(t, 1, tallied(r.View().Load(r.hash("a"), "a").Word()))
}

func TestChangeKeepsTheMarkOfForeignTurns(t *testing.T) {
	r := newTally[string](t, Options{})
	marked, plain := r.add("marked", 1), r.add("plain", 1)
	marked.MarkForeignTurn()
	require.True(t, plain.LockReturn())
	plain.AddReturned(3)
	r.mustChange(tally{2}, 1)
	require.True(t, r.now(marked).HasForeignTurn())
	require.False(t, r.now(plain).HasForeignTurn())
	require.True(t, r.now(plain).LockReturn(), "a give-back to the old entry must not hold the lock of its successor")
	require.EqualValues(t, 3, r.now(plain).Returned(), "the successor must continue the count, as reservations of the new policy may be older")
}

// A reservation finds its units in the entry's successor, and in no other entry of the key.
func TestSuccessorHasTheReturnedUnits(t *testing.T) {
	r := newTally[string](t, Options{})
	e := r.add("a", 1)
	require.False(t, e.Moved())
	require.Equal(t, ChangeMade, r.change(tally{2}, 1))
	require.True(t, r.take(e, 1))
	require.True(t, e.LockReturn())
	e.AddReturned(3)
	r.settle(1)
	require.True(t, e.Moved())
	terms := r.View().Terms()
	to := r.View().Successor(e, terms)
	require.Same(t, r.now(e), to)
	require.EqualValues(t, 3, to.Returned())

	require.Equal(t, 1, r.sweep(math.MaxInt64/2))
	require.Nil(t, r.View().Successor(e, terms), "a key that has left has a successor")
	require.NotNil(t, r.add("a", 1))
	require.Nil(t, r.View().Successor(e, terms), "another entry of the key is taken for the successor")
	r.mustChange(tally{3}, 1)
	require.NotNil(t, r.View().Successor(e, r.View().Terms()), "a key must have its successor if no key of the slot has left since")
}

// A writer that could not be stopped may move an entry after Drain has ended it.
func TestDrainedEntryIsNotReplaced(t *testing.T) {
	r := newTally[string](t, Options{})
	e := r.add("a", 1)
	require.Equal(t, ChangeMade, r.change(tally{2}, 1))
	r.once("move: read", func() { r.Drain(func(*Entry[string], Reading) {}) })
	r.settle(1)
	require.Nil(t, r.step)
	require.False(t, e.Moved())
	require.Nil(t, r.moving.Load())
	require.True(t, e.dead())
	// Recovery removes the dead entry.
	r.Recover()
	r.settle(1)
}

// A call that meets a moved entry finds its key's live entry, even while another entry moves, or
// after the successor has moved in turn.
func TestMovedEntryLeadsToItsSuccessor(t *testing.T) {
	for name, later := range map[string]func(r rig[string]){
		"while it is moved":      func(rig[string]) {},
		"when it is in the map":  func(r rig[string]) { r.Recover() },
		"while another is moved": func(r rig[string]) { r.Recover(); r.announce("b") },
		"while its successor is": func(r rig[string]) { r.Recover(); r.announce("a") },
	} {
		t.Run(name, func(t *testing.T) {
			var e *Entry[string]
			var r rig[string]
			r = newTally[string](t, Options{Fault: func(point string) {
				if point == "move: dead" && r.moving.Load().from == e {
					panic(killed{})
				}
			}})
			e = r.add("a", 1)
			r.add("b", 1)
			require.Equal(t, ChangeMade, r.change(tally{2}, 1))
			require.Panics(t, func() { r.settle(1) })
			successor := r.moving.Load().to
			r.once("find: moved", func() { later(r) })
			require.Same(t, successor, r.View().Look(r.hash("a"), "a"))
			require.Nil(t, r.step, "the call did not meet the old entry")
			r.Recover()
			r.settle(1)
			require.EqualValues(t, 1, tallied(r.View().Load(r.hash("a"), "a").Word()))
		})
	}
}

func (r rig[K]) announce(key K) {
	r.moving.Store(&move[K]{r.View().Load(r.hash(key), key), &Entry[K]{key: key}})
}

func (r rig[K]) now(e *Entry[K]) *Entry[K] { return r.View().Look(r.hash(e.Key()), e.Key()) }

// The answers, each given once:
//
//  1. ChangeRefused, at any time, to a policy of another family;
//  2. ChangeLater until all words have been carried over, and ChangeMade then;
//  3. a change that is requested twice is made once, and later changes stay;
//  4. an abandoned change is answered too, and truly.
//
// Promise: Changes are made one at a time.
func TestChangeIsAnsweredOnce(t *testing.T) {
	r := newTally[string](t, Options{})
	e := r.add("a", 1)
	require.Equal(t, ChangeRefused, r.change(policy.Must(policy.Funnel(1, 1, time.Hour)), 1))
	require.Equal(t, ChangeRefused, r.change(struct{ policy.Policy }{tally{2}}, 1))
	require.False(t, r.Unsettled(), "a refused change is under way")

	second := NewChange(tally{2}, 1)
	r.Apply(ChangeCommand[string](second))
	require.Equal(t, ChangeMade, <-second.Answer())
	for r.Unsettled() {
		require.Equal(t, ChangeLater, r.change(tally{3}, 1))
		r.Settle(1)
	}
	require.True(t, r.terms.Load().MadeBy(second))
	r.Apply(ChangeCommand[string](second))
	require.Empty(t, second.Answer())
	require.False(t, r.Unsettled(), "a change that was answered must not be made again")
	require.Equal(t, ChangeMade, r.change(tally{3}, 1))
	r.settle(1)
	r.Apply(ChangeCommand[string](second))
	require.Equal(t, policy.Policy(tally{3}), r.terms.Load().Policy, "changes that came after the refused change must hold")
	require.EqualValues(t, 1, tallied(r.now(e).Word()))

	r.Abandon(ChangeCommand[string](second))
	require.Empty(t, second.Answer())
	lost := NewChange(tally{4}, 1)
	r.Abandon(ChangeCommand[string](lost))
	require.Equal(t, ChangeLater, <-lost.Answer())
	r.Apply(ChangeCommand[string](lost))
	require.Equal(t, policy.Policy(tally{3}), r.terms.Load().Policy, "the change was not made after it was refused once")
}

func TestChangeOfADyingWriterIsMade(t *testing.T) {
	for name, tell := range map[string]func(r rig[string], c *Change){
		"tried again": func(r rig[string], c *Change) { r.Apply(ChangeCommand[string](c)) },
		"abandoned":   func(r rig[string], c *Change) { r.Abandon(ChangeCommand[string](c)) },
	} {
		t.Run(name, func(t *testing.T) {
			deadly := true
			r := newTally[string](t, Options{Fault: func(point string) {
				if deadly && point == "change: made" {
					deadly = false
					panic(killed{})
				}
			}})
			e := r.add("a", 1)
			c := NewChange(tally{2}, 1)
			require.Panics(t, func() { r.Apply(ChangeCommand[string](c)) })
			require.Empty(t, c.Answer())
			r.Recover()
			tell(r, c)
			require.Equal(t, ChangeMade, <-c.Answer())
			require.True(t, r.changing, "all words must wait to be carried over")
			r.settle(1)
			require.False(t, r.changing)
			require.Equal(t, uint64(epochBit|2<<tallyID|1<<tallyCount|3601), r.now(e).Word())
		})
	}
}

// Promise: After a change keys leave by the new policy.
func TestChangeOrdersAnew(t *testing.T) {
	r := newRig[string](t, Options{Policy: policy.Must(policy.Funnel(4, 1, time.Hour)), MaxKeys: 2})
	drained := r.add("drained", 1)
	r.add("owing", 3*hour)
	r.open("drained")
	// The key is fresh earlier than the other one, because the take came before.
	require.True(t, r.take(drained, 3*hour-1))
	require.Equal(t, ChangeMade, r.change(policy.Must(policy.Funnel(4, 1, 10*time.Hour)), 3*hour))
	r.MakeRoom(3*hour, 1, 10)
	require.Equal(t, 2, r.View().Len())
	r.settle(3 * hour)
	for f := range r.index.All() {
		require.Equal(t, f.fresh, r.freshAt(f.entry.Word()))
		require.InDelta(t, float64(13*hour), float64(f.fresh), float64(second), "one unit must take ten hours to drain now")
	}
	r.MakeRoom(3*hour, 1, 10)
	require.Equal(t, 1, r.View().Len())
	require.Zero(t, r.sweep(12*hour))
	require.Equal(t, 1, r.sweep(14*hour))
}

// A change during the search for strays searches the earlier slots again.
func TestChangeBeginsTheLookAtTheNurseryAnew(t *testing.T) {
	r := newTally[uint64](t, Options{MaxKeys: 1 << 20})
	r.hasher = func(key uint64) uint64 { return key }
	r.View().NoteLostFiling()
	r.Settle(1)
	require.NotZero(t, r.adopted)
	e := r.open(0)
	word, terms := r.View().Read(e)
	require.Equal(t, ChangeMade, r.change(tally{2}, 1))
	r.settle(1)
	next, _ := terms.Policy.Take(0, 1, 1, 0)
	require.False(t, e.Advance(word, next|terms.EpochBit), "a caller that took the entry for tentative under the policy before must fail")
	require.Equal(t, uint64(epochBit), r.now(e).Word())
}

// All yields each key once, wherever it is, even if the loop stops early, or opens and files keys.
func TestAllYieldsEachKeyOnce(t *testing.T) {
	r := newRig[int](t, Options{MaxKeys: 64})
	// all counts the keys that a walk yields until each returns false.
	all := func(each func(seen int) bool) map[int]int {
		seen := map[int]int{}
		for e := range r.View().All() {
			if seen[e.Key()]++; !each(len(seen)) {
				break
			}
		}
		return seen
	}
	toTheEnd := func(int) bool { return true }
	want := map[int]int{}
	for key := range 20 {
		e := r.open(key)
		if key%5 == 4 {
			// A tentative entry was never used, and is perhaps not the key's only entry.
			continue
		}
		require.True(t, r.take(e, 1))
		if want[key] = 1; key%2 == 0 {
			r.fileOne(e, 1)
		}
	}
	require.Equal(t, want, all(toTheEnd))
	for stop := 1; stop <= 16; stop++ {
		require.Len(t, all(func(seen int) bool { return seen < stop }), stop)
	}

	// In the map and not yet out of its slot.
	e := r.open(1)
	slot := r.slotOf(r.hash(1))
	n := slot.Load()
	r.fileOne(e, 1)
	slot.Store(n)
	require.Equal(t, want, all(toTheEnd))
	r.View().NoteLostFiling()
	r.settle(1)

	// Dead, but in the map: the writer died before it removed it.
	r.View().Load(r.hash(2), 2).word.Store(tombstone)
	delete(want, 2)
	for _, key := range []int{4, 9, 14, 19} {
		// The entry was adopted. It is there although it was never used.
		want[key] = 1
	}
	require.Equal(t, want, all(toTheEnd))
	r.Recover()
	r.settle(1)

	seen := all(func(seen int) bool {
		fresh := r.open(1000 + seen)
		require.True(t, r.take(fresh, 1))
		r.fileOne(fresh, 1)
		r.Sweep(1, 10)
		return true
	})
	for key := range want {
		require.Equal(t, 1, seen[key], key)
	}
	for key, n := range seen {
		require.Equal(t, 1, n, key)
	}
}

// The only key moves from its slot to the map at each step of a walk, and its shard is copied
// there. Or it is filed already. The policy changes or not.
//
// Promise: `All` misses no remaining key that moves.
func TestAllMissesNoEntryThatMoves(t *testing.T) {
	for kind := range 4 {
		allMissesNone(t, kind%2 == 1, kind/2 == 1)
	}
}

func allMissesNone(t *testing.T, filed, changed bool) {
	t.Helper()
	for moves := 0; ; moves++ {
		r := newTally[string](t, Options{})
		e := r.open("a")
		require.True(t, r.take(e, 1))
		if filed {
			r.fileOne(e, 1)
		}
		steps, moved := 0, false
		r.step = func(point string) {
			if steps++; steps == moves+1 {
				r.step = nil
				r.fileOne(e, 1)
				r.resize(0, 2*minBuckets)
				if changed {
					require.Equal(t, ChangeMade, r.change(tally{2}, 1))
					r.settle(1)
				}
				moved = true
			}
		}
		seen := 0
		for _, now := range r.View().All() {
			require.EqualValues(t, 1, tallied(now.State))
			seen++
		}
		require.Equal(t, 1, seen, "step %d", moves)
		if !moved {
			break
		}
	}
}

// A key's debt is translated as it stood when the policy was replaced, whenever it is used next.
//
// Promise: After a change a key's state is independent of its next use.
func TestStateIsOfTheInstantOfTheChange(t *testing.T) {
	deep := policy.Must(policy.Funnel(100, 1, time.Second))
	flat := policy.Must(policy.Funnel(10, 1, time.Second))
	full, _ := deep.Take(0, 1, 100, 0)
	terms := newTerms(flat, epochBit, deep, nil)
	terms.since = 1
	state, alive := terms.State(full)
	require.True(t, alive)
	require.Equal(t, 1+10*second, flat.FreshAt(state), "from then on the key must be as full as a key of the new limit can be")

	const asked = 50 * second
	r := newRig[string](t, Options{Policy: deep})
	e := r.open("a")
	require.True(t, e.Advance(e.Word(), full))
	require.Equal(t, ChangeMade, r.change(flat, asked))
	word, now := r.View().Read(e)
	state, alive = now.State(word)
	require.True(t, alive)
	require.Equal(t, asked+10*second, flat.FreshAt(state))
}
