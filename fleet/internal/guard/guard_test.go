package guard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	budget  = 5 * time.Millisecond
	silence = 100 * time.Millisecond
	hang    = time.Second
	pause   = 50 * time.Millisecond
)

var (
	errDown = errors.New("down")
	errKey  = errors.New("about one key")
)

type guarded struct {
	*Guard
	do func(context.Context, func(context.Context) (int64, error)) (int64, error)
	// changes counts the changes of its breaker.
	changes *atomic.Int64
}

func alone(g *Guard) guarded {
	return guarded{Guard: g, do: func(ctx context.Context, call func(context.Context) (int64, error)) (int64, error) {
		return Do(ctx, g, call)
	}}
}

func batched(g *Guard) guarded {
	type call = func(context.Context) (int64, error)
	b := NewBatch(g, func(ctx context.Context, calls []*call, reply func(int, int64, error)) {
		var all sync.WaitGroup
		for i, call := range calls {
			all.Go(func() {
				n, err := (*call)(ctx)
				reply(i, n, err)
			})
		}
		all.Wait()
	})
	return guarded{Guard: g, do: func(ctx context.Context, c call) (int64, error) { return b.Do(ctx, &c) }}
}

// inBubble runs the test in virtual time, with calls alone and in batches.
func inBubble(t *testing.T, test func(t *testing.T, g guarded)) {
	t.Helper()
	for name, as := range map[string]func(*Guard) guarded{"alone": alone, "batched": batched} {
		t.Run(name, func(t *testing.T) {
			var changes atomic.Int64
			inBubbleOf(t, Config{OnChange: func() { changes.Add(1) }}, func(t *testing.T, g *Guard) {
				both := as(g)
				both.changes = &changes
				test(t, both)
			})
		})
	}
}

func inBubbleOf(t *testing.T, c Config, test func(t *testing.T, g *Guard)) {
	t.Helper()
	c.Budget, c.CallTimeout, c.Silence, c.Failures, c.Pause, c.MaxPause = budget, hang, silence, 3, pause, 8*pause
	if c.MaxInFlight == 0 {
		c.MaxInFlight = 100
	}
	if c.OnChange == nil {
		c.OnChange = func() {}
	}
	if c.Trips == nil {
		c.Trips = &Trips{}
	}
	c.Failed = func(err error) bool { return !errors.Is(err, errKey) }
	synctest.Test(t, func(t *testing.T) {
		g := New(c)
		defer g.Close()
		test(t, g)
	})
}

type server struct {
	takes time.Duration
	err   error
	calls atomic.Int64
}

func (s *server) call(ctx context.Context) (int64, error) {
	n := s.calls.Add(1)
	if s.takes <= 0 {
		// In a bubble, Go 1.26's race detector may crash when goroutines select on expired timers.
		return n, s.err
	}
	select {
	case <-time.After(s.takes): // wall: in bubbles alone
		return n, s.err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

func (s *server) ask(t *testing.T, g guarded) error {
	t.Helper()
	begun := time.Now()
	_, err := g.do(t.Context(), s.call)
	assert.LessOrEqual(t, time.Since(begun), budget) // wall: in bubbles alone
	return err
}

// A caller gives its call up when the budget is spent, and the call goes on by itself. Only Close
// waits for a call that does not heed its context; other calls end with it.
func TestCallIsGivenUpAtItsBudget(t *testing.T) {
	inBubble(t, func(t *testing.T, g guarded) {
		ended := make(chan time.Duration, 1)
		begun := time.Now()
		_, err := g.do(t.Context(), func(ctx context.Context) (int64, error) {
			<-ctx.Done()
			ended <- time.Since(begun)
			return 0, ctx.Err()
		})
		require.ErrorIs(t, err, ErrBudget)
		require.Equal(t, budget, time.Since(begun))
		require.Equal(t, hang, <-ended)
		// The answer closes the breaker.
		require.NoError(t, (&server{}).ask(t, g))

		deaf := func(context.Context) (int64, error) {
			time.Sleep(time.Minute)
			return 0, nil
		}
		begun = time.Now()
		_, err = g.do(t.Context(), deaf)
		require.ErrorIs(t, err, ErrBudget)
		under, closed := make(chan error), make(chan struct{})
		go func() {
			_, err := g.do(t.Context(), deaf)
			under <- err
		}()
		synctest.Wait()
		go func() {
			g.Close()
			close(closed)
		}()
		assert.ErrorIs(t, <-under, ErrClosed)
		assert.Equal(t, budget, time.Since(begun))
		<-closed
		assert.Equal(t, time.Minute+budget, time.Since(begun))
	})
}

func TestDoWithinKeepsItsOwnBudget(t *testing.T) {
	inBubbleOf(t, Config{}, func(t *testing.T, g *Guard) {
		s := &server{takes: 3 * budget}
		_, err := DoWithin(t.Context(), g, 4*budget, s.call)
		require.NoError(t, err)
		begun := time.Now()
		_, err = DoWithin(t.Context(), g, 2*budget, s.call)
		require.ErrorIs(t, err, ErrBudget)
		require.Equal(t, 2*budget, time.Since(begun))
	})
}

func TestEndedContextIsNoFailure(t *testing.T) {
	inBubble(t, func(t *testing.T, g guarded) {
		mine := errors.New("mine")
		s := &server{takes: hang}
		// None of these calls counts as a failure.
		for range 10 {
			ctx, cancel := context.WithTimeoutCause(t.Context(), budget/2, mine)
			begun := time.Now()
			_, err := g.do(ctx, s.call)
			require.Equal(t, mine, err)
			require.Equal(t, budget/2, time.Since(begun))
			_, err = g.do(ctx, s.call)
			require.Equal(t, mine, err)
			cancel()
		}
		require.EqualValues(t, 10, s.calls.Load(), "a call whose context has ended is not made")
		open, _ := g.Open()
		require.False(t, open)
	})
}

func isOpen(g *Guard) bool {
	synctest.Wait()
	open, _ := g.Open()
	return open
}

// Promise: Three failures open the breaker; it closes by itself.
func TestThreeFailuresOpenTheBreaker(t *testing.T) {
	inBubble(t, func(t *testing.T, g guarded) {
		s := &server{}
		expectOpen := func(want bool) {
			t.Helper()
			open, why := g.Open()
			require.Equal(t, want, open)
			if want {
				require.ErrorIs(t, why, ErrOpen)
			}
		}
		// An answer about one key is no failure.
		for _, s.err = range slices.Repeat([]error{errDown, errDown, nil, errDown, errKey}, 10) {
			require.Equal(t, s.err, s.ask(t, g))
		}
		expectOpen(false)

		open := func() {
			t.Helper()
			s.err = errDown
			for range 3 {
				expectOpen(false)
				require.NotErrorIs(t, s.ask(t, g), ErrOpen)
			}
			expectOpen(true)
		}
		open()
		require.EqualValues(t, 1, g.Openings())
		require.EqualValues(t, 1, g.changes.Load())

		// Now only probes reach the server. Each pause doubles, up to the longest.
		asked := s.calls.Load()
		for _, rest := range []time.Duration{pause, 2 * pause, 4 * pause, 8 * pause, 8 * pause} {
			time.Sleep(rest - 1)
			err := s.ask(t, g)
			require.ErrorIs(t, err, ErrOpen)
			require.ErrorIs(t, err, errDown, "it says why")
			require.Equal(t, asked, s.calls.Load())
			time.Sleep(1)
			require.NotErrorIs(t, s.ask(t, g), ErrOpen)
			require.Equal(t, asked+1, s.calls.Load())
			require.ErrorIs(t, s.ask(t, g), ErrOpen)
			asked++
		}

		// The breaker closes by itself, and the pauses start anew.
		for _, rest := range []time.Duration{8 * pause, pause} {
			time.Sleep(rest)
			s.err = nil
			require.NoError(t, s.ask(t, g))
			expectOpen(false)
			if rest > pause {
				require.EqualValues(t, 2, g.changes.Load())
				open()
			}
		}
		require.EqualValues(t, 2, g.Openings())
	})
}

// An explanation holds until the next, or until the breaker closes. Failure never returns it.
func TestExplanationsDoNotNest(t *testing.T) {
	inBubble(t, func(t *testing.T, g guarded) {
		why := func() error {
			_, why := g.Open()
			require.ErrorIs(t, why, ErrOpen)
			return why
		}
		g.Explain(errors.New("early"))
		require.NoError(t, g.Failure())
		s := g.fail(t)
		require.NotContains(t, why().Error(), "early", "the breaker was closed")
		for i := range 20 {
			require.Equal(t, errDown, g.Failure())
			g.Explain(fmt.Errorf("explained (%w)", g.Failure()))
			require.ErrorIs(t, why(), errDown)
			require.Equal(t, 1, strings.Count(why().Error(), "explained"), "after %d probes: %v", i, why())
			require.Equal(t, why(), s.ask(t, g), "calls are told the same")
			time.Sleep(8 * pause)
			require.Equal(t, errDown, s.ask(t, g), "the probe")
		}

		s.err = errors.New("other")
		time.Sleep(8 * pause)
		require.Equal(t, s.err, s.ask(t, g))
		require.NotErrorIs(t, why(), s.err, "it is explained")
		require.Equal(t, s.err, g.Failure())
		g.Explain(nil)
		require.ErrorIs(t, why(), s.err)
		require.NotContains(t, why().Error(), "explained")

		g.Explain(errors.New("explained"))
		s.err = nil
		time.Sleep(8 * pause)
		require.NoError(t, s.ask(t, g))
		require.NoError(t, g.Failure(), "it is closed")
		g.fail(t)
		require.ErrorIs(t, why(), errDown)
		require.NotContains(t, why().Error(), "explained", "that was another outage")
	})
}

// fail has calls fail until the breaker is open, and returns their server.
func (g guarded) fail(t *testing.T) *server {
	t.Helper()
	s := &server{err: errDown}
	for range 3 {
		require.ErrorIs(t, s.ask(t, g), errDown)
	}
	require.True(t, isOpen(g.Guard))
	return s
}

// When the server stops under many calls, the breaker opens once. Probes run alone, and later
// reports change nothing.
func TestBreakerOpensOnceAmongManyCalls(t *testing.T) {
	inBubble(t, func(t *testing.T, g guarded) {
		s := &server{takes: hang}
		var all sync.WaitGroup
		for range 64 {
			all.Go(func() { assert.ErrorIs(t, s.ask(t, g), ErrBudget) })
		}
		all.Wait()
		require.Zero(t, g.Openings())
		time.Sleep(silence)
		require.EqualValues(t, 1, g.Openings())

		asked := s.calls.Load()
		time.Sleep(pause)
		for range 64 {
			all.Go(func() { assert.Error(t, s.ask(t, g)) })
		}
		all.Wait()
		require.EqualValues(t, asked+1, s.calls.Load())
		require.EqualValues(t, 1, g.Openings())
	})
}

// An answer after the breaker opened closes it, whenever its call was made.
func TestAnswerOfAnEarlierEraIsLife(t *testing.T) {
	inBubble(t, func(t *testing.T, g guarded) {
		slow := make(chan error)
		go func() { slow <- (&server{takes: 2 * budget}).ask(t, g) }()
		synctest.Wait()
		g.fail(t)
		require.ErrorIs(t, <-slow, ErrBudget)
		require.True(t, isOpen(g.Guard))
		time.Sleep(budget)
		require.False(t, isOpen(g.Guard))
	})
}

// A probe's answer counts even if its caller has gone. After a probe that hangs, another is made.
func TestProbeThatIsGivenUp(t *testing.T) {
	inBubble(t, func(t *testing.T, g guarded) {
		s := g.fail(t)
		s.err, s.takes = nil, 2*time.Millisecond
		time.Sleep(pause)
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, err := g.do(ctx, s.call)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.True(t, isOpen(g.Guard))
		time.Sleep(time.Millisecond)
		require.False(t, isOpen(g.Guard))

		g.fail(t)
		time.Sleep(pause)
		s.takes = hang
		require.ErrorIs(t, s.ask(t, g), ErrBudget)
		time.Sleep(2 * pause)
		require.NoError(t, (&server{}).ask(t, g))
		require.False(t, isOpen(g.Guard))
	})
}

func TestCloseEndsCallsUnderWay(t *testing.T) {
	inBubble(t, func(t *testing.T, g guarded) {
		s := &server{takes: 2 * time.Millisecond}
		under := make(chan error)
		for range 8 {
			go func() {
				_, err := g.do(t.Context(), s.call)
				under <- err
			}()
		}
		synctest.Wait()
		begun := time.Now()
		g.Close()
		require.Zero(t, time.Since(begun), "the contexts of those under way end")
		for range 8 {
			require.Error(t, <-under)
		}
		require.ErrorIs(t, s.ask(t, g), ErrClosed)
		// A second Close does nothing.
		g.Close()
		require.EqualValues(t, 8, s.calls.Load())
	})
}

// Only some idle workers stay.
func TestWorkersAreKept(t *testing.T) {
	inBubbleOf(t, Config{MaxInFlight: 1000}, func(t *testing.T, g *Guard) {
		s := &server{takes: time.Millisecond}
		for range 3 {
			var all sync.WaitGroup
			for range 500 {
				all.Go(func() { assert.NoError(t, s.ask(t, alone(g))) })
			}
			all.Wait()
			synctest.Wait()
			require.Len(t, g.slots, idlers)
			require.Len(t, g.idle, idlers)
		}
	})
}

// Trips counts answered calls with their time, failed calls apart, and unsent calls in neither.
func TestTripsAreCounted(t *testing.T) {
	var trips Trips
	inBubbleOf(t, Config{Trips: &trips}, func(t *testing.T, g *Guard) {
		for _, as := range []func(*Guard) guarded{alone, batched} {
			trips = Trips{}
			both := as(g)
			counted := func(s *server, want error, answered uint64, took time.Duration, failed uint64) {
				t.Helper()
				require.ErrorIs(t, s.ask(t, both), want)
				synctest.Wait()
				a, d, f := trips.Read()
				require.Equal(t, []any{answered, took, failed}, []any{a, d, f})
			}
			const ms = time.Millisecond
			counted(&server{takes: 2 * ms}, nil, 1, 2*ms, 0)
			// The error is an answer.
			counted(&server{takes: ms, err: errKey}, errKey, 2, 3*ms, 0)
			both.fail(t)
			require.False(t, g.Probing())
			// The call was not sent.
			counted(&server{}, ErrOpen, 2, 3*ms, 3)
			time.Sleep(pause)
			probed := make(chan error)
			go func() { probed <- (&server{takes: ms}).ask(t, both) }()
			synctest.Wait()
			require.True(t, g.Probing())
			require.NoError(t, <-probed)
			counted(&server{}, nil, 4, 4*ms, 3)
			require.False(t, g.Probing())
			require.False(t, isOpen(g))
		}
	})
}
