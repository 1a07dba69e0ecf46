package httplimit

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/internal/testkit/admissiontest"
	"github.com/ral-limiter/ral/limits"
)

func TestAdmission(t *testing.T) { admissiontest.Run(t, adapter) }

func adapter(t testing.TB, o admissiontest.Options, all []admissiontest.Limit) admissiontest.Door {
	t.Helper()
	of := (*http.Request).Context
	var given []AnyLimit
	for _, l := range all {
		given = append(given, Limit[string]{
			Name: l.Name, Limiter: l.Limiter, WhenNoKey: l.WhenNoKey, Shadow: l.Shadow,
			Key:       func(r *http.Request) string { return l.Key(admissiontest.Of(r.Context())) },
			Cost:      admissiontest.Number(l.Cost, of),
			Charge:    admissiontest.Charge[*http.Request, Served](l.Charge, of),
			PolicyFor: admissiontest.Plan(l.PolicyFor, of),
		})
	}
	m, err := NewAll(Options{
		Cost: admissiontest.Number(o.Cost, of), Charge: admissiontest.Charge[*http.Request, Served](o.Charge, of),
		WaitUpTo: o.WaitUpTo, Spread: o.Spread, Shadow: o.Shadow, Logger: o.Logger,
		OnVerdict: func(r *http.Request, v limits.Verdict) { admissiontest.Of(r.Context()).Decided(v) },
	}, given...)
	require.NoError(t, err)
	h := m.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { admissiontest.Of(r.Context()).Served() }))
	serve := func(ctx context.Context) {
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil).WithContext(ctx))
	}
	stats := func() admissiontest.Stats {
		s := m.Stats()
		return admissiontest.Stats{
			By: map[limits.Reason]uint64{
				limits.Admitted: s.Admitted, limits.Exempt: s.Exempt, limits.OverLimit: s.OverLimit, limits.Denied: s.Denied,
				limits.NoKey: s.NoKey, limits.Cancelled: s.Cancelled, limits.NeverAdmitted: s.NeverAdmitted,
				limits.Misconfigured: s.Misconfigured, limits.Unavailable: s.Unavailable,
			},
			Delayed: s.Delayed, DelayTime: s.DelayTime, Unsettled: s.Unsettled,
			Shadow: s.Shadow, Shadowed: s.Shadowed, ShadowFailed: s.ShadowFailed,
		}
	}
	return admissiontest.Door{Serve: serve, Stats: stats}
}
