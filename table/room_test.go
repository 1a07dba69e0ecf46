package table

import (
	"testing"
	"time"

	"github.com/ral-limiter/ral/policy"
	"github.com/stretchr/testify/require"
)

// ten a second, so that keys can owe more and less.
func newCrowd(t *testing.T, maxKeys int) rig[string] {
	return newRig[string](t, Options{
		Policy:  policy.Must(policy.Funnel(10, 1, time.Second)),
		MaxKeys: maxKeys,
	})
}

func (r rig[K]) takes(e *Entry[K], n int, now policy.Instant) {
	r.t.Helper()
	for range n {
		require.True(r.t, r.take(e, now))
	}
}

// Promise: The key that owes least makes room.
func TestRoomIsMadeByTheLeastDebt(t *testing.T) {
	r := newCrowd(t, 3)
	offender := r.add("offender", 100*second)
	r.takes(offender, 9, 100*second)
	r.add("passer-by", 101*second)
	r.takes(r.add("regular", 100*second), 4, 100*second)
	_, status := r.View().Open(r.hash("new"), "new")
	require.Equal(t, Full, status)

	r.MakeRoom(101*second, 1, 10)
	require.False(t, r.has("passer-by"))
	require.EqualValues(t, 1, r.counters.Forgiven.Load(), "the forgiven unit was not counted")
	r.add("new", 101*second)
	r.MakeRoom(102*second, 2, 10)
	require.False(t, r.has("new"))
	require.False(t, r.has("regular"))
	require.True(t, r.has("offender"), "a key at its limit left although a key with less debt was there")
	require.False(t, r.take(offender, 100*second))
}

// Promise: `Stats.Forgiven` counts exactly the evicted keys in debt.
func TestRoomForgivesOnlyOwingKeys(t *testing.T) {
	r := newCrowd(t, 2)
	// The key owes until second 10.
	r.add("drained", 9*second)
	r.add("owing", 10*second)
	r.MakeRoom(10*second, 1, 10)
	require.EqualValues(t, 1, r.counters.Evicted.Load())
	require.Zero(t, r.counters.Forgiven.Load())
	r.MakeRoom(10*second, 2, 10)
	require.EqualValues(t, 2, r.counters.Evicted.Load())
	require.EqualValues(t, 1, r.counters.Forgiven.Load())
}

func TestRoomGivesUpLooking(t *testing.T) {
	r := newCrowd(t, 8)
	for _, key := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		r.takes(r.add(key, second), 9, second)
	}
	r.MakeRoom(second, 1, 3)
	require.Equal(t, 8, r.View().Len())
	r.MakeRoom(second, 1, 8)
	require.Equal(t, 7, r.View().Len(), "the next key to leave must be the key with the least debt, as all are filed truly by now")
}

// Promise: Rebuilding the index gives up no key.
func TestRoomIsNotMadeDuringRecovery(t *testing.T) {
	r := newRig[int](t, Options{MaxKeys: 4 * keysPerShard})
	for key := range 4 * keysPerShard {
		r.add(key, 1)
	}
	r.Recover()
	for !r.recovered() {
		r.MakeRoom(9*hour, 1, 10)
		require.Equal(t, 4*keysPerShard, r.View().Len())
		r.Settle(1)
	}
	r.MakeRoom(9*hour, 1, 10)
	require.Equal(t, 4*keysPerShard-1, r.View().Len())
}

// Promise: After the table was full, room is made ahead of need.
func TestRoomIsMadeAheadOfNeed(t *testing.T) {
	// With that many keys 4 places are kept free.
	const maxKeys = 4 * roomShare
	r := newRig[int](t, Options{MaxKeys: maxKeys})
	for key := range maxKeys {
		r.add(key, 1)
	}
	require.Zero(t, r.counters.Forgiven.Load(), "a full table must forgive no key before it turns a key away")

	r.Apply(RoomCommand(maxKeys, 1))
	require.Equal(t, maxKeys-4, r.View().Len())
	e := r.open(maxKeys)
	require.True(t, r.take(e, 1))
	r.Apply(FileCommand[int](r.hash(e.Key()), 1))
	require.Equal(t, maxKeys-4, r.View().Len())

	r.Sweep(2*hour, maxKeys/8-5)
	r.Sweep(2*hour, 1)
	require.True(t, r.nearlyFull, "the table is not empty enough yet to stop making room ahead")
	r.Sweep(2*hour, 1)
	require.False(t, r.nearlyFull)
}

// A place just made is taken at once. That costs no other key its place.
func TestRoomIsMadeOnce(t *testing.T) {
	r := newRig[string](t, Options{MaxKeys: 3})
	r.add("a", 1)
	r.add("b", 2)
	r.add("c", 3)
	r.fault = func(point string) {
		if point == "evict: gone" {
			r.fault = func(string) {}
			require.True(t, r.take(r.open("d"), 4))
		}
	}
	r.Apply(RoomCommand("d", 4))
	require.False(t, r.has("a"))
	require.True(t, r.has("b"))
}

func TestFirmKeysMakeNoRoom(t *testing.T) {
	r := newRig[string](t, Options{
		Policy: policy.Must(policy.Funnel(10, 1, time.Second)), MaxKeys: 4, Firm: 5 * time.Second,
	})
	// The index knows of a single take.
	r.takes(r.add("stale", 100*second), 9, 100*second)
	firm := r.add("firm", 100*second)
	r.takes(firm, 5, 100*second)
	r.sweep(105 * second)
	r.takes(r.add("edge", 100*second), 4, 100*second)
	r.add("lesser", 101*second)
	require.EqualValues(t, 4, r.places.taken())

	r.MakeRoom(100*second, 4, 100)
	require.False(t, r.has("lesser"))
	require.False(t, r.has("edge"), "a key that is fresh as late as others may be must make room")
	require.True(t, r.has("stale"))
	require.True(t, r.has("firm"))
	r.MakeRoom(101*second-1, 4, 100)
	require.True(t, r.has("firm"))
	r.MakeRoom(101*second, 4, 100)
	require.False(t, r.has("firm"))
	require.True(t, r.has("stale"))
}

// A key reset after it was filed as firm makes room, once the index is rebuilt.
func TestResetKeysMakeRoomAmongFirmOnes(t *testing.T) {
	r := newRig[string](t, Options{
		Policy: policy.Must(policy.Funnel(10, 1, time.Second)), MaxKeys: 3, Firm: time.Second,
	})
	var entries []*Entry[string]
	for _, key := range []string{"a", "b", "c"} {
		e := r.add(key, 100*second)
		r.takes(e, 9, 100*second)
		entries = append(entries, e)
	}
	// The call files the keys as firm.
	r.MakeRoom(100*second, 1, 100)
	require.EqualValues(t, 3, r.places.taken())
	r.MakeRoom(100*second, 1, 100)
	require.False(t, r.Unsettled(), "nothing must be left to settle")

	r.View().NoteReset()
	require.True(t, entries[1].Advance(entries[1].Word(), 0))
	r.MakeRoom(100*second, 1, 100)
	require.True(t, r.Unsettled())
	r.settle(100 * second)
	r.MakeRoom(100*second, 1, 100)
	require.False(t, r.has("b"))
	require.True(t, r.has("a") && r.has("c"))
}

// The writer says until when no room can be made, so that callers do not ask in vain.
func TestFullTableOfFirmKeysSaysSo(t *testing.T) {
	r := newRig[string](t, Options{
		Policy: policy.Must(policy.Funnel(10, 1, time.Second)), MaxKeys: 3, Firm: time.Second,
	})
	var entries []*Entry[string]
	for _, key := range []string{"a", "b", "c"} {
		e := r.add(key, 100*second)
		r.takes(e, 9, 100*second)
		entries = append(entries, e)
	}
	firm := r.View().Firm
	require.False(t, firm(100*second), "Firm must be false before the writer has looked")
	r.MakeRoom(100*second, 1, 100)
	require.True(t, firm(100*second))
	require.True(t, firm(109*second-1))
	require.False(t, firm(109*second), "Firm must be false if a key is fresh within the time of Options.Firm")

	r.View().NoteReset()
	require.False(t, firm(100*second), "Firm must be false after a reset")
	require.True(t, entries[1].Advance(entries[1].Word(), 0))
	r.MakeRoom(100*second, 1, 100)
	require.False(t, firm(100*second), "Firm must be false while the index is being rebuilt")
	r.settle(100 * second)
	r.MakeRoom(100*second, 2, 100)
	require.False(t, r.has("b"))
	require.True(t, firm(100*second), "Firm must be true if both other keys are firm")
	r.add("lesser", 100*second)
	require.False(t, firm(100*second), "Firm must be false if the new key makes room")
}

// Promise: The place of a key that is released while the writer looks for room is found by the next look.
func TestReleaseWhileTheWriterLooksIsNoted(t *testing.T) {
	limit := policy.Must(policy.InFlight(1, time.Hour))
	for _, late := range []bool{false, true} {
		r := newRig[string](t, Options{Policy: limit, MaxKeys: 2, Idle: time.Second})
		taken := map[string]uint64{}
		for _, key := range []string{"a", "b"} {
			e := r.add(key, 100*second)
			next, d := limit.Take(0, 100*second, 1, 0)
			require.True(t, d.Allowed && e.Advance(e.Word(), next))
			taken[key] = next
		}
		if late {
			r.MakeRoom(100*second, 1, 100)
			require.True(t, r.View().Firm(100*second), "Firm must be true while both keys are in use")
		}
		looks := 0
		r.step = func(point string) {
			if point != "evict: judged" {
				return
			}
			// By now the first of the two keys was seen in use, or both were.
			if looks++; looks == 2 {
				e := r.find(r.hash("a"), "a")
				next, ok := limit.(policy.Occupier).Release(e.Word(), taken["a"], 100*second, 1)
				require.True(t, ok && e.Advance(e.Word(), next))
				r.View().NoteReleased()
			}
		}
		r.MakeRoom(100*second, 1, 100)
		r.step = nil
		require.GreaterOrEqual(t, looks, 2)
		if r.has("a") {
			require.False(t, r.View().Firm(100*second), "Firm must be false until the writer has looked again")
			r.MakeRoom(100*second, 1, 100)
		}
		require.False(t, r.has("a"), "late: %v: the released key must make room", late)
		require.True(t, r.has("b"))
	}
}

func TestResetIsNotNotedWithoutFirmKeys(t *testing.T) {
	r := newCrowd(t, 3)
	r.View().NoteReset()
	require.False(t, r.reset.Load())
}
