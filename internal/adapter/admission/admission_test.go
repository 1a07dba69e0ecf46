package admission

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/internal/testkit/admissiontest"
	"github.com/ral-limiter/ral/internal/testkit/testenv"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

func contextOf(ctx context.Context) context.Context { return ctx }

// adapter is a door whose requests are contexts, without a protocol.
func adapter(t testing.TB, o admissiontest.Options, all []admissiontest.Limit) admissiontest.Door {
	var limiters []Any[context.Context, bool]
	for i, l := range all {
		limit := &Limit[context.Context, string, bool]{
			Parts: Parts[context.Context, bool]{
				Name: l.Name, WhenNoKey: l.WhenNoKey, Shadow: l.Shadow,
				Cost: admissiontest.Number(l.Cost, contextOf), Charge: admissiontest.Charge[context.Context, bool](l.Charge, contextOf),
			},
			Limiter:   l.Limiter,
			Key:       func(ctx context.Context) string { return l.Key(admissiontest.Of(ctx)) },
			PolicyFor: admissiontest.Plan(l.PolicyFor, contextOf),
		}
		require.NoError(t, limit.Check(i, "", "", func(field string, _ any, _ string) error { return errors.New(field) }))
		limiters = append(limiters, limit)
	}
	var counters Counters
	c := New(Config[context.Context, bool]{
		Cost: admissiontest.Number(o.Cost, contextOf), Charge: admissiontest.Charge[context.Context, bool](o.Charge, contextOf),
		WaitUpTo: o.WaitUpTo, Shadow: o.Shadow, Turns: NewTurns(o.Spread, time.Millisecond), Log: NewLog(o.Logger), Counters: &counters,
	}, limiters, nil)
	serve := func(ctx context.Context) {
		var v Result
		var s Settlement
		switch quotas := make([]Quota, len(limiters)); {
		case !c.Begin(ctx, ctx, &v):
		case c.Single() != nil:
			v, s = c.Single().Take(ctx, ctx, c, v)
		default:
			s = c.Decide(ctx, ctx, &v, quotas)
		}
		v.Shadow = c.Shadow()
		counters.Count(&v.Verdict)
		c.LogRefused(ctx, ctx, &v.Verdict, v.Binding, func(context.Context) (before, after []slog.Attr) { return nil, nil })
		admissiontest.Of(ctx).Decided(v.Verdict)
		if v.Refused() {
			return
		}
		admissiontest.Of(ctx).Served()
		if s != nil {
			c.Settle(ctx, s, ctx, true)
		}
	}
	stats := func() admissiontest.Stats {
		s := admissiontest.Stats{By: map[limits.Reason]uint64{}, Unsettled: counters.Unsettled(), Shadow: c.Shadow()}
		for r := range limits.Reason(reasons) {
			s.By[r] = counters.By(r)
		}
		s.Delayed, s.DelayTime = counters.Delayed()
		s.Shadowed, s.ShadowFailed = c.Shadowed(&counters)
		return s
	}
	return admissiontest.Door{Serve: serve, Stats: stats}
}

// Promise: Each limit has its own key, cost and charge.
// Promise: Several limits take all or nothing.
// Promise: Racing requests pass exactly to the limit.
// Promise: A request whose context has ended takes nothing.
// Promise: `Charge` returns units only to their window.
// Promise: A plan may change anytime and keeps used units.
// Promise: A panicking `PolicyFor` takes nothing.
// Promise: Requests pass after their delay, not a nanosecond sooner.
// Promise: Waits end with the request's context.
// Promise: Waiting requests are served in order of arrival.
// Promise: A limit with `Shadow` that fails changes nothing.
// Promise: Units of a `policy.InFlight` are in use until the request ends, with and without a `Charge`.
// Promise: A request that a limit of units in use refuses is told a guess; a rate that refuses too decides.
func TestAdapterKeepsTheAdmissionContract(t *testing.T) { admissiontest.Run(t, adapter) }

// named is a policy with a name that may be comparable or not.
type named struct {
	policy.Policy
	name any
}

func (n named) String() string {
	if text, ok := n.name.(string); ok {
		return text
	}
	return "no name"
}

func TestWordsFollowThePolicy(t *testing.T) {
	var w words
	window := policy.Must(policy.FixedWindow(3, time.Hour))
	for range 2 {
		assert.Empty(t, w.text(nil))
		assert.Equal(t, "window 3/h", w.text(window))
		assert.Equal(t, "window 3/h", w.text(window))
		assert.Equal(t, "window 4/h", w.text(policy.Must(policy.FixedWindow(4, time.Hour))))
		assert.Equal(t, "a", w.text(named{window, "a"}))
		assert.Equal(t, "b", w.text(named{window, "b"}))
		assert.Equal(t, "no name", w.text(named{window, []int{1}}), "one that cannot be compared")
		assert.Equal(t, "no name", w.text(named{window, []int{1}}))
	}
}

func TestWordsAreRemembered(t *testing.T) {
	if testenv.Race {
		t.Skip("the race detector allocates")
	}
	var w words
	window := policy.Must(policy.FixedWindow(3, time.Hour))
	assert.Zero(t, testing.AllocsPerRun(100, func() { w.text(window) }))
}
