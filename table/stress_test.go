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
// copies shards and replaces the policy, and dies at any of its points. A tally does not recur
// within a hundred changes. Properties:
//
//  1. No policy gets a word of another except to Carry it, or the tally panics.
//  2. The takes of an entry and its successors are numbered from 1 by their words, each number once
//     without a gap. The last is in the word, if it is there at the end.
//  3. Whenever no change is under way all words have the present epoch bit.
//  4. Each change is answered, and made when the writer has come to rest.
//  5. There are never more entries than MaxKeys, and in the end map, index and count agree.
func TestTakesStayNumberedUnderStress(t *testing.T) {
	t.Run("hashes differ", func(t *testing.T) { stress(t, nil) })
	t.Run("few hashes", func(t *testing.T) { stress(t, func(key int) uint64 { return uint64(key % 3) }) })
}

func stress(t *testing.T, hasher func(key int) uint64) {
	const keys = 24
	random := rand.New(rand.NewPCG(2, 5))
	deadly := false
	// first returns the original entry of which e is a successor.
	// origins has the first *Entry[int] of each *Entry[int].
	var origins sync.Map
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
	if hasher != nil {
		r.hasher = hasher
	}

	type numbers struct{ takes, sum, squares atomic.Uint64 }
	// ledger has the *numbers of each first *Entry[int].
	var ledger sync.Map
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
				if n := r.View().Len(); n > keys+8 {
					t.Errorf("the table has %d entries, more than MaxKeys", n)
				}
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
	// lives reports whether a writer survived the work. If not, successors recover until one does.
	lives := func(work func()) bool {
		if survived(work) {
			return true
		}
		for deaths++; !survived(r.Recover); deaths++ {
		}
		return false
	}
	carryOut := func(command Command[int]) {
		apply := func() { r.Apply(command) }
		if !lives(apply) && !lives(apply) {
			r.Abandon(command)
		}
	}
	step := func() { r.Settle(policy.Instant(now.Load())) }
	settle := func() {
		for r.Unsettled() {
			lives(step)
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
			r.resize(0, minBuckets+random.IntN(9))
		}
		carryOut(SweepCommand[int](policy.Instant(now.Load()), random.IntN(keys), nil))
		if random.IntN(2) == 0 {
			settle()
		} else if r.Unsettled() {
			lives(step)
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
		require.Equal(t, n, tallied(e.Word()), "key %d has another number of takes than its word says", e.Key())
	}
	t.Logf("%d takes, %d changes, %d evictions, %d deaths", takes, made, r.counters.Evicted.Load(), deaths)
	require.Zero(t, r.counters.Forgiven.Load())
	require.NotZero(t, r.counters.Evicted.Load())
	require.Greater(t, made, 3)
	require.NotZero(t, deaths)
}

// takeOnce is cell.Choke without patience. takeOnce passes the state that it leaves to tell.
func takeOnce(r rig[int], key int, now *atomic.Int64, queue chan Command[int], tell func(e *Entry[int], state uint64)) {
	hash := r.hash(key)
	for {
		e, status := r.View().Open(hash, key)
		if status == Full {
			runtime.Gosched()
			return
		}
		// After finding the entry, so that no take predates its birth: see cell.takeFrom.
		instant := policy.Instant(now.Load())
		taken := false
		for alive := true; alive && !taken; {
			var word, state uint64
			var terms *Terms
			word, terms = r.View().Read(e)
			if state, alive = terms.State(word); alive {
				next, d := terms.Policy.Take(state, instant, 1, 0)
				if taken = !d.Allowed || e.Advance(word, next|terms.EpochBit); taken {
					tell(e, next)
				}
			}
		}
		if status == Landed {
			select {
			case queue <- FileCommand[int](hash, instant):
			default:
				r.View().NoteLostFiling()
			}
		}
		if taken {
			return
		}
	}
}
