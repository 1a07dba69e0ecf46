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

// Eight callers take from a few keys as fast as they can, while a writer files,
// evicts, copies shards and is replaced without rest, in a table that hardly holds
// them. Each key may be taken from once an hour, and an hour passes whenever the
// writer has made a few rounds.
//
// Properties:
//
//  1. Two takes of a key are never less than an hour apart: none is lost with an
//     entry that is filed, evicted, or opened again, and no key has two entries.
//  2. There are never more entries than MaxKeys.
//  3. Everybody is answered, and in the end map, index and count agree.
func TestStress(t *testing.T) {
	for _, chains := range []bool{false, true} {
		const keys = 24
		r := newRig[int](t, Options{MaxKeys: keys + 8, Idle: 1})
		if chains {
			r.hasher = func(key int) uint64 { return uint64(key % 3) }
		}
		r.removed[0] = removalsPerShard / 2

		var now atomic.Int64
		now.Store(int64(hour))      // last is 0 for those who never took
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
					if at, ok := takeOnce(r, key, &now, queue); ok {
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
				// All keys are drained at once: who is faster, those who take or
				// the sweep?
				at = policy.Instant(now.Add(2 * int64(hour)))
				r.Sweep(at, keys)
			case 5:
				r.View().Stray()
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
		r.View().Stray()
		r.settle(policy.Instant(now.Load()))
		require.NoError(t, r.Check())
		t.Logf("%d calls, %d evictions", answered.Load(), r.counters.Evicted.Load())
		require.NotZero(t, r.counters.Evicted.Load())
	}
}

// takeOnce is cell.Choke, without patience.
func takeOnce(r rig[int], key int, now *atomic.Int64, queue chan Command[int]) (policy.Instant, bool) {
	hash := r.hash(key)
	for {
		e, status := r.View().Open(hash, key)
		if status == Full {
			runtime.Gosched()
			return 0, false
		}
		// After the entry was found, so that no take is dated back to before
		// its birth: see cell.takeFrom.
		at := policy.Instant(now.Load())
		for {
			word := e.Word()
			state, alive := State(word)
			if !alive {
				break
			}
			next, d := r.policy.Take(state, at, 1, 0)
			if !d.Allowed || e.Advance(word, next) {
				if status == Landed {
					offer(r, queue, FileCommand(e, at))
				}
				return at, d.Allowed
			}
		}
		if status == Landed {
			offer(r, queue, FileCommand(e, at))
		}
	}
}

func offer(r rig[int], queue chan Command[int], command Command[int]) {
	select {
	case queue <- command:
	default:
		r.View().Stray()
	}
}
