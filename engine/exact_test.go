package engine

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/policy"
)

// 64 goroutines on a key, for five seconds of a virtual clock:
//
//  1. at no time is more admitted than capacity + rate * elapsed;
//  2. in the end exactly that is admitted.
//
// Promise: Racing calls pass exactly to the limit.
func TestHotKeyIsExact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const capacity, rate, callers = 1000, 1000, 64
		e := open[string](t, Config{Policy: funnel(capacity, rate, time.Second)})

		start := time.Now()
		allowed := func() int64 { return capacity + int64(time.Since(start)*rate/time.Second) }
		var admitted atomic.Int64
		together(callers, func(i int) {
			dice := rand.New(rand.NewPCG(1, uint64(i)))
			for time.Since(start) < 5*time.Second {
				for e.Choke("hot") {
					// Compared with the time after the count: only a unit too many fails.
					if n := admitted.Add(1); n > allowed() {
						t.Errorf("%d admitted of %d after %v", n, allowed(), time.Since(start))
					}
				}
				time.Sleep(time.Duration(dice.IntN(5_000_000)))
			}
		})
		for e.Choke("hot") {
			admitted.Add(1)
		}
		assert.Equal(t, allowed(), admitted.Load())
		assert.EqualValues(t, admitted.Load(), e.Stats().Admitted)
	})
}

// The callers never sleep, and the clock advances by a quarter of a unit after each refusal.
func TestHotKeyIsExactUnderContention(t *testing.T) {
	const capacity, rate, callers = 1000, 1000, 64
	clock := newHandClock()
	e := open[string](t, Config{Policy: funnel(capacity, rate, time.Second), Clock: clock.Now})

	var admitted, refused atomic.Int64
	var over atomic.Bool
	require.True(t, e.Choke("hot"), "the bucket begins to drain with its first unit")
	admitted.Add(1)
	together(callers+1, func(i int) {
		if i == callers {
			for range 12_000 {
				clock.Advance(250 * time.Microsecond)
				for before := refused.Load(); refused.Load() == before; {
					runtime.Gosched()
				}
			}
			over.Store(true)
			return
		}
		for !over.Load() {
			if e.Choke("hot") {
				admitted.Add(1)
			} else {
				refused.Add(1)
				runtime.Gosched() // or the clock would rarely get its turn
			}
		}
	})
	for e.Choke("hot") {
		admitted.Add(1)
	}
	assert.EqualValues(t, capacity+3*rate, admitted.Load())
	assert.EqualValues(t, admitted.Load(), e.Stats().Admitted)
	assert.EqualValues(t, refused.Load()+1, e.Stats().Refused)
}

// 64 goroutines meet 10,000 new keys of capacity 1, in their own orders or the same.
//
// Promise: Racing calls for new keys pass exactly to the limit.
func TestNewKeysAreExact(t *testing.T) {
	const callers, n = 64, 10_000
	for name, shuffled := range map[string]bool{"same order": false, "orders of their own": true} {
		t.Run(name, func(t *testing.T) {
			e := open[string](t, Config{Policy: funnel(1, 1, time.Hour)})
			all := keys(n)
			var admitted atomic.Int64
			together(callers, func(i int) {
				mine := all
				if shuffled {
					mine = append([]string(nil), all...)
					rand.New(rand.NewPCG(2, uint64(i))).Shuffle(n, func(a, b int) { mine[a], mine[b] = mine[b], mine[a] })
				}
				for _, key := range mine {
					if e.Choke(key) {
						admitted.Add(1)
					}
				}
			})
			assert.EqualValues(t, n, admitted.Load())
			assert.Equal(t, n, e.Len())
			s := e.Stats()
			assert.Zero(t, s.Unavailable)
			assert.EqualValues(t, callers*n, s.Admitted+s.Refused)
		})
	}
}

// Rounds of 64 goroutines on the same keys of capacity 1. Between rounds every key drains, and may
// be evicted while the next round opens it again. Each key is admitted once a round, also while the
// writer dies at random points, and while the limit alternates with one half as fast.
//
// Promise: The limit holds for keys evicted and reopened meanwhile.
// Promise: The limit holds during its replacement, however long calls stall.
func TestKeysComingAndGoingAreExact(t *testing.T) {
	for _, c := range []struct{ killing, goexit, changing bool }{
		{}, {killing: true}, {killing: true, goexit: true}, {changing: true}, {changing: true, killing: true},
	} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const callers, rounds = 64, max(40/raceFactor, 8)
				clock, f := newHandClock(), newFaults(c.goexit)
				var quiet atomic.Bool
				e := open[string](t, Config{
					Policy: funnel(1, 1, time.Second), Clock: clock.Now, Idle: time.Millisecond,
					OpenTimeout: time.Minute, QueueDepth: 16, Restarts: 1 << 30,
					fault: func(point string) {
						if c.killing && !quiet.Load() && rand.IntN(200) == 0 {
							f.arm(point, 1)
							f.at(point)
						}
					},
				})
				changes, over := 0, make(chan struct{})
				var changing sync.WaitGroup
				if c.changing {
					changing.Go(func() {
						for ; !isClosed(over); changes++ {
							assert.NoError(t, e.SetPolicy(funnel(1, 1, time.Duration(2-changes%2)*time.Second)))
						}
					})
				}
				all := keys(500)
				// On a busy machine all callers may come before each sweep.
				for round := 0; round < rounds || round < 100*rounds && e.Stats().Evicted == 0; round++ {
					var admitted atomic.Int64
					together(callers, func(i int) {
						for j := range all {
							if e.Choke(all[(j+i*7)%len(all)]) {
								admitted.Add(1)
							}
						}
					})
					require.EqualValues(t, len(all), admitted.Load())
					clock.Advance(2*time.Second + time.Millisecond)
					time.Sleep(time.Millisecond) // the janitor's own time, so that sweeps begin
				}
				close(over)
				changing.Wait()
				quiet.Store(true)
				require.NoError(t, e.Health())
				s := e.Stats()
				assert.Positive(t, s.Evicted, "nothing was evicted: the test tests nothing")
				assert.Zero(t, s.Forgiven+s.Unavailable)
				assert.Equal(t, c.killing, s.Restarts > 0)
				assert.Equal(t, c.changing, changes > 1)
			})
		})
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Promise: A refused call changes nothing: at twice its rate a client gets half.
func TestClientAtTwiceTheRateGetsHalfOfItsCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := open[string](t, Config{Policy: funnel(5, 10, time.Second)})
		passed := 0
		for range 2000 { // 20 a second for 100 seconds
			if e.Choke("eager") {
				passed++
			}
			time.Sleep(50 * time.Millisecond)
		}
		assert.Equal(t, 5+1000-1, passed) // the last unit would come at second 100
	})
}

// A caller reads the clock and is held up. Meanwhile the key is used, drained and forgotten. A take
// dated back to the reading would have drained already, and the key would have its unit twice.
func TestTakeIsNotDatedBackBeyondEviction(t *testing.T) {
	notDatedBack(t, func(*testing.T, *Engine[string], *handClock) {})
}

// notDatedBack holds up a caller that has read the clock until the key is forgotten, and then has
// run.
func notDatedBack(t *testing.T, then func(t *testing.T, e *Engine[string], clock *handClock)) {
	t.Helper()
	for name, held := range map[string]func(*Engine[string]) bool{
		"Choke": func(e *Engine[string]) bool { return e.Choke("key") },
		"Take":  func(e *Engine[string]) bool { return e.Take("key", 1).Allowed },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				clock := newHandClock()
				var hold atomic.Bool
				release := make(chan struct{})
				e := open[string](t, Config{
					Policy: funnel(1, 1, time.Second), Idle: time.Millisecond,
					Clock: func() policy.Instant {
						now := clock.Now()
						if hold.CompareAndSwap(true, false) {
							<-release
						}
						return now
					},
				})
				var passed atomic.Bool
				synctest.Wait() // the writer reads the clock when it begins
				hold.Store(true)
				go func() { passed.Store(held(e)) }()
				synctest.Wait()

				require.True(t, e.Choke("key"))
				clock.Advance(2 * time.Second)
				time.Sleep(time.Second)
				require.Zero(t, e.Len(), "forgotten")
				then(t, e, clock)

				close(release)
				synctest.Wait()
				assert.True(t, passed.Load())
				assert.False(t, e.Choke("key"), "twice at one instant")
			})
		})
	}
}
