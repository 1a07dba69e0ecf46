package guard

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// halting is a server that answers at once, or when its halt ends.
type halting struct {
	mu    sync.Mutex
	until time.Time
	calls atomic.Int64
}

func (h *halting) halt(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.until = time.Now().Add(d)
}

func (h *halting) call(context.Context) (int64, error) {
	n := h.calls.Add(1)
	h.mu.Lock()
	until := h.until
	h.mu.Unlock()
	time.Sleep(time.Until(until)) // wall: in bubbles alone
	return n, nil
}

func callFor(g guarded, callers int, d time.Duration, call func(context.Context) (int64, error)) (answered, late, unasked int) {
	var mu sync.Mutex
	var all sync.WaitGroup
	for end := time.Now().Add(d); callers > 0; callers-- {
		all.Go(func() {
			for time.Now().Before(end) {
				_, err := g.do(context.Background(), call)
				mu.Lock()
				switch {
				case errors.Is(err, ErrOpen):
					unasked++
				case err != nil:
					late++
				default:
					answered++
				}
				mu.Unlock()
				time.Sleep(time.Millisecond)
			}
		})
	}
	all.Wait()
	return answered, late, unasked
}

// A server with some answers in time stays closed, however many budgets are spent.
func TestLateAnswersAreLife(t *testing.T) {
	inBubble(t, func(t *testing.T, g guarded) {
		var n atomic.Int64
		answered, late, unasked := callFor(g, 8, 2*time.Second, func(context.Context) (int64, error) {
			if n.Add(1)%20 != 0 {
				time.Sleep(2 * budget)
			}
			return 0, nil
		})
		require.Zero(t, unasked)
		require.Zero(t, g.Openings())
		require.NotZero(t, answered)
		require.Greater(t, late, 2*answered)
	})
}

// A halt shorter than Silence opens nothing. A longer halt opens once, until late answers arrive.
func TestOnlyALongHaltOpensTheBreaker(t *testing.T) {
	inBubble(t, func(t *testing.T, g guarded) {
		h := &halting{}
		for _, d := range []time.Duration{silence / 2, silence * 9 / 10} {
			h.halt(d)
			_, late, unasked := callFor(g, 8, time.Second, h.call)
			require.NotZero(t, late)
			require.Zero(t, unasked)
			require.Zero(t, g.Openings())
		}
		for i, d := range []time.Duration{2 * silence, 9 * silence} {
			h.halt(d)
			_, _, unasked := callFor(g, 8, d-2*budget, h.call)
			require.NotZero(t, unasked)
			require.EqualValues(t, i+1, g.Openings())
			require.True(t, isOpen(g.Guard))
			time.Sleep(3 * budget)
			answered, late, unasked := callFor(g, 8, time.Second, h.call)
			require.NotZero(t, answered)
			require.Zero(t, late)
			require.Less(t, unasked, 8, "while the probe is asked")
			require.EqualValues(t, i+1, g.Openings())
		}
	})
}

// Callers of a silent server ask for Silence and a tick at most.
func TestSilenceOpens(t *testing.T) {
	inBubble(t, func(t *testing.T, g guarded) {
		// A time in which nothing was asked is no silence.
		time.Sleep(time.Hour)
		s := &server{takes: hang}
		begun := time.Now()
		for !isOpen(g.Guard) {
			require.ErrorIs(t, s.ask(t, g), ErrBudget)
		}
		require.InDelta(t, silence, time.Since(begun), float64(silence/10+budget))
		require.ErrorIs(t, s.ask(t, g), ErrSilent)
	})
}

// A server whose answers all come far too late is not asked, and late answers do not reopen it.
func TestLatencyIsSilence(t *testing.T) {
	inBubble(t, func(t *testing.T, g guarded) {
		s := &server{takes: 3 * silence / 2}
		_, late, _ := callFor(g, 8, 3*time.Second, s.call)
		require.LessOrEqual(t, late, 8*int(2*silence/budget)+8)
		require.True(t, isOpen(g.Guard))
		require.EqualValues(t, 1, g.Openings())
		answered, _, _ := callFor(g, 8, time.Second, (&server{}).call)
		require.NotZero(t, answered)
		require.False(t, isOpen(g.Guard))
	})
}

// A server that is always a little late opens too, even if some callers have their answers.
func TestSlowServerOpens(t *testing.T) {
	inBubble(t, func(t *testing.T, g guarded) {
		s := &server{takes: 2 * budget}
		_, _, unasked := callFor(g, 8, 4*silence, s.call)
		require.Zero(t, unasked)
		callFor(g, 8, 2*time.Second, s.call)
		open, why := g.Open()
		require.True(t, open)
		require.ErrorIs(t, why, ErrOpen)
		require.ErrorIs(t, why, ErrSlow)
		require.EqualValues(t, 1, g.Openings())
		callFor(g, 8, time.Second, (&server{takes: budget / 2}).call)
		require.False(t, isOpen(g.Guard))
	})
}

func TestConnectionLossIsOneFailure(t *testing.T) {
	inBubble(t, func(t *testing.T, g guarded) {
		s := &server{takes: time.Millisecond, err: errDown}
		for range 2 {
			var all sync.WaitGroup
			for range 64 {
				all.Go(func() { assert.ErrorIs(t, s.ask(t, g), errDown) })
			}
			all.Wait()
			require.False(t, isOpen(g.Guard))
		}
		require.ErrorIs(t, s.ask(t, g), errDown)
		require.True(t, isOpen(g.Guard))
	})
}

// Promise: A server short of processors keeps a Redis that answers.
func TestTicksAreNotTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatch(silence, budget)
		s := w.send(budget)
		for range silentTicks - 1 {
			time.Sleep(time.Hour)
			require.NoError(t, w.step(false))
			require.False(t, w.stale(s))
		}
		require.ErrorIs(t, w.step(false), ErrSilent)
		require.True(t, w.stale(s))

		later := w.send(budget)
		w.hear(later)
		w.receive(later)
		require.NoError(t, w.step(true))
		w.hear(s)
		w.receive(s)

		// Late answers count against the server only if ticks are punctual.
		late := func() {
			s := w.send(budget)
			time.Sleep(2 * budget)
			w.hear(s)
			w.receive(s)
		}
		for range 3 * slowTicks {
			late()
			require.NoError(t, w.step(false))
		}
		// The late answers count only as long as none is in time.
		for range 3 {
			for range slowTicks - 1 {
				late()
				require.NoError(t, w.step(true))
			}
			s := w.send(budget)
			w.hear(s)
			w.receive(s)
			require.NoError(t, w.step(true))
		}
		for range slowTicks - 1 {
			late()
			require.NoError(t, w.step(true))
			require.NoError(t, w.step(false))
		}
		late()
		require.ErrorIs(t, w.step(true), ErrSlow)
	})
}

func TestWatchEndsWhenIdle(t *testing.T) {
	inBubble(t, func(t *testing.T, g guarded) {
		for range 3 {
			require.NoError(t, (&server{}).ask(t, g))
			require.True(t, g.watch.running.Load())
			time.Sleep(silence * (idleTicks + 2) / silentTicks)
			require.False(t, g.watch.running.Load())
		}
		s := &server{takes: hang}
		_ = s.ask(t, g)
		time.Sleep(silence * (silentTicks + 2) / silentTicks)
		require.True(t, isOpen(g.Guard))
	})
}

// Answers later than their callers serve no other call, even once the link is fast. Unused gives
// each of them once, without errors.
// Promise: Redis decides each call while it is under way.
func TestAnswersAreDecidedWhileTheCallIsUnderWay(t *testing.T) {
	inBubbleOf(t, Config{}, func(t *testing.T, g *Guard) {
		var takes, given atomic.Int64
		b := NewBatch(g, func(_ context.Context, asks []string, reply func(int, time.Time, error)) {
			decided := time.Now()
			time.Sleep(time.Duration(takes.Load()))
			for i, ask := range asks {
				if ask == "bad" {
					reply(i, decided, errKey)
					continue
				}
				given.Add(1)
				reply(i, decided, nil)
			}
		})
		late := 0
		for _, ask := range []string{"hot", "bad"} {
			for i := range 20 {
				takes.Store(int64(budget * 9 / 8))
				if i >= 10 {
					takes.Store(1)
				}
				begun := time.Now()
				decided, err := b.Do(t.Context(), ask)
				switch {
				case errors.Is(err, ErrBudget):
					late++
				case ask == "hot":
					require.NoError(t, err)
					require.False(t, decided.Before(begun), "decided %v before the call", begun.Sub(decided))
				}
			}
		}
		require.Equal(t, 20, late)
		time.Sleep(2 * budget)
		for _, want := range []int{10, 0} {
			unused := 0
			b.Unused(func(ask string, _ time.Time) {
				require.Equal(t, "hot", ask)
				unused++
			})
			require.Equal(t, want, unused)
		}
		require.EqualValues(t, 20, given.Load())
	})
}

func TestUnusedAnswersAreBounded(t *testing.T) {
	b := &Batch[int, int]{}
	for i := range 2 * maxUnused {
		b.keepUnused(i, i)
	}
	n := 0
	b.Unused(func(int, int) { n++ })
	require.Equal(t, maxUnused, n)
}
