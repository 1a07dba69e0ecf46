package waitline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/internal/testkit/testenv"
)

// Hundreds of calls for a key, in random order of size, with random cancellations and deadlines,
// against a model:
//
//  1. calls are served in the order of their arrival;
//  2. the limit holds in every window;
//  3. nothing is wasted: each call is served as soon as the limit allows, those before it are gone,
//     and the call is there (if no call barges in);
//  4. every call returns, with the right error.
//
// Promise: Calls wait first come, first served, at most `MaxWaiting`.
func TestCallsAreServedInOrder(t *testing.T) {
	for i, limit := range []funnelModel{
		{capacity: 10, count: 1, per: time.Millisecond},
		{capacity: 100, count: 100, per: 100 * time.Millisecond},
		{capacity: 5, count: 1, per: time.Second},
		{capacity: 1, count: 1, per: 100 * time.Millisecond},
		{capacity: 1000, count: 100_000, per: time.Second},
	} {
		for _, how := range []string{"all stay", "some leave", "some leave, some barge in"} {
			t.Run(fmt.Sprintf("%d per %v, %s", limit.count, limit.per, how), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					dice := rand.New(rand.NewPCG(31, uint64(i)))
					calls := crowd(t, dice, limit, 1000/testenv.RaceSlowdown, how)
					slices.SortStableFunc(calls, func(a, b waited) int { return cmp.Compare(a.ended, b.ended) })
					limit.holds(t, calls)
					last, failed := -1, 0
					for _, w := range calls {
						switch {
						case w.err != nil:
							failed++
						case w.index >= 0:
							require.Greater(t, w.index, last, "served out of order")
							last = w.index
						}
					}
					assert.Equal(t, how != "all stay", failed > 0)
					if how != "some leave, some barge in" {
						limit.wastesNothing(t, calls)
					}
				})
			})
		}
	}
}

// waited is a call of Wait, or one that barged in.
type waited struct {
	// index is the place in order of arrival, or -1 if the call barged in.
	index       int
	n           int64
	came, ended time.Duration
	err         error
}

// crowd makes calls that wait, and returns all calls when they have ended.
func crowd(t *testing.T, dice *rand.Rand, limit funnelModel, waiters int, how string) (calls []waited) {
	d, h := newDesk(funnel(limit.capacity, limit.count, limit.per)), newHall[string](t, waiters, waiters)
	interval := limit.per / time.Duration(limit.count)
	var mu sync.Mutex
	note := func(w waited) {
		mu.Lock()
		defer mu.Unlock()
		w.ended = time.Since(d.began)
		calls = append(calls, w)
	}
	var all, barging sync.WaitGroup
	var over atomic.Bool
	if how == "some leave, some barge in" {
		for b := range 3 {
			barging.Go(func() {
				dice := rand.New(rand.NewPCG(32, uint64(b)))
				for !over.Load() {
					if d.take(1) {
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
			// The call gives up when it is about to be served.
			case 3:
				ctx, cancel = context.WithCancel(ctx)
				time.AfterFunc(within/time.Duration(waiters), cancel)
			}
		}
		all.Go(func() {
			defer cancel()
			w := waited{index: index, n: n, came: time.Since(d.began)}
			_, w.err = h.Wait(ctx, "key", &customer{desk: d, n: n}, Forever)
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
	return calls
}

// funnelModel is an independent model of a funnel. A unit takes a whole number of nanoseconds to
// drain.
type funnelModel struct {
	capacity, count int64
	per             time.Duration
	// drained is the instant at which the used units will have drained.
	drained time.Duration
}

// takes is how long n units take to drain.
func (m *funnelModel) takes(n int64) time.Duration {
	return time.Duration(n) * m.per / time.Duration(m.count)
}

// earliest is when n units may be used, for calls in order of time.
func (m *funnelModel) earliest(n int64) time.Duration { return m.drained + m.takes(n-m.capacity) }

func (m *funnelModel) use(at time.Duration, n int64) { m.drained = max(m.drained, at) + m.takes(n) }

// holds checks that admitted calls keep to the limit in every window.
func (m funnelModel) holds(t *testing.T, calls []waited) {
	t.Helper()
	for _, w := range calls {
		if w.err == nil {
			require.GreaterOrEqual(t, w.ended, m.earliest(w.n), "%+v is early", w)
			m.use(w.ended, w.n)
		}
	}
}

// wastesNothing checks that every call was served as early as the model allows.
func (m funnelModel) wastesNothing(t *testing.T, calls []waited) {
	t.Helper()
	byArrival := slices.Clone(calls)
	slices.SortFunc(byArrival, func(a, b waited) int { return cmp.Compare(a.index, b.index) })
	// gone is the instant at which the last call before has left.
	var gone time.Duration
	for _, w := range byArrival {
		if w.err == nil {
			require.LessOrEqual(t, w.ended, max(m.earliest(w.n), w.came, gone), "%+v is late", w)
			m.use(w.ended, w.n)
		}
		gone = max(gone, w.ended)
	}
}
