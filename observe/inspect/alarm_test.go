package inspect_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/observe/inspect"
)

// traffic is a limit whose counters grow at a rate a second.
type traffic struct {
	t        *testing.T
	e        *engine.Engine[string]
	h        *inspect.Handler
	mu       sync.Mutex
	counters struct{ Admitted, Refused uint64 }
}

// newTraffic is for the beginning of a bubble.
func newTraffic(t *testing.T) *traffic {
	c := &traffic{t: t, e: newEngine[string](t, engine.Config{Name: "api"})}
	c.e.Take("flood", 10)
	c.h = newHandler(t, inspect.Config{ShowKeys: true}, c.limit())
	// No call comes with a point.
	time.Sleep(time.Second / 2)
	return c
}

func (c *traffic) limit() inspect.AnyLimit {
	return inspect.Limit[string]{Limiter: c.e, Stats: func() any {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.counters
	}}
}

func (c *traffic) act(d time.Duration, admitted, refused uint64) {
	for range d / (2 * time.Second) {
		c.mu.Lock()
		c.counters.Admitted += 2 * admitted
		c.counters.Refused += 2 * refused
		c.mu.Unlock()
		time.Sleep(2 * time.Second)
	}
	// One of them is refused.
	c.e.Take("flood", 10)
	c.e.Take("flood", 10)
	synctest.Wait()
}

func (c *traffic) usual() float64 { return overview(c.t, c.h, "limits").Limits[0].Usual }

func (c *traffic) alarms() (all []string) {
	for _, a := range overview(c.t, c.h, "limits").Limits[0].Alarms {
		assert.Equal(c.t, "flood", a.Key, "the key that is refused most")
		assert.NotEmpty(c.t, a.ID)
		all = append(all, a.Words)
	}
	return all
}

// Promise: Refusals far above the usual are an alarm, with the most refused key, as long as they last, for a day.
func TestAlarmOfUnusualRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTraffic(t)
		c.act(9*time.Minute, 20, 4)
		assert.Equal(t, -1.0, c.usual())
		assert.Empty(t, c.alarms(), "nothing is usual yet, and most calls are admitted")
		c.act(21*time.Minute, 20, 4)
		assert.InDelta(t, 4, c.usual(), .1)
		assert.Empty(t, c.alarms())
		c.act(time.Minute, 20, 12)
		assert.Empty(t, c.alarms(), "three times as many are not far above")

		attack := []string{"60 calls a second are refused, and 4 is usual"}
		c.act(40*time.Second, 20, 60)
		assert.Equal(t, attack, c.alarms())
		for hour := range 23 {
			c.act(time.Hour, 20, 60)
			assert.Equal(t, attack, c.alarms(), "after %d hours", hour+1)
		}
		// The attack lets off for a moment, and has not become usual.
		c.act(5*time.Minute, 20, 4)
		assert.Empty(t, c.alarms())
		c.act(40*time.Second, 20, 60)
		assert.Equal(t, attack, c.alarms())
		c.act(2*time.Hour, 20, 60)
		assert.Empty(t, c.alarms(), "it was so all day")
		assert.InDelta(t, 60, c.usual(), 5)
		c.act(25*time.Hour, 20, 4)
		assert.InDelta(t, 4, c.usual(), .1, "a day later it is forgotten")
		c.act(40*time.Second, 20, 60)
		assert.Equal(t, attack, c.alarms())
	})
}

// Promise: A Handler with Config.Before goes on with the charts, the usual and the alarms of limits of the same names.
func TestHandlerGoesOnWithTheAlarmsOfAnEarlierHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTraffic(t)
		c.act(30*time.Minute, 20, 4)
		c.act(40*time.Second, 20, 60)
		attack := []string{"60 calls a second are refused, and 4 is usual"}
		require.Equal(t, attack, c.alarms())
		before := c.h
		points := len(overview(t, before, "limits").Limits[0].Points)
		other := inspect.Limit[string]{Limiter: newEngine[string](t, engine.Config{Name: "other"})}
		c.h = newHandler(t, inspect.Config{ShowKeys: true, Before: before}, c.limit(), other)
		require.NoError(t, before.Close())
		// No call comes with a point.
		time.Sleep(time.Second / 2)
		for range 10 {
			assert.Equal(t, attack, c.alarms())
			assert.InDelta(t, 4, c.usual(), .1)
			c.act(time.Minute, 20, 60)
		}
		limits := overview(t, c.h, "limits").Limits
		assert.Len(t, limits[0].Points, points, "the chart of ten minutes stays full")
		assert.Len(t, limits[1].Points, 300, "the new limit has points of its own time")
		assert.Empty(t, limits[1].Alarms)
	})
}

// A minute does not count if the alarm stood in a part of it.
func TestShortBurstsOfRefusalsDoNotBecomeUsual(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTraffic(t)
		c.act(20*time.Minute, 20, 4)
		for range 40 {
			c.act(26*time.Second, 20, 60)
			assert.NotEmpty(t, c.alarms())
			c.act(34*time.Second, 20, 4)
			assert.Empty(t, c.alarms())
		}
		assert.InDelta(t, 4, c.usual(), .1)
	})
}

// Promise: Refusals that come at the same hour each day are usual from the second day on.
func TestDailyRefusalsAreUsual(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTraffic(t)
		c.act(8*time.Hour, 20, 0)
		c.act(time.Hour, 20, 3)
		assert.Equal(t, []string{"3 calls a second are refused, and 0 is usual"}, c.alarms())
		c.act(9*time.Hour, 20, 3)
		c.act(14*time.Hour, 20, 0)
		for range 10 {
			c.act(time.Hour, 20, 3)
			assert.Empty(t, c.alarms())
		}
	})
}

// Promise: While nothing is usual, more refused calls than admitted are an alarm, also if a program starts in an attack.
func TestAlarmOfAProgramThatStartsInAnAttack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTraffic(t)
		c.act(20*time.Second, 20, 60)
		assert.Empty(t, c.alarms(), "half a minute has not passed")
		c.act(12*time.Second, 20, 60)
		for range 22 {
			assert.Equal(t, []string{"60 calls a second are refused, more than are admitted"}, c.alarms())
			assert.Equal(t, -1.0, c.usual())
			c.act(time.Hour, 20, 60)
		}
		c.act(3*time.Hour, 20, 60)
		assert.Empty(t, c.alarms(), "it was so all day")
		c.act(10*time.Minute, 0, 0)
		assert.Empty(t, c.alarms())
	})
}

// Promise: A degraded limiter, a failed save and a table nearly full are alarms.
func TestDegradedAndNearlyFullAreAlarms(t *testing.T) {
	e := newEngine[string](t, engine.Config{Name: "full", MaxKeys: 100})
	sick := &remote{Limiter: e, of: e, healthy: errors.New("ral: no Redis")}
	saved := errors.New("the disk is full")
	h := newHandler(t, inspect.Config{}, inspect.Limit[string]{Limiter: e},
		inspect.Limit[string]{Name: "sick", Limiter: sick, Stats: func() any { return struct{ SaveError error }{saved} }},
		inspect.Limit[string]{Name: "unsaved", Limiter: newEngine[string](t, engine.Config{}), Stats: func() any { return struct{ SaveError error }{saved} }},
		inspect.Limit[string]{Name: "odd", Limiter: newEngine[string](t, engine.Config{}), Stats: func() any { panic("no counters") }})
	alarms := func() (all []string) {
		for _, l := range overview(t, h, "limits").Limits {
			for _, a := range l.Alarms {
				all = append(all, l.Name+": "+a.Words)
			}
		}
		return all
	}
	others := []string{"sick: no Redis", "unsaved: the last save failed: the disk is full", "odd: cannot be shown whole: Stats: panic: no counters"}
	for i := range 90 {
		e.Take(fmt.Sprint(i), 1)
	}
	assert.Equal(t, others, alarms())
	e.Take("one more", 1)
	assert.Equal(t, append([]string{"full: the table is 91% full: 91 of 100 keys"}, others...), alarms())
}
