package engine

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/policy"
)

// counted is a limit that counts how often it decides about units.
type counted struct {
	policy.Policy
	policy.Refunder
	takes atomic.Int64
}

func (c *counted) Take(word uint64, now policy.Instant, n int64, patience time.Duration) (uint64, policy.Decision) {
	if n > 0 {
		c.takes.Add(1)
	}
	return c.Policy.Take(word, now, n, patience)
}

// A call that a line of a thousand refuses asks the limit a few times, rather than once
// for each call in line; the first one that is refused may walk.
func TestCrowdedLineRefusesInFewSteps(t *testing.T) {
	const waiters, refused = 1000, 200
	for _, p := range each() {
		synctest.Test(t, func(t *testing.T) {
			spy := &counted{Policy: p, Refunder: p.(policy.Refunder)}
			e := open[string](t, Config{Policy: spy, MaxWaiting: waiters + 1})
			ctx, leave := context.WithCancel(t.Context())
			for range waiters + 10 {
				go func() { _ = e.Wait(ctx, "key", 1) }()
			}
			synctest.Wait()
			walk := int64(waiters)
			for range refused {
				spy.takes.Store(0)
				_, err := e.Acquire(background, "key", 1, time.Second/2)
				require.Error(t, err)
				walk = min(walk, spy.takes.Load())
			}
			assert.LessOrEqual(t, walk, int64(4), "%v", p)
			spy.takes.Store(0)
			for range refused {
				_, err := e.Acquire(background, "key", 1, time.Second/2)
				require.Error(t, err)
			}
			assert.LessOrEqual(t, spy.takes.Load(), int64(4*refused), "%v", p)
			leave()
			synctest.Wait()
			noLines(t, e)
		})
	}
}

// The calls that wait for all keys together are bounded, exactly, and each that leaves,
// on whatever way, makes room for another.
//
// Promise: At most `MaxWaitingTotal` calls wait for all keys together.
func TestMaxWaitingTotal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := &brittle{Policy: funnel(1, 1, time.Second)}
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
		limit.take.Store(1) // one panics when it is to take
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

// blocks is a limit that stands still while it decides about units.
type blocks struct {
	policy.Policy
	entered, release chan struct{}
}

func (b *blocks) Take(word uint64, now policy.Instant, n int64, patience time.Duration) (uint64, policy.Decision) {
	if patience == time.Duration(1<<63-1) && b.entered != nil {
		close(b.entered)
		b.entered = nil
		<-b.release
	}
	return b.Policy.Take(word, now, n, patience)
}

func (b *blocks) Reads(policy.Policy) bool { return true }

func (b *blocks) Carry(_ policy.Policy, word uint64, _ policy.Instant) (uint64, bool) {
	return word, true
}

// A policy that blocks in one key's line holds up calls that wait for that key, and for no
// other.
//
// Promise: A key's line holds up no call for another key.
func TestLineOfOneKeyDoesNotHoldUpOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		entered, release := make(chan struct{}), make(chan struct{})
		limit := funnel(1, 1, time.Second)
		stuck := &blocks{limit, entered, release}
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
