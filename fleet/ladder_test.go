package fleet

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/fleet/internal/redistest"
	"github.com/ral-limiter/ral/fleet/internal/storetest"
	"github.com/ral-limiter/ral/limits"
)

// rungs are what a limiter goes through when Redis fails, each as steps of Redis's state. A held
// answer says after the end of an outage that Redis was full.
var rungs = []struct {
	name  string
	steps []rung
}{
	{"healthy", []rung{{}}},
	{"unfit", []rung{{unfit: ErrFull}}},
	{"open", []rung{{weather: gone}}},
	{"probing", []rung{{weather: still}}},
	{"unfit, then open", []rung{{unfit: ErrReadOnly}, {weather: gone}}},
	{"open, then unfit", []rung{{weather: gone}, {unfit: ErrFull}}},
	{"probing, then unfit", []rung{{weather: still}, {unfit: ErrFull}}},
	{"unfit with held answers", []rung{{unfit: ErrFull, weather: redistest.Weather{Mute: true}}}},
}

type rung struct {
	unfit   error
	weather redistest.Weather
}

// paces are the times between calls. The first has a call at the end of each step alone, and the last
// has wakes of the keeper in place of calls.
var paces = []pace{
	{every: time.Hour}, {every: 300 * time.Millisecond}, {every: 7 * time.Millisecond}, {every: 400 * time.Microsecond},
	{every: time.Millisecond, wakes: true},
}

type pace struct {
	every time.Duration
	wakes bool
}

// during makes calls, or wakes the keeper of l, for the duration d.
func (p pace) during(d time.Duration, l *Limiter, call func()) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		time.Sleep(min(p.every, time.Until(end)))
		if p.wakes {
			l.nudge()
		} else {
			call()
		}
	}
}

// Redis fails for a time, step by step, at every pace of calls, and is well again.
// Promise: An outage of a Redis that is well again ends within a second, however many calls come.
func TestEveryOutageEnds(t *testing.T) {
	for _, mode := range []Mode{Exact, Leased} {
		for _, r := range rungs {
			t.Run(fmt.Sprintf("%d %s", mode, r.name), func(t *testing.T) {
				inBubble(t, func(t *testing.T, redis *storetest.Redis) {
					for _, pace := range paces {
						for _, lasts := range []time.Duration{130 * time.Millisecond, 400 * time.Millisecond, 2300 * time.Millisecond} {
							c := on(redis, funnel(10_000_000, 10_000_000, time.Second))
							c.Mode = mode
							l := open(t, c)
							during := func(d time.Duration, call func()) { pace.during(d, l, call) }
							during(300*time.Millisecond, func() { take(t, l, "a", 1) })
							for _, step := range r.steps {
								redis.SetUnfit(step.unfit)
								redis.Set(step.weather)
								during(lasts, func() { take(t, l, "a", 1) })
							}
							redis.SetUnfit(nil)
							redis.Set(well)
							during(time.Second, func() { take(t, l, "a", 1) })
							during(2*time.Second, func() {
								a := take(t, l, "a", 1)
								require.NoError(t, a.Err(), "%+v, %v", pace, lasts)
								require.Contains(t, []limits.Source{limits.SourceRedis, limits.SourceLease}, a.Source())
							})
							require.NoError(t, l.Health(), "%+v, %v", pace, lasts)
							require.NoError(t, l.Close())
						}
					}
				})
			})
		}
	}
}

// Calls that are not sent say nothing about Redis: they neither replace why it is not asked, nor
// wake the keeper.
func TestKnownTroubleIsNoNews(t *testing.T) {
	for _, mode := range []Mode{Exact, Leased} {
		inBubble(t, func(t *testing.T, redis *storetest.Redis) {
			c := on(redis, funnel(1000, 1000, time.Second))
			c.Mode = mode
			l := open(t, c)
			redis.SetUnfit(ErrFull)
			take(t, l, "a", 1)
			synctest.Wait()
			known := l.trouble.Load()
			require.ErrorIs(t, *known, ErrFull)
			asked := redis.Calls()
			for range 100 {
				require.ErrorIs(t, take(t, l, "a", 1).Err(), ErrFull)
				require.Empty(t, l.wake)
			}
			// The error is of a call sent before.
			_ = l.noteUnfit(ErrReadOnly)
			require.Empty(t, l.wake)
			require.Same(t, known, l.trouble.Load())
			require.Equal(t, asked, redis.Calls())
		})
	}
}

// Redis is unfit for 150 ms of each 300. Then it is well.
// Promise: A Redis that is unfit many times a second is told at most twice in ten seconds, and its end at last.
func TestFlappingIsToldSeldom(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		var events log
		c := on(redis, funnel(1000, 1000, time.Second))
		c.OnEvent = events.add
		l := open(t, c)
		const lasts = 30 * time.Second
		for begun := time.Now(); time.Since(begun) < lasts; {
			for _, unfit := range []error{ErrFull, nil} {
				redis.SetUnfit(unfit)
				for range 15 {
					take(t, l, "a", 1)
					time.Sleep(10 * time.Millisecond)
				}
			}
		}
		outages := func() []EventKind {
			return slices.DeleteFunc(events.kinds(), func(k EventKind) bool { return k == ChargedLocal })
		}
		require.LessOrEqual(t, len(outages()), int(2*(lasts/(10*time.Second)+1)))
		time.Sleep(time.Second)
		require.NoError(t, l.Health())
		time.Sleep(flapping)
		told := outages()
		require.Equal(t, []EventKind{OutageBegan, OutageEnded}, told[:2], "the first end of an outage must be told at once")
		require.Equal(t, OutageEnded, told[len(told)-1])
	})
}
