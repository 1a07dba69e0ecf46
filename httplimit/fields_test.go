package httplimit

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/internal/adapter/admission"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

func TestHeaderSetSendsItsFields(t *testing.T) {
	wants := map[HeaderSet][2]map[string]string{
		RateLimitHeaders: {
			{"Ratelimit-Policy": `"default";q=3;w=15`, "Ratelimit": `"default";r=1;t=10`},
			{"Ratelimit-Policy": `"default";q=3;w=15`, "Ratelimit": `"default";r=0;t=5`, "Retry-After": "5"},
		},
		LegacyHeaders: {
			{"Ratelimit-Limit": "3", "Ratelimit-Remaining": "1", "Ratelimit-Reset": "10"},
			{"Ratelimit-Limit": "3", "Ratelimit-Remaining": "0", "Ratelimit-Reset": "5", "Retry-After": "5"},
		},
		XRateLimitHeaders: {
			// A bubble's clock begins in the year 2000.
			{"X-Ratelimit-Limit": "3", "X-Ratelimit-Remaining": "1", "X-Ratelimit-Reset": "946684810"},
			{"X-Ratelimit-Limit": "3", "X-Ratelimit-Remaining": "0", "X-Ratelimit-Reset": "946684805", "Retry-After": "5"},
		},
		SpringHeaders: {
			{"X-Ratelimit-Burst-Capacity": "3", "X-Ratelimit-Remaining": "1", "X-Ratelimit-Replenish-Rate": "0.2", "X-Ratelimit-Requested-Tokens": "1"},
			{"X-Ratelimit-Burst-Capacity": "3", "X-Ratelimit-Remaining": "0", "X-Ratelimit-Replenish-Rate": "0.2", "X-Ratelimit-Requested-Tokens": "1", "Retry-After": "5"},
		},
		RetryHeaders: {{}, {"Retry-After": "5", "Retry-After-Ms": "5000"}},
		NoHeaders:    {{}, {"Retry-After": "5"}},
	}
	// All sets are asked for together.
	wants[everyHeader] = [2]map[string]string{{}, {}}
	for set, want := range wants {
		if set != everyHeader {
			maps.Copy(wants[everyHeader][0], want[0])
			maps.Copy(wants[everyHeader][1], want[1])
		}
	}
	for set, want := range wants {
		synctest.Test(t, func(t *testing.T) {
			limiter := open[netip.Addr](t, policy.Must(policy.Funnel(3, 1, 5*time.Second)))
			h := Must(New(limiter, ByAddr, Options{Headers: set, Spread: 1})).Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			fields := func() map[string]string {
				got := map[string]string{}
				for name, values := range ask(h, from(alice)).Header() {
					if strings.Contains(name, "imit") || strings.Contains(name, "etry") {
						require.Len(t, values, 1, name)
						got[name] = values[0]
					}
				}
				return got
			}
			fields()
			assert.Equal(t, want[0], fields(), "header set %d, admitted", set)
			fields()
			assert.Equal(t, want[1], fields(), "header set %d, refused", set)
		})
	}
}

func TestPolicyFieldFollowsTheLimit(t *testing.T) {
	var limits []policy.Policy
	for i := range 3 * admission.MaxPolicies {
		limits = append(limits, policy.Must(policy.Funnel(int64(10+i), 1, time.Second)))
	}
	var which atomic.Int64
	limiter := must.Get(engine.New(engine.Config{Policy: limits[0]}, engine.PolicyFor(func(netip.Addr) policy.Policy { return limits[which.Load()] })))
	defer limiter.Close()
	m := Must(New(limiter, ByAddr, Options{Cost: func(*http.Request) int64 { return 0 }}))
	h := m.Handler(done)
	for range 2 {
		for i := range limits {
			which.Store(int64(i))
			n := strconv.Itoa(10 + i)
			assert.Equal(t, `"default";q=`+n+`;w=`+n, ask(h, from(alice)).Header().Get("RateLimit-Policy"))
		}
	}
	assert.Equal(t, admission.MaxPolicies, m.fields.Cached(), "the cache is bounded")
}

func TestUnixTimeIsRoundedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := open[netip.Addr](t, policy.Must(policy.Funnel(3, 1, 5*time.Second)))
		h := Must(New(limiter, ByAddr, Options{Headers: XRateLimitHeaders})).Handler(done)
		time.Sleep(time.Nanosecond)
		assert.Equal(t, "946684806", ask(h, from(alice)).Header().Get("X-RateLimit-Reset"))
	})
}

// A window that is shorter than a second or unknown is left out. Numbers are capped.
func TestPolicyFieldAtTheEdges(t *testing.T) {
	for want, p := range map[string]policy.Policy{
		`"default";q=10`:     policy.Must(policy.Funnel(10, 11, time.Second)),
		`"default";q=10;w=1`: policy.Must(policy.Funnel(10, 10, time.Second)),
		`"default";q=10;w=2`: policy.Must(policy.Funnel(10, 9, time.Second)),
		// The window is 1.000000001 s.
		`"default";q=3;w=1`:           policy.Must(policy.Funnel(3, 3, time.Second)),
		`"default";q=999999999999999`: huge{},
		`"default";q=1`:               policy.Must(policy.Bursty(100, time.Second, 0)),
		`"default";q=100;w=1`:         policy.Must(policy.Bursty(100, time.Second, 99)),
		`"default";q=101;w=2`:         policy.Must(policy.Bursty(100, time.Second, 100)),
		`"default";q=1;w=60`:          policy.Must(policy.WarmingUp(1, time.Minute, time.Hour, 3)),
		// The Limit of this policy is 1.
		`"default";q=1;w=3600`: policy.Must(policy.Bursty(1, time.Hour, 100_000)),
	} {
		limiter := open[netip.Addr](t, p)
		w := ask(Must(New(limiter, ByAddr, Options{})).Handler(done), from(alice))
		assert.Equal(t, want, w.Header().Get("RateLimit-Policy"))
		if (p == huge{}) {
			assert.Equal(t, `"default";r=999999999999999;t=9223372037`, w.Header().Get("RateLimit"))
		}
	}
}

// huge is a policy whose numbers exceed a structured field.
type huge struct{}

// Promise: Nested middlewares all tell clients of their limits.
func TestNestedMiddlewaresAddLines(t *testing.T) {
	outer := must.Get(NewAll(Options{}, Limit[netip.Addr]{Name: "outer", Limiter: open[netip.Addr](t, policy.Must(policy.Funnel(10, 10, time.Second))), Key: ByAddr}))
	inner := must.Get(NewAll(Options{}, Limit[netip.Addr]{Name: "inner", Limiter: open[netip.Addr](t, policy.Must(policy.Funnel(5, 5, time.Second))), Key: ByAddr}))
	w := ask(outer.Handler(inner.Handler(done)), from(alice))
	assert.Equal(t, []string{`"outer";q=10;w=1`, `"inner";q=5;w=1`}, w.Header()["Ratelimit-Policy"])
	assert.Equal(t, []string{`"outer";r=9;t=1`, `"inner";r=4;t=1`}, w.Header()["Ratelimit"])
}

func TestLinesAreAddedToACopy(t *testing.T) {
	m := Must(New(open[netip.Addr](t, policy.Must(policy.Funnel(10, 10, time.Second))), ByAddr, Options{}))
	shared := make([]string, 1, 2)
	w := ask(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Ratelimit"] = shared
		m.Handler(done).ServeHTTP(w, r)
	}), from(alice))
	assert.Len(t, w.Header()["Ratelimit"], 2)
	assert.Empty(t, shared[:2][1])
}

func TestHeaderValuesAreTheRequestsOwn(t *testing.T) {
	m := Must(New(open[netip.Addr](t, policy.Must(policy.Funnel(10, 10, time.Second))), ByAddr, Options{}))
	h := m.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		assert.Equal(t, `"default";q=10;w=1`, w.Header()["Ratelimit-Policy"][0])
		w.Header()["Ratelimit-Policy"][0] = "mine"
		w.Header().Add("RateLimit-Policy", "mine")
		assert.NotContains(t, w.Header()["Ratelimit"][0], "mine")
	}))
	for range 3 {
		ask(h, from(alice))
	}
}

func TestNestedLegacyFieldsTellTheTighterLimit(t *testing.T) {
	for set, names := range map[HeaderSet][2]string{
		LegacyHeaders:                     {legacyLimit, legacyRemaining},
		XRateLimitHeaders:                 {xLimit, xRemaining},
		SpringHeaders:                     {springCapacity, xRemaining},
		XRateLimitHeaders | SpringHeaders: {xLimit, xRemaining},
		LegacyHeaders | SpringHeaders:     {springCapacity, legacyRemaining},
		everyHeader:                       {springCapacity, xRemaining},
	} {
		for _, c := range []struct {
			outer, inner     int64
			requests, status int
			limit, remaining string
		}{
			{10, 5, 1, 200, "5", "4"},
			{5, 10, 1, 200, "5", "4"},
			{5, 5, 1, 200, "5", "4"},
			{10, 5, 6, 429, "5", "0"},
			{5, 10, 6, 429, "5", "0"},
			// Nothing is left of the outer limit either.
			{5, 3, 5, 429, "3", "0"},
		} {
			limit := func(n int64) *Middleware {
				return Must(New(open[netip.Addr](t, policy.Must(policy.FixedWindow(n, time.Hour))), ByAddr, Options{Headers: set}))
			}
			h := limit(c.outer).Handler(limit(c.inner).Handler(done))
			for range c.requests - 1 {
				ask(h, from(alice))
			}
			w := ask(h, from(alice))
			assert.Equal(t, c.status, w.Code)
			assert.Equal(t, []string{c.limit}, w.Header()[names[0]], "%+v", c)
			assert.Equal(t, []string{c.remaining}, w.Header()[names[1]], "%+v", c)
		}
	}
	// Two sets have X-RateLimit-Remaining.
	for _, sets := range [][2]HeaderSet{{XRateLimitHeaders, SpringHeaders}, {SpringHeaders, XRateLimitHeaders}} {
		for _, limits := range [][2]int64{{10, 5}, {5, 10}} {
			limit := func(i int) *Middleware {
				return Must(New(open[netip.Addr](t, policy.Must(policy.FixedWindow(limits[i], time.Hour))), ByAddr, Options{Headers: sets[i]}))
			}
			h := ask(limit(0).Handler(limit(1).Handler(done)), from(alice)).Header()
			assert.Equal(t, []string{"4"}, h[xRemaining], "%v", limits)
			assert.Equal(t, []string{"5"}, append(h[xLimit], h[springCapacity]...), "%v", limits)
			assert.Equal(t, 1, len(h[xReset])+len(h[springRate]), "%v", limits)
			assert.Equal(t, len(h[springRate]), len(h[springRequested]), "%v", limits)
		}
	}
	// Fields that another handler wrote are no limit.
	for _, strange := range [][]string{{"many"}, {"1", "2"}, {}} {
		m := Must(New(open[netip.Addr](t, policy.Must(policy.FixedWindow(5, time.Hour))), ByAddr, Options{Headers: LegacyHeaders}))
		w := ask(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header()["Ratelimit-Limit"], w.Header()["Ratelimit-Remaining"] = []string{"1"}, strange
			m.Handler(done).ServeHTTP(w, r)
		}), from(alice))
		assert.Equal(t, []string{"4"}, w.Header()["Ratelimit-Remaining"])
	}
}

// Clients are told the units that can remain under a Bursty or WarmingUp, not the credit of a
// request. The limit with the least share left is told.
func TestCreditIsNotAdvertised(t *testing.T) {
	bursts, warming := policy.Must(policy.Bursty(100, time.Second, 99)), policy.Must(policy.WarmingUp(1, time.Minute, time.Hour, 3))
	for _, c := range []struct {
		p       policy.Policy
		headers HeaderSet
		// binds is the limit that binds after two of four an hour.
		binds string
		want  map[string]string
	}{
		{bursts, RateLimitHeaders, "hour", map[string]string{
			"Ratelimit-Policy": `"credit";q=100;w=1, "hour";q=4;w=3600`, "Ratelimit": `"hour";r=2;t=1800`,
		}},
		{bursts, LegacyHeaders, "hour", map[string]string{"Ratelimit-Limit": "4", "Ratelimit-Remaining": "2"}},
		{warming, RateLimitHeaders, "credit", map[string]string{
			"Ratelimit-Policy": `"credit";q=1;w=60, "hour";q=4;w=3600`,
		}},
		{warming, LegacyHeaders, "credit", map[string]string{"Ratelimit-Limit": "1", "Ratelimit-Remaining": "0"}},
		{warming, XRateLimitHeaders, "credit", map[string]string{"X-Ratelimit-Limit": "1", "X-Ratelimit-Remaining": "0"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			credit := Limit[netip.Addr]{Name: "credit", Limiter: open[netip.Addr](t, c.p), Key: ByAddr}
			hourly := open[netip.Addr](t, policy.Must(policy.Funnel(4, 4, time.Hour)))
			hour := Limit[netip.Addr]{Name: "hour", Limiter: hourly, Key: ByAddr}
			// The store is full.
			time.Sleep(time.Second)
			hourly.Take(aliceKey, 1)
			var verdict limits.Verdict
			m := Must(NewAll(Options{
				Headers: c.headers, OnVerdict: func(_ *http.Request, v limits.Verdict) { verdict = v },
			}, credit, hour))
			w := ask(m.Handler(done), from(alice))
			assert.Equal(t, c.binds, verdict.Limit, "%v", c.p)
			for name, want := range c.want {
				assert.Equal(t, want, w.Header().Get(name), "%v, %s", c.p, name)
			}
			// The handlers are nested: the inner limit is not told.
			if c.headers == LegacyHeaders && c.binds == "hour" {
				outer := Must(NewAll(Options{Headers: c.headers}, hour))
				inner := Must(NewAll(Options{Headers: c.headers}, credit))
				w := ask(outer.Handler(inner.Handler(done)), from(alice))
				assert.Equal(t, "1", w.Header().Get("RateLimit-Remaining"))
				w = ask(inner.Handler(outer.Handler(done)), from(alice))
				assert.Equal(t, "4", w.Header().Get("RateLimit-Limit"))
			}
		})
	}
}

func TestFreshWindowIsToldAsItsLength(t *testing.T) {
	for set, read := range map[HeaderSet]func(http.Header) string{
		RateLimitHeaders: func(h http.Header) string {
			_, t, _ := strings.Cut(h.Get("RateLimit"), ";t=")
			return t
		},
		LegacyHeaders: func(h http.Header) string { return h.Get("RateLimit-Reset") },
	} {
		synctest.Test(t, func(t *testing.T) {
			limiter := open[netip.Addr](t, policy.Must(policy.FixedWindow(1, time.Minute)))
			h := Must(New(limiter, ByAddr, Options{Headers: set, Spread: 1})).Handler(done)
			for i := range 1000 {
				time.Sleep(time.Duration(12_345*i + 1))
				client := from(netip.AddrFrom4([4]byte{192, 0, byte(i >> 8), byte(i)}).String() + ":1")
				require.Equal(t, "60", read(ask(h, client).Header()), "admitted, client %d", i)
				require.Equal(t, "60", read(ask(h, client).Header()), "refused, client %d", i)
			}
		})
	}
}

func TestReplenishRateIsPerSecond(t *testing.T) {
	for want, p := range map[string]policy.Policy{
		"10":        policy.Must(policy.Funnel(20, 10, time.Second)),
		"16.666667": policy.Must(policy.FixedWindow(1000, time.Minute)),
		"0.000012":  policy.Must(policy.FixedWindow(1, 24*time.Hour)),
		"100":       policy.Must(policy.Bursty(100, time.Second, 9)),
		"":          huge{},
	} {
		m := Must(New(open[netip.Addr](t, p), ByAddr, Options{Headers: SpringHeaders}))
		assert.Equal(t, want, ask(m.Handler(done), from(alice)).Header().Get("X-RateLimit-Replenish-Rate"), "%v", p)
	}
}

// A client is told to give up only if another try is refused too.
func TestRetryFieldsSayWhetherToRetry(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	used := func(period time.Duration) *engine.Engine[netip.Addr] {
		e := must.Get(engine.New[netip.Addr](engine.Config{
			Policy: policy.Must(policy.Funnel(1, 1, period)), Clock: func() policy.Instant { return policy.Instant(time.Hour) },
		}))
		t.Cleanup(func() { assert.NoError(t, e.Close()) })
		e.Take(aliceKey, 1)
		return e
	}
	full, away := used(time.Hour), guess(t, false, limits.SourceShare)
	away.Err = errors.New("no connection")
	o := Options{Headers: RetryHeaders, Spread: time.Minute, Cost: costField, Deny: prefixList("192.0.2.66/32")}
	soon, gone := Must(New(used(time.Second+time.Microsecond), ByAddr, o)), Must(New(away, ByAddr, o))
	near, far := Must(New(full, ByAddr, o)), Must(New(guess(t, false, limits.SourceShare), ByAddr, o))
	o.Spread = 0
	herd := Must(New(full, ByAddr, o))
	for _, c := range []struct {
		m             *Middleware
		r             *http.Request
		status        int
		millis, again string
	}{
		{herd, from(alice, "Cost", "1"), 429, "", ""},
		{near, from(alice, "Cost", "1"), 429, "3600000", ""},
		{far, from(alice, "Cost", "1"), 429, "7000", ""},
		// The time is rounded up.
		{soon, from(alice, "Cost", "1"), 429, "1001", ""},
		{gone, from(alice, "Cost", "1"), 503, "", ""},
		{near, from(alice, "Cost", "2"), 403, "", "false"},
		{near, from("192.0.2.66:1"), 403, "", "false"},
		{near, from("@"), 400, "", "false"},
		{near, from(alice, "Cost", "-1"), 500, "", "false"},
		{near, from(alice, "Cost", "1").WithContext(ended), 503, "", ""},
	} {
		w := ask(c.m.Handler(done), c.r)
		assert.Equal(t, c.status, w.Code)
		assert.Equal(t, c.millis, w.Header().Get("retry-after-ms"), c.status)
		assert.Equal(t, c.again, w.Header().Get("x-should-retry"), c.status)
	}
}

func TestHeaderHookChangesSentFields(t *testing.T) {
	var reasons []limits.Reason
	hook := func(h http.Header, v limits.Verdict) {
		reasons = append(reasons, v.Reason)
		h["My-Limit"] = h[limitField]
		delete(h, limitField)
		h.Del("Retry-After")
		if v.Reason == limits.OverLimit {
			h.Set("Cache-Control", "no-cache")
		}
	}
	for _, o := range []Options{
		{Header: hook}, {Header: hook, Headers: NoHeaders}, {Header: hook, Shadow: true},
		{Header: hook, Refuse: func(w http.ResponseWriter, _ *http.Request, v limits.Verdict) { w.WriteHeader(Status(v.Reason)) }},
	} {
		reasons = nil
		o.Allow = prefixList("192.0.2.77/32")
		m := Must(New(hourly(t, 1), ByAddr, o))
		ask(m.Handler(done), from("192.0.2.77:1"))
		first, second := ask(m.Handler(done), from(alice)).Header(), ask(m.Handler(done), from(alice)).Header()
		if o.Shadow {
			assert.Empty(t, reasons)
			continue
		}
		assert.Equal(t, []limits.Reason{limits.Admitted, limits.OverLimit}, reasons)
		assert.Equal(t, o.Headers == NoHeaders, first.Get("My-Limit") == "")
		assert.Equal(t, o.Headers == NoHeaders, second.Get("My-Limit") == "")
		for _, gone := range []string{"RateLimit", "Retry-After"} {
			assert.Empty(t, first.Get(gone)+second.Get(gone))
		}
		assert.Equal(t, "no-cache", second.Get("Cache-Control"))
	}
}

// RateLimit tells of the limit that decides, RateLimit-Policy of those that apply. Retry-After is of
// the limit that refuses longest.
func TestRateLimitTellsTheDecidingLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		addresses := open[netip.Addr](t, policy.Must(policy.Funnel(10, 1, time.Second)))
		keys := open[string](t, policy.Must(policy.Funnel(3, 1, time.Minute)))
		h := Must(NewAll(Options{},
			Limit[netip.Addr]{Name: "address", Limiter: addresses, Key: ByAddr},
			Limit[string]{Name: "key", Limiter: keys, Key: ByHeader("X-Api-Key"), WhenNoKey: limits.Skip},
		)).Handler(done)
		first, both := `"address";q=10;w=10`, `"address";q=10;w=10, "key";q=3;w=180`
		for i, c := range []struct {
			key                      string
			code                     int
			policies, standing, wait string
			violated                 string
		}{
			{"k", 200, both, `"key";r=2;t=60`, "", ""},
			{"k", 200, both, `"key";r=1;t=120`, "", ""},
			{"k", 200, both, `"key";r=0;t=180`, "", ""},
			{"k", 429, both, `"key";r=0;t=60`, "60", `["key"]`},
			{"", 200, first, `"address";r=6;t=4`, "", ""},
			{"drain", 200, "", "", "", ""},
			{"", 429, first, `"address";r=0;t=1`, "1", `["address"]`},
			{"other", 429, both, `"address";r=0;t=1`, "1", `["address"]`},
			{"k", 429, both, `"key";r=0;t=60`, "60", `["address","key"]`},
		} {
			if c.key == "drain" {
				addresses.Take(aliceKey, 6)
				continue
			}
			w := ask(h, from(alice, "X-Api-Key", c.key))
			got := []any{w.Code, w.Header().Get("RateLimit-Policy"), w.Header().Get("RateLimit"), w.Header().Get("Retry-After")}
			assert.Equal(t, []any{c.code, c.policies, c.standing, c.wait}, got, "request %d", i)
			if c.violated != "" {
				assert.Contains(t, w.Body.String(), `"violated-policies":`+c.violated, "request %d", i)
			}
		}
	})
}

// Promise: A Hidden limit refuses, and no field and no body has its name or its numbers.
func TestHiddenLimitStaysHidden(t *testing.T) {
	everything := RateLimitHeaders | LegacyHeaders | XRateLimitHeaders | SpringHeaders | RetryHeaders
	open := func(text string) Limit[netip.Addr] {
		e := must.Get(engine.New[netip.Addr](engine.Config{Policy: policy.Must(policy.Parse(text))}))
		t.Cleanup(func() { assert.NoError(t, e.Close()) })
		return Limit[netip.Addr]{Limiter: e, Key: ByAddr}
	}
	for _, way := range []string{"alone", "engines", "mixed"} {
		for _, accept := range []string{"application/json", "text/plain"} {
			flood, quota := open("window 7654/2h"), open("window 9999/h")
			flood.Name, flood.Hidden, quota.Name = "flood", true, "quota"
			if way == "mixed" {
				quota.PolicyFor = func(*http.Request) policy.Policy { return nil }
			}
			all := []AnyLimit{flood, quota}
			if way == "alone" {
				all = all[:1]
			}
			cost := int64(7000)
			var last limits.Verdict
			h := Must(NewAll(Options{
				Headers: everything, Cost: func(*http.Request) int64 { return cost },
				OnVerdict: func(_ *http.Request, v limits.Verdict) { last = v },
			}, all...)).Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			ask := func(want int) *httptest.ResponseRecorder {
				w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil)
				r.Header.Set("Accept", accept)
				h.ServeHTTP(w, r)
				assert.Equal(t, want, w.Code, way)
				answer := fmt.Sprint(w.Header(), w.Body)
				assert.NotContains(t, answer, "flood", way)
				// The answer must not tell 7,654 either.
				assert.NotContains(t, answer, "654", way)
				if way == "alone" || want == http.StatusForbidden {
					assert.NotContains(t, answer, "Ratelimit", way)
				} else {
					assert.Equal(t, `"quota";q=9999;w=3600`, w.Header().Get("RateLimit-Policy"), way)
				}
				return w
			}
			w := ask(http.StatusOK)
			if way != "alone" {
				assert.Contains(t, w.Header().Get("RateLimit"), `"quota";r=2999`, "the hidden limit has less left")
				assert.Equal(t, "quota", last.Limit, way)
			}
			cost = 1000
			// The hidden limit alone refuses.
			w = ask(http.StatusTooManyRequests)
			assert.Equal(t, "flood", last.Limit, way)
			assert.Empty(t, w.Header().Get("RateLimit"), way)
			assert.NotEmpty(t, w.Header().Get("Retry-After"), way)
			assert.NotContains(t, w.Body.String(), "violated", way)
			cost = 8000
			// The hidden limit never admits the request.
			ask(http.StatusForbidden)
			assert.Equal(t, "flood", last.Limit, way)
			if way != "alone" {
				cost = 5000
				// Both limits refuse.
				w = ask(http.StatusTooManyRequests)
				assert.Equal(t, "quota", last.Limit, way)
				assert.Contains(t, w.Header().Get("RateLimit"), `"quota";r=2999`, way)
				after, err := strconv.Atoi(w.Header().Get("Retry-After"))
				assert.NoError(t, err)
				assert.Greater(t, after, 3600, "%s: the hidden limit refuses for longer", way)
			}
		}
	}
}
