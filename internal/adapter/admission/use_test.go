package admission

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/internal/core/whole"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// rateOfUse returns the calls a second that pass of n clients of a key. They come at once, or spread over a
// time, and retry when they are told. failed of them are refused three times.
func rateOfUse(t *testing.T, p policy.Policy, n int, unit, over time.Duration) (rate float64, failed int) {
	t.Helper()
	e := must.Get(engine.New[string](engine.Config{Policy: p}))
	defer func() { assert.NoError(t, e.Close()) }()
	c, _ := control(t, e, NewTurns(time.Hour, unit))
	// The calls begin at no grid of any limit.
	time.Sleep(1234567891)
	type call struct {
		at    time.Time
		tries int
	}
	// calls are ordered by time.
	var calls []call
	began := time.Now()
	for i := range n {
		calls = append(calls, call{began.Add(time.Duration(i) * over / time.Duration(n)), 0})
	}
	var admitted []time.Time
	for len(calls) > 0 {
		next := calls[0]
		calls = calls[1:]
		time.Sleep(time.Until(next.at))
		v := ask(c, 1)
		switch {
		case v.Reason == limits.Admitted:
			admitted = append(admitted, next.at)
			continue
		case next.tries == 2:
			failed++
		}
		again := call{next.at.Add(time.Duration(whole.Up(v.RetryAfter, unit))*unit + whole.Own), next.tries + 1}
		after, _ := slices.BinarySearchFunc(calls, again, func(a, b call) int {
			if a.at.After(b.at) {
				return 1
			}
			// The call goes behind the calls of the same instant.
			return -1
		})
		calls = slices.Insert(calls, after, again)
	}
	// The first found an unused key, and the last may share their window with none.
	admitted = admitted[p.Limit():]
	reach := func(part int) (at int, instant time.Time) {
		instant = admitted[len(admitted)*part/4]
		return slices.IndexFunc(admitted, func(at time.Time) bool { return !at.Before(instant) }), instant
	}
	first, from := reach(1)
	last, to := reach(3)
	return float64(last-first) / to.Sub(from).Seconds(), failed
}

// atOnePhase returns the calls a second that a limit admits to calls at one phase of each second, at the
// worst phase. Each other second they are a millisecond late.
func atOnePhase(p policy.Policy) float64 {
	const seconds = 120
	lowest := float64(p.Limit())
	for phase := range 16 {
		word, n := uint64(0), 0
		for k := range seconds {
			now := time.Duration(k)*time.Second + time.Duration(phase)*time.Second/16 + time.Duration(k%2)*time.Millisecond + 7
			for d := (policy.Decision{Allowed: true}); d.Allowed; n++ {
				word, d = p.Take(word, policy.Instant(now), 1, 0)
			}
			if n--; k == 0 {
				// The first calls find an unused key.
				n = 0
			}
		}
		lowest = min(lowest, float64(n)/(seconds-1))
	}
	return lowest
}

// sustained returns the calls a second that a limit admits to calls that are told to the millisecond.
// A sliding window wants the nanosecond before its end for the last of its units, and under AtMost units
// count for a part longer than a period.
func sustained(p policy.Policy) float64 {
	limit, q := float64(p.Limit()), quotaOf(p)
	switch parts := float64(policy.Parts(p)); {
	case parts > 0:
		limit *= parts / (parts + 1)
	case fmt.Sprintf("%T", p) == "*policy.slidingWindow" && limit > 2:
		limit--
	case fmt.Sprintf("%T", p) == "*policy.slidingWindow":
		limit /= 2
	}
	return limit / q.Window.Seconds()
}

// Promise: Turns that are told in milliseconds use 95% of a limit. Turns in whole seconds use 85% of
// what it admits to calls at one phase of each second, or 50% for a sliding window or AtMost of more than
// half a second that is not a whole number of seconds. No client is refused three times.
func TestTurnsUseTheLimit(t *testing.T) {
	for _, c := range []struct {
		limit string
		// spread is the least part of the limit in use if refusals are spread over a second.
		spread float64
	}{
		{"funnel 1, 1/s", 0.4}, {"funnel 1, 2/3s", 0.6}, {"funnel 2, 2/s", 0.85}, {"funnel 20, 10/s", 0.85}, {"funnel 100, 100/s", 0.85}, {"funnel 2, 10/s", 0.5},
		{"window 1/s", 0.4}, {"window 2/s", 0.85}, {"window 3/s", 0.85}, {"window 10/s", 0.85}, {"window 1000/s", 0.85}, {"window 20/10s", 0.85},
		{"window 10/3s", 0.85}, {"window 10/1500ms", 0.6}, {"window 1/100ms", 0.2}, {"window 10/100ms", 0.5}, {"window 100/100ms", 0.5},
		{"window 2/s aligned", 0.85}, {"window 10/s aligned", 0.85},
		{"sliding 1/s", 0.4}, {"sliding 2/s", 0.4}, {"sliding 3/s", 0.4}, {"sliding 10/s", 0.4}, {"sliding 1000/s", 0.4}, {"sliding 20/10s", 0.75}, {"sliding 10/100ms", 0.35},
		{"sliding 1/700ms", 0.2}, {"sliding 3/700ms", 0.25}, {"sliding 100/700ms", 0.3}, {"sliding 10/900ms", 0.3}, {"sliding 3/999ms", 0.25}, {"sliding 150/999ms", 0.3},
		{"sliding 100/1001ms", 0.3}, {"sliding 3/1500ms", 0.3}, {"sliding 100/1500ms", 0.3}, {"sliding 100/2500ms", 0.3},
		{"window 100/700ms", 0.4}, {"window 3/900ms", 0.4}, {"window 100/900ms", 0.4}, {"window 100/999ms", 0.4}, {"window 100/1001ms", 0.4}, {"window 100/1500ms", 0.4},
		{"at most 10/s", 0.4}, {"at most 1000/s", 0.4}, {"at most 10/100ms", 0.4},
		{"at most 100/700ms", 0.3}, {"at most 100/900ms", 0.3}, {"at most 100/999ms", 0.3}, {"at most 100/1001ms", 0.3}, {"at most 100/1500ms", 0.3},
	} {
		p := must.Get(policy.Parse(c.limit))
		rate := float64(p.Limit()) / quotaOf(p).Window.Seconds()
		n := int(p.Limit()) + int(min(max(8*float64(p.Limit()), rate*30), 8000))
		measure := func(unit, over time.Duration) (part float64) {
			synctest.Test(t, func(t *testing.T) {
				var failed int
				part, failed = rateOfUse(t, p, n, unit, over)
				if over == 0 {
					assert.Zero(t, failed, "%s, in %v, of %d", c.limit, unit, n)
				}
			})
			return part
		}
		millis, seconds, spread, phase := measure(time.Millisecond, 0), measure(time.Second, 0), measure(time.Second, time.Second), atOnePhase(p)
		t.Logf("%-20s %5.1f%% in milliseconds, %5.1f%% in seconds (at one phase %5.1f%%), %5.1f%% if spread",
			c.limit, 100*millis/rate, 100*seconds/rate, 100*phase/rate, 100*spread/rate)
		assert.GreaterOrEqual(t, millis, 0.95*sustained(p), c.limit)
		part := 0.85
		twoCounts := strings.HasPrefix(c.limit, "sliding") || strings.HasPrefix(c.limit, "at most")
		if w := quotaOf(p).Window; twoCounts && w > time.Second/2 && w%time.Second != 0 {
			// The worst second admits fewer calls than the mean, and a call is rounded up.
			part = 0.5
		}
		assert.GreaterOrEqual(t, seconds, part*phase, c.limit)
		assert.GreaterOrEqual(t, spread, c.spread*rate, c.limit)
	}
}
