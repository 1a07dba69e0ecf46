package engine

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/policy"
)

// The promised turn stands, the next comes at once.
//
// Promise: Queued calls keep their places through `Reset`.
func TestResetWhileCallsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := open[string](t, Config{Policy: funnel(2, 1, time.Second)})
		require.True(t, e.Take("key", 2).Allowed)
		l := inLine{e: e, began: time.Now()}
		for i := range 3 {
			l.wait(t, i, 2)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		require.True(t, e.Reset("key"))
		l.all.Wait()
		assert.Equal(t, []time.Duration{2 * time.Second, 2 * time.Second, 4 * time.Second}, l.ends[:3])
		noLines(t, e)
	})
}

// Promise: Queued calls keep their order through `SetPolicy`.
func TestSetPolicyWhileCallsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := open[string](t, Config{Policy: funnel(10, 1, time.Hour)})
		require.True(t, e.Take("key", 10).Allowed)
		start := time.Now()
		got := map[int64]time.Duration{}
		var mu sync.Mutex
		for _, n := range []int64{8, 2, 6, 1} {
			go func() {
				err := e.Wait(t.Context(), "key", n)
				mu.Lock()
				defer mu.Unlock()
				if got[n] = time.Since(start); n > 5 {
					assert.ErrorIs(t, err, ErrNever)
				} else {
					assert.NoError(t, err)
				}
			}()
			synctest.Wait()
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		require.NoError(t, e.SetPolicy(funnel(5, 1, time.Second)))
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Len(t, got, 4)
		// The bucket is full under the new policy too.
		for n, want := range map[int64]time.Duration{8: 0, 2: 2 * time.Second, 6: 0, 1: 3 * time.Second} {
			assert.InDelta(t, time.Minute+want, got[n], float64(5*time.Millisecond), "%d", n)
		}
		noLines(t, e)
	})
}

func TestSetPolicyThatHangsDoesNotHoldUpLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		e := open[string](t, Config{Policy: funnel(1, 1, time.Second), fault: func(point string) {
			if point == "change: begin" {
				<-release
			}
		}})
		require.True(t, e.Choke("key"))
		l := inLine{e: e, began: time.Now()}
		for i := range 3 {
			l.wait(t, i, 1)
		}
		changed := make(chan error, 1)
		go func() { changed <- e.SetPolicy(funnel(1, 2, time.Second)) }()
		l.all.Wait()
		assert.Equal(t, []time.Duration{time.Second, 2 * time.Second, 3 * time.Second}, l.ends[:3])
		require.Empty(t, changed)
		close(release)
		require.NoError(t, <-changed)
		noLines(t, e)
	})
}

// pacer is a limit that makes its callers wait: one every interval, as many ahead as fit into
// depth.
type pacer struct{ interval, depth time.Duration }

func (p pacer) Take(word uint64, now policy.Instant, n int64, patience time.Duration) (uint64, policy.Decision) {
	d := policy.Decision{Limit: 1}
	free := max(int64(word), int64(now))
	wait := time.Duration(free - int64(now))
	if d.ResetAfter = wait; wait == 0 {
		d.Remaining = 1
	}
	if patience <= 0 || patience > p.depth {
		patience = p.depth
	}
	switch {
	case n == 0:
		d.Allowed = true
	case n != 1:
		d.RetryAfter = policy.Never
	case wait > patience:
		d.RetryAfter = wait - patience
	default:
		d.Allowed, d.Wait, d.Remaining, d.ResetAfter = true, wait, 0, wait+p.interval
		word = uint64(free + int64(p.interval))
	}
	return word, d
}

func (p pacer) Limit() int64                       { return 1 }
func (p pacer) Delays() bool                       { return p.depth > 0 }
func (p pacer) FreshAt(word uint64) policy.Instant { return policy.Instant(word) }
func (p pacer) String() string                     { return "pacer" }

// Its promises become waiting, and its refusals errors. It is not a policy.Refunder: the last call
// in line gives back all when it leaves.
//
// Promise: Under a policy with turns `Wait` returns at the turn.
func TestWaitUnderAPolicyThatMakesWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := open[string](t, Config{Policy: pacer{time.Second, 3 * time.Second}})
		start := time.Now()
		errs := make(chan error, 10)
		var mu sync.Mutex
		var order []int
		for i := range 5 {
			go func() {
				err := e.Wait(t.Context(), "key", 1)
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
				errs <- err
			}()
			synctest.Wait()
		}
		// The first took at once, the next three wait, and more is too much.
		require.ErrorIs(t, <-errs, nil)
		require.ErrorIs(t, <-errs, ErrCrowded)
		for i := range 3 {
			require.NoError(t, <-errs)
			assert.Equal(t, time.Duration(i+1)*time.Second, time.Since(start))
		}
		assert.Equal(t, []int{0, 4, 1, 2, 3}, order)

		ctx, cancel := context.WithCancel(t.Context())
		before := e.Peek("key", 0)
		go func() { errs <- e.Wait(ctx, "key", 1) }()
		synctest.Wait()
		assert.NotEqual(t, before, e.Peek("key", 0))
		cancel()
		require.ErrorIs(t, <-errs, ErrCancelled)
		assert.Equal(t, before, e.Peek("key", 0))
		noLines(t, e)
	})
}
