package inspect_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/internal/adapter/pagejson"
	"github.com/ral-limiter/ral/observe/inspect"
)

// Steady refusals are usual. Far more, of whoever, are an alarm until they have become usual.
//
// Promise: Refusals far above the usual of the hour are an alarm, with the most refused key.
func TestAlarmOfUnusualRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine[string](t, engine.Config{Name: "api"})
		h := newHandler(t, inspect.Config{ShowKeys: true}, inspect.Limit[string]{Limiter: e})
		e.Take("flood", 10)
		refuse := func(perSecond int, d time.Duration) {
			for range d / time.Second {
				for range perSecond {
					e.Choke("flood")
				}
				time.Sleep(time.Second)
			}
			synctest.Wait()
		}
		// No call comes with a point.
		time.Sleep(time.Second / 2)
		summary := func() pagejson.LimitSummary { return overview(t, h, "limits").Limits[0] }
		refuse(4, 50*time.Second)
		assert.Equal(t, -1.0, summary().Usual)
		assert.Empty(t, summary().Alarms, "nothing is usual yet")
		refuse(4, 30*time.Minute)
		assert.InDelta(t, 4, summary().Usual, .1)
		assert.Empty(t, summary().Alarms)
		refuse(12, time.Minute)
		assert.Empty(t, summary().Alarms, "three times as many are not far above")

		refuse(60, 40*time.Second)
		require.Len(t, summary().Alarms, 1)
		assert.Equal(t, "60 calls a second are refused, and 4 is usual this hour", summary().Alarms[0].Words)
		assert.Equal(t, "flood", summary().Alarms[0].Key)
		assert.NotEmpty(t, summary().Alarms[0].ID)
		refuse(60, 15*time.Minute)
		assert.Len(t, summary().Alarms, 1, "it is not yet usual")
		refuse(60, time.Hour)
		assert.Empty(t, summary().Alarms)
		assert.InDelta(t, 60, summary().Usual, .1)
		refuse(0, time.Hour)
		assert.Zero(t, summary().Usual)
	})
}

// Promise: A degraded limiter, a failed save and a table nearly full are alarms.
func TestAlarms(t *testing.T) {
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
