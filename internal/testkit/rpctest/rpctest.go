// Package rpctest adapts package rpclimit to the tests of package admissiontest.
package rpctest

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/internal/testkit/admissiontest"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/rpclimit"
)

func contextOf(c *rpclimit.Call) context.Context { return c.Context }

// New returns limits whose calls have the context of an admissiontest.Request.
func New(t testing.TB, o admissiontest.Options, all []admissiontest.Limit) *rpclimit.Guard {
	t.Helper()
	var given []rpclimit.AnyLimit
	for _, l := range all {
		given = append(given, rpclimit.Limit[string]{
			Name: l.Name, Limiter: l.Limiter, WhenNoKey: l.WhenNoKey, Shadow: l.Shadow,
			Key:       rpclimit.ByContext(func(ctx context.Context) string { return l.Key(admissiontest.Of(ctx)) }),
			Cost:      admissiontest.Number(l.Cost, contextOf),
			Charge:    admissiontest.Charge[*rpclimit.Call, rpclimit.Served](l.Charge, contextOf),
			PolicyFor: admissiontest.Plan(l.PolicyFor, contextOf),
		})
	}
	made, err := rpclimit.New(rpclimit.Options{
		Cost:     admissiontest.Number(o.Cost, contextOf),
		Charge:   admissiontest.Charge[*rpclimit.Call, rpclimit.Served](o.Charge, contextOf),
		WaitUpTo: o.WaitUpTo, Spread: o.Spread, Shadow: o.Shadow, Logger: o.Logger,
		OnVerdict: func(c *rpclimit.Call, v rpclimit.Verdict) { admissiontest.Of(c.Context).Decided(v.Verdict) },
	}, given...)
	require.NoError(t, err)
	return made
}

// StatsOf returns a function that returns the counters of limits.
func StatsOf(l *rpclimit.Guard) func() admissiontest.Stats {
	return func() admissiontest.Stats {
		s := l.Stats()
		return admissiontest.Stats{
			By: map[limits.Reason]uint64{
				limits.Admitted: s.Admitted, limits.Exempt: s.Exempt, limits.OverLimit: s.OverLimit, limits.NoKey: s.NoKey,
				limits.Cancelled: s.Cancelled, limits.NeverAdmitted: s.NeverAdmitted, limits.Misconfigured: s.Misconfigured,
				limits.Unavailable: s.Unavailable,
			},
			Delayed: s.Delayed, DelayTime: s.DelayTime, Unsettled: s.Unsettled,
			Shadow: s.Shadow, Shadowed: s.Shadowed, ShadowFailed: s.ShadowFailed,
		}
	}
}
