package fleet

import (
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/fleet/internal/redistest"
	"github.com/ral-limiter/ral/limits"
)

// faults are all ways of breaking a line, each as a sequence of weathers.
var faults = []struct {
	name    string
	weather []redistest.Weather
}{
	{"late answers", []redistest.Weather{{Answers: 450 * time.Millisecond}}},
	{"late asks", []redistest.Weather{{Asks: 450 * time.Millisecond}}},
	{"still", []redistest.Weather{still}},
	{"mute", []redistest.Weather{{Mute: true}}},
	{"reset", []redistest.Weather{{Short: 1}}},
	{"answers cut short", []redistest.Weather{{Short: 10}}},
	{"gone", []redistest.Weather{gone}},
	{"black hole", []redistest.Weather{hole}},
	{"black hole while dialing", []redistest.Weather{gone, hole}},
}

var hole = redistest.Weather{Hole: true}

// TestNoCallWaitsBeyondItsBudget breaks the line between a limiter and Redis in all ways of faults, repeatedly:
//
//  1. no call takes longer than its budget;
//  2. failing or unanswered calls open the breaker: few ask in vain, the others do not wait;
//  3. every call is answered by the fallback, which says why;
//  4. the breaker closes by itself when the line is mended, and calls are exact again.
//
// Promise: No call waits for Redis beyond its budget.
func TestNoCallWaitsBeyondItsBudget(t *testing.T) {
	const rounds = 3
	inBubbleOf(t, shared, func(t *testing.T, line *redistest.Line) {
		c := over(line, funnel(1000, 1000, time.Second))
		c.Budget = 25 * time.Millisecond
		// After dead the client gives a connection up.
		const dead = 100 * time.Millisecond
		c.Redis.Dialer, c.Redis.ConnWriteTimeout = net.Dialer{Timeout: dead, KeepAlive: dead}, dead
		l := open(t, c)
		keys := 0
		call := func() (limits.Answer, time.Duration) {
			keys++
			begun := time.Now()
			a := take(t, l, canary+fmt.Sprint(keys%100), 1)
			return a, time.Since(begun)
		}
		for range rounds {
			for _, fault := range faults {
				for _, w := range fault.weather {
					line.Set(w)
				}
				failed := 0
				for tripped := 0; tripped < 100; {
					a, took := call()
					require.Equal(t, limits.SourceShare, a.Source(), fault.name)
					require.ErrorIs(t, a.Err(), ErrOutage, fault.name)
					require.LessOrEqual(t, took, c.Budget, fault.name)
					switch {
					case errors.Is(a.Err(), ErrBreakerOpen):
						require.Zero(t, took, "%s: a call must not wait for a server that is not asked", fault.name)
						tripped++
						time.Sleep(time.Millisecond)
					case tripped == 0:
						failed++
					}
				}
				// Three failures open it. The client sees a late ping first, then late
				// dials.
				require.LessOrEqual(t, failed, int((failures+2)*dead/c.Budget), "%s: too many calls asked in vain before the breaker opened", fault.name)
				require.ErrorIs(t, l.Health(), ErrOutage, fault.name)
				line.Set(well)
				mended := time.Now()
				eventually(t, func() bool { return l.Health() == nil }, fault.name)
				require.LessOrEqual(t, time.Since(mended), time.Second, "%s: the breaker must close by itself within a second", fault.name)
				for range 3 {
					a, _ := call()
					require.Equal(t, limits.SourceRedis, a.Source(), "%s: %v", fault.name, a.Err())
				}
			}
		}
	})
}

// Without Config.Servers a limiter that starts without Redis refuses and names that field; with it,
// its share begins with nothing and comes back.
func TestRedisIsAwayAtTheStart(t *testing.T) {
	inBubbleOf(t, shared, func(t *testing.T, line *redistest.Line) {
		line.Set(gone)
		var events log
		c := over(line, funnel(10, 1, time.Hour))
		c.OnEvent = events.add
		begun := time.Now()
		l := launch(t, c)
		require.Zero(t, time.Since(begun), "New must not wait for a Redis that is not there")
		a := take(t, l, "a", 1)
		for _, err := range []error{a.Err(), l.Health()} {
			require.ErrorIs(t, err, ErrOutage)
			require.ErrorIs(t, err, ErrUncounted)
			require.ErrorContains(t, err, "fleet.Config: Servers is 0")
		}
		require.Equal(t, limits.SourceShare, a.Source())
		require.False(t, a.Allowed)
		require.Equal(t, retry, a.RetryAfter)
		require.Zero(t, l.Stats().Divisor)

		c.Name, c.Servers, c.OnEvent, c.Policy = name(), 2, nil, funnel(10, 20, time.Second)
		counted := launch(t, c)
		eventually(t, func() bool { return take(t, counted, "a", 1).Allowed }, "its share comes back")
		a = take(t, counted, "a", 0)
		require.NotErrorIs(t, a.Err(), ErrUncounted)
		require.Equal(t, limits.SourceShare, a.Source())
		require.Equal(t, 2, counted.Stats().Divisor)
		require.NoError(t, counted.Close())

		line.Set(well)
		eventually(t, func() bool { return l.Health() == nil }, "it connects by itself")
		a = take(t, l, "a", 1)
		require.Equal(t, limits.SourceRedis, a.Source())
		require.EqualValues(t, 9, a.Remaining)
		require.Equal(t, 1, l.Stats().Divisor)
		require.Equal(t, []EventKind{OutageBegan, OutageEnded}, events.kinds())
	})
}
