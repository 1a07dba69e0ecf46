package engine

import (
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/policy"
)

// Promise: `Close` leaves no goroutine of the engine.
func TestNewUseCloseLeavesNoGoroutine(t *testing.T) {
	before := runtime.NumGoroutine()
	for i := range 1000 {
		e, err := New[int](Config{Policy: funnel(1, 1, time.Second), MaxKeys: 100})
		require.NoError(t, err)
		for key := range 20 {
			require.True(t, e.Choke(key+i))
		}
		require.NoError(t, e.Close())
		// A goroutine that is done may still have to run its last instruction.
		must.Await(t, func() bool { return runtime.NumGoroutine() <= before }, "no goroutine is left of round %d", i)
	}
}

// In a bubble a call that blocked would fail the test, and a call that slept would move the clock.
//
// Promise: After `Close` calls neither block nor panic; `WhenUnavailable` answers.
func TestClosedEngineAnswers(t *testing.T) {
	for _, when := range []WhenUnavailable{Admit, Refuse} {
		t.Run(fmt.Sprint(when), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := open[string](t, Config{
					Policy: funnel(2, 1, time.Hour), WhenUnavailable: when,
				})
				require.True(t, e.Take("known", 2).Allowed)
				synctest.Wait()
				require.NoError(t, e.Health())
				require.NoError(t, e.Close())
				require.NoError(t, e.Close(), "a second Close is an error")
				require.ErrorIs(t, e.Health(), ErrClosed)

				closed := time.Now()
				before := e.Stats()
				for _, key := range []string{"known", "new"} {
					assert.Equal(t, when == Admit, e.Choke(key))
					assert.Equal(t, when == Admit, e.Take(key, 2).Allowed)
					assert.Equal(t, policy.Never, e.Take(key, 3).RetryAfter)
					assert.Equal(t, policy.Never, e.Take(key, -1).RetryAfter)
					assert.True(t, e.Take(key, 0).Allowed)
					assert.True(t, e.Peek(key, 0).Allowed)
				}
				assert.Equal(t, closed, time.Now(), "a call waited for the closed engine")
				assert.Zero(t, e.Len())
				s := e.Stats()
				assert.EqualValues(t, before.Unavailable+4, s.Unavailable)
				assert.EqualValues(t, before.Admitted+before.Refused+8, s.Admitted+s.Refused)
			})
		})
	}
}

// The writer does not come back from a fault point. Close gives it up in time.
//
// Promise: `Close` reports a goroutine that never ends.
func TestCloseReportsAStuckWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		e, err := New[string](Config{Policy: funnel(1, 1, time.Second), fault: func(point string) {
			if point == "file: begin" {
				<-release
			}
		}})
		require.NoError(t, err)
		require.True(t, e.Choke("new"))
		synctest.Wait()
		begin := time.Now()
		require.ErrorIs(t, e.Close(), ErrAbandoned)
		assert.Equal(t, shutdown, time.Since(begin))
		assert.Equal(t, 1, e.Stats().Abandoned)
		close(release)
		synctest.Wait()
		require.NoError(t, e.Close(), "Close must return nil once the goroutine has ended")
	})
}
