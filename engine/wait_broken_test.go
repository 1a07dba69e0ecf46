package engine

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/table"
)

// sweep is a command to die of, and otherwise harmless.
func sweep[K comparable]() table.Command[K] { return table.SweepCommand[K](1, 0, nil) }

// giveUp has the engine's writer die until it is given up.
func giveUp[K comparable](e *Engine[K], f *faults) {
	f.arm("writer: begin", -1)
	f.arm("writer: received", -1)
	e.queue.TrySend(sweep[K]())
	for e.writing() {
		time.Sleep(time.Millisecond)
	}
}

// failing returns an engine whose writer was given up, after before has run.
func failing[K comparable](t *testing.T, config Config, before func(e *Engine[K])) *Engine[K] {
	t.Helper()
	f := newFaults(false)
	config.Restarts, config.fault = 1, f.at
	e := open[K](t, config)
	before(e)
	settled(t, e)
	giveUp(e, f)
	require.ErrorIs(t, e.Health(), ErrUnhealthy)
	return e
}

// The key's entry goes with the writer while calls wait. They are answered as the configuration
// says at their turn.
func TestWaitWhileTheEngineDegrades(t *testing.T) {
	const waiters = 5
	for when, served := range map[WhenUnavailable]int{Admit: waiters, Refuse: 1} {
		synctest.Test(t, func(t *testing.T) {
			f := newFaults(false)
			e := open[string](t, Config{
				Policy: funnel(1, 1, time.Second), WhenUnavailable: when, MaxKeys: 1, Restarts: 1, fault: f.at,
			})
			require.True(t, e.Choke("key"))
			synctest.Wait()
			errs := make(chan error, waiters)
			for range waiters {
				go func() { errs <- e.Wait(t.Context(), "key", 1) }()
			}
			synctest.Wait()
			require.True(t, e.Choke("other"), "which takes the one place")
			synctest.Wait()
			giveUp(e, f)
			synctest.Wait()
			require.Empty(t, errs, "they wait for the first")
			time.Sleep(time.Minute)
			require.Len(t, errs, waiters)
			for range waiters {
				err := <-errs
				if err == nil {
					served--
					continue
				}
				assert.ErrorIs(t, err, ErrUnavailable)
			}
			assert.Zero(t, served)
			s := e.Stats()
			assert.EqualValues(t, waiters-1, s.Unavailable)
			assert.EqualValues(t, waiters+2, s.Admitted+s.Refused)
			noLines(t, e)
		})
	}
}

// Promise: `Wait` on a new key waits for room in a full table.
func TestNewKeyWaitsForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := open[string](t, Config{Policy: funnel(1, 1, time.Second), MaxKeys: 1, Idle: time.Second, WhenFull: RefuseNew})
		require.True(t, e.Choke("old"))
		synctest.Wait()
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		assert.ErrorIs(t, e.Wait(ctx, "new", 1), context.DeadlineExceeded)
		assert.Equal(t, 500*time.Millisecond, time.Since(start))
		require.NoError(t, e.Wait(t.Context(), "new", 1))
		assert.GreaterOrEqual(t, time.Since(start), 2*time.Second, "the other is idle for a second")
		assert.LessOrEqual(t, time.Since(start), 2*time.Second+defaultOpenTimeout)
		s := e.Stats()
		assert.EqualValues(t, []uint64{2, 1, 0, 0}, []uint64{s.Admitted, s.Refused, s.Full, s.Unavailable})
		assert.False(t, e.Choke("new"), "recorded")
		noLines(t, e)
	})
}

func TestRoomGoesToTheFirstInLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := open[string](t, Config{Policy: funnel(1, 1, time.Second), MaxKeys: 1, Idle: time.Second, WhenFull: RefuseNew})
		require.True(t, e.Choke("old"))
		l := inLine{e: e, key: "new", began: time.Now()}
		// The call comes between the janitor's looks.
		time.Sleep(503 * time.Millisecond)
		l.wait(t, 0, 1)
		for e.Len() > 0 {
			time.Sleep(time.Microsecond)
		}
		free := time.Since(l.began)
		l.wait(t, 1, 1)
		l.all.Wait()
		assert.LessOrEqual(t, l.ends[0], free+10*time.Millisecond)
		assert.Less(t, l.ends[0], l.ends[1])
		noLines(t, e)
	})
}
