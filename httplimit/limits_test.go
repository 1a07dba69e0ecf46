package httplimit

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/internal/testkit/admissiontest"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/single"
)

// guess returns a limiter of 10 units an hour whose refusal is no more than a guess.
func guess(t testing.TB, allowed bool, source limits.Source) *admissiontest.Fake[netip.Addr] {
	d := policy.Decision{Allowed: allowed, Limit: 3, Remaining: 1, ResetAfter: time.Minute}
	if !allowed {
		d.RetryAfter = 7 * time.Second
	}
	return admissiontest.NewFake[netip.Addr](t, 10, d, source, false)
}

// Only a share's time to try again is told, marked as a guess.
// Promise: Guesses and figures of shares are not told to clients; a share's `Retry-After` is marked as a guess.
func TestGuessesAreNotTold(t *testing.T) {
	other := Limit[netip.Addr]{Name: "other", Limiter: hourly(t, 1000), Key: ByAddr}
	for _, allowed := range []bool{true, false} {
		for _, source := range []limits.Source{limits.SourceLease, limits.SourceShare, limits.SourceOpen, limits.SourceUnrecorded} {
			for _, headers := range []HeaderSet{RateLimitHeaders, LegacyHeaders, XRateLimitHeaders} {
				limit := Limit[netip.Addr]{Limiter: guess(t, allowed, source), Key: ByAddr}
				for _, all := range [][]AnyLimit{{limit}, {limit, other}} {
					w := ask(Must(NewAll(Options{Headers: headers}, all...)).Handler(done), from(alice, "Accept", "text/plain"))
					retry := ""
					if source == limits.SourceShare && !allowed {
						retry = "7"
					}
					assert.Equal(t, retry, w.Header().Get("Retry-After"), "%v", source)
					for _, field := range []string{
						"Ratelimit", "Ratelimit-Limit", "Ratelimit-Remaining", "Ratelimit-Reset",
						"X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset",
					} {
						assert.NotContains(t, w.Header(), field, "%v", source)
					}
					if headers == RateLimitHeaders {
						assert.Contains(t, w.Header().Get("RateLimit-Policy"), `"default";q=10;w=3600`, "the limit is what it is")
					}
					switch {
					case retry != "":
						assert.Equal(t, "Too Many Requests: try again in 7 s: the limit is reduced during an outage, so the time to try again is a guess\n", w.Body.String())
						w = ask(Must(NewAll(Options{Headers: headers}, all...)).Handler(done), from(alice))
						assert.Contains(t, w.Body.String(), `"type":"`+reducedCapacity+`"`)
						assert.Contains(t, w.Body.String(), `"violated-policies":["default"]`)
						assert.Contains(t, w.Body.String(), "is a guess")
					case !allowed:
						assert.Equal(t, "Too Many Requests\n", w.Body.String())
					}
				}
			}
		}
	}
}

func TestZeroLimitersSendNoPolicy(t *testing.T) {
	for status, l := range map[int]limits.Limiter[netip.Addr]{
		http.StatusOK: &engine.Tiered[netip.Addr]{}, http.StatusForbidden: limits.ForAnyKey[netip.Addr](&single.Limiter{}),
	} {
		for _, o := range []Options{{}, {Shadow: true}} {
			if o.Shadow {
				status = http.StatusOK
			}
			got := ask(Must(New(l, ByAddr, o)).Handler(done), from(alice))
			assert.Equal(t, status, got.Code)
			assert.Empty(t, got.Header().Get("RateLimit-Policy"))
		}
	}
}

// A Tiered is as many limits, each with a name.
func TestTiersAreToldApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tiers, err := engine.NewTiered[netip.Addr](
			engine.Config{Policy: policy.Must(policy.FixedWindow(2, time.Second))}, policy.Must(policy.FixedWindow(4, time.Hour)))
		require.NoError(t, err)
		defer tiers.Close()
		m := Must(New(tiers, ByAddr, Options{Name: "api"}))
		h := m.Handler(done)
		for i, want := range []string{`"api";r=1;t=1`, `"api";r=0;t=1`, `"api";r=0;t=1`, `"api-2";r=1;t=3599`, `"api";r=0;t=1`, `"api-2";r=0;t=3599`} {
			if i == 3 {
				time.Sleep(time.Second)
			}
			w := ask(h, from(alice))
			assert.Equal(t, i%3 == 2, w.Code == 429)
			assert.Equal(t, `"api";q=2;w=1, "api-2";q=4;w=3600`, w.Header().Get("RateLimit-Policy"))
			assert.Equal(t, want, w.Header().Get("RateLimit"), i)
		}
		assert.Len(t, m.Stats().Limits, 2)
		_, err = NewAll(Options{}, Limit[netip.Addr]{Limiter: tiers, Key: ByAddr, PolicyFor: func(*http.Request) policy.Policy { return nil }})
		refusedBy(t, err, "httplimit.NewAll", "limits[0].PolicyFor")
		other := hourly(t, 9)
		_, err = NewAll(Options{}, Limit[netip.Addr]{Name: "a-2", Limiter: other, Key: ByAddr}, Limit[netip.Addr]{Name: "a", Limiter: tiers, Key: ByAddr})
		refusedBy(t, err, "httplimit.NewAll", "limits[1].Name")
		five := slices.Repeat([]AnyLimit{Limit[netip.Addr]{Limiter: tiers, Key: ByAddr}}, 5)
		_, err = NewAll(Options{}, five...)
		refusedBy(t, err, "httplimit.NewAll", "limits")
	})
}

// Promise: With `Inform` a request over its limit reaches the handler; clients cannot send the field.
func TestInformServesRequestsOverLimit(t *testing.T) {
	for _, shadow := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var reports []string
			next := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				reports = append(reports, strings.Join(r.Header["X-Over"], ""))
			})
			var verdicts []limits.Verdict
			m := Must(New(open[netip.Addr](t, policy.Must(policy.Funnel(1, 1, 5*time.Second))), ByAddr, Options{
				Inform: "x-over", Shadow: shadow, Deny: prefixList("192.0.2.66/32"), Allow: prefixList("192.0.2.77/32"),
				OnVerdict: func(_ *http.Request, v limits.Verdict) { verdicts = append(verdicts, v) },
				Charge:    func(*http.Request, Served) int64 { return 1 },
			}))
			var codes []int
			var last http.Header
			for _, client := range []string{"192.0.2.66:1", "192.0.2.77:1", alice, alice} {
				r := from(client, "X-Over", "forged", "Other", "kept")
				w := ask(m.Handler(next), r)
				codes, last = append(codes, w.Code), w.Header()
				assert.Equal(t, "forged", r.Header.Get("X-Over"), "the caller's request is not changed")
			}
			if shadow {
				assert.Equal(t, []int{200, 200, 200, 200}, codes)
				assert.Equal(t, []string{"", "", "", `"default";r=0;t=5`}, reports)
				assert.NotContains(t, last, "Ratelimit")
				return
			}
			assert.Equal(t, []int{403, 200, 200, 200}, codes)
			assert.Equal(t, []string{"", "", `"default";r=0;t=5`}, reports)
			assert.Equal(t, `"default";r=0;t=5`, last.Get("RateLimit"))
			assert.NotContains(t, last, "Retry-After", "the request was served")
			assert.Equal(t, limits.OverLimit, verdicts[3].Reason)
			assert.False(t, verdicts[3].Refused())
			assert.Equal(t, uint64(1), m.Stats().OverLimit)
			time.Sleep(5 * time.Second)
			ask(m.Handler(next), from(alice))
			assert.Empty(t, reports[3], "the request that was over its limit has taken units")
		})
	}
	ask(Must(New(guess(t, false, limits.SourceShare), ByAddr, Options{Inform: "X-Over"})).Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		assert.Equal(t, `"default"`, r.Header.Get("X-Over"))
	})), from(alice))
}

// Promise: `Charge` runs for requests of which a limit holds units, and for no others.
func TestMiddlewareKeepsTheAdmissionContract(t *testing.T) { admissiontest.Run(t, adapter) }

func adapter(t testing.TB, o admissiontest.Options, all []admissiontest.Limit) admissiontest.Door {
	t.Helper()
	contextOf := (*http.Request).Context
	var given []AnyLimit
	for _, l := range all {
		given = append(given, Limit[string]{
			Name: l.Name, Limiter: l.Limiter, WhenNoKey: l.WhenNoKey, Shadow: l.Shadow,
			Key:       func(r *http.Request) string { return l.Key(admissiontest.Of(r.Context())) },
			Cost:      admissiontest.Number(l.Cost, contextOf),
			Charge:    admissiontest.Charge[*http.Request, Served](l.Charge, contextOf),
			PolicyFor: admissiontest.Plan(l.PolicyFor, contextOf),
		})
	}
	m, err := NewAll(Options{
		Cost: admissiontest.Number(o.Cost, contextOf), Charge: admissiontest.Charge[*http.Request, Served](o.Charge, contextOf),
		WaitUpTo: o.WaitUpTo, Spread: o.Spread, Shadow: o.Shadow, Logger: o.Logger, Headers: RateLimitHeaders | RetryHeaders,
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
