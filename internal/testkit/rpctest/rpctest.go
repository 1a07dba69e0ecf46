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

func contextOf(call *rpclimit.Call) context.Context { return call.Context }

// New returns limits whose calls have the context of an admissiontest.Request.
func New(t testing.TB, options admissiontest.Options, all []admissiontest.Limit) *rpclimit.Guard {
	t.Helper()
	var given []rpclimit.AnyLimit
	for _, limit := range all {
		given = append(given, rpclimit.Limit[string]{
			Name: limit.Name, Limiter: limit.Limiter, WhenNoKey: limit.WhenNoKey, Shadow: limit.Shadow,
			Key:       rpclimit.ByContext(func(ctx context.Context) string { return limit.Key(admissiontest.Of(ctx)) }),
			Cost:      admissiontest.Number(limit.Cost, contextOf),
			Charge:    admissiontest.Charge[*rpclimit.Call, rpclimit.Served](limit.Charge, contextOf),
			PolicyFor: admissiontest.Plan(limit.PolicyFor, contextOf),
		})
	}
	made, err := rpclimit.New(rpclimit.Options{
		Cost:     admissiontest.Number(options.Cost, contextOf),
		Charge:   admissiontest.Charge[*rpclimit.Call, rpclimit.Served](options.Charge, contextOf),
		WaitUpTo: options.WaitUpTo, Spread: options.Spread, Shadow: options.Shadow, Logger: options.Logger,
		OnVerdict: func(call *rpclimit.Call, verdict rpclimit.Verdict) {
			admissiontest.Of(call.Context).Decided(verdict.Verdict)
		},
	}, given...)
	require.NoError(t, err)
	return made
}

// StatsOf returns a function that returns the counters of limits.
func StatsOf(guard *rpclimit.Guard) func() admissiontest.Stats {
	return func() admissiontest.Stats {
		stats := guard.Stats()
		return admissiontest.Stats{
			By: map[limits.Reason]uint64{
				limits.Admitted: stats.Admitted, limits.Exempt: stats.Exempt, limits.OverLimit: stats.OverLimit, limits.NoKey: stats.NoKey,
				limits.Cancelled: stats.Cancelled, limits.NeverAdmitted: stats.NeverAdmitted, limits.Misconfigured: stats.Misconfigured,
				limits.Unavailable: stats.Unavailable,
			},
			Delayed: stats.Delayed, DelayTime: stats.DelayTime, Unsettled: stats.Unsettled,
			Shadow: stats.Shadow, Shadowed: stats.Shadowed, ShadowFailed: stats.ShadowFailed,
		}
	}
}
