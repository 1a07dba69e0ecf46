package httplimit

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/single"
)

type told struct {
	limits.Limiter[netip.Addr] // for LimitFor
	answer                     limits.Answer
	err                        error
	far                        bool
	settled                    error // the error of Settle
}

func (l *told) Remote() bool { return l.far }

func (l *told) Ask(context.Context, netip.Addr, int64) (limits.Answer, error) { return l.answer, l.err }

func (l *told) Hold(context.Context, limits.Call[netip.Addr]) (limits.Grant, error) {
	return limits.Grant{Answer: l.answer, Held: limits.Held{Of: l}}, l.err
}

func (l *told) Settle(context.Context, limits.Held, int64) error { return l.settled }

func basis(source limits.Source, promised bool) *limits.Provenance {
	return limits.NewProvenance(source, promised, nil)
}

func TestGuessesAreNotTold(t *testing.T) {
	hour := policy.Must(policy.FixedWindow(10, time.Hour))
	for _, allowed := range []bool{true, false} {
		for _, source := range []limits.Source{limits.SourceLease, limits.SourceShare, limits.SourceOpen, limits.SourceUnrecorded} {
			for _, headers := range []HeaderSet{RateLimitHeaders, LegacyHeaders, XRateLimitHeaders} {
				l := &told{Limiter: open[netip.Addr](t, hour), far: true}
				l.answer = limits.Answer{Decision: policy.Decision{Allowed: allowed, Limit: 3, Remaining: 1, ResetAfter: time.Minute}, Provenance: basis(source, false)}
				want := 200
				if !allowed {
					l.answer.RetryAfter, want = 7*time.Second, 429
				}
				limit := Limit[netip.Addr]{Limiter: l, Key: ByAddr}
				other := Limit[netip.Addr]{Name: "other", Limiter: open[netip.Addr](t, policy.Must(policy.FixedWindow(1000, time.Hour))), Key: ByAddr}
				for _, m := range []*Middleware{
					Must(NewAll(Options{Headers: headers}, limit)),
					Must(NewAll(Options{Headers: headers, Charge: func(*http.Request, Served) int64 { return 1 }}, limit)),
					Must(NewAll(Options{Headers: headers}, limit, other)),
				} {
					w := ask(m.Handler(done), from(alice, "Accept", "text/plain"))
					require.Equal(t, want, w.Code)
					for _, field := range []string{
						"Retry-After", "Ratelimit", "Ratelimit-Limit", "Ratelimit-Remaining", "Ratelimit-Reset",
						"X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset",
					} {
						assert.NotContains(t, w.Header(), field, "%v", source)
					}
					if headers == RateLimitHeaders {
						assert.Contains(t, w.Header().Get("RateLimit-Policy"), `"default";q=10;w=3600`, "the limit is what it is")
					}
					if !allowed {
						assert.Equal(t, "Too Many Requests\n", w.Body.String())
					}
				}
			}
		}
	}
}

// The problem type and the verdict say so.
//
// Promise: An unavailable limiter that refuses is 503.
func TestUnavailable(t *testing.T) {
	down := errors.New("connection refused")
	for name, l := range map[string]*told{
		"closed by configuration": {answer: limits.Answer{
			Decision: policy.Decision{Limit: 10, RetryAfter: time.Second}, Provenance: limits.NewProvenance(limits.SourceClosed, false, down),
		}},
		"no answer": {err: down},
	} {
		for _, several := range []bool{false, true} {
			for _, charge := range []bool{false, true} {
				l.far, l.Limiter = true, open[netip.Addr](t, policy.Must(policy.FixedWindow(10, time.Hour)))
				var verdict limits.Verdict
				o := Options{OnVerdict: func(_ *http.Request, v limits.Verdict) { verdict = v }}
				if charge {
					o.Charge = func(*http.Request, Served) int64 { return 0 }
				}
				local := open[netip.Addr](t, policy.Must(policy.FixedWindow(10, time.Hour)))
				given := []AnyLimit{Limit[netip.Addr]{Name: "far", Limiter: l, Key: ByAddr}}
				if several {
					given = append(given, Limit[netip.Addr]{Name: "near", Limiter: local, Key: ByAddr})
				}
				m := Must(NewAll(o, given...))
				w := ask(m.Handler(done), from(alice, "Accept", "application/json"))
				assert.Equal(t, 503, w.Code, name)
				assert.Equal(t, "application/problem+json", w.Header().Get("Content-Type"))
				assert.Equal(t, "no-store", w.Header().Get("Cache-Control"))
				var problem map[string]any
				require.NoError(t, json.Unmarshal(w.Body.Bytes(), &problem))
				assert.Equal(t, "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity", problem["type"])
				assert.EqualValues(t, 503, problem["status"])
				assert.NotContains(t, w.Header(), "Retry-After", "when it is back is not known")
				assert.NotContains(t, w.Header(), "Ratelimit")
				assert.Equal(t, limits.Unavailable, verdict.Reason)
				assert.Equal(t, "unavailable", verdict.Reason.String())
				assert.ErrorIs(t, verdict.Provenance.Err(), down)
				assert.Equal(t, uint64(1), m.Stats().Unavailable)
				assert.Equal(t, int64(10), local.Peek(aliceKey, 0).Remaining, "what was taken in process is given back")
			}
		}
	}
}

func TestNeverAdmittedInAnOutage(t *testing.T) {
	l := &told{far: true, Limiter: open[netip.Addr](t, policy.Must(policy.FixedWindow(10, time.Hour)))}
	l.answer = limits.Answer{Decision: policy.Decision{Limit: 10, RetryAfter: policy.Never}, Provenance: basis(limits.SourceClosed, false)}
	assert.Equal(t, 403, ask(Must(New(l, ByAddr, Options{})).Handler(done), from(alice)).Code)
}

func TestContextThatEndsElsewhere(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	l := &told{far: true, err: context.Canceled, Limiter: open[netip.Addr](t, policy.Must(policy.FixedWindow(10, time.Hour)))}
	m := Must(New(l, ByAddr, Options{}))
	assert.Equal(t, 503, ask(m.Handler(done), from(alice).WithContext(ctx)).Code)
	assert.Equal(t, uint64(1), m.Stats().Cancelled)
}

// Promise: A request whose context has ended takes nothing.
func TestRequestOfAnEndedContextTakesNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	first, second := hourly(t, 5), hourly(t, 5)
	a := Limit[netip.Addr]{Name: "a", Limiter: first, Key: ByAddr}
	b := Limit[netip.Addr]{Name: "b", Limiter: second, Key: ByAddr}
	served := 0
	next := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served++ })
	for _, all := range [][]AnyLimit{{a}, {a, b}} {
		for _, shadow := range []bool{false, true} {
			charge := func(*http.Request, Served) int64 { return 3 }
			m := Must(NewAll(Options{Shadow: shadow, WaitUpTo: time.Second, Charge: charge, Allow: prefixList("192.0.2.77/32")}, all...))
			w := ask(m.Handler(next), from(alice).WithContext(ctx))
			assert.Equal(t, shadow, w.Code == http.StatusOK)
			assert.NotContains(t, w.Header(), "Ratelimit")
			assert.Equal(t, uint64(1), m.Stats().Cancelled)
			assert.Equal(t, http.StatusOK, ask(m.Handler(next), from("192.0.2.77:1").WithContext(ctx)).Code)
		}
	}
	assert.Equal(t, 6, served)
	assert.Equal(t, []int64{5, 5}, []int64{first.Peek(aliceKey, 0).Remaining, second.Peek(aliceKey, 0).Remaining})
}

func TestUnsettledIsCounted(t *testing.T) {
	l := &told{far: true, settled: errors.New("lost"), Limiter: open[netip.Addr](t, policy.Must(policy.FixedWindow(10, time.Hour)))}
	l.answer = limits.Answer{Decision: policy.Decision{Allowed: true, Limit: 10}, Provenance: basis(limits.SourceRedis, true)}
	limit := Limit[netip.Addr]{Limiter: l, Key: ByAddr}
	near := Limit[netip.Addr]{Name: "near", Limiter: open[netip.Addr](t, policy.Must(policy.FixedWindow(10, time.Hour))), Key: ByAddr}
	for _, all := range [][]AnyLimit{{limit}, {limit, near}} {
		m := Must(NewAll(Options{Charge: func(*http.Request, Served) int64 { return 0 }}, all...))
		assert.Equal(t, 200, ask(m.Handler(done), from(alice)).Code)
		assert.Equal(t, uint64(1), m.Stats().Unsettled)
	}
}

// Each refusal names its limit. A refusal in process does not ask the other limiter.
func TestNearAndFarLimits(t *testing.T) {
	far := &told{far: true, Limiter: open[netip.Addr](t, policy.Must(policy.FixedWindow(10, time.Hour)))}
	far.answer = limits.Answer{Decision: policy.Decision{Limit: 10, RetryAfter: 90 * time.Second}, Provenance: basis(limits.SourceRedis, true)}
	near := open[netip.Addr](t, policy.Must(policy.FixedWindow(2, time.Hour)))
	m := Must(NewAll(Options{},
		Limit[netip.Addr]{Name: "tenant", Limiter: far, Key: ByAddr}, Limit[netip.Addr]{Name: "address", Limiter: near, Key: ByAddr}))
	w := ask(m.Handler(done), from(alice))
	assert.Equal(t, 429, w.Code)
	assert.Equal(t, "90", w.Header().Get("Retry-After"))
	assert.Equal(t, `"tenant";r=0;t=90`, w.Header().Get("RateLimit"))
	assert.Equal(t, int64(2), near.Peek(aliceKey, 0).Remaining)
	assert.Contains(t, w.Body.String(), `"violated-policies":["tenant"]`)
	near.Take(aliceKey, 2)
	w = ask(m.Handler(done), from(alice))
	assert.Equal(t, 429, w.Code)
	assert.Contains(t, w.Body.String(), `"violated-policies":["address"]`)
}

// Tiers and limits without keys work alone and beside others, and Charge settles them.
func TestOtherLimiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tiers, err := engine.NewTiered[netip.Addr](
			engine.Config{Policy: policy.Must(policy.Funnel(3, 1, time.Second))}, policy.Must(policy.FixedWindow(5, time.Hour)))
		require.NoError(t, err)
		defer tiers.Close()
		whole := single.MustNew(policy.FixedWindow(4, time.Hour))
		charge := func(*http.Request, Served) int64 { return 2 }
		m := Must(New(tiers, ByAddr, Options{Charge: charge}))
		w := ask(m.Handler(done), from(alice))
		assert.Equal(t, 200, w.Code)
		assert.Equal(t, `"default";q=3;w=3, "default-2";q=5;w=3600`, w.Header().Get("RateLimit-Policy"))
		assert.Equal(t, `"default";r=2;t=1`, w.Header().Get("RateLimit"))
		assert.Equal(t, int64(1), tiers.Take(aliceKey, 0).Remaining, "2 of 3")
		both := Must(NewAll(Options{},
			Limit[netip.Addr]{Name: "client", Limiter: tiers, Key: ByAddr},
			Limit[netip.Addr]{Name: "all", Limiter: limits.ForAnyKey[netip.Addr](whole), Key: ByAddr}))
		assert.Equal(t, 200, ask(both.Handler(done), from(alice)).Code)
		w = ask(both.Handler(done), from(alice))
		assert.Equal(t, 429, w.Code)
		assert.Equal(t, "1", w.Header().Get("Retry-After"))
		for i := range 4 {
			want := 200
			if i == 3 {
				want = 429
			}
			w = ask(both.Handler(done), from(bob))
			assert.Equal(t, want, w.Code)
		}
		assert.Zero(t, whole.Peek(0).Remaining)
	})
}

func TestZeroLimiters(t *testing.T) {
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
		other := hourly(t, 9)
		_, err = NewAll(Options{}, Limit[netip.Addr]{Name: "a-2", Limiter: other, Key: ByAddr}, Limit[netip.Addr]{Name: "a", Limiter: tiers, Key: ByAddr})
		refusedBy(t, err, "httplimit.NewAll", "limits[1].Name")
		five := slices.Repeat([]AnyLimit{Limit[netip.Addr]{Limiter: tiers, Key: ByAddr}}, 5)
		_, err = NewAll(Options{}, five...)
		refusedBy(t, err, "httplimit.NewAll", "limits")
	})
}

// Promise: With `Inform` a request over its limit reaches the handler; clients cannot send the field.
func TestInform(t *testing.T) {
	for _, shadow := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var told []string
			next := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				told = append(told, strings.Join(r.Header["X-Over"], ""))
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
				assert.Equal(t, []string{"", "", "", `"default";r=0;t=5`}, told)
				assert.NotContains(t, last, "Ratelimit")
				return
			}
			assert.Equal(t, []int{403, 200, 200, 200}, codes)
			assert.Equal(t, []string{"", "", `"default";r=0;t=5`}, told)
			assert.Equal(t, `"default";r=0;t=5`, last.Get("RateLimit"))
			assert.NotContains(t, last, "Retry-After", "the request was served")
			assert.Equal(t, limits.OverLimit, verdicts[3].Reason)
			assert.False(t, verdicts[3].Refused())
			assert.Equal(t, uint64(1), m.Stats().OverLimit)
			time.Sleep(5 * time.Second)
			ask(m.Handler(next), from(alice))
			assert.Empty(t, told[3], "it has taken nothing")
		})
	}
	guess := &told{far: true, Limiter: hourly(t, 1)}
	guess.answer = limits.Answer{Decision: policy.Decision{Limit: 1, RetryAfter: time.Second}, Provenance: basis(limits.SourceShare, false)}
	ask(Must(New(guess, ByAddr, Options{Inform: "X-Over"})).Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		assert.Equal(t, `"default"`, r.Header.Get("X-Over"))
	})), from(alice))
}
