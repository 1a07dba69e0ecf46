package engine

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/policy"
)

// No key owes more than the new policy lets a key owe, except for promised turns.
//
// Promise: `SetPolicy` holds for every later call and forgives nothing.
func TestSetPolicyForgivesNothing(t *testing.T) {
	clock := newHandClock()
	e := open[string](t, Config{Policy: funnel(100, 1, time.Second), Clock: clock.Now})
	for used := range int64(101) {
		require.True(t, e.Reserve(fmt.Sprint(used), used, 0).Allowed)
	}
	late := e.Reserve("late", 100, 0)
	require.True(t, late.Allowed)
	require.Equal(t, 50*time.Second, e.Reserve("late", 50, time.Hour).Wait)
	for _, next := range []struct {
		capacity, count int64
	}{{100, 7}, {200, 1}, {100, 2}} {
		require.NoError(t, e.SetPolicy(funnel(next.capacity, next.count, time.Second)))
		for used := range int64(101) {
			d := e.Peek(fmt.Sprint(used), 0)
			require.Equal(t, next.capacity, d.Limit)
			require.Equal(t, next.capacity-used, d.Remaining)
		}
		if next.count == 7 {
			assert.GreaterOrEqual(t, e.Peek("late", 0).ResetAfter, 50*time.Second, "the promised turn must be kept free")
		}
		settled(t, e)
	}
	// Use beyond the new limit makes a full key.
	require.NoError(t, e.SetPolicy(funnel(10, 10, time.Second)))
	for used := range int64(101) {
		d := e.Peek(fmt.Sprint(used), 0)
		require.EqualValues(t, max(10-used, 0), d.Remaining)
		require.LessOrEqual(t, d.ResetAfter, time.Second)
	}
	require.NoError(t, e.SetPolicy(funnel(10, 10, time.Second)), "SetPolicy must wait until all keys are under the other policy")
	clock.Advance(time.Second)
	assert.True(t, e.Take("100", 10).Allowed)
}

// Promise: `SetPolicy` reports a degraded or closed engine.
func TestSetPolicyRefusesBadPolicies(t *testing.T) {
	good := funnel(2, 1, time.Hour)
	e := open[string](t, Config{Policy: good})
	require.True(t, e.Choke("key"))
	var missing *nilPolicy
	for _, c := range []struct {
		p       policy.Policy
		message string
	}{
		{nil, "ral: SetPolicy: policy is nil, want a policy, such as policy.Funnel returns"},
		{missing, "ral: SetPolicy: policy is nil, want a policy, such as policy.Funnel returns"},
		{pacer{1, 1}, "ral: SetPolicy: policy is pacer, want one of the family of funnel 2, 1/h"},
		{unrelated{good}, "ral: SetPolicy: policy is funnel 2, 1/h, want one of the family of funnel 2, 1/h"},
	} {
		err := e.SetPolicy(c.p)
		var field *policy.FieldError
		require.True(t, errors.As(err, &field), "%v", err)
		assert.EqualError(t, err, c.message)
	}
	bare := open[string](t, Config{Policy: unrelated{good}})
	assert.Error(t, bare.SetPolicy(good))
	chosen := openFor(t, Config{Policy: good}, func(string) policy.Policy { return nil })
	assert.ErrorContains(t, chosen.SetPolicy(good), "PolicyFor")
	assert.EqualValues(t, 1, e.Peek("key", 0).Remaining)

	require.NoError(t, e.Close())
	assert.ErrorIs(t, e.SetPolicy(good), ErrClosed)
	assert.Error(t, e.SetPolicy(nil))
}

// The writer dies of a change, once or for good, before it is made or after.
//
// Promise: If its writer dies, `SetPolicy` reports whether the limit changed.
func TestSetPolicyWhenTheWriterDies(t *testing.T) {
	for _, point := range []string{"change: begin", "change: made", "recover: begin", "adopt: begin", "recover: shard", "writer: received", "writer: done"} {
		for _, deaths := range []int{1, 2, -1} {
			t.Run(fmt.Sprint(point, deaths), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					clock := newHandClock()
					f := newFaults(false)
					e := open[int](t, Config{Policy: funnel(2, 1, time.Hour), Clock: clock.Now, Restarts: 5, fault: f.at})
					for key := range 100 {
						require.True(t, e.Choke(key))
					}
					settled(t, e)
					synctest.Wait()
					f.arm(point, deaths)
					err := e.SetPolicy(funnel(5, 1, time.Hour))
					limit := int64(5)
					if err != nil {
						require.ErrorIs(t, err, ErrUnavailable)
						limit = 2
						assert.Negative(t, deaths)
					}
					f.arm(point, 0)
					synctest.Wait()
					for key := range 100 {
						d := e.Peek(key, 0)
						require.Equal(t, limit, d.Limit)
						require.Equal(t, limit-1, d.Remaining)
					}
					if e.writing() {
						require.NoError(t, e.SetPolicy(funnel(7, 1, time.Hour)))
						assert.EqualValues(t, 6, e.Peek(0, 0).Remaining)
					}
				})
			})
		}
	}
}

func TestCloseEndsSetPolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		e := open[int](t, Config{Policy: funnel(2, 1, time.Hour), QueueDepth: 1, fault: func(point string) {
			if point == "change: begin" {
				<-release
			}
		}})
		errs := make(chan error, 3)
		// One change is at work, one is in the queue, and one finds the queue full.
		for range 3 {
			go func() { errs <- e.SetPolicy(funnel(3, 1, time.Hour)) }()
			synctest.Wait()
		}
		time.Sleep(time.Second)
		require.Empty(t, errs)
		go func() {
			time.Sleep(time.Second)
			close(release)
		}()
		require.NoError(t, e.Close())
		for range 3 {
			require.ErrorIs(t, <-errs, ErrClosed)
		}
		noLines(t, e)
	})
}

// Units taken before the writer comes to the change count from then, even if that is later than the
// new period.
func TestSetPolicyCountsTakesDuringTheChange(t *testing.T) {
	for _, c := range []struct{ before, after policy.Policy }{
		{policy.Must(policy.AtMost(10, time.Second)), policy.Must(policy.AtMost(10, 50*time.Millisecond))},
		{policy.Must(policy.SlidingWindow(10, time.Second)), policy.Must(policy.SlidingWindow(10, 50*time.Millisecond))},
		{policy.Must(policy.FixedWindow(10, time.Second)), policy.Must(policy.FixedWindow(10, 50*time.Millisecond))},
	} {
		synctest.Test(t, func(t *testing.T) {
			var hold atomic.Bool
			release := make(chan struct{})
			clock := newHandClock()
			e := open[string](t, Config{Policy: c.before, Clock: clock.Now, fault: func(point string) {
				if point == "writer: received" && hold.CompareAndSwap(true, false) {
					<-release
				}
			}})
			require.True(t, e.Choke("key"))
			synctest.Wait()
			hold.Store(true)
			changed := make(chan error, 1)
			go func() { changed <- e.SetPolicy(c.after) }()
			synctest.Wait()
			clock.Advance(110 * time.Millisecond)
			require.True(t, e.Take("key", 9).Allowed)
			close(release)
			require.NoError(t, <-changed)
			assert.False(t, e.Take("key", 5).Allowed, "%v: 5 units more than the 9 of this moment must be refused", c.after)
		})
	}
}
