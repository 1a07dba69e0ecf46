package supervisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/internal/core/seam"
)

func idle(ctx context.Context) error { <-ctx.Done(); return nil }

func TestNewCopiesItsChildren(t *testing.T) {
	list := []Child{{Name: "a", Run: idle}}
	s, err := New(Config{}, list...)
	require.NoError(t, err)
	require.Equal(t, "supervisor", s.cfg.Name)
	require.Zero(t, list[0].Shutdown, "New changes a copy")
	list[0] = Child{}
	require.Equal(t, "a", s.children[0].Name)
}

// Promise: `New` names every bad field, or `Run` works.
func FuzzNew(f *testing.F) {
	f.Add(0, int64(0), "a", "b", int64(0), true)
	f.Add(-1, int64(-1), "", "", int64(-1), false)
	f.Add(-7, int64(0), "a", "b", int64(0), true)
	f.Add(0, int64(-1), "a", "b", int64(0), true)
	f.Add(0, int64(0), "a", "", int64(0), true)
	f.Add(0, int64(0), "a", "b", int64(-1), true)
	f.Add(0, int64(0), "a", "b", int64(0), false)
	f.Add(1<<30, int64(math.MaxInt64), "a", "a", int64(math.MaxInt64), true)
	f.Fuzz(func(t *testing.T, intensity int, period int64, first, second string, shutdown int64, runs bool) {
		cfg := Config{Intensity: intensity, Period: time.Duration(period)}
		child := Child{Name: first, Shutdown: time.Duration(shutdown)}
		if runs {
			child.Run = idle
		}
		var want []string
		bad := func(is bool, field string, value any) {
			if is {
				want = append(want, fmt.Sprintf("%s is %v, want ", field, value))
			}
		}
		bad(intensity < 0, "Config.Intensity", intensity)
		bad(period < 0, "Config.Period", time.Duration(period))
		bad(first == "", `child 0 (""): Name`, `""`)
		bad(!runs, fmt.Sprintf("child 0 (%q): Run", first), "nil")
		bad(shutdown < 0, fmt.Sprintf("child 0 (%q): Shutdown", first), time.Duration(shutdown))
		bad(second == "" || second == first, fmt.Sprintf("child 1 (%q): Name", second), fmt.Sprintf("%q", second))

		s, err := New(cfg, child, Child{Name: second, Run: idle})
		if len(want) > 0 {
			if s != nil || !errors.Is(err, ErrConfig) || strings.Count(err.Error(), ErrConfig.Error()) != len(want) {
				t.Fatalf("%v; want %q", err, want)
			}
			for _, w := range want {
				if !strings.Contains(err.Error(), w) {
					t.Fatalf("%v; want %q", err, w)
				}
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		running := s.Start(ctx)
		cancel()
		<-running.Done()
		if err := running.Err(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestWithoutChildrenKeepsRunning(t *testing.T) {
	in(t, func(t *testing.T) {
		r := start(t, Config{})
		time.Sleep(time.Hour)
		require.Empty(t, r.result)
		r.stop()
	})
}

// Each end of a child has a cause, which the error of a Run without restarts wraps.
//
// Promise: A child may end by error, panic or Goexit.
func TestEveryEndIsRestarted(t *testing.T) {
	for way, c := range map[string]struct {
		order func() error
		cause error
		says  string
	}{
		"error":  {fails, errBoom, "boom"},
		"goexit": {exits, ErrGoexit, ErrGoexit.Error()},
		"return": {returns, ErrIntensity, "returned nil"},
		"panic":  {func() error { panic(errBoom) }, errBoom, "panic: boom"},
	} {
		t.Run(way, func(t *testing.T) {
			in(t, func(t *testing.T) {
				r := start(t, Config{Intensity: 1}, kid("a"))
				r.journaled("+a")
				r.seen()
				r.tell("a", c.order)
				r.journaled("!a +a")
				r.reported("a exited", "a restarting", "a started")
				require.EqualValues(t, 1, r.Restarts())
				r.stop()

				r = start(t, Config{}, kid("a"))
				r.tell("a", c.order)
				err := r.ends()
				require.ErrorIs(t, err, ErrIntensity)
				require.Zero(t, r.Restarts(), "an intensity of zero means none, not a default")
				require.ErrorIs(t, err, c.cause)
				require.ErrorContains(t, err, c.says)
			})
		})
	}
}

// TestRunGivesUpPastTheIntensity: the intensity's restarts take place, and the next restart ends
// all.
//
// Promise: A restart is immediate; more than `Intensity` within `Period` gives up.
func TestRunGivesUpPastTheIntensity(t *testing.T) {
	in(t, func(t *testing.T) {
		r := start(t, Config{Name: "top", Intensity: 2}, kid("a"), kid("b"), kid("c"))
		r.journaled("+a +b +c")
		r.reported("a started", "b started", "c started")
		before := time.Now()
		r.tell("b", fails)
		r.tell("b", fails)
		r.journaled("!b +b !b +b")
		require.Empty(t, r.result)
		for _, e := range r.seen() {
			require.Equal(t, before, e.Time)
		}
		r.tell("b", fails)
		err := r.ends()
		require.ErrorIs(t, err, ErrIntensity)
		require.ErrorIs(t, err, errBoom)
		require.EqualError(t, err, `top: restart intensity exceeded: more than 2 within 5s; last: child "b": boom`)
		r.journaled("!b -c -a")
		r.reported("b exited", "escalated", "c stopped", "a stopped")
		require.EqualValues(t, 2, r.Restarts())
	})
}

// FuzzWindow compares the window with a plain count over everything admitted.
func FuzzWindow(f *testing.F) {
	f.Add(2, int64(10), []byte{0, 0, 10, 1, 9, 11})
	f.Add(0, int64(1), []byte{5})
	f.Add(1, int64(0), []byte{0, 0, 1})
	// The first restart is just inside.
	f.Add(2, int64(60), []byte{0, 0, 59})
	// The first restart is exactly on the edge.
	f.Add(2, int64(60), []byte{0, 0, 60})
	// Both restarts are just outside.
	f.Add(2, int64(60), []byte{0, 0, 61})
	// The window slides on.
	f.Add(2, int64(60), []byte{0, 30, 31, 30, 31, 0})
	// The restarts stay below the limit, and then exceed it.
	f.Add(2, int64(60), []byte{31, 31, 31, 31, 31, 0, 0})
	f.Fuzz(func(t *testing.T, limit int, period int64, gaps []byte) {
		if limit < 0 || period < 0 {
			t.Skip()
		}
		w := window{limit: limit, period: time.Duration(period)}
		now := time.Unix(0, 0)
		var admitted []time.Time
		for _, gap := range gaps {
			now = now.Add(time.Duration(gap))
			within := 0
			for _, at := range admitted {
				if now.Sub(at) <= w.period {
					within++
				}
			}
			require.Equal(t, within+1 > limit, w.full(now))
			if within < limit {
				w.add(now)
				admitted = append(admitted, now)
			}
		}
	})
}

func TestWindowForgets(t *testing.T) {
	w := window{limit: 5, period: time.Second}
	now := time.Now()
	for range 1000 {
		require.False(t, w.full(now))
		w.add(now)
		now = now.Add(time.Second/5 + 1)
	}
	require.LessOrEqual(t, cap(w.restarts), 16)
}

// Failures in a row are a single event, with the first error, and so are successes, even across a
// restart. Children are reported separately, and not once Run has ended.
//
// Promise: Repeated failure of work is one event, its recovery another.
func TestReportsAreToldOfOnce(t *testing.T) {
	second := errors.New("second")
	in(t, func(t *testing.T) {
		r := start(t, Config{Intensity: 1}, kid("a"), kid("b").thatIsDeaf())
		r.reported("a started", "b started")
		r.report("a", nil, nil, nil)
		r.reported()
		r.report("a", errBoom, second, second, second)
		events := r.seen()
		require.Len(t, events, 1)
		require.Equal(t, ChildFailing, events[0].Kind)
		require.Equal(t, errBoom, events[0].Err)
		r.tell("a", fails)
		r.report("a", second)
		r.report("b", second)
		r.reported("a exited", "a restarting", "a started", "b failing")
		r.report("a", nil, nil, errBoom)
		r.reported("a recovered", "a failing")
		r.stop()
		r.report("b", nil)
		r.reported("b abandoned", "a stopped")
	})
	// A report of no child does nothing.
	Report(t.Context(), errBoom)
}

func panicAround(v any) error { panic(v) }

// The reason of a child's end is its error, its panic or ErrGoexit. See TestEveryEndIsRestarted for
// the simple ends.
func TestSpawnTellsEndsApart(t *testing.T) {
	recovers := func() { _ = recover() }
	for name, c := range map[string]struct {
		run func() error
		// reason is nil unless the function panicked.
		reason   error
		panicked any
	}{
		"exits under a recover": {func() error { defer recovers(); return exits() }, ErrGoexit, nil},
		"recovers by itself":    {func() (err error) { defer recovers(); panic("boom") }, nil, nil},
		"panics":                {func() error { return panicAround("boom") }, nil, "boom"},
		"panics with an error":  {func() error { return panicAround(fmt.Errorf("reading: %w", io.ErrUnexpectedEOF)) }, io.ErrUnexpectedEOF, nil},
		"exits during a panic":  {func() error { defer runtime.Goexit(); return panicAround("first") }, ErrGoexit, nil},
		"panics during an exit": {func() error { defer panicAround("second"); return exits() }, nil, "second"}, //nolint:errcheck // it panics
	} {
		t.Run(name, func(t *testing.T) {
			done := make(chan error)
			spawn(seam.Seam{}, c.run, func(reason error) { done <- reason })
			err := <-done
			if c.panicked == nil {
				require.ErrorIs(t, err, c.reason)
				return
			}
			var p *PanicError
			require.ErrorAs(t, err, &p)
			require.Equal(t, c.panicked, p.Value)
			require.EqualError(t, p, fmt.Sprint("panic: ", c.panicked))
			require.Contains(t, string(p.Stack), "panicAround")
		})
	}
}

// TestLateChildIsAbandoned: the limit holds, an abandoned child is counted and reported, also at
// its end, and the others are still stopped.
//
// Promise: `Run` always ends: late children are abandoned and reported.
func TestLateChildIsAbandoned(t *testing.T) {
	for shutdown, want := range map[time.Duration]time.Duration{0: DefaultShutdown, time.Minute: time.Minute, 1: 1} {
		in(t, func(t *testing.T) {
			r := start(t, Config{}, kid("a"), kid("b").within(shutdown).thatIsDeaf(), kid("c"))
			r.journaled("+a +b +c")
			r.seen()
			require.Equal(t, want, since(r.stop))
			r.journaled("-c -b -a")
			require.Equal(t, 1, r.Abandoned())
			r.reported("c stopped", "b abandoned", "a stopped")

			time.Sleep(time.Hour)
			r.tell("b", fails)
			require.Zero(t, r.Abandoned())
			events := r.seen()
			require.Len(t, events, 1)
			require.Equal(t, AbandonedEnded, events[0].Kind)
			require.Equal(t, "b", events[0].Child)
			require.ErrorIs(t, events[0].Err, errBoom)
		})
	}
}

func TestContextIsCancelledBefore(t *testing.T) {
	in(t, func(t *testing.T) {
		r := build(t, Config{}, kid("a"))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.NoError(t, r.Run(ctx))
		r.journaled("")
	})
}

// TestChildContextHasValuesAndNoDeadline: the context has the values of Run's, without cancellation
// or deadline, and is cancelled when the child has ended.
func TestChildContextHasValuesAndNoDeadline(t *testing.T) {
	in(t, func(t *testing.T) {
		type key struct{}
		var runs []context.Context
		s, err := New(Config{Intensity: 1}, Child{
			Name: "a",
			Run: func(ctx context.Context) error {
				runs = append(runs, ctx)
				if len(runs) == 1 {
					return errBoom
				}
				<-ctx.Done()
				return nil
			},
		})
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), key{}, "value"), time.Second)
		defer cancel()
		require.NoError(t, s.Run(ctx))
		require.Len(t, runs, 2)
		for _, ctx := range runs {
			require.Equal(t, "value", ctx.Value(key{}))
			_, limited := ctx.Deadline()
			require.False(t, limited)
			require.ErrorIs(t, ctx.Err(), context.Canceled)
		}
	})
}

// A child's error while it stops is reported, and is no failure.
func TestRunsOnce(t *testing.T) {
	in(t, func(t *testing.T) {
		r := build(t, Config{}, kid("a"), kid("b").thatIsDeaf())
		ctx, cancel := context.WithCancel(t.Context())
		running := r.Start(ctx)
		synctest.Wait()
		require.NoError(t, running.Err())
		require.ErrorIs(t, r.Run(ctx), ErrRunning)
		cancel()
		synctest.Wait()
		r.tell("b", fails)
		<-running.Done()
		require.NoError(t, running.Err())
		r.journaled("+a +b -b !b -a")
		events := r.seen()
		require.Equal(t, ChildStopped, events[2].Kind)
		require.ErrorIs(t, events[2].Err, errBoom)
		require.Zero(t, kinds(events, ChildRestarting))
		require.ErrorIs(t, r.Run(t.Context()), ErrRunning)
		r.journaled("")

		var none context.Context
		refused := build(t, Config{}, kid("a")).Start(none)
		<-refused.Done()
		require.ErrorIs(t, refused.Err(), ErrConfig)
		require.ErrorContains(t, refused.Err(), "nil")
	})
}
