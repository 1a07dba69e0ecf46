package httplimit

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// get sends a request with header fields in pairs, and returns the body.
func get(t *testing.T, client *http.Client, url string, fields ...string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequest(http.MethodGet, url, nil)
	require.NoError(t, err)
	for i := 0; i < len(fields); i += 2 {
		r.Header.Add(fields[i], fields[i+1])
	}
	resp, err := client.Do(r)
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp, string(text)
}

// Promise: A request that can never pass is 403.
func TestRequestThatIsNeverAdmitted(t *testing.T) {
	ten := func(t *testing.T) Limit[netip.Addr] {
		return Limit[netip.Addr]{Name: "ten", Limiter: open[netip.Addr](t, policy.Must(policy.Funnel(10, 10, time.Hour))), Key: ByAddr}
	}
	hundred := func(t *testing.T) Limit[netip.Addr] {
		return Limit[netip.Addr]{Name: "hundred", Limiter: open[netip.Addr](t, policy.Must(policy.Funnel(100, 10, time.Hour))), Key: ByAddr}
	}
	for name, given := range map[string]func(t *testing.T) []AnyLimit{
		"one limit": func(t *testing.T) []AnyLimit { return []AnyLimit{ten(t)} },
		"several":   func(t *testing.T) []AnyLimit { return []AnyLimit{hundred(t), ten(t)} },
	} {
		for _, upTo := range []time.Duration{0, time.Minute} {
			for _, http2 := range []bool{false, true} {
				var got limits.Verdict
				m := Must(NewAll(Options{
					Cost: costField, WaitUpTo: upTo, OnVerdict: func(_ *http.Request, v limits.Verdict) { got = v },
				}, given(t)...))
				s := serve(t, m.Handler(done), http2)
				resp, body := get(t, s.Client(), s.URL, "Cost", "20")
				assert.Equal(t, 403, resp.StatusCode, name)
				assert.Empty(t, resp.Header["Retry-After"])
				assert.Empty(t, resp.Header["Ratelimit"])
				assert.Equal(t, "no-store", resp.Header.Get("Cache-Control"))
				assert.JSONEq(t, `{"type":"about:blank","title":"Forbidden","status":403,
					"detail":"the limit \"ten\" never admits this request, which costs 20: the most that it allows is 10"}`, body)
				assert.Equal(t, []any{limits.NeverAdmitted, "ten", policy.Never, int64(10)}, []any{got.Reason, got.Limit, got.RetryAfter, got.Decision.Limit})
				_, body = get(t, s.Client(), s.URL, "Cost", "20", "Accept", "text/html")
				assert.Equal(t, `Forbidden: the limit "ten" never admits this request, which costs 20: the most that it allows is 10`+"\n", body)

				resp, _ = get(t, s.Client(), s.URL, "Cost", "10")
				assert.Equal(t, 200, resp.StatusCode, "it has taken nothing")
				assert.Equal(t, []uint64{1, 2, 0}, []uint64{m.Stats().Admitted, m.Stats().NeverAdmitted, m.Stats().OverLimit})
			}
		}
	}
}

// Two limits that share an engine and a key take twice from it, which may be too much.
func TestTwiceTheCostIsNeverAdmitted(t *testing.T) {
	limiter := open[netip.Addr](t, policy.Must(policy.Funnel(10, 10, time.Hour)))
	m := Must(NewAll(Options{Cost: costField}, Limit[netip.Addr]{Name: "a", Limiter: limiter, Key: ByAddr},
		Limit[netip.Addr]{Name: "b", Limiter: limiter, Key: ByAddr}))
	w := ask(m.Handler(done), from(alice, "Cost", "6", "Accept", "text/plain"))
	assert.Equal(t, 403, w.Code)
	assert.Equal(t, `Forbidden: the limit "a" never admits this request`+"\n", w.Body.String())
}

func TestShadowOfNeverAdmitted(t *testing.T) {
	m := Must(New(open[netip.Addr](t, policy.Must(policy.Funnel(10, 10, time.Hour))), ByAddr, Options{Cost: costField, Shadow: true}))
	assert.Equal(t, 200, ask(m.Handler(done), from(alice, "Cost", "20")).Code)
	assert.Equal(t, uint64(1), m.Stats().NeverAdmitted)
}

// planned is an engine of funnels that chooses windows for users of the plan "wrong".
func planned(t *testing.T) *engine.Engine[string] {
	t.Helper()
	funnel, window := policy.Must(policy.Funnel(10, 10, time.Hour)), policy.Must(policy.FixedWindow(10, time.Hour))
	e, err := engine.New(engine.Config{Policy: funnel}, engine.PolicyFor(func(user string) policy.Policy {
		if strings.HasPrefix(user, "wrong") {
			return window
		}
		return funnel
	}))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, e.Close()) })
	return e
}

// It is logged once for each limit. Other keys are served.
func TestPlanOfAnotherFamily(t *testing.T) {
	for name, with := range map[string]func(t *testing.T, o Options) *Middleware{
		"one limit": func(t *testing.T, o Options) *Middleware {
			return Must(NewAll(o, Limit[string]{Name: "plan", Limiter: planned(t), Key: ByHeader("User")}))
		},
		"several": func(t *testing.T, o Options) *Middleware {
			return Must(NewAll(o,
				// It never admits a cost of 20 either, but that is the client's error.
				Limit[netip.Addr]{Name: "address", Limiter: open[netip.Addr](t, policy.Must(policy.Funnel(15, 15, time.Second))), Key: ByAddr},
				Limit[string]{Name: "plan", Limiter: planned(t), Key: ByHeader("User")}))
		},
	} {
		for _, upTo := range []time.Duration{0, time.Minute} {
			for _, cost := range []string{"0", "1", "20"} {
				var text bytes.Buffer
				m := with(t, Options{Cost: costField, WaitUpTo: upTo, Logger: slog.New(slog.NewJSONHandler(&text, nil))})
				s := serve(t, m.Handler(done), false)
				for _, user := range []string{"wrong", "wrong", "wrong too"} {
					resp, body := get(t, s.Client(), s.URL, "User", user, "Cost", cost)
					assert.Equal(t, 500, resp.StatusCode, name)
					assert.Empty(t, resp.Header["Retry-After"])
					assert.Empty(t, resp.Header["Ratelimit"])
					assert.JSONEq(t, `{"type":"about:blank","title":"Internal Server Error","status":500,
						"detail":"the server is misconfigured: the limit \"plan\" cannot be applied to this client"}`, body)
				}
				resp, _ := get(t, s.Client(), s.URL, "User", "right", "Cost", "1")
				assert.Equal(t, 200, resp.StatusCode)
				assert.Equal(t, uint64(3), m.Stats().Misconfigured)
				assert.Zero(t, m.Stats().OverLimit)

				var errors, refusals []map[string]any
				for line := range strings.Lines(text.String()) {
					var fields map[string]any
					require.NoError(t, json.Unmarshal([]byte(line), &fields))
					if fields["level"] == "ERROR" {
						errors = append(errors, fields)
					} else {
						refusals = append(refusals, fields)
					}
				}
				require.Len(t, errors, 1, text.String())
				assert.Contains(t, errors[0]["msg"], "another family")
				assert.Equal(t, "plan", errors[0]["limit"])
				assert.Equal(t, policy.Must(policy.FixedWindow(10, time.Hour)).String(), errors[0]["policy"])
				assert.Len(t, refusals, 3)
				assert.Equal(t, "rate limit: misconfigured", refusals[0]["msg"])
			}
		}
	}
}

func TestPlanChangesFamilyDuringAWait(t *testing.T) {
	for _, several := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			fits := policy.Must(policy.Funnel(1, 1, time.Second))
			began := time.Now()
			limiter, err := engine.New(engine.Config{Policy: fits}, engine.PolicyFor(func(netip.Addr) policy.Policy {
				if time.Since(began) >= time.Second {
					return policy.Must(policy.AtMost(5, time.Second))
				}
				return fits
			}))
			require.NoError(t, err)
			defer limiter.Close()
			given := []AnyLimit{Limit[netip.Addr]{Name: "a", Limiter: limiter, Key: ByAddr}}
			if several {
				roomy := open[netip.Addr](t, policy.Must(policy.Funnel(100, 100, time.Second)))
				given = append(given, Limit[netip.Addr]{Name: "b", Limiter: roomy, Key: ByAddr})
			}
			m := Must(NewAll(Options{WaitUpTo: time.Minute}, given...))
			ask(m.Handler(done), from(alice))
			w := ask(m.Handler(done), from(alice))
			assert.Equal(t, time.Second, time.Since(began), "it has waited")
			assert.Equal(t, 200, w.Code, "several %v", several)
			assert.Contains(t, w.Header().Get("RateLimit-Policy"), `"a";q=1;w=1`)
			assert.Zero(t, m.Stats().Misconfigured)
		})
	}
}

// The key function runs once for a request's lines, although a limit's first request has two.
func TestLogFindsTheKeyOnce(t *testing.T) {
	calls := 0
	m := Must(New(planned(t), func(*http.Request) string { calls++; return "wrong" },
		Options{Logger: slog.New(slog.NewTextHandler(io.Discard, nil))}))
	for range 2 {
		calls = 0
		assert.Equal(t, 500, ask(m.Handler(done), from(alice)).Code)
		assert.Equal(t, 2, calls, "once to decide, once to log")
	}
}

type barred struct{ policy.Policy }

func (barred) Limit() int64 { return 0 }

func (b barred) Take(word uint64, now policy.Instant, n int64, patience time.Duration) (uint64, policy.Decision) {
	if n == 0 {
		return word, policy.Decision{Allowed: true}
	}
	return word, policy.Decision{RetryAfter: policy.Never}
}

// A policy of the program whose limit is 0 is not of another family, which also has limit 0.
func TestLimitOfZeroIsNotMisconfigured(t *testing.T) {
	funnel := policy.Must(policy.Funnel(10, 10, time.Hour))
	none := Limit[netip.Addr]{Name: "none", Limiter: open[netip.Addr](t, barred{funnel}), Key: ByAddr}
	some := Limit[netip.Addr]{Name: "some", Limiter: open[netip.Addr](t, funnel), Key: ByAddr}
	for _, limits := range [][]AnyLimit{{none}, {some, none}} {
		for _, upTo := range []time.Duration{0, time.Minute} {
			m := Must(NewAll(Options{WaitUpTo: upTo}, limits...))
			assert.Equal(t, 403, ask(m.Handler(done), from(alice)).Code)
			s := m.Stats()
			assert.Equal(t, []uint64{1, 0}, []uint64{s.NeverAdmitted, s.Misconfigured})
		}
	}
}

// Promise: A misconfigured limit or cost is 500, counted and logged once.
func TestCostBelowZero(t *testing.T) {
	var text bytes.Buffer
	limiter := open[netip.Addr](t, policy.Must(policy.Funnel(10, 10, time.Hour)))
	limit := Limit[netip.Addr]{Name: "a", Limiter: limiter, Key: ByAddr}
	other := Limit[netip.Addr]{Name: "b", Limiter: open[netip.Addr](t, policy.Must(policy.Funnel(10, 10, time.Hour))), Key: ByAddr}
	for _, limits := range [][]AnyLimit{{limit}, {limit, other}} {
		text.Reset()
		m := Must(NewAll(Options{
			Cost:   func(r *http.Request) int64 { return r.ContentLength },
			Logger: slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelError})),
		}, limits...))
		s := serve(t, m.Handler(done), false)
		for range 3 {
			resp, err := s.Client().Post(s.URL, "text/plain", io.MultiReader(strings.NewReader("chunked")))
			require.NoError(t, err)
			body, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			assert.Equal(t, 500, resp.StatusCode)
			assert.Contains(t, string(body), "cost is below 0")
		}
		assert.Equal(t, uint64(3), m.Stats().Misconfigured)
		assert.Equal(t, 1, strings.Count(text.String(), "\n"), text.String())
		assert.Zero(t, limiter.Len())
	}
}
