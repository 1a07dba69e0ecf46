package cell

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"

	"github.com/ral-limiter/ral/internal/core/seam"
	"github.com/ral-limiter/ral/internal/testkit/limitstest"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/table"
)

// The cell's verbs are tested through the engine. These tests show only in speed or lateness.

func TestStripesShareNoCacheLine(t *testing.T) {
	assert.EqualValues(t, stripeSize, unsafe.Sizeof(stripe{}))
}

// Goroutines at the same time add to different stripes, nearly always, and nothing is lost.
func TestTallyIsStriped(t *testing.T) {
	const goroutines, each = 64, 1000
	var counts Tally
	used := make([]*stripe, goroutines)
	var all sync.WaitGroup
	var meet sync.WaitGroup
	meet.Add(goroutines)
	for i := range goroutines {
		all.Go(func() {
			meet.Done()
			// All goroutines are alive, so that no two have the same stack.
			meet.Wait()
			used[i] = counts.mine()
			for range each {
				counts.mine().admitted.Add(1)
				counts.mine().refused.Add(2)
			}
		})
	}
	all.Wait()
	admitted, refused, blocked := counts.Sum()
	assert.EqualValues(t, goroutines*each, admitted)
	assert.EqualValues(t, 2*goroutines*each, refused)
	assert.Zero(t, blocked)

	different := map[*stripe]bool{}
	for _, s := range used {
		different[s] = true
	}
	// Throwing 64 balls into 64 boxes leaves 40 boxes hit on average.
	assert.Greater(t, len(different), 16)
}

func TestRoomWaitKeepsToItsLimit(t *testing.T) {
	for _, limit := range []time.Duration{1, time.Microsecond, 10 * time.Millisecond, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			var w roomWait
			begin := time.Now()
			for range yields {
				assert.True(t, w.next(limit))
			}
			assert.Zero(t, time.Since(begin), "yielding takes no time")
			for w.next(limit) {
			}
			assert.Equal(t, limit, time.Since(begin))
		})
	}
}

// busyMachine has more work than processors: a goroutine that yields or sleeps goes on slice later.
type busyMachine struct {
	seam.Scheduler
	slice time.Duration
}

func (m busyMachine) Await(string, time.Duration, func() bool) bool {
	time.Sleep(m.slice) // wall: in the bubble of its test
	return false
}

// A roomWait looks at the clock after each yield, so it is late by a time slice at most.
// Promise: A new key waits for room at most OpenTimeout, even on busy machines.
func TestRoomWaitKeepsToItsLimitOnABusyMachine(t *testing.T) {
	const limit, slice = time.Millisecond, 10 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		w := roomWait{seam: seam.Seam{Scheduler: busyMachine{slice: slice}}}
		begin := time.Now()
		for w.next(limit) {
		}
		assert.Equal(t, slice, time.Since(begin))
	})
}

func TestTypesThatMayNotHash(t *testing.T) {
	type plain struct {
		a [2]string
		b *any
		c chan any
	}
	type nested struct{ in [1]struct{ x any } }
	assert.False(t, MayNotHash[string]())
	assert.False(t, MayNotHash[float64]())
	assert.False(t, MayNotHash[plain]())
	assert.True(t, MayNotHash[any]())
	assert.True(t, MayNotHash[error]())
	assert.True(t, MayNotHash[nested]())
}

type uncomparable struct {
	policy.Policy
	_ []int
}

// Calls in line under the same limit share remembered forecasts.
func TestLikeWaitersAreFound(t *testing.T) {
	limit, equal := policy.Must(policy.Funnel(1, 1, time.Hour)), policy.Must(policy.Funnel(1, 1, time.Hour))
	under := func(p policy.Policy) *waiter[string] { return &waiter[string]{choice: choice{limit: p}} }
	assert.True(t, under(nil).Alike(under(nil)))
	assert.True(t, under(limit).Alike(under(limit)))
	for _, other := range []policy.Policy{nil, equal, uncomparable{Policy: limit}} {
		assert.False(t, under(limit).Alike(under(other)))
		assert.False(t, under(other).Alike(under(limit)))
	}
	assert.False(t, under(uncomparable{Policy: limit}).Alike(under(uncomparable{Policy: limit})))
}

// Otherwise the state may have been saved before the key landed.
func TestCellThatClosesDuringACallRefusesANewKey(t *testing.T) {
	d := &desk{t: t}
	closes := sync.OnceFunc(func() { d.control.Close() })
	d.set(table.Options{Policy: limitstest.PolicyHook{Policy: funnel(2, 1, time.Hour), Call: func() {
		// The key has landed.
		if d.queue.Len() > 0 {
			closes()
		}
	}}}, Options[string]{Clock: d.instant, RefuseClosed: true})
	d.now.Store(1)
	assert.False(t, d.Choke("new"))
	assert.True(t, d.Closed())
}
