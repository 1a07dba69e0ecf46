package supervisor

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Promise: A hook that dies ends only its call.
func TestDyingHookEndsOnlyItsCall(t *testing.T) {
	for way, die := range deaths {
		t.Run(way, func(t *testing.T) {
			in(t, func(t *testing.T) {
				r := start(t, Config{Intensity: 2, OnEvent: func(Event) { die() }}, kid("a"), kid("b"))
				r.journaled("+a +b")
				r.tell("a", fails)
				r.tell("a", panics)
				r.journaled("!a +a !a +a")
				require.EqualValues(t, 2, r.Restarts(), "a hook's death is no restart")
				r.stop()
				r.journaled("-b -a")
				events := r.seen()
				require.Zero(t, kinds(events, OwnFault))
				require.Len(t, events, kinds(events, HookFault)*2, "one HookFault for each other event, and none for itself")
				for _, e := range events {
					if e.Kind == HookFault {
						require.Error(t, e.Err)
					}
				}
			})
		})
	}
}

// TestBlockedHookStopsNothing: events beyond the memory are lost and counted, and Run waits a second for the
// hook.
//
// Promise: A blocked hook stops neither supervision nor `Run`'s end; lost events are counted.
func TestBlockedHookStopsNothing(t *testing.T) {
	in(t, func(t *testing.T) {
		block := make(chan struct{})
		r := start(t, Config{Intensity: 1000, OnEvent: func(Event) { <-block }},
			kid("a"), kid("b").within(1).thatIsDeaf(), kid("c").within(1).thatIsDeaf())
		// Each failure makes three events.
		for range 1000 {
			r.tell("a", fails)
		}
		require.Equal(t, 1, r.running("a"))
		require.EqualValues(t, 1000, r.Restarts())
		require.Equal(t, hookGrace+2, since(r.stop))

		close(block)
		events := r.seen()
		// Another event was in the hook.
		require.Len(t, events, maxPending+1)
		require.Zero(t, events[len(events)-1].Missed)

		r.tell("b", returns)
		first := r.seen()[0]
		require.Equal(t, 3+3*1000+3-len(events), first.Missed)
		require.Contains(t, first.String(), "lost")
		r.tell("c", returns)
		require.Zero(t, r.seen()[0].Missed, "lost events are told twice")
	})
}

func TestEventTextNamesChildAndReason(t *testing.T) {
	e := Event{Kind: ChildExited, Supervisor: "top", Child: "writer", Err: errBoom}
	require.Equal(t, "top/writer: child exited: boom", e.String())
	e = Event{Kind: OwnFault, Supervisor: "top", Err: &PanicError{Value: 1}, Missed: 3}
	require.Equal(t, "top: own fault: panic: 1 (3 events lost before)", e.String())
	for k := ChildStarted; k <= Misuse; k++ {
		require.NotContains(t, k.String(), "Kind")
	}
	require.Equal(t, "child failing", ChildFailing.String())
	require.Equal(t, "Kind(13)", Kind(13).String())
	require.Equal(t, "Kind(-1)", Kind(-1).String())
}
