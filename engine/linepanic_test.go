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

// brittle is a limit that panics at the takes and cancels that are counted down to 0.
type brittle struct {
	policy.Policy
	take, cancel atomic.Int64
}

func (b *brittle) Take(word uint64, now policy.Instant, n int64, patience time.Duration) (uint64, policy.Decision) {
	if n > 0 && b.take.Add(-1) == 0 {
		panic("take")
	}
	return b.Policy.Take(word, now, n, patience)
}

func (b *brittle) Refund(word uint64, now policy.Instant, n int64) uint64 {
	return b.Policy.(policy.Refunder).Refund(word, now, n)
}

func (b *brittle) Cancel(word, taken uint64, at, now policy.Instant, n, undone int64) uint64 {
	if b.cancel.Add(-1) == 0 {
		panic("cancel")
	}
	return b.Policy.(policy.Refunder).Cancel(word, taken, at, now, n, undone)
}

// waitIn has a call wait, and notes when it ended; the error is nil for one that panicked.
func waitIn(ctx context.Context, e *Engine[string], n int64, began time.Time, ended *time.Duration) {
	go func() {
		defer func() {
			recover()
			*ended = time.Since(began)
		}()
		_ = e.Wait(ctx, "key", n)
	}()
	synctest.Wait()
}

// A limit panics when the first in line, whose turn has come, lets the next take.
func TestPanicInLineWakesThoseBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := &brittle{Policy: funnel(1, 1, time.Second)}
		e := open[string](t, Config{Policy: limit})
		require.True(t, e.Choke("key"))
		began := time.Now()
		var ended [3]time.Duration
		for i := range ended {
			waitIn(t.Context(), e, 1, began, &ended[i])
		}
		limit.take.Store(1)
		time.Sleep(time.Minute)
		synctest.Wait()
		for i, took := range ended {
			assert.LessOrEqual(t, took, 4*time.Second, "%d", i)
			assert.NotZero(t, took, "%d waits for ever", i)
		}
	})
}

// A limit panics when a call that leaves makes those behind it give back what they took.
func TestCallThatPanicsOnLeavingIsOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := &brittle{Policy: funnel(1000, 1000, time.Second)}
		e := open[string](t, Config{Policy: limit})
		require.True(t, e.Take("key", 1000).Allowed)
		began := time.Now()
		ctx, leave := context.WithCancel(t.Context())
		var ended [3]time.Duration
		for i := range ended {
			if i > 0 {
				ctx = t.Context()
			}
			waitIn(ctx, e, 3, began, &ended[i])
		}
		require.True(t, e.Reserve("key", 1, time.Hour).Allowed, "others take, too")
		limit.cancel.Store(1)
		leave()
		time.Sleep(time.Minute)
		synctest.Wait()
		for i, took := range ended {
			assert.LessOrEqual(t, took, time.Second, "%d", i)
		}
		require.True(t, e.Take("key", 1000).Allowed)
		began = time.Now()
		require.NoError(t, e.Wait(t.Context(), "key", 100))
		assert.Equal(t, 100*time.Millisecond, time.Since(began), "no call is before it")
	})
}

// Calls that are refused by their own limit wait for that one. They hold up no call in the
// line of a limit that they share.
func TestAcquireAllStandsWhereItIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		everybody := open[string](t, Config{Policy: funnel(1, 10, time.Second)})
		own := open[string](t, Config{Policy: funnel(1, 1, time.Hour)})
		require.True(t, everybody.Choke("all"))
		require.True(t, own.Choke("greedy"))
		for range 20 {
			go func() {
				_, err := AcquireAll(t.Context(), 2*time.Hour, everybody.Claim("all", 1), own.Claim("greedy", 1))
				assert.Error(t, err, "the test is over before")
			}()
		}
		synctest.Wait()
		began := time.Now()
		out, err := AcquireAll(t.Context(), time.Second, everybody.Claim("all", 1), own.Claim("modest", 1))
		require.NoError(t, err)
		assert.True(t, out.Allowed)
		assert.Equal(t, 100*time.Millisecond, time.Since(began))
		require.NoError(t, own.Close())
		require.NoError(t, everybody.Close())
		synctest.Wait()
	})
}
