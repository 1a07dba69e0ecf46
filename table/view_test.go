package table

import (
	"math"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/ral-limiter/ral/policy"
	"github.com/stretchr/testify/require"
)

// A command files a whole slot, or leaves the rest to Settle.
func TestFileEmptiesTheSlot(t *testing.T) {
	r := newRig[int](t, Options{MaxKeys: 3 * fileBudget})
	r.hasher = oneHash[int]
	for key := range 2*fileBudget + 1 {
		r.Running(key%2 == 1)
		e, status := r.View().Open(7, key)
		switch {
		case key == 0:
			require.Equal(t, Landed, status)
		case key < longSlot || key < maxSlot && key%2 == 1:
			require.Equal(t, Found, status)
		default:
			require.Equal(t, Backlogged, status)
		}
		require.True(t, r.take(e, 1))
	}
	require.Equal(t, fileBudget, r.File(7, 1))
	require.Equal(t, fileBudget+1, r.View().Landed())
	require.True(t, r.Unsettled(), "the next entry that lands there must send no command")
	r.settle(1)
	require.Zero(t, r.View().Landed())
	require.Equal(t, 2*fileBudget+1, r.index.Len())
	require.Zero(t, r.File(7, 1))
}

// A caller puts an entry into an empty slot and then finds its key in the map. The caller still
// sends the command: another entry may have landed behind the dead entry.
func TestOpenAsksForTheSlotThatItBegan(t *testing.T) {
	r := newRig[string](t, Options{})
	r.hasher = oneHash[string]
	r.once("open: not in the slot", func() {
		r.add("a", 1)
		r.once("open: pushed", func() {
			_, status := r.View().Open(7, "b")
			require.Equal(t, Found, status)
		})
	})
	e, status := r.View().Open(7, "a")
	require.Equal(t, Landed, status)
	require.Same(t, r.View().Load(7, "a"), e)
	require.Equal(t, 2, r.File(7, 1))
	require.NotNil(t, r.View().Load(7, "b"))
	require.Nil(t, r.slotOf(7).Load())
}

// A caller looks into a list if its first node has the bit of the key's hash, also past nodes of
// other hashes.
func TestOpenFindsAKeyBehindOthers(t *testing.T) {
	r := newRig[int](t, Options{MaxKeys: 2 * manyHashes})
	r.hasher = func(key int) uint64 { return 7 + uint64(key)<<(maxNurseryBits+8) }
	var entries []*Entry[int]
	for key := range manyHashes + 2 {
		e, _ := r.View().Open(r.hash(key), key)
		require.True(t, r.take(e, 1))
		entries = append(entries, e)
		require.Nil(t, waiting(r.slotOf(7).Load(), r.hash(-1), -1))
		require.Equal(t, min(key+1, manyHashes), r.slotOf(7).Load().hashes().len())
	}
	for key, e := range entries {
		again, status := r.View().Open(r.hash(key), key)
		require.Same(t, e, again)
		require.Equal(t, Found, status)
	}
}

func TestOpenSkipsDeadEntries(t *testing.T) {
	r := newRig[string](t, Options{MaxKeys: 2})
	a := r.open("a")
	require.True(t, r.take(a, 1))
	slot := r.slotOf(r.hash("a"))
	n := slot.Load()
	r.fileOne(a, 1)
	// A writer died before it took the entry out of the slot.
	slot.Store(n)
	require.Equal(t, 1, r.sweep(2*hour))
	again, status := r.View().Open(r.hash("a"), "a")
	require.Equal(t, Found, status)
	require.NotSame(t, a, again)
	require.True(t, r.take(again, 2*hour))
	require.Equal(t, 1, r.View().Len())
	require.Equal(t, 1, r.View().Landed(), "the dead entry must not count")
	r.View().NoteLostFiling()
	r.settle(2 * hour)
	require.Nil(t, slot.Load(), "the dead entry was not taken out")
}

func TestOpenIsFull(t *testing.T) {
	r := newRig[string](t, Options{MaxKeys: 2})
	r.add("a", 1)
	r.add("b", 1)
	e, status := r.View().Open(r.hash("c"), "c")
	require.Equal(t, Full, status)
	require.Nil(t, e)
	_, status = r.View().Open(r.hash("a"), "a")
	require.Equal(t, Found, status, "a known key must be found")
	require.Equal(t, 1, r.sweep(hour+61*second)-1)
	_, status = r.View().Open(r.hash("c"), "c")
	require.Equal(t, Landed, status)
}

// An entry that died in its slot leaves its caller with a full table and no command to send. The
// writer still visits: callers behind the dead entry rely on it.
func TestDeadEntryOfATurnedAwayCallerIsTakenOut(t *testing.T) {
	r := newRig[string](t, Options{MaxKeys: 2})
	// "a" has a slot, and the other keys have another.
	r.hasher = func(key string) uint64 { return uint64(len(key)) & 1 }
	looks := 0
	r.step = func(point string) {
		step := r.step
		r.step = nil
		if point == "open: not in the map" {
			looks++
		}
		switch {
		case point == "open: not in the map" && looks == 1:
			// The key comes, and is filed.
			r.add("a", 1)
		case point == "second look: dead":
			// The key leaves.
			require.Equal(t, 1, r.sweep(3*hour))
		case point == "open: not in the map" && looks == 2:
			r.add("bb", 3*hour)
			r.add("dd", 3*hour)
		}
		r.step = step
	}
	e, status := r.View().Open(r.hash("a"), "a")
	require.Nil(t, e)
	require.Equal(t, Full, status)
	r.step = nil
	require.NotNil(t, r.nursery[1].Load(), "the dead entry must be in the slot")
	require.True(t, r.Unsettled())
	r.settle(3 * hour)
	require.Nil(t, r.nursery[1].Load())
}

func TestLastPlaceGoesToOne(t *testing.T) {
	var p places
	p.step = func() {
		p.step = nil
		require.Equal(t, placeTaken, p.take(1))
		p.confirm()
	}
	require.Equal(t, Full, p.take(1))
	require.EqualValues(t, 1, p.taken())
}

func TestTableOfAnyNumberOfKeys(t *testing.T) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	most := newRig[string](t, Options{MaxKeys: math.MaxInt, Idle: math.MaxInt64})
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20))
	for _, key := range []string{"a", "b", "c"} {
		most.add(key, 1)
	}
	most.MakeRoom(2, 64, 512)
	require.Equal(t, 3, most.View().Len())
	require.Zero(t, most.sweep(1<<59), "a key that never owes nothing must stay for ever")
}

func TestShardsAreFilledEvenly(t *testing.T) {
	r := newRig[int](t, Options{MaxKeys: 7 * keysPerShard})
	count := make([]int, len(r.shards))
	for range 70_000 {
		i, _ := r.shardOf(rand.Uint64())
		count[i]++
	}
	for i, n := range count {
		require.InDelta(t, 10_000, n, 600, "shard %d", i)
	}
	first, _ := r.shardOf(0)
	last, _ := r.shardOf(math.MaxUint64)
	require.Zero(t, first)
	require.Equal(t, len(r.shards)-1, last)
}

// A writer that Close could not stop goes on in a cleared table, where callers land entries. The
// writer finds no known entry, and ends.
func TestClearForgetsAll(t *testing.T) {
	r := rig[string]{New[string](Options{Policy: policy.Must(policy.Funnel(1, 1, time.Hour)), Idle: 1, MaxKeys: 9}), t}
	r.hasher = oneHash[string]
	r.add("filed", 1)
	require.True(t, r.take(r.open("landed"), 1))
	r.Clear()
	require.False(t, r.has("filed"))
	require.False(t, r.has("landed"))
	require.Equal(t, 2, r.View().Len(), "Clear must not give back the places taken")
	r.add("after", 2)
	r.sweep(9 * hour)
	require.Zero(t, r.View().Landed())
	require.False(t, r.has("after"))
}

// All other tests rely on Check.
func TestCheckNotices(t *testing.T) {
	for name, spoil := range map[string]func(r rig[string], a, b *Entry[string]){
		"a filing too few":       func(r rig[string], a, b *Entry[string]) { r.index.DeleteMin() },
		"a filing too many":      func(r rig[string], a, b *Entry[string]) { r.index.Add(filing[string]{99 * hour, a}) },
		"a filing of no entry":   func(r rig[string], a, b *Entry[string]) { r.index.Add(filing[string]{1, &Entry[string]{}}) },
		"a count too high":       func(r rig[string], a, b *Entry[string]) { r.places.word.Add(1) },
		"a count too low":        func(r rig[string], a, b *Entry[string]) { r.places.release() },
		"a dead entry":           func(r rig[string], a, b *Entry[string]) { a.word.Store(tombstone) },
		"a tentative entry":      func(r rig[string], a, b *Entry[string]) { a.word.Store(tentative) },
		"a key under two hashes": func(r rig[string], a, b *Entry[string]) { *b.text() = 'a' },
		"another's word":         func(r rig[string], a, b *Entry[string]) { a.word.Store(a.Word() ^ epochBit) },
		"another's zero":         func(r rig[string], a, b *Entry[string]) { a.word.Store(epochBit) },
		"another's landed word": func(r rig[string], a, b *Entry[string]) {
			r.open("c").word.Store(epochBit)
		},
		"a hash not in its list": func(r rig[string], a, b *Entry[string]) {
			nodeOf(r.slotOf(r.hash("c")), r.open("c")).list = countOne
		},
		"a landed double": func(r rig[string], a, b *Entry[string]) {
			r.places.word.Add(1)
			n := &node[string]{entry: &Entry[string]{key: "a"}, hash: 1}
			n.pushBefore(nil)
			r.slotOf(1).Store(n)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := rig[string]{New[string](Options{
				Policy: policy.Must(policy.Funnel(1, 1, time.Hour)), Idle: 1, MaxKeys: 9,
			}), t}
			a, b := r.add("a", 1), r.add("b", 2)
			require.NoError(t, r.Check())
			spoil(r, a, b)
			require.Error(t, r.Check())
		})
	}
}

// A caller kills another's tentative entry, as its key is now filed, and stops before it returns
// the place; the other goes on. With one key, a table for two is not full for a third.
func TestOpenIsNotFullForADeadDuplicate(t *testing.T) {
	r := newRig[string](t, Options{MaxKeys: 2})
	pushed, goOn, gone := make(chan struct{}), make(chan struct{}), make(chan struct{})
	phase := 0
	r.step = func(point string) {
		switch {
		// The first goroutine opens the key.
		case phase == 0 && point == "open: not in the map":
			phase = 1
			go func() {
				r.View().Open(r.hash("a"), "a")
				close(gone)
			}()
			<-pushed
		// The second goroutine opens the key.
		case phase == 1 && point == "open: not in the slot":
			phase = 2
			r.add("a", 1)
			phase = 3
		case phase == 3 && point == "open: pushed":
			phase = 4
			close(pushed)
			<-goOn
		// The first goroutine goes on.
		case phase == 4 && point == "second look: dead":
			phase = 5
			close(goOn)
			<-gone
			_, status := r.View().Open(r.hash("b"), "b")
			require.Equal(t, Undecided, status)
		}
	}
	e, _ := r.View().Open(r.hash("a"), "a")
	require.Equal(t, 5, phase)
	require.Same(t, r.View().Load(r.hash("a"), "a"), e)
	r.settle(1)
	require.Equal(t, 1, r.View().Len())
}

// A reader at an unlinked node, first in its list or not, still reaches those behind it.
func TestSlotLeadsOnFromAnUnlinkedNode(t *testing.T) {
	for _, gone := range []string{"first", "middle"} {
		t.Run(gone, func(t *testing.T) {
			r := newRig[string](t, Options{})
			r.hasher = oneHash[string]
			entries := map[string]*Entry[string]{}
			for _, key := range []string{"last", "middle", "first"} {
				entries[key] = r.open(key)
				require.True(t, r.take(entries[key], 1))
			}
			standing := nodeOf(r.slotOf(7), entries[gone])
			r.file(r.slotOf(7), standing, 1)
			require.Nil(t, nodeOf(r.slotOf(7), entries[gone]))
			last := waiting(standing, 7, "last")
			require.Same(t, entries["last"], last)
		})
	}
}

func nodeOf[K comparable](s *slot[K], e *Entry[K]) *node[K] {
	n := s.Load()
	for n != nil && n.entry != e {
		n = n.next.Load()
	}
	return n
}
