package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/big"
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

	"github.com/ral-limiter/ral/cell"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/table"
)

// noLines checks that nothing is left of the lines that calls of Wait stood in.
func noLines[K comparable](t testing.TB, e *Engine[K]) {
	t.Helper()
	lines := reflect.ValueOf(e.Cell).Elem().FieldByName("lines")
	assert.Zero(t, lines.FieldByName("waiting").FieldByName("v").Int(), "lines are counted")
	assert.Zero(t, lines.FieldByName("paused").FieldByName("v").Int(), "the lines stand still")
	shards := lines.FieldByName("shards")
	for i := range shards.Len() {
		assert.Zero(t, shards.Index(i).FieldByName("lines").Len(), "lines are left")
	}
}

// gcra is a model of a funnel in rational numbers, that shares nothing with it.
type gcra struct {
	interval, depth, tat *big.Rat // nanoseconds
}

func newGCRA(capacity, count int64, per time.Duration) *gcra {
	interval := big.NewRat(int64(per), count)
	return &gcra{interval, new(big.Rat).Mul(interval, big.NewRat(capacity, 1)), new(big.Rat)}
}

// earliest is when n units may be used, for calls that come in order of time.
func (g *gcra) earliest(n int64) *big.Rat {
	at := new(big.Rat).Mul(g.interval, big.NewRat(n, 1))
	return at.Add(at, g.tat).Sub(at, g.depth)
}

func (g *gcra) use(at time.Duration, n int64) {
	if t := big.NewRat(int64(at), 1); g.tat.Cmp(t) < 0 {
		g.tat = t
	}
	g.tat = new(big.Rat).Add(g.tat, new(big.Rat).Mul(g.interval, big.NewRat(n, 1)))
}

// up rounds up to whole nanoseconds.
func up(r *big.Rat) time.Duration {
	q, rest := new(big.Int).QuoRem(r.Num(), r.Denom(), new(big.Int))
	if rest.Sign() > 0 {
		q.Add(q, big.NewInt(1))
	}
	return time.Duration(q.Int64())
}

// waited is one call of Wait, or of Choke.
type waited struct {
	index       int // in order of arrival; -1 for Choke
	n           int64
	came, ended time.Duration
	err         error
}

// served checks that the calls that were let pass keep to the limit in every window.
// A turn that is rounded up to a whole nanosecond shortens the window that begins
// with it by less than that.
func served(t testing.TB, model *gcra, calls []waited) {
	t.Helper()
	slack := time.Duration(0)
	if !model.interval.IsInt() {
		slack = 1
	}
	for _, w := range calls {
		if w.err == nil {
			require.LessOrEqual(t, model.earliest(w.n).Cmp(big.NewRat(int64(w.ended+slack), 1)), 0,
				"%+v is %v early", w, up(model.earliest(w.n))-w.ended)
			model.use(w.ended, w.n)
		}
	}
}

// Hundreds to thousands of waiters on one key, in random order of size, with random
// cancellations and deadlines. Checked, with a model of its own:
//
//  1. the calls that are served are served in the order in which they came;
//  2. the limit holds in every window;
//  3. nothing is wasted: each is served at the first moment at which the limit allows
//     it, those before it are gone, and it is there (if nobody barges in);
//  4. everybody returns, with the right error, no earlier than he gave up;
//  5. no line and no goroutine is left, and each call is counted once.
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
							case 3: // soon, when it is about to be served
								ctx, cancel = context.WithCancel(ctx)
								time.AfterFunc(within/time.Duration(waiters), cancel)
							}
						}
						all.Go(func() {
							defer cancel()
							w := waited{index: index, n: n, came: time.Since(start)}
							w.err = e.Wait(ctx, "key", n)
							if w.err != nil && !errors.Is(w.err, cell.ErrDeadline) {
								assert.ErrorIs(t, w.err, cell.ErrCancelled)
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

// notWasted checks that every call was served as early as the model allows. Intervals
// are kept in sixteenths of a nanosecond, which adds up.
func notWasted(t testing.TB, model *gcra, calls []waited) {
	t.Helper()
	byArrival := slices.Clone(calls)
	slices.SortFunc(byArrival, func(a, b waited) int { return cmp.Compare(a.index, b.index) })
	var gone time.Duration // when the last of those before has left
	units := int64(0)
	for _, w := range byArrival {
		if w.err == nil {
			first := max(up(model.earliest(w.n)), w.came, gone)
			units += w.n
			slack := time.Duration(units/16 + 1)
			if model.interval.IsInt() {
				slack = 0
			}
			require.LessOrEqual(t, w.ended, first+slack, "%+v is %v late", w, w.ended-first)
			model.use(w.ended, w.n)
		}
		gone = max(gone, w.ended)
	}
}

// When all before it have left, the next in line is served as if they had never
// been there. Those who leave are the first, and others.
func TestWhoLeavesCostsNobody(t *testing.T) {
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
			assert.Equal(t, 20*time.Second, e.Peek("key").ResetAfter, "the first has taken, nobody else has")
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

// Within the lookahead several have taken. One of them leaves: those behind it move
// up, and stay in order, and the newcomer who asks for little stays the last.
func TestLeavingTheLookaheadKeepsTheOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := open[string](t, Config{Policy: funnel(10, 1, time.Millisecond)})
		require.True(t, e.Take("key", 10).Allowed)
		start := time.Now()
		ctx, leave := context.WithCancel(t.Context())
		go func() { assert.Error(t, e.Wait(ctx, "key", 8)) }()
		synctest.Wait()
		var got [3]time.Duration
		for i, n := range []int64{1, 1, 2} {
			go func() {
				assert.NoError(t, e.Wait(t.Context(), "key", n))
				got[i] = time.Since(start)
			}()
			synctest.Wait()
		}
		assert.Equal(t, 20*time.Millisecond, e.Peek("key").ResetAfter, "three of the four have taken")
		leave()
		synctest.Wait()
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Equal(t, [3]time.Duration{time.Millisecond, 2 * time.Millisecond, 4 * time.Millisecond}, got)
		noLines(t, e)
	})
}

func TestWaitErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := open[string](t, Config{Policy: funnel(3, 1, time.Second), MaxWaiting: 2})
		start := time.Now()
		require.NoError(t, e.Wait(t.Context(), "key", 3))
		require.NoError(t, e.Wait(t.Context(), "key", 0), "n == 0 never waits")
		assert.Equal(t, start, time.Now())

		for _, n := range []int64{4, -1, math.MinInt64, math.MaxInt64} {
			assert.ErrorIs(t, e.Wait(t.Context(), "key", n), cell.ErrNever)
			assert.ErrorIs(t, e.Wait(t.Context(), "new", n), cell.ErrNever)
		}
		assert.EqualError(t, e.Wait(t.Context(), "key", 4), "ral: the limit never allows so many at once: 4 of at most 3")

		// A deadline that cannot be met is an error at once, and takes nothing.
		before := e.Peek("key")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second-1)
		defer cancel()
		err := e.Wait(ctx, "key", 1)
		assert.ErrorIs(t, err, cell.ErrDeadline)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.NotErrorIs(t, err, cell.ErrCancelled)
		assert.EqualError(t, err, "ral: the turn comes after the deadline (context deadline exceeded): 1s to wait, 999.999999ms left")
		assert.Equal(t, before, e.Peek("key"))
		assert.Equal(t, start, time.Now())
		noLines(t, e)

		// Two may wait, and the third may not. Those in line decide what is in time.
		waiting, leave := context.WithCancelCause(t.Context())
		errs := make(chan error, 2)
		for range 2 {
			go func() { errs <- e.Wait(waiting, "key", 3) }()
			synctest.Wait()
		}
		ctx, cancel = context.WithTimeout(t.Context(), 6*time.Second)
		defer cancel()
		assert.ErrorIs(t, e.Wait(t.Context(), "key", 1), cell.ErrCrowded)
		assert.ErrorIs(t, e.Wait(ctx, "key", 1), cell.ErrCrowded)
		assert.ErrorIs(t, e.Wait(ctx, "key", 4), cell.ErrNever)
		assert.NoError(t, e.Wait(ctx, "key", 0))
		assert.NoError(t, e.Wait(ctx, "other", 1), "another key")

		why := errors.New("changed my mind")
		leave(why)
		for range 2 {
			err = <-errs
			assert.ErrorIs(t, err, cell.ErrCancelled)
			assert.ErrorIs(t, err, why)
			assert.ErrorIs(t, err, context.Canceled)
		}
		assert.Equal(t, before, e.Peek("key"))
		assert.Equal(t, start, time.Now())

		err = e.Wait(waiting, "key", 1)
		assert.ErrorIs(t, err, cell.ErrCancelled)
		assert.ErrorIs(t, err, why)
		done, cancel := context.WithCancel(t.Context())
		cancel()
		assert.EqualError(t, e.Wait(done, "new", 1), "ral: the wait was cancelled: context canceled")
		assert.ErrorIs(t, e.Wait(done, "new", 0), cell.ErrCancelled)
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
			assert.EqualValues(t, 1, e.Peek("key").Remaining)
		}
		assert.Equal(t, time.Second, time.Since(start))
	})
}

// What others take while a call waits may put its turn off beyond its deadline,
// which it was to meet when it came.
func TestDeadlineThatPassesInLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := open[string](t, Config{Policy: funnel(2, 1, time.Second)})
		require.True(t, e.Take("key", 2).Allowed)
		go func() { assert.NoError(t, e.Wait(t.Context(), "key", 1)) }()
		synctest.Wait()
		var err error
		ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
		defer cancel()
		go func() { err = e.Wait(ctx, "key", 1) }()
		synctest.Wait()
		assert.Equal(t, 3*time.Second, e.Peek("key").ResetAfter)
		assert.Equal(t, 4*time.Second, e.Refund("key", -1).ResetAfter)
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.ErrorIs(t, err, cell.ErrCancelled)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.EqualValues(t, 2, e.Peek("key").Remaining)
		noLines(t, e)
	})
}

// A crowd of callers who do not wait cannot keep one who does from a full bucket.
func TestNobodyStarvesInLine(t *testing.T) {
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
		// Nor can they keep a line from moving on, each in its turn.
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

// Close while calls wait: all end, and none is let pass for it.
func TestCloseEndsWaiting(t *testing.T) {
	for _, when := range []cell.WhenUnavailable{Admit, Refuse} {
		synctest.Test(t, func(t *testing.T) {
			e := open[int](t, Config{Policy: funnel(5, 1, time.Second), WhenUnavailable: when})
			const each = 100
			errs := make(chan error, 3*each)
			for range each {
				for key := range 3 {
					go func() { errs <- e.Wait(t.Context(), key, 5) }()
				}
			}
			time.Sleep(12 * time.Second)
			require.NoError(t, e.Close())
			synctest.Wait()
			require.Len(t, errs, 3*each)
			passed := 0
			for range 3 * each {
				if err := <-errs; err == nil {
					passed++
				} else {
					assert.ErrorIs(t, err, ErrClosed)
				}
			}
			assert.Equal(t, 3*3, passed)
			noLines(t, e)
			assert.ErrorIs(t, e.Wait(t.Context(), 1, 1), ErrClosed)
			assert.ErrorIs(t, e.Wait(t.Context(), 1, 9), ErrClosed)
			s := e.Stats()
			assert.EqualValues(t, passed, s.Admitted)
			assert.EqualValues(t, 3*each-passed+2, s.Refused)
			assert.Zero(t, s.Unavailable)
		})
	}
}

// failing returns an engine whose writer was given up. What it is told beforehand it
// goes on limiting.
func failing[K comparable](t *testing.T, config Config, before func(e *Engine[K])) *Engine[K] {
	t.Helper()
	f := newFaults(false)
	config.Restarts, config.fault = 1, f.at
	e := open[K](t, config)
	before(e)
	settled(t, e)
	f.arm("writer: begin", -1)
	f.arm("writer: received", -1)
	e.queue.TrySend(sweep[K]())
	for e.writing() {
		time.Sleep(time.Millisecond)
	}
	require.ErrorIs(t, e.Health(), ErrUnhealthy)
	return e
}

// The writer was given up. Known keys are waited for as ever; new ones are answered
// as the configuration says, and at once.
func TestWaitOfADegradedEngine(t *testing.T) {
	for _, when := range []cell.WhenUnavailable{Admit, Refuse} {
		synctest.Test(t, func(t *testing.T) {
			e := failing(t, Config{Policy: funnel(2, 1, time.Second), WhenUnavailable: when}, func(e *Engine[string]) {
				require.True(t, e.Take("known", 2).Allowed)
			})
			time.Sleep(time.Minute)
			require.True(t, e.Take("known", 2).Allowed)
			start := time.Now()
			for range 3 {
				require.NoError(t, e.Wait(t.Context(), "known", 1))
			}
			assert.Equal(t, 3*time.Second, time.Since(start))
			before := e.Stats()
			start = time.Now()
			for range 5 {
				err := e.Wait(t.Context(), "new", 2)
				if when == Admit {
					assert.NoError(t, err)
				} else {
					assert.ErrorIs(t, err, cell.ErrUnavailable)
				}
			}
			assert.ErrorIs(t, e.Wait(t.Context(), "new", 3), cell.ErrNever)
			assert.Equal(t, start, time.Now())
			s := e.Stats()
			assert.EqualValues(t, before.Unavailable+5, s.Unavailable)
			assert.EqualValues(t, before.Admitted+before.Refused+6, s.Admitted+s.Refused)
			noLines(t, e)
		})
	}
}

// The writer is given up, and the key's entry with it, while calls wait. They are
// answered as the configuration says when it is their turn to take.
func TestWaitWhileTheEngineDegrades(t *testing.T) {
	for _, when := range []cell.WhenUnavailable{Admit, Refuse} {
		synctest.Test(t, func(t *testing.T) {
			f := newFaults(false)
			e := open[string](t, Config{
				Policy: funnel(1, 1, time.Second), WhenUnavailable: when, MaxKeys: 1, Restarts: 1, fault: f.at,
			})
			require.True(t, e.Choke("key"))
			synctest.Wait()
			const waiters = 5
			errs := make(chan error, waiters)
			for range waiters {
				go func() { errs <- e.Wait(t.Context(), "key", 1) }()
			}
			synctest.Wait()
			require.True(t, e.Choke("other"), "which takes the one place")
			synctest.Wait()
			f.arm("writer: begin", -1)
			f.arm("writer: received", -1)
			e.queue.TrySend(sweep[string]())
			for e.writing() {
				time.Sleep(time.Millisecond)
			}
			synctest.Wait()
			require.Empty(t, errs, "they wait for the first")
			time.Sleep(time.Minute)
			require.Len(t, errs, waiters)
			good := 0
			for range waiters {
				if err := <-errs; err == nil {
					good++
				} else {
					assert.ErrorIs(t, err, cell.ErrUnavailable)
				}
			}
			s := e.Stats()
			if when == Admit {
				assert.Equal(t, waiters, good)
			} else {
				assert.Equal(t, 1, good)
			}
			assert.EqualValues(t, waiters-1, s.Unavailable)
			assert.EqualValues(t, waiters+2, s.Admitted+s.Refused)
			noLines(t, e)
		})
	}
}

// Calls on new keys and a full table. Under EvictLeastDebt somebody makes room;
// under RefuseNew they wait until there is some; under AdmitNew they pass.
func TestWaitForRoom(t *testing.T) {
	for _, whenFull := range []cell.WhenFull{EvictLeastDebt, RefuseNew, AdmitNew} {
		for _, when := range []cell.WhenUnavailable{Admit, Refuse} {
			t.Run(fmt.Sprint(whenFull, when), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					e := open[string](t, Config{
						Policy: funnel(1, 1, time.Second), MaxKeys: 1, Idle: time.Second,
						WhenFull: whenFull, WhenUnavailable: when,
					})
					require.True(t, e.Choke("old"))
					synctest.Wait()
					start := time.Now()
					ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
					defer cancel()
					err := e.Wait(ctx, "new", 1)
					s := e.Stats()
					switch whenFull {
					case EvictLeastDebt:
						assert.NoError(t, err)
						assert.EqualValues(t, 1, s.Forgiven)
						assert.Zero(t, s.Full+s.Unavailable)
					case AdmitNew:
						assert.NoError(t, err)
						assert.EqualValues(t, 1, s.Full)
					case RefuseNew:
						assert.ErrorIs(t, err, context.DeadlineExceeded)
						assert.Equal(t, 500*time.Millisecond, time.Since(start))
						require.NoError(t, e.Wait(t.Context(), "new", 1))
						assert.GreaterOrEqual(t, time.Since(start), 2*time.Second, "the other is idle for a second")
						assert.LessOrEqual(t, time.Since(start), 2*time.Second+DefaultOpenTimeout)
						s = e.Stats()
						assert.EqualValues(t, 1, s.Refused)
						assert.Zero(t, s.Full+s.Unavailable)
						assert.False(t, e.Choke("new"), "recorded")
					}
					assert.EqualValues(t, 2, s.Admitted)
					noLines(t, e)
				})
			})
		}
	}
}

// A place comes free while a call waits for one. Who comes then does not get it.
func TestRoomGoesToTheFirstInLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := open[string](t, Config{Policy: funnel(1, 1, time.Second), MaxKeys: 1, Idle: time.Second, WhenFull: RefuseNew})
		require.True(t, e.Choke("old"))
		start := time.Now()
		var mu sync.Mutex
		var order []int
		var took [2]time.Duration
		wait := func(i int) {
			assert.NoError(t, e.Wait(t.Context(), "new", 1))
			mu.Lock()
			defer mu.Unlock()
			order = append(order, i)
			took[i] = time.Since(start)
		}
		time.Sleep(503 * time.Millisecond) // not when the janitor looks
		go wait(0)
		synctest.Wait()
		for e.Len() > 0 {
			time.Sleep(time.Microsecond)
		}
		free := time.Since(start)
		go wait(1)
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Equal(t, []int{0, 1}, order)
		assert.LessOrEqual(t, took[0], free+10*time.Millisecond)
		noLines(t, e)
	})
}

// The writer stands still, and no room is made. The line moves when it is back.
func TestWaitForAStuckWriter(t *testing.T) {
	for _, when := range []cell.WhenUnavailable{Admit, Refuse} {
		synctest.Test(t, func(t *testing.T) {
			var hold atomic.Bool
			release := make(chan struct{})
			e := open[string](t, Config{
				Policy: funnel(1, 1, time.Second), MaxKeys: 1, WhenUnavailable: when,
				fault: func(point string) {
					if point == "room: begin" && hold.Load() {
						<-release
					}
				},
			})
			require.True(t, e.Choke("old"))
			synctest.Wait()
			hold.Store(true)
			start := time.Now()
			errs := make(chan error, 2)
			for range 2 {
				go func() { errs <- e.Wait(t.Context(), "new", 1) }()
				synctest.Wait()
			}
			time.Sleep(time.Second)
			hold.Store(false)
			close(release)
			if when == Admit {
				require.NoError(t, <-errs)
				require.NoError(t, <-errs)
				assert.Equal(t, time.Second, time.Since(start), "after the open timeout")
				assert.EqualValues(t, 2, e.Stats().Unavailable)
			} else {
				require.NoError(t, <-errs)
				require.NoError(t, <-errs)
				assert.GreaterOrEqual(t, time.Since(start), 2*time.Second)
				assert.Less(t, time.Since(start), 2*time.Second+2*DefaultOpenTimeout)
			}
			noLines(t, e)
		})
	}
}

// Keys that cannot be recorded do not wait, and leave nothing behind.
func TestWaitForKeysThatCannotBeRecorded(t *testing.T) {
	for _, when := range []cell.WhenUnavailable{Admit, Refuse} {
		synctest.Test(t, func(t *testing.T) {
			floats := open[float64](t, Config{Policy: funnel(1, 1, time.Hour), WhenUnavailable: when})
			anything := open[any](t, Config{Policy: funnel(1, 1, time.Hour), WhenUnavailable: when})
			start := time.Now()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			answer := func(err error) {
				t.Helper()
				if when == Admit {
					assert.NoError(t, err)
				} else {
					assert.ErrorIs(t, err, cell.ErrUnavailable)
				}
			}
			require.True(t, floats.Choke(1))
			require.True(t, anything.Choke(1))
			go func() { assert.Error(t, floats.Wait(ctx, 1, 1)) }() // so that there is a line
			go func() { assert.Error(t, anything.Wait(ctx, 1, 1)) }()
			synctest.Wait()
			for range 10 {
				answer(floats.Wait(ctx, math.NaN(), 1))
				answer(anything.Wait(ctx, []int{1}, 1))
				answer(anything.Wait(ctx, [1]any{math.NaN()}, 1))
				assert.ErrorIs(t, floats.Wait(ctx, math.NaN(), 2), cell.ErrNever)
				assert.ErrorIs(t, anything.Wait(ctx, func() {}, -1), cell.ErrNever)
				assert.NoError(t, anything.Wait(ctx, func() {}, 0))
			}
			assert.Equal(t, start, time.Now())
			assert.EqualValues(t, 10, floats.Stats().Unavailable)
			assert.EqualValues(t, 20, anything.Stats().Unavailable)
			cancel()
			synctest.Wait()
			noLines(t, floats)
			noLines(t, anything)
		})
	}
}

// Reset while calls wait: the turn that was promised stands, the next comes at once.
func TestResetWhileCallsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := open[string](t, Config{Policy: funnel(2, 1, time.Second)})
		require.True(t, e.Take("key", 2).Allowed)
		start := time.Now()
		var got [3]time.Duration
		for i := range got {
			go func() {
				assert.NoError(t, e.Wait(t.Context(), "key", 2))
				got[i] = time.Since(start)
			}()
			synctest.Wait()
		}
		time.Sleep(time.Second)
		synctest.Wait()
		require.True(t, e.Reset("key"))
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Equal(t, [3]time.Duration{2 * time.Second, 2 * time.Second, 4 * time.Second}, got)
		noLines(t, e)
	})
}

// SetPolicy while calls wait: they have their turns under the new policy, in order,
// and those that it never allows end.
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
					assert.ErrorIs(t, err, cell.ErrNever)
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

		// Slower, and back.
		require.NoError(t, e.Wait(t.Context(), "key", 5))
		begin := time.Now()
		var took time.Duration
		go func() {
			assert.NoError(t, e.Wait(t.Context(), "key", 5))
			took = time.Since(begin)
		}()
		synctest.Wait()
		for range 10 {
			require.NoError(t, e.SetPolicy(funnel(5, 1, time.Minute)))
			require.NoError(t, e.SetPolicy(funnel(5, 1, time.Second)))
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.InDelta(t, 5*time.Second, took, float64(200*time.Millisecond))
		noLines(t, e)
	})
}

// A writer that does not answer holds up SetPolicy, but not those who wait.
func TestSetPolicyThatHangsDoesNotHoldUpLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		e := open[string](t, Config{Policy: funnel(1, 1, time.Second), fault: func(point string) {
			if point == "change: begin" {
				<-release
			}
		}})
		require.True(t, e.Choke("key"))
		changed := make(chan error, 1)
		start := time.Now()
		waits := make(chan time.Duration, 3)
		for range 3 {
			go func() {
				assert.NoError(t, e.Wait(t.Context(), "key", 1))
				waits <- time.Since(start)
			}()
			synctest.Wait()
		}
		go func() { changed <- e.SetPolicy(funnel(1, 2, time.Second)) }()
		for i := range 3 {
			assert.Equal(t, time.Duration(i+1)*time.Second, <-waits)
		}
		require.Empty(t, changed)
		close(release)
		require.NoError(t, <-changed)
		noLines(t, e)
	})
}

// A policy of the caller's that panics does not leave the lines locked.
type fragile struct {
	policy.Policy
	broken atomic.Bool
}

func (p *fragile) Take(word uint64, now policy.Instant, n int64, patience time.Duration) (uint64, policy.Decision) {
	if p.broken.Load() && patience > 0 {
		panic("policy")
	}
	return p.Policy.Take(word, now, n, patience)
}

func TestPolicyThatPanicsLeavesLinesToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &fragile{Policy: funnel(1, 1, time.Second)}
		e := open[string](t, Config{Policy: p})
		require.NoError(t, e.Wait(t.Context(), "key", 1))
		p.broken.Store(true)
		assert.Panics(t, func() { _ = e.Wait(t.Context(), "key", 1) })
		noLines(t, e)
		p.broken.Store(false)
		start := time.Now()
		require.NoError(t, e.Wait(t.Context(), "key", 1))
		assert.Equal(t, time.Second, time.Since(start))
		noLines(t, e)
	})
}

// pacer is a limit that makes its callers wait by nature: one every interval, as
// many ahead as fit into depth.
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

func (p pacer) FreshAt(word uint64) policy.Instant { return policy.Instant(word) }
func (p pacer) String() string                     { return "pacer" }

// Wait turns what such a limit would promise into waiting, and what it would not into
// an error. It is not a policy.Refunder: who leaves it as the last gives back all.
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
		require.ErrorIs(t, <-errs, cell.ErrCrowded)
		for i := range 3 {
			require.NoError(t, <-errs)
			assert.Equal(t, time.Duration(i+1)*time.Second, time.Since(start))
		}
		assert.Equal(t, []int{0, 4, 1, 2, 3}, order)

		ctx, cancel := context.WithCancel(t.Context())
		before := e.Peek("key")
		go func() { errs <- e.Wait(ctx, "key", 1) }()
		synctest.Wait()
		assert.NotEqual(t, before, e.Peek("key"))
		cancel()
		require.ErrorIs(t, <-errs, cell.ErrCancelled)
		assert.Equal(t, before, e.Peek("key"))
		noLines(t, e)
	})
}

// 64 goroutines on few keys at 100,000 a second, by the real clock, with
// cancellations and callers who do not wait. Checked by the real clock: the limit;
// and that everybody returns.
func TestWaitUnderLoad(t *testing.T) {
	const capacity, rate, callers, names = 100, 100_000, 64, 3
	goroutines := runtime.NumGoroutine()
	e := open[int](t, Config{Policy: funnel(capacity, rate, time.Second)})
	var admitted [names]atomic.Int64
	var passed, left atomic.Int64
	start := time.Now()
	together(callers, func(i int) {
		dice := rand.New(rand.NewPCG(34, uint64(i)))
		for time.Since(start) < 300*time.Millisecond {
			key, n := dice.IntN(names), 1+dice.Int64N(20)
			switch dice.IntN(8) {
			case 0:
				if e.Choke(key) {
					admitted[key].Add(1)
				}
				runtime.Gosched()
				continue
			case 1:
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(dice.IntN(3_000_000)))
				if e.Wait(ctx, key, n) == nil {
					admitted[key].Add(n)
				} else {
					left.Add(1)
				}
				cancel()
			case 2:
				ctx, cancel := context.WithCancel(context.Background())
				timer := time.AfterFunc(time.Duration(dice.IntN(2_000_000)), cancel)
				if e.Wait(ctx, key, n) == nil {
					admitted[key].Add(n)
				} else {
					left.Add(1)
				}
				timer.Stop()
				cancel()
			default:
				if assert.NoError(t, e.Wait(context.Background(), key, n)) {
					admitted[key].Add(n)
				}
			}
			passed.Add(1)
		}
	})
	took := time.Since(start)
	for key := range names {
		n := admitted[key].Load()
		assert.LessOrEqual(t, n, capacity+int64(took*rate/time.Second), "in %v", took)
		assert.Greater(t, n, int64(capacity), "nothing but the burst has passed")
	}
	assert.Positive(t, left.Load())
	noLines(t, e)
	require.NoError(t, e.Close())
	for tries := 0; runtime.NumGoroutine() > goroutines && tries < 1000; tries++ {
		time.Sleep(time.Millisecond)
	}
	assert.LessOrEqual(t, runtime.NumGoroutine(), goroutines)
}

// Many keys, all of them with lines.
func TestWaitForManyKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const each = 5
		names := 1000 / raceFactor
		e := open[int](t, Config{Policy: funnel(1, 1, time.Second)})
		start := time.Now()
		var all sync.WaitGroup
		ends := make([]atomic.Int64, names)
		for key := range names {
			for range each {
				all.Go(func() {
					assert.NoError(t, e.Wait(t.Context(), key, 1))
					ends[key].Store(int64(time.Since(start)))
				})
			}
		}
		all.Wait()
		for key := range names {
			require.EqualValues(t, (each-1)*time.Second, ends[key].Load())
		}
		noLines(t, e)
	})
}

// sweep is a command to die of, and otherwise harmless.
func sweep[K comparable]() table.Command[K] { return table.SweepCommand[K](1, 0, nil) }

// Those who stand in line and have not taken yet come first, so that a deadline which
// they leave no time for is an error at once.
func TestDeadlineCountsThoseInLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := open[string](t, Config{Policy: funnel(1, 1, time.Second)})
		require.True(t, e.Choke("key"))
		errs := make(chan error, 2)
		for range 2 {
			go func() { errs <- e.Wait(t.Context(), "key", 1) }()
			synctest.Wait()
		}
		begin := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second-1)
		defer cancel()
		require.ErrorIs(t, e.Wait(ctx, "key", 1), cell.ErrDeadline)
		require.Equal(t, begin, time.Now())
		require.NoError(t, <-errs)
		require.NoError(t, <-errs)
		require.Equal(t, 2*time.Second, time.Since(begin))
	})
}
