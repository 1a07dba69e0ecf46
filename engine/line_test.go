package engine

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/internal/testkit/limitstest"
	"github.com/ral-limiter/ral/policy"
)

// inLine makes calls of Wait one after the other, and records when each was served.
type inLine struct {
	e *Engine[string]
	// key is "key" if it is empty.
	key   string
	began time.Time
	all   sync.WaitGroup
	ends  [8]time.Duration
}

func (l *inLine) wait(t *testing.T, i int, n int64) {
	l.all.Go(func() {
		assert.NoError(t, l.e.Wait(t.Context(), cmp.Or(l.key, "key"), n))
		l.ends[i] = time.Since(l.began)
	})
	synctest.Wait()
}

// Room came back before the head's turn. A call that would be served before the head takes nothing
// yet: its window may be over by then.
func TestNoTakeIsForBeforeTheHeadsTurn(t *testing.T) {
	const per = int64(4 * time.Millisecond)
	for _, p := range []policy.Policy{policy.Must(policy.AtMost(10, time.Duration(per))), funnel(10, 10, time.Duration(per))} {
		synctest.Test(t, func(t *testing.T) {
			l := inLine{e: open[string](t, Config{Policy: p}), began: time.Now()}
			require.True(t, l.e.Take("key", 10).Allowed)
			l.wait(t, 0, 8)
			l.e.Reset("key")
			l.wait(t, 1, 2)
			assert.Zero(t, l.e.Peek("key", 0).ResetAfter, "%v: the head must have taken ahead", p)
			l.all.Wait()
			assert.Positive(t, l.ends[0])
			assert.Equal(t, l.ends[0], l.ends[1])
			assert.EqualValues(t, 8, l.e.Peek("key", 0).Remaining, "two units must be taken now")
			noLines(t, l.e)
		})
	}
}

// Hundreds wait for some keys under each limit, many give up, and units are given back, reset,
// charged and changed meanwhile. Served calls keep their order; each other call has a refusal; no
// call is stranded; each is counted once.
func TestOrderIsKeptDuringOtherVerbs(t *testing.T) {
	const names = 3
	for i, p := range append(limitstest.Policies(), funnel(10, 1, time.Millisecond), policy.Must(policy.AtMost(10, 10*time.Millisecond))) {
		synctest.Test(t, func(t *testing.T) {
			waiters := 900 / raceFactor
			e := open[int](t, Config{Policy: p, MaxWaiting: waiters / 8})
			dice := rand.New(rand.NewPCG(91, uint64(i)))
			interval := time.Second
			if i >= len(limitstest.Policies()) {
				interval = time.Millisecond
			}
			upTo := func(intervals int64) time.Duration { return time.Duration(dice.Int64N(int64(interval) * intervals)) }
			began := time.Now()
			var mu sync.Mutex
			var all sync.WaitGroup
			ends := [names][]time.Duration{}
			calls, failed := uint64(0), 0
			for range waiters {
				key, n, keep, patience := dice.IntN(names), 1+dice.Int64N(10), dice.Int64N(20), time.Duration(1<<62)
				ctx, cancel := t.Context(), context.CancelFunc(func() {})
				switch dice.IntN(5) {
				case 0:
					ctx, cancel = context.WithTimeout(ctx, upTo(100))
				case 1:
					ctx, cancel = context.WithCancel(ctx)
					time.AfterFunc(upTo(100), cancel)
				case 2:
					patience = upTo(50)
				}
				mu.Lock()
				number := len(ends[key])
				ends[key] = append(ends[key], 0)
				mu.Unlock()
				calls++
				all.Go(func() {
					defer cancel()
					r, err := e.Acquire(ctx, key, n, patience)
					mu.Lock()
					if err != nil {
						failed++
						assert.True(t, !r.Allowed && r.RetryAfter > 0, "%v: %+v", err, r.Decision)
					} else {
						ends[key][number] = time.Since(began)
					}
					mu.Unlock()
					r.Keep(keep)
				})
				synctest.Wait()
				switch dice.IntN(40) {
				case 0:
					e.Refund(key, 1+dice.Int64N(20))
				case 1:
					e.Refund(key, -1-dice.Int64N(20))
				case 2:
					e.Reset(key)
				case 3:
					e.Choke(key)
					calls++
				case 4:
					e.TakeWith(p, key, 1+dice.Int64N(3))
					calls++
				case 5:
					assert.NoError(t, e.SetPolicy(p))
				}
				if dice.IntN(4) == 0 {
					time.Sleep(upTo(10))
				}
			}
			all.Wait()
			for key := range names {
				last := time.Duration(0)
				for _, end := range ends[key] {
					if end > 0 {
						require.GreaterOrEqual(t, end, last, "%v: a call overtook another", p)
						last = end
					}
				}
			}
			assert.Positive(t, failed)
			s := e.Stats()
			assert.Equal(t, calls, s.Admitted+s.Refused, fmt.Sprint(p))
			noLines(t, e)
		})
	}
}

// Units given back while the head's turn is far off are not used before it, and may be lost by
// then: a bucket runs over. A later call is still told its turn.
func TestTurnsAreToldRightAfterRoomCameBack(t *testing.T) {
	for _, p := range limitstest.Policies() {
		for _, back := range []string{"Reset", "Refund", "Keep"} {
			synctest.Test(t, func(t *testing.T) {
				l := inLine{e: open[string](t, Config{Policy: p}), began: time.Now()}
				used, refunded, units := int64(10), int64(12), []int64{0, 2, 6, 1, 2}
				if strings.HasPrefix(p.String(), "queue") {
					// There is room for all calls.
					used, refunded, units = 1, 3, []int64{0, 1, 2, 1}
				}
				r := l.e.Reserve("key", used, 0)
				l.wait(t, 0, 5)
				time.Sleep(700 * time.Millisecond)
				switch back {
				case "Reset":
					l.e.Reset("key")
				case "Refund":
					l.e.Refund("key", refunded)
				case "Keep":
					r.Keep(1)
				}
				var forecasts [len(l.ends)]time.Duration
				for i, n := range units {
					if n > 0 {
						forecasts[i] = time.Since(l.began) + toWait(t, l.e, n)
						l.wait(t, i, n)
					}
				}
				l.all.Wait()
				assert.Equal(t, forecasts[1:], l.ends[1:], "%v, %s", p, back)
			})
		}
	}
}

// toWait is the time that a call that comes now would wait in line: its error says so.
func toWait(t *testing.T, e *Engine[string], n int64) (wait time.Duration) {
	_, err := e.Acquire(background, "key", n, 0)
	require.ErrorIs(t, err, ErrDeadline)
	_, text, _ := strings.Cut(err.Error(), "deadline: ")
	text, _, _ = strings.Cut(text, " to wait")
	wait, err = time.ParseDuration(text)
	require.NoError(t, err)
	return wait
}
