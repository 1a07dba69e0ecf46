package rpclimit

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

func TestUnitsInUseTakeNoMessages(t *testing.T) {
	e := open[string](t, policy.Must(policy.InFlight(1, time.Hour)))
	key := ByContext(func(context.Context) string { return "all" })
	g := Must(New(Options{CostReceived: one, CostSent: one}, Limit[string]{Limiter: e, Key: key}))
	v, s := g.Begin(stream(from(alice)))
	assert.Equal(t, limits.Admitted, v.Reason)
	for range 3 {
		v = s.Received("in")
		assert.False(t, v.Refused())
		v = s.Sent("out")
		assert.False(t, v.Refused())
	}
	refused, _ := g.Begin(from(alice))
	assert.Equal(t, limits.OverLimit, refused.Reason)
	policies, standing := rateLimit(&refused)
	assert.Equal(t, `"default";q=1;qu="concurrent-requests"`, policies)
	assert.Equal(t, `"default";r=0;t=1`, standing)
	s.End(Served{})
	s.End(Served{})
	assert.EqualValues(t, 1, e.Peek("all", 0).Remaining)

	for field, l := range map[string]Limit[string]{
		"CostReceived": {Limiter: e, Key: key, CostReceived: one},
		"CostSent":     {Limiter: limits.ForAnyKey[string](open[struct{}](t, policy.Must(policy.InFlight(1, time.Hour)))), Key: key, CostSent: one},
		"AtTap":        {Limiter: e, Key: key, AtTap: true},
	} {
		_, err := New(Options{}, l)
		refusedBy(t, err, "rpclimit.New", "limits[0]."+field)
	}
	_, err := New(Options{RetryGuess: -1}, Limit[string]{Limiter: e, Key: key})
	refusedBy(t, err, "rpclimit.Options", "RetryGuess")
}

// Promise: A call of which `OnVerdict` panics gives back units in use.
func TestPanicReleasesUnitsInUse(t *testing.T) {
	e := open[string](t, policy.Must(policy.InFlight(1, time.Hour)))
	g := Must(New(Options{OnVerdict: func(*Call, Verdict) { panic("as asked") }}, Limit[string]{
		Limiter: e, Key: ByContext(func(context.Context) string { return "all" }),
	}))
	assert.PanicsWithValue(t, "as asked", func() { g.Begin(from(alice)) })
	assert.EqualValues(t, 1, e.Peek("all", 0).Remaining)
}
