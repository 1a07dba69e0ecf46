package engine

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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
					// The janitor's own time passes, so that sweeps begin.
					time.Sleep(time.Millisecond)
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
