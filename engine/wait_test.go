package engine

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// noLines checks that no lines of Wait are left.
func noLines[K comparable](t testing.TB, e *Engine[K]) {
	t.Helper()
	lines := reflect.ValueOf(e.cell).Elem().FieldByName("lines").Elem()
	assert.Zero(t, lines.FieldByName("count").FieldByName("v").Int(), "lines are left")
	assert.Zero(t, lines.FieldByName("waiting").FieldByName("v").Int(), "waiting calls are counted")
	assert.Zero(t, lines.FieldByName("paused").FieldByName("v").Int(), "the lines stand still")
}

// Promise: `ErrNever`, `ErrDeadline` and `ErrCrowded` come at once and take nothing.
func TestHopelessWaitFailsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := open[string](t, Config{Policy: funnel(3, 1, time.Second), MaxWaiting: 2, MaxWaitingTotal: 3})
		start := time.Now()
		require.NoError(t, e.Wait(t.Context(), "key", 3))
		require.NoError(t, e.Wait(t.Context(), "key", 0), "n == 0 never waits")
		for _, n := range []int64{4, -1, math.MinInt64, math.MaxInt64} {
			assert.ErrorIs(t, e.Wait(t.Context(), "key", n), ErrNever)
			assert.ErrorIs(t, e.Wait(t.Context(), "new", n), ErrNever)
		}
		assert.EqualError(t, e.Wait(t.Context(), "key", 4), "ral: the limit never allows this call: 4 of at most 3")

		before := e.Peek("key", 0)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second-1)
		defer cancel()
		err := e.Wait(ctx, "key", 1)
		assert.ErrorIs(t, err, ErrDeadline)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.NotErrorIs(t, err, ErrCancelled)
		assert.Equal(t, before, e.Peek("key", 0))
		noLines(t, e)

		// Two may wait for a key, and three in all. The line decides whether a turn is in time.
		require.NoError(t, e.Wait(t.Context(), "other", 3))
		waiting, leave := context.WithCancelCause(t.Context())
		errs := make(chan error, 3)
		for _, key := range []string{"key", "key", "other"} {
			go func() { errs <- e.Wait(waiting, key, 3) }()
			synctest.Wait()
		}
		ctx, cancel = context.WithTimeout(t.Context(), 6*time.Second)
		defer cancel()
		assert.EqualError(t, e.Wait(ctx, "key", 1), "ral: too many calls are waiting: 2 for this key, of at most 2")
		assert.ErrorIs(t, e.Wait(t.Context(), "other", 1), ErrCrowded, "three wait in all")
		assert.ErrorIs(t, e.Wait(ctx, "key", 4), ErrNever)
		assert.NoError(t, e.Wait(ctx, "key", 0))
		assert.NoError(t, e.Wait(ctx, "third", 1), "it need not wait")

		why := errors.New("changed my mind")
		leave(why)
		for range 3 {
			err = <-errs
			assert.ErrorIs(t, err, ErrCancelled)
			assert.ErrorIs(t, err, why)
			assert.ErrorIs(t, err, context.Canceled)
		}
		assert.Equal(t, before, e.Peek("key", 0))
		assert.ErrorIs(t, e.Wait(waiting, "key", 1), why)
		done, cancel := context.WithCancel(t.Context())
		cancel()
		assert.EqualError(t, e.Wait(done, "new", 1), "ral: the wait was cancelled: context canceled")
		assert.ErrorIs(t, e.Wait(done, "new", 0), ErrCancelled)
		noLines(t, e)
		assert.Equal(t, start, time.Now(), "no call has waited for units")
		assert.Equal(t, 3, e.Len())
		s := e.Stats()
		assert.EqualValues(t, 3, s.Admitted)
		assert.EqualValues(t, 8+1+1+2+1+3+1+1, s.Refused)
	})
}

// Promise: Calls that never wait starve no line.
func TestNoCallStarvesInLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := open[string](t, Config{Policy: funnel(100, 1000, time.Second)})
		var over atomic.Bool
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				dice := rand.New(rand.NewPCG(33, uint64(i)))
				for !over.Load() {
					e.Choke("key")
					time.Sleep(time.Duration(dice.IntN(100_000)))
				}
			})
		}
		time.Sleep(time.Second)
		for _, n := range []int64{100, 1, 50, 100} {
			start := time.Now()
			require.NoError(t, e.Wait(t.Context(), "key", n))
			assert.LessOrEqual(t, time.Since(start), time.Duration(n)*time.Millisecond)
		}
		// Nor can they stop a line.
		start := time.Now()
		for range 10 {
			all.Go(func() { assert.NoError(t, e.Wait(t.Context(), "key", 100)) })
		}
		time.Sleep(1500 * time.Millisecond)
		over.Store(true)
		all.Wait()
		assert.LessOrEqual(t, time.Since(start), 2*time.Second)
		noLines(t, e)
	})
}
