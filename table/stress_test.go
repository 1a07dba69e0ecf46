package table

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ral-limiter/ral/policy"
	"github.com/stretchr/testify/require"
)

// Eight callers take from a few keys without rest in an almost full table. A writer files, evicts,
// copies shards and is replaced. Each key admits one take an hour, and an hour passes whenever the
// writer has made a few rounds. Properties:
//
//  1. Takes of a key are at least an hour apart: none is lost with an entry that is filed, evicted,
//     or opened again, and no key has two entries.
//  2. There are never more entries than MaxKeys.
//  3. Every call is answered, and in the end map, index and count agree.
func TestStress(t *testing.T) {
	for _, chains := range []bool{false, true} {
		const keys = 24
		r := newRig[int](t, Options{MaxKeys: keys + 8, Idle: 1})
		if chains {
			r.hasher = func(key int) uint64 { return uint64(key % 3) }
		}

		var now atomic.Int64
		now.Store(int64(hour))      // last is 0 for keys that were never taken from
		var last [keys]atomic.Int64 // the instant of each key's last take
		queue := make(chan Command[int], 16)
		var done atomic.Bool
		var answered atomic.Int64

		var callers sync.WaitGroup
		for id := range 8 {
			callers.Go(func() {
				random := rand.New(rand.NewPCG(1, uint64(id)))
				for !done.Load() {
					key := random.IntN(keys)
					if at, ok := takeOnce(r, key, &now, queue, nil); ok {
						if before := policy.Instant(last[key].Swap(int64(at))); max(at, before)-min(at, before) < hour {
							t.Errorf("key %d was admitted at %v and at %v",
								key, time.Duration(before), time.Duration(at))
							done.Store(true)
						}
					}
					if n := r.View().Len(); n > keys+8 {
						t.Errorf("%d entries", n)
					}
					if answered.Add(1)%16 == 0 {
						runtime.Gosched() // there is a writer, too
					}
				}
			})
		}

		end := time.Now().Add(700 * time.Millisecond)
		random := rand.New(rand.NewPCG(2, 3))
		for round := 0; time.Now().Before(end) && !done.Load(); round++ {
			for len(queue) > 0 && random.IntN(50) > 0 {
				command := <-queue
				r.Apply(command)
				if random.IntN(4) == 0 {
					r.Apply(command)
				}
			}
			at := policy.Instant(now.Load())
			switch random.IntN(16) {
			case 0:
				r.Recover()
			case 1, 2, 3, 4:
				at = policy.Instant(now.Add(2 * int64(hour)))
				r.Sweep(at, keys)
			case 5:
				r.View().NoteLostFiling()
			case 6:
				if r.shards[0].Load() != nil {
					r.resize(0, leastBuckets+random.IntN(9))
				}
			default:
				r.Sweep(at, random.IntN(keys))
			}
			if r.Unsettled() {
				r.Settle(at)
			}
			runtime.Gosched()
		}
		done.Store(true)
		callers.Wait()
		for len(queue) > 0 {
			r.Apply(<-queue)
		}
		r.View().NoteLostFiling()
		r.settle(policy.Instant(now.Load()))
		require.NoError(t, r.Check())
		t.Logf("%d calls, %d evictions", answered.Load(), r.counters.Evicted.Load())
		require.NotZero(t, r.counters.Evicted.Load())
	}
}

// The same while the policy is replaced without rest and the writer dies at any of its points. A
// tally does not recur within a hundred changes. Properties:
//
//  1. No policy gets a word of another except to Carry it, or the tally panics.
//  2. The takes of an entry and its successors are numbered from 1 by their words, each number once
//     without a gap. The last is in the word, if it is there at the end.
//  3. Whenever no change is under way all words have the present epoch bit.
//  4. Each change is answered, and made when the writer has come to rest.
func TestStressOfChanges(t *testing.T) {
	const keys = 24
	random := rand.New(rand.NewPCG(2, 5))
	deadly := false
	// first returns the original entry of which e is a successor.
	var origins sync.Map // of *Entry[int]: *Entry[int]
	first := func(e *Entry[int]) any {
		if origin, ok := origins.Load(e); ok {
			return origin
		}
		return e
	}
	var r rig[int]
	r = newTally[int](t, Options{MaxKeys: keys + 8, Idle: 1, Fault: func(point string) {
		if point == "move: announced" {
			m := r.moving.Load()
			origins.Store(m.to, first(m.from))
		}
		if deadly && random.IntN(200) == 0 {
			panic(killed{})
		}
	}})

	type numbers struct{ takes, sum, squares atomic.Uint64 }
	var ledger sync.Map // of the first *Entry[int]: *numbers
	tell := func(e *Entry[int], state uint64) {
		n := tallied(state)
		all, _ := ledger.LoadOrStore(first(e), &numbers{})
		all.(*numbers).takes.Add(1)
		all.(*numbers).sum.Add(n)
		all.(*numbers).squares.Add(n * n)
	}

	var now atomic.Int64
	now.Store(int64(hour))
	queue := make(chan Command[int], 16)
	var done atomic.Bool
	var callers sync.WaitGroup
	for id := range 8 {
		callers.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(id)))
			for n := 1; !done.Load(); n++ {
				takeOnce(r, random.IntN(keys), &now, queue, tell)
				if n%16 == 0 {
					runtime.Gosched()
				}
			}
		})
	}

	deaths, made := 0, 0
	survived := func(work func()) (ok bool) {
		defer func() {
			if e := recover(); e == nil || e == (killed{}) {
				deadly = false
				return
			} else {
				panic(e)
			}
		}()
		deadly = true
		work()
		return true
	}
	// carryOut carries a command out with a writer and its successors.
	carryOut := func(command Command[int]) {
		for range 2 {
			if survived(func() { r.Apply(command) }) {
				return
			}
			for deaths++; !survived(r.Recover); deaths++ {
			}
		}
		r.Abandon(command)
	}
	settle := func() {
		for r.Unsettled() {
			if !survived(func() { r.Settle(policy.Instant(now.Load())) }) {
				for deaths++; !survived(r.Recover); deaths++ {
				}
			}
		}
	}
	replace := func() ChangeResult {
		change := NewChange(tally{uint64(made+1)%100 + 1}, 1)
		carryOut(ChangeCommand[int](change))
		result := <-change.Answer()
		if result == ChangeMade {
			made++
		}
		return result
	}

	end := time.Now().Add(700 * time.Millisecond)
	for round := 0; time.Now().Before(end); round++ {
		for len(queue) > 0 && random.IntN(50) > 0 {
			carryOut(<-queue)
		}
		if random.IntN(4) == 0 {
			replace()
		}
		if random.IntN(4) == 0 {
			now.Add(2 * int64(hour))
		}
		if random.IntN(16) == 0 && r.shards[0].Load() != nil {
			r.resize(0, leastBuckets+random.IntN(9))
		}
		carryOut(SweepCommand[int](policy.Instant(now.Load()), random.IntN(keys), nil))
		if random.IntN(2) == 0 {
			settle()
		} else if r.Unsettled() && !survived(func() { r.Settle(policy.Instant(now.Load())) }) {
			for deaths++; !survived(r.Recover); deaths++ {
			}
		}
		if terms := r.terms.Load(); !r.changing {
			for e := range r.View().All() {
				if word := e.Word(); word < tentative && !terms.Current(word) {
					t.Fatalf("key %d has word %#x, and %v has mark %#x", e.Key(), word, terms.Policy, terms.EpochBit)
				}
			}
		}
		runtime.Gosched()
	}
	done.Store(true)
	callers.Wait()
	for len(queue) > 0 {
		carryOut(<-queue)
	}
	r.View().NoteLostFiling()
	settle()
	require.Equal(t, ChangeMade, replace())
	settle()
	require.NoError(t, r.Check())
	require.False(t, r.changing)

	takes := uint64(0)
	ledger.Range(func(_, all any) bool {
		n := all.(*numbers).takes.Load()
		require.Equal(t, n*(n+1)/2, all.(*numbers).sum.Load())
		require.Equal(t, n*(n+1)*(2*n+1)/6, all.(*numbers).squares.Load())
		takes += n
		return true
	})
	for e := range r.View().All() {
		n := uint64(0)
		if all, ok := ledger.Load(first(e)); ok {
			n = all.(*numbers).takes.Load()
		}
		require.Equal(t, n, tallied(e.Word()), "key %d", e.Key())
	}
	t.Logf("%d takes, %d changes, %d evictions, %d deaths", takes, made, r.counters.Evicted.Load(), deaths)
	require.Zero(t, r.counters.Forgiven.Load())
	require.NotZero(t, r.counters.Evicted.Load())
	require.Greater(t, made, 3)
	require.NotZero(t, deaths)
}

// takeOnce is cell.Choke without patience. It passes the word that it stores to tell, if not nil.
func takeOnce(
	r rig[int], key int, now *atomic.Int64, queue chan Command[int], tell func(e *Entry[int], state uint64),
) (policy.Instant, bool) {
	hash := r.hash(key)
	for {
		e, status := r.View().Open(hash, key)
		if status == Full {
			runtime.Gosched()
			return 0, false
		}
		// After finding the entry, so that no take predates its birth: see cell.takeFrom.
		at := policy.Instant(now.Load())
		for {
			word, terms := r.View().Read(e)
			state, alive := terms.State(word)
			if !alive {
				break
			}
			next, d := terms.Policy.Take(state, at, 1, 0)
			done := !d.Allowed || e.Advance(word, next|terms.EpochBit)
			if done {
				if tell != nil {
					tell(e, next)
				}
				if status == Landed {
					offer(r, queue, FileCommand[int](hash, at))
				}
				return at, d.Allowed
			}
		}
		if status == Landed {
			offer(r, queue, FileCommand[int](hash, at))
		}
	}
}

func offer(r rig[int], queue chan Command[int], command Command[int]) {
	select {
	case queue <- command:
	default:
		r.View().NoteLostFiling()
	}
}
