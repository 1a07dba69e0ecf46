package supervisor

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestLateChildIsAbandoned: the limit holds, an abandoned child is counted and reported, also when
// it ends, and the others are still stopped.
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

// TestChildContext: it has the values of Run's, without cancellation or deadline, and is cancelled
// when the child has ended.
func TestChildContext(t *testing.T) {
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
