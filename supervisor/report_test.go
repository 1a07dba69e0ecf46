package supervisor

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestReportsAreToldOfOnce: failures in a row are a single event, with the first error, and so are
// successes, even across a restart. Children are reported separately.
//
// Promise: Repeated failure of work is one event, its recovery another.
func TestReportsAreToldOfOnce(t *testing.T) {
	in(t, func(t *testing.T) {
		second := errors.New("second")
		tell := map[string]chan error{"a": make(chan error), "b": make(chan error)}
		dies := errors.New("dies")
		child := func(name string) Child {
			return Child{Name: name, Run: func(ctx context.Context) error {
				sub, cancel := context.WithTimeout(ctx, time.Hour)
				defer cancel()
				for {
					select {
					case err := <-tell[name]:
						if errors.Is(err, dies) {
							return err
						}
						Report(sub, err)
					case <-ctx.Done():
						return nil
					}
				}
			}}
		}
		var events []Event
		s, err := New(Config{Name: "top", Intensity: 1, OnEvent: func(e Event) {
			if e.Kind == ChildFailing || e.Kind == ChildRecovered {
				e.Time = time.Time{}
				events = append(events, e)
			}
		}}, child("a"), child("b"))
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		running := s.Start(ctx)
		synctest.Wait()
		for range 100 {
			tell["a"] <- nil
		}
		synctest.Wait()
		require.Empty(t, events, "all is well")
		tell["a"] <- errBoom
		for range 3000 {
			tell["a"] <- second
		}
		tell["a"] <- dies
		tell["a"] <- second
		tell["b"] <- second
		synctest.Wait()
		tell["a"] <- nil
		tell["a"] <- nil
		tell["a"] <- errBoom
		synctest.Wait()
		require.Equal(t, []Event{
			{Kind: ChildFailing, Supervisor: "top", Child: "a", Err: errBoom},
			{Kind: ChildFailing, Supervisor: "top", Child: "b", Err: second},
			{Kind: ChildRecovered, Supervisor: "top", Child: "a"},
			{Kind: ChildFailing, Supervisor: "top", Child: "a", Err: errBoom},
		}, events)
		cancel()
		<-running.Done()
		require.NoError(t, running.Err())
		require.EqualValues(t, 1, s.Restarts())
	})
}

func TestReportElsewhereDoesNothing(t *testing.T) {
	Report(context.Background(), errBoom)
	in(t, func(t *testing.T) {
		late := make(chan struct{})
		var kinds []Kind
		s, err := New(Config{OnEvent: func(e Event) { kinds = append(kinds, e.Kind) }}, Child{
			Name: "a", Shutdown: 1,
			Run: func(ctx context.Context) error {
				<-late
				Report(ctx, errBoom)
				return nil
			},
		})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		running := s.Start(ctx)
		synctest.Wait()
		cancel()
		<-running.Done()
		close(late)
		synctest.Wait()
		require.Equal(t, []Kind{ChildStarted, ChildAbandoned, AbandonedEnded}, kinds)
	})
}
