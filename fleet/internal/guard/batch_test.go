package guard

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type echo struct {
	takes time.Duration
	err   func(ask int) error

	mu      sync.Mutex
	batches [][]int
}

func (e *echo) call(_ context.Context, asks []int, reply func(i, value int, err error)) {
	e.mu.Lock()
	e.batches = append(e.batches, append([]int(nil), asks...))
	e.mu.Unlock()
	time.Sleep(e.takes) // wall: in bubbles alone
	for i, ask := range asks {
		var err error
		if e.err != nil {
			err = e.err(ask)
		}
		reply(i, ask, err)
	}
}

func (e *echo) sent() [][]int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([][]int(nil), e.batches...)
}

// occupy keeps the guard's only worker busy for d.
func occupy(g *Guard, d time.Duration) {
	go func() {
		_, _ = Do(context.Background(), g, func(context.Context) (int, error) {
			time.Sleep(d)
			return 0, nil
		})
	}()
	synctest.Wait()
}

// A call goes out at once, whatever hangs before it.
func TestLoneCallGoesOutAtOnce(t *testing.T) {
	inBubbleOf(t, Config{}, func(t *testing.T, g *Guard) {
		e := &echo{}
		b := NewBatch(g, e.call)
		begun := time.Now()
		for want := range 5 {
			got, err := b.Do(t.Context(), want)
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
		require.Zero(t, time.Since(begun))
		e.takes = budget
		var all sync.WaitGroup
		for i := range 50 {
			all.Go(func() { _, _ = b.Do(t.Context(), i) })
			synctest.Wait()
			require.Len(t, e.sent(), 5+i+1)
		}
		all.Wait()
	})
}

func TestCallsThatWaitAreSentAsOne(t *testing.T) {
	inBubbleOf(t, Config{MaxInFlight: 1}, func(t *testing.T, g *Guard) {
		e := &echo{err: func(ask int) error {
			if ask%10 == 0 {
				return errKey
			}
			return nil
		}}
		b := NewBatch(g, e.call)
		occupy(g, time.Millisecond)
		var all sync.WaitGroup
		for i := range 2*maxBatch + 5 {
			all.Go(func() {
				got, err := b.Do(t.Context(), i)
				assert.Equal(t, i, got)
				assert.ErrorIs(t, err, e.err(i), "each has its own error")
			})
		}
		all.Wait()
		var sizes []int
		for _, batch := range e.sent() {
			sizes = append(sizes, len(batch))
		}
		require.ElementsMatch(t, []int{maxBatch, maxBatch, 5}, sizes)
	})
}

// Of ten calls that wait for a worker, some are given up. The calls given up are not made, and are
// no failures. The others are sent as one, even if the first was given up.
func TestCallsThatWereGivenUpAreNotSent(t *testing.T) {
	for _, c := range []struct {
		givenUp func(i int) bool
		sent    []int
	}{
		{func(i int) bool { return i%2 == 1 }, []int{0, 2, 4, 6, 8}},
		{func(i int) bool { return i == 0 }, []int{1, 2, 3, 4, 5, 6, 7, 8, 9}},
	} {
		inBubbleOf(t, Config{MaxInFlight: 1}, func(t *testing.T, g *Guard) {
			e := &echo{}
			b := NewBatch(g, e.call)
			occupy(g, 2*time.Millisecond)
			short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			var all sync.WaitGroup
			for i := range 10 {
				all.Go(func() {
					if c.givenUp(i) {
						_, err := b.Do(short, i)
						assert.ErrorIs(t, err, context.DeadlineExceeded)
						return
					}
					got, err := b.Do(t.Context(), i)
					assert.NoError(t, err)
					assert.Equal(t, i, got)
				})
				synctest.Wait()
			}
			all.Wait()
			require.Len(t, e.sent(), 1)
			require.ElementsMatch(t, c.sent, e.sent()[0])
			require.False(t, isOpen(g))
		})
	}
}

// If the server hangs and no worker is left, each call waits for its own budget.
func TestBatchWhenAllAreBusy(t *testing.T) {
	inBubbleOf(t, Config{MaxInFlight: 1}, func(t *testing.T, g *Guard) {
		e := &echo{}
		b := NewBatch(g, e.call)
		occupy(g, hang)
		var all sync.WaitGroup
		for i := range 10 {
			all.Go(func() {
				begun := time.Now()
				_, err := b.Do(t.Context(), i)
				assert.ErrorIs(t, err, ErrBudget)
				assert.ErrorIs(t, err, ErrBusy)
				assert.Equal(t, budget, time.Since(begun))
			})
			time.Sleep(budget / 20)
		}
		all.Wait()
		require.False(t, isOpen(g), "they say nothing of the server")
		time.Sleep(silence)
		require.True(t, isOpen(g), "that one is not answered does")
		time.Sleep(hang)
		got, err := b.Do(t.Context(), 7)
		require.NoError(t, err)
		require.Equal(t, 7, got)
		require.Equal(t, [][]int{{7}}, e.sent())
	})
}

// No call is answered another's question, whether callers give up or come again.
func TestAnswersGoToTheirOwnCalls(t *testing.T) {
	g := New(Config{
		Budget: time.Millisecond, CallTimeout: time.Second, Silence: time.Second, MaxInFlight: 4, Failures: 3,
		Pause: time.Microsecond, MaxPause: 10 * time.Microsecond, Failed: func(error) bool { return true }, Trips: &Trips{}, OnChange: func() {},
	})
	defer g.Close()
	var answered, late atomic.Int64
	b := NewBatch(g, func(_ context.Context, asks []int, reply func(i, value int, err error)) {
		if rand.IntN(4) == 0 {
			time.Sleep(time.Duration(rand.IntN(2000)) * time.Microsecond) // wall: some answers are late, and it is not judged which
		}
		for i, ask := range asks {
			reply(i, ask, nil)
			if rand.IntN(16) == 0 {
				runtime.Gosched()
			}
		}
	})
	var all sync.WaitGroup
	for c := range 16 {
		all.Go(func() {
			for i := range 1000 {
				ctx, cancel := t.Context(), context.CancelFunc(func() {})
				if i%8 == 0 {
					ctx, cancel = context.WithTimeout(ctx, time.Duration(rand.IntN(200))*time.Microsecond) // wall: some calls give up, and it is not judged which
				}
				got, err := b.Do(ctx, c*1000+i)
				cancel()
				switch {
				case err == nil:
					answered.Add(1)
					assert.Equal(t, c*1000+i, got)
				case !errors.Is(err, ErrOpen):
					late.Add(1)
				}
			}
		})
	}
	all.Wait()
	require.NotZero(t, answered.Load())
	require.NotZero(t, late.Load())
}
