package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/internal/core/clock"
	"github.com/ral-limiter/ral/internal/testkit/await"
)

// noLines checks that no lines of Wait are left.
func noLines[K comparable](t testing.TB, e *Engine[K]) {
	t.Helper()
	lines := reflect.ValueOf(e.cell).Elem().FieldByName("lines").Elem()
	assert.Zero(t, lines.FieldByName("count").FieldByName("v").Int(), "lines are left")
	assert.Zero(t, lines.FieldByName("waiting").FieldByName("v").Int(), "waiting calls are counted")
	assert.Zero(t, lines.FieldByName("paused").FieldByName("v").Int(), "the lines stand still")
}

// Hundreds to thousands of waiters on a key, in random order of size, with random cancellations and
// deadlines, against a model:
//
//  1. calls are served in the order of their arrival;
//  2. the limit holds in every window;
//  3. nothing is wasted: each call is served as soon as the limit allows, those before it are gone,
//     and it is there (if no call barges in);
//  4. every call returns, with the right error, no earlier than it gave up;
//  5. no line and no goroutine is left, and each call is counted once.
//
// Promise: Calls wait first come, first served, at most `MaxWaiting`.
func TestWaitersAreServedInOrder(t *testing.T) {
	limits := []struct {
		capacity, count int64
		per             time.Duration
	}{
		{10, 1, time.Millisecond},
		{100, 100, 100 * time.Millisecond},
		{5, 1, time.Second},
		{1, 1, 100 * time.Millisecond},
		{1000, 100_000, time.Second},
		{7, 3, time.Second}, // the interval is not a whole number of nanoseconds
	}
	for i, limit := range limits {
		for _, how := range []string{"all stay", "some leave", "some leave, some barge in"} {
			t.Run(fmt.Sprintf("%d per %v, %s", limit.count, limit.per, how), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					waiters := 1200 / raceFactor * 2
					dice := rand.New(rand.NewPCG(31, uint64(i)))
					e := open[string](t, Config{
						Policy: funnel(limit.capacity, limit.count, limit.per), MaxWaiting: waiters,
					})
					interval := limit.per / time.Duration(limit.count)
					start := time.Now()
					var mu sync.Mutex
					var calls []waited
					note := func(w waited) {
						mu.Lock()
						defer mu.Unlock()
						w.ended = time.Since(start)
						calls = append(calls, w)
					}
					var all, barging sync.WaitGroup
					var over atomic.Bool
					if how == "some leave, some barge in" {
						for b := range 3 {
							barging.Go(func() {
								dice := rand.New(rand.NewPCG(32, uint64(b)))
								for !over.Load() {
									if e.Choke("key") {
										note(waited{index: -1, n: 1})
									}
									time.Sleep(1 + time.Duration(dice.Int64N(int64(20*interval))))
								}
							})
						}
					}
					for index := range waiters {
						n := 1 + dice.Int64N(limit.capacity)
						ctx, cancel := t.Context(), context.CancelFunc(func() {})
						if how != "all stay" {
							within := time.Duration(dice.Int64N(int64(interval) * limit.capacity * int64(waiters)))
							switch dice.IntN(5) {
							case 0:
								ctx, cancel = context.WithTimeout(ctx, within)
							case 1, 2:
								ctx, cancel = context.WithCancel(ctx)
								time.AfterFunc(within, cancel)
							case 3: // when it is about to be served
								ctx, cancel = context.WithCancel(ctx)
								time.AfterFunc(within/time.Duration(waiters), cancel)
							}
						}
						all.Go(func() {
							defer cancel()
							w := waited{index: index, n: n, came: time.Since(start)}
							w.err = e.Wait(ctx, "key", n)
							if w.err != nil && !errors.Is(w.err, ErrDeadline) {
								assert.ErrorIs(t, w.err, ErrCancelled)
								assert.Error(t, ctx.Err(), w.err)
							}
							note(w)
						})
						synctest.Wait()
						if dice.IntN(10) == 0 {
							time.Sleep(time.Duration(dice.Int64N(int64(2 * interval))))
						}
					}
					all.Wait()
					over.Store(true)
					barging.Wait()
					noLines(t, e)

					slices.SortStableFunc(calls, func(a, b waited) int { return cmp.Compare(a.ended, b.ended) })
					served(t, newGCRA(limit.capacity, limit.count, limit.per), calls)

					last, good, bad := -1, 0, 0
					for _, w := range calls {
						switch {
						case w.err != nil:
							bad++
						case w.index >= 0:
							require.Greater(t, w.index, last, "served out of order")
							last = w.index
							fallthrough
						default:
							good++
						}
					}
					s := e.Stats()
					assert.EqualValues(t, good, s.Admitted)
					if how != "some leave, some barge in" {
						assert.EqualValues(t, bad, s.Refused)
						notWasted(t, newGCRA(limit.capacity, limit.count, limit.per), calls)
					}
					if how == "all stay" {
						assert.Equal(t, waiters, good)
					} else {
						assert.Positive(t, bad)
					}
				})
			})
		}
	}
}

// The calls leave in either order.
//
// Promise: Calls that give up cost no other call its turn.
func TestLeavingCostsNoOtherCall(t *testing.T) {
	for _, order := range [][]int{{0, 1}, {1, 0}} {
		synctest.Test(t, func(t *testing.T) {
			e := open[string](t, Config{Policy: funnel(10, 1, time.Second)})
			require.True(t, e.Take("key", 10).Allowed)
			start := time.Now()
			var leave [2]context.CancelFunc
			for i, n := range []int64{10, 5} {
				var ctx context.Context
				ctx, leave[i] = context.WithCancel(t.Context())
				go func() { assert.ErrorIs(t, e.Wait(ctx, "key", n), context.Canceled) }()
				synctest.Wait()
			}
			var took time.Duration
			go func() {
				assert.NoError(t, e.Wait(t.Context(), "key", 3))
				took = time.Since(start)
			}()
			synctest.Wait()
			assert.Equal(t, 20*time.Second, e.Peek("key", 0).ResetAfter, "the first has taken, no other call has")
			time.Sleep(2500 * time.Millisecond)
			for _, i := range order {
				leave[i]()
				synctest.Wait()
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			assert.Equal(t, 3*time.Second, took)
			noLines(t, e)
		})
	}
}

// Promise: `ErrNever`, `ErrDeadline` and `ErrCrowded` come at once and take nothing.
func TestWaitErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := open[string](t, Config{Policy: funnel(3, 1, time.Second), MaxWaiting: 2})
		start := time.Now()
		require.NoError(t, e.Wait(t.Context(), "key", 3))
		require.NoError(t, e.Wait(t.Context(), "key", 0), "n == 0 never waits")
		assert.Equal(t, start, time.Now())

		for _, n := range []int64{4, -1, math.MinInt64, math.MaxInt64} {
			assert.ErrorIs(t, e.Wait(t.Context(), "key", n), ErrNever)
			assert.ErrorIs(t, e.Wait(t.Context(), "new", n), ErrNever)
		}
		assert.EqualError(t, e.Wait(t.Context(), "key", 4), "ral: the limit never allows this call: 4 of at most 3")

		// A deadline that cannot be met is an error at once, and takes nothing.
		before := e.Peek("key", 0)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second-1)
		defer cancel()
		err := e.Wait(ctx, "key", 1)
		assert.ErrorIs(t, err, ErrDeadline)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.NotErrorIs(t, err, ErrCancelled)
		assert.EqualError(t, err, "ral: the turn comes after the deadline (context deadline exceeded): 1s to wait, 999.999999ms left")
		assert.Equal(t, before, e.Peek("key", 0))
		assert.Equal(t, start, time.Now())
		noLines(t, e)

		// Two may wait, and the third may not. The line decides whether a turn is in time.
		waiting, leave := context.WithCancelCause(t.Context())
		errs := make(chan error, 2)
		for range 2 {
			go func() { errs <- e.Wait(waiting, "key", 3) }()
			synctest.Wait()
		}
		ctx, cancel = context.WithTimeout(t.Context(), 6*time.Second)
		defer cancel()
		assert.ErrorIs(t, e.Wait(t.Context(), "key", 1), ErrCrowded)
		assert.ErrorIs(t, e.Wait(ctx, "key", 1), ErrCrowded)
		assert.ErrorIs(t, e.Wait(ctx, "key", 4), ErrNever)
		assert.NoError(t, e.Wait(ctx, "key", 0))
		assert.NoError(t, e.Wait(ctx, "other", 1), "another key")

		why := errors.New("changed my mind")
		leave(why)
		for range 2 {
			err = <-errs
			assert.ErrorIs(t, err, ErrCancelled)
			assert.ErrorIs(t, err, why)
			assert.ErrorIs(t, err, context.Canceled)
		}
		assert.Equal(t, before, e.Peek("key", 0))
		assert.Equal(t, start, time.Now())

		err = e.Wait(waiting, "key", 1)
		assert.ErrorIs(t, err, ErrCancelled)
		assert.ErrorIs(t, err, why)
		done, cancel := context.WithCancel(t.Context())
		cancel()
		assert.EqualError(t, e.Wait(done, "new", 1), "ral: the wait was cancelled: context canceled")
		assert.ErrorIs(t, e.Wait(done, "new", 0), ErrCancelled)
		noLines(t, e)
		assert.Equal(t, 2, e.Len())
		s := e.Stats()
		assert.EqualValues(t, 2, s.Admitted)
		assert.EqualValues(t, 8+1+1+2+1+2+1+1, s.Refused)

		// A deadline that is met exactly: either way, nothing is lost.
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := e.Wait(ctx, "key", 1); err != nil {
			assert.ErrorIs(t, err, context.DeadlineExceeded)
			assert.EqualValues(t, 1, e.Peek("key", 0).Remaining)
		}
		assert.Equal(t, time.Second, time.Since(start))
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

// 64 goroutines on few keys at 100,000 a second, in real time, with calls that give up and calls
// that do not wait. The limit holds by the engine's clock, and every call returns.
func TestWaitUnderLoad(t *testing.T) {
	const capacity, rate, callers, each, names = 100, 100_000, 64, 50, 3
	goroutines := runtime.NumGoroutine()
	e := open[int](t, Config{Policy: funnel(capacity, rate, time.Second)})
	var admitted [names]atomic.Int64
	var left atomic.Int64
	givesUp := make(chan context.CancelFunc, callers*each)
	start := e.control.Now()
	together(callers, func(i int) {
		dice := rand.New(rand.NewPCG(34, uint64(i)))
		for range each {
			key, n := dice.IntN(names), 1+dice.Int64N(20)
			switch dice.IntN(8) {
			case 0:
				if e.Choke(key) {
					admitted[key].Add(1)
				}
				runtime.Gosched()
			case 1: // another caller cancels it, if it still waits then
				ctx, cancel := context.WithCancel(context.Background())
				givesUp <- cancel
				if e.Wait(ctx, key, n) == nil {
					admitted[key].Add(n)
				} else {
					left.Add(1)
				}
			case 2: // it has given up
				ctx, cancel := context.WithCancel(context.Background())
				cancel()
				assert.ErrorIs(t, e.Wait(ctx, key, n), ErrCancelled)
				left.Add(1)
			default:
				if assert.NoError(t, e.Wait(context.Background(), key, n)) {
					admitted[key].Add(n)
				}
			}
			select {
			case leave := <-givesUp:
				leave()
			default:
			}
		}
	})
	// The counters of two processors may differ.
	took := int64(e.control.Now()-start) + int64(clock.Early)
	for key := range names {
		n := admitted[key].Load()
		assert.LessOrEqual(t, n, capacity+took*rate/int64(time.Second), "in %v", time.Duration(took))
		assert.Greater(t, n, int64(capacity), "nothing but the burst has passed")
	}
	assert.Positive(t, left.Load())
	noLines(t, e)
	require.NoError(t, e.Close())
	await.True(t, func() bool { return runtime.NumGoroutine() <= goroutines }, "no goroutine is left")
}
