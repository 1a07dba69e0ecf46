package engine

import (
	"context"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/policy"
)

// Each call that leaves, on whatever way, makes room for another.
//
// Promise: At most `MaxWaitingTotal` calls wait over all keys.
func TestMaxWaitingTotal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var panicAt atomic.Int64 // counts takes down
		limit := &hooked{Policy: funnel(1, 1, time.Second), take: func(a *asked) {
			if a.n > 0 && panicAt.Add(-1) == 0 {
				panic("take")
			}
		}}
		e := open[int](t, Config{Policy: limit, MaxWaiting: 3, MaxWaitingTotal: 4})
		for key := range 6 {
			require.True(t, e.Choke(key))
		}
		wait := func(ctx context.Context, key int) { // a policy may panic in it
			go func() {
				defer func() { _ = recover() }()
				_ = e.Wait(ctx, key, 1)
			}()
			synctest.Wait()
		}
		full := func(key int) {
			t.Helper()
			began := time.Now()
			_, err := e.Acquire(t.Context(), key, 1, time.Hour)
			assert.ErrorIs(t, err, ErrCrowded)
			assert.EqualError(t, err, "ral: too many calls are waiting: 4 for all keys, of at most 4")
			assert.Equal(t, began, time.Now())
		}
		ctx, leave := context.WithCancel(t.Context())
		for _, key := range []int{0, 0, 0} {
			wait(t.Context(), key)
		}
		assert.EqualError(t, e.Wait(t.Context(), 0, 1), "ral: too many calls are waiting: 3 for this key, of at most 3")
		wait(ctx, 1)
		full(2)
		full(1)
		require.NoError(t, e.Wait(t.Context(), 6, 1), "a call that need not wait does not count")

		leave() // one gives up, and another comes in its place
		synctest.Wait()
		wait(t.Context(), 1)
		full(2)
		panicAt.Store(1) // one panics when it is to take
		time.Sleep(time.Second)
		synctest.Wait()
		for range 3 {
			time.Sleep(time.Minute)
			synctest.Wait()
			noLines(t, e)
			for _, key := range []int{0, 0, 0, 1} {
				e.Choke(key)
				wait(t.Context(), key)
			}
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		noLines(t, e)
	})
}

// A policy that blocks in a key's line holds up calls for that key alone.
//
// Promise: A key's line delays no other key's calls.
func TestLineOfOneKeyDoesNotHoldUpOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		entered, release := make(chan struct{}), make(chan struct{})
		limit := funnel(1, 1, time.Second)
		stop := once(func() {
			close(entered)
			<-release
		})
		stuck := &hooked{Policy: limit, take: func(a *asked) {
			if a.patience == math.MaxInt64 {
				stop()
			}
		}}
		e := openFor(t, Config{Policy: stuck}, func(key string) policy.Policy {
			if key == "stuck" {
				return stuck
			}
			return limit
		})
		require.True(t, e.Choke("stuck"))
		done := make(chan error, 1)
		go func() { done <- e.Wait(t.Context(), "stuck", 1) }()
		<-entered
		served := make(chan error, 200)
		for _, key := range keys(cap(served)) {
			require.True(t, e.Choke(key))
			go func() { served <- e.Wait(t.Context(), key, 1) }()
		}
		began := time.Now()
		for range cap(served) {
			require.NoError(t, <-served)
		}
		assert.Equal(t, time.Second, time.Since(began))
		close(release)
		require.NoError(t, <-done)
		noLines(t, e)
	})
}
