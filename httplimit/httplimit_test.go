package httplimit

import (
	"encoding/json"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/policy"
)

const (
	alice = "192.0.2.1:1"
	bob   = "192.0.2.2:1"
)

// Clients are limited one by one, and one who is refused has taken nothing.
func TestLimitsEachClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := Must(New(open[netip.Addr](t, policy.Must(policy.Funnel(2, 1, time.Second))), ByAddr, Options{}))
		h := m.Handler(done)
		for range 2 {
			w := ask(h, from(alice))
			assert.Equal(t, 200, w.Code)
			assert.Equal(t, "done", w.Body.String())
			assert.Empty(t, w.Header()["Retry-After"])
		}
		for range 5 {
			w := ask(h, from(alice))
			assert.Equal(t, 429, w.Code)
			assert.Equal(t, []string{"1"}, w.Header()["Retry-After"])
		}
		assert.Equal(t, 200, ask(h, from(bob)).Code)
		time.Sleep(time.Second)
		assert.Equal(t, 200, ask(h, from(alice)).Code)
		assert.Equal(t, 429, ask(h, from(alice)).Code)
		s := m.Stats()
		assert.Equal(t, uint64(4), s.Admitted)
		assert.Equal(t, uint64(6), s.OverLimit)
		assert.Equal(t, uint64(4), s.Limits["default"].Admitted)
	})
}

// What clients are told, in each of the header sets.
func TestHeaderSets(t *testing.T) {
	for set, want := range map[HeaderSet][2]map[string]string{
		RateLimitHeaders: {
			{"Ratelimit-Policy": `"default";q=3;w=15`, "Ratelimit": `"default";r=1;t=10`},
			{"Ratelimit-Policy": `"default";q=3;w=15`, "Ratelimit": `"default";r=0;t=5`, "Retry-After": "5"},
		},
		LegacyHeaders: {
			{"Ratelimit-Limit": "3", "Ratelimit-Remaining": "1", "Ratelimit-Reset": "10"},
			{"Ratelimit-Limit": "3", "Ratelimit-Remaining": "0", "Ratelimit-Reset": "5", "Retry-After": "5"},
		},
		XRateLimitHeaders: {
			// A bubble's clock begins with 2000.
			{"X-Ratelimit-Limit": "3", "X-Ratelimit-Remaining": "1", "X-Ratelimit-Reset": "946684810"},
			{"X-Ratelimit-Limit": "3", "X-Ratelimit-Remaining": "0", "X-Ratelimit-Reset": "946684805", "Retry-After": "5"},
		},
		NoHeaders: {{}, {"Retry-After": "5"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			limiter := open[netip.Addr](t, policy.Must(policy.Funnel(3, 1, 5*time.Second)))
			h := Must(New(limiter, ByAddr, Options{Headers: set})).Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			told := func() map[string]string {
				got := map[string]string{}
				for name, values := range ask(h, from(alice)).Header() {
					if strings.Contains(name, "imit") || name == "Retry-After" {
						require.Len(t, values, 1, name)
						got[name] = values[0]
					}
				}
				return got
			}
			told()
			assert.Equal(t, want[0], told(), "header set %d, admitted", set)
			told()
			assert.Equal(t, want[1], told(), "header set %d, refused", set)
		})
	}
}

// A limit that changes is told as it is, whether its fields have been written before or
// not, and however many there are.
func TestPolicyFieldFollowsTheLimit(t *testing.T) {
	var limits []policy.Policy
	for i := range 3 * mostPolicies {
		limits = append(limits, policy.Must(policy.Funnel(int64(10+i), 1, time.Second)))
	}
	which := 0
	limiter, err := engine.New(engine.Config{Policy: limits[0]}, engine.PolicyFor(func(netip.Addr) policy.Policy { return limits[which] }))
	require.NoError(t, err)
	defer limiter.Close()
	m := Must(New(limiter, ByAddr, Options{Cost: func(*http.Request) int64 { return 0 }}))
	h := m.Handler(done)
	for range 2 {
		for which = range limits {
			n := string(appendInteger(nil, int64(10+which)))
			assert.Equal(t, `"default";q=`+n+`;w=`+n, ask(h, from(alice)).Header().Get("RateLimit-Policy"))
		}
	}
	assert.Len(t, *m.fields.policies.Load(), mostPolicies, "what is kept has an end")
}

// A reset in Unix time is never told too early.
func TestUnixTimeIsRoundedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := open[netip.Addr](t, policy.Must(policy.Funnel(3, 1, 5*time.Second)))
		h := Must(New(limiter, ByAddr, Options{Headers: XRateLimitHeaders})).Handler(done)
		time.Sleep(time.Nanosecond)
		assert.Equal(t, "946684806", ask(h, from(alice)).Header().Get("X-RateLimit-Reset"))
	})
}

// A window shorter than a second has no place in the field, nor has a policy that does
// not tell its window; and no number is larger than a structured field's.
func TestPolicyFieldAtTheEdges(t *testing.T) {
	for want, p := range map[string]policy.Policy{
		`"default";q=10`:                    policy.Must(policy.Funnel(10, 11, time.Second)),
		`"default";q=10;w=1`:                policy.Must(policy.Funnel(10, 10, time.Second)),
		`"default";q=10;w=2`:                policy.Must(policy.Funnel(10, 9, time.Second)),
		`"default";q=3;w=1`:                 policy.Must(policy.Funnel(3, 3, time.Second)), // 1.000000001 s
		`"default";q=999999999999999`:       huge{},
		`"default";q=2147483647;w=21474837`: policy.Must(policy.Bursty(100, time.Second, 0)),
	} {
		limiter := open[netip.Addr](t, p)
		w := ask(Must(New(limiter, ByAddr, Options{})).Handler(done), from(alice))
		assert.Equal(t, want, w.Header().Get("RateLimit-Policy"))
		if (p == huge{}) {
			assert.Equal(t, `"default";r=999999999999999;t=9223372037`, w.Header().Get("RateLimit"))
		}
	}
}

// huge allows more than can be written.
type huge struct{}

func (huge) Take(uint64, policy.Instant, int64, time.Duration) (uint64, policy.Decision) {
	return 1, policy.Decision{Allowed: true, Limit: 1<<63 - 1, Remaining: 1<<63 - 1, ResetAfter: policy.Never}
}
func (huge) FreshAt(uint64) policy.Instant { return 0 }
func (huge) String() string                { return "huge" }

// Two middlewares around each other each add their line.
func TestNestedLimitsAreAllTold(t *testing.T) {
	outer, err := NewAll(Options{}, Limit[netip.Addr]{Name: "outer", Limiter: open[netip.Addr](t, policy.Must(policy.Funnel(10, 10, time.Second))), Key: ByAddr})
	require.NoError(t, err)
	inner, err := NewAll(Options{}, Limit[netip.Addr]{Name: "inner", Limiter: open[netip.Addr](t, policy.Must(policy.Funnel(5, 5, time.Second))), Key: ByAddr})
	require.NoError(t, err)
	w := ask(outer.Handler(inner.Handler(done)), from(alice))
	assert.Equal(t, []string{`"outer";q=10;w=1`, `"inner";q=5;w=1`}, w.Header()["Ratelimit-Policy"])
	assert.Equal(t, []string{`"outer";r=9;t=1`, `"inner";r=4;t=1`}, w.Header()["Ratelimit"])
}

// What is there already is added to, and not written behind.
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

// A handler that changes what it finds in its header changes nobody else's.
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

// The answer to a refused request, by what the client accepts.
func TestAnswers(t *testing.T) {
	limiter := open[netip.Addr](t, policy.Must(policy.FixedWindow(1, time.Hour)))
	m, err := NewAll(Options{Deny: prefixList("198.51.100.0/24")}, Limit[netip.Addr]{Name: `a "quoted\" name`, Limiter: limiter, Key: ByAddr})
	require.NoError(t, err)
	h := m.Handler(done)
	require.Equal(t, 200, ask(h, from(alice)).Code)

	w := ask(h, from(alice, "Accept", "application/json"))
	assert.Equal(t, 429, w.Code)
	assert.Equal(t, "application/problem+json", w.Header().Get("Content-Type"))
	var problem map[string]any
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &problem))
	assert.Equal(t, map[string]any{
		"type":              "https://iana.org/assignments/http-problem-types#quota-exceeded",
		"title":             "Request cannot be satisfied as assigned quota has been exceeded",
		"status":            429.0,
		"violated-policies": []any{`a "quoted\" name`},
	}, problem)

	w = ask(h, from(alice, "Accept", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"))
	assert.Equal(t, "text/plain; charset=utf-8", w.Header().Get("Content-Type"))
	assert.Regexp(t, `^Too Many Requests: try again in 3(600|601) s\n$`, w.Body.String())

	w = ask(h, from("198.51.100.7:1"))
	assert.Equal(t, 403, w.Code)
	assert.JSONEq(t, `{"type":"about:blank","title":"Forbidden","status":403}`, w.Body.String())
	assert.Empty(t, w.Header().Get("Retry-After"))
	assert.Empty(t, w.Header().Get("RateLimit"))
	w = ask(h, from("@", "Accept", "text/plain"))
	assert.Equal(t, 400, w.Code)
	assert.Equal(t, "Bad Request: the client's address cannot be told\n", w.Body.String())
}

// What an outer handler said of the answer that does not come is taken back.
func TestAnswerReplacesWhatWasSaidOfAnother(t *testing.T) {
	m := Must(New(open[netip.Addr](t, policy.Must(policy.FixedWindow(1, time.Hour))), ByAddr, Options{}))
	h := m.Handler(done)
	outer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		w.Header().Set("Content-Length", "1000")
		w.Header().Set("ETag", `"x"`)
		w.Header().Set("Cache-Control", "public, max-age=3600")
		h.ServeHTTP(w, r)
	})
	ask(outer, from(alice))
	w := ask(outer, from(alice))
	assert.Equal(t, 429, w.Code)
	assert.Empty(t, w.Header().Get("Content-Encoding"))
	assert.Empty(t, w.Header().Get("ETag"))
	assert.Equal(t, "no-store", w.Header().Get("Cache-Control"), "a 429 must not be stored")
	assert.Equal(t, len(w.Body.String()), int(w.Result().ContentLength))
}

// Nobody's key is the zero one, and no engine.PolicyFor is asked about it.
func TestPolicyForIsNotAskedAboutNobody(t *testing.T) {
	type user struct{ limit policy.Policy }
	limit := policy.Must(policy.FixedWindow(2, time.Hour))
	e, err := engine.New(engine.Config{Policy: limit}, engine.PolicyFor(func(u *user) policy.Policy { return u.limit }))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, e.Close()) })
	alone := &user{limit: policy.Must(policy.FixedWindow(1, time.Hour))}
	m := Must(New(e, func(r *http.Request) *user {
		if r.Header.Get("User") == "" {
			return nil
		}
		return alone
	}, Options{}))
	nobody, somebody := from(alice), from(alice)
	somebody.Header.Set("User", "alone")
	assert.Equal(t, 400, ask(m.Handler(done), nobody).Code)
	assert.Equal(t, 200, ask(m.Handler(done), somebody).Code)
	assert.Equal(t, 429, ask(m.Handler(done), somebody).Code)
}

func TestWantsProblem(t *testing.T) {
	for accept, want := range map[string]bool{
		"*/*":                                    true,
		"application/problem+json":               true,
		"application/json":                       true,
		"Application/JSON; charset=utf-8":        true,
		"application/*":                          true,
		"application/json, text/plain, */*":      true,
		"text/plain;q=0.5, application/json":     true,
		"text/plain":                             false,
		"text/html":                              false,
		"text/*, application/json;q=0.9":         false,
		"text/html, application/json;q=0.999":    false,
		"text/html, application/json;q=1.000":    true,
		"*/*;q=0.1, application/json;q=0":        false,
		"*/*, application/problem+json;q=0":      false,
		"image/png":                              false,
		"":                                       false,
		",,,":                                    false,
		"*/*;q=0":                                false,
		"application/json;q=0":                   false,
		"application/json;q=2":                   false,
		"application/json;q=":                    false,
		"application/json;q=0.0001":              false,
		"application/json;q=1.001":               false,
		"application/json;q=.5":                  false,
		"application/json ; Q=0.5, text/*;q=0.4": true,
		"text/html;level=1;q=0.3, */*;q=0.4":     true,
	} {
		assert.Equal(t, want, wantsProblem([]string{accept}), "%q", accept)
	}
	assert.True(t, wantsProblem(nil), "no Accept at all")
	text, problem := "text/plain;q=0.5", "application/json"
	assert.True(t, wantsProblem([]string{text + strings.Repeat(",", mostRanges-1) + problem}), "the last that is read")
	assert.False(t, wantsProblem([]string{text + strings.Repeat(",", mostRanges) + problem}), "the first that is not")
	assert.False(t, wantsProblem(append([]string{text}, append(make([]string, mostRanges), problem)...)), "a line each")
	assert.True(t, wantsProblem([]string{text + "," + problem + strings.Repeat(" ", longestRange-len(problem))}), "the longest")
	assert.False(t, wantsProblem([]string{text + "," + problem + strings.Repeat(" ", longestRange)}), "too long")
	assert.False(t, wantsProblem([]string{"application/json;q=0.5", "text/plain"}), "two lines are one list")
}

func FuzzAccept(f *testing.F) {
	for _, seed := range []string{"*/*", "text/html;q=0.5, application/json", ";;q=1,,", "a/b;q=0.1234"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, accept string) {
		one := wantsProblem([]string{accept})
		if two := wantsProblem(strings.Split(accept, ",")); one != two {
			t.Fatalf("%q: %v in a line, %v in several", accept, one, two)
		}
		if strings.Count(accept, ",") > mostRanges-3 {
			return
		}
		// Who would rather have something is given it.
		if !wantsProblem([]string{accept, "text/plain;q=0, application/problem+json;q=1"}) {
			t.Fatalf("%q keeps a client from problem details", accept)
		}
		if wantsProblem([]string{accept, "text/plain;q=1, application/problem+json;q=0"}) {
			t.Fatalf("%q forces problem details on a client", accept)
		}
	})
}

func TestWhenNoKey(t *testing.T) {
	for when, want := range map[WhenNoKey][]int{Refuse: {400, 400, 400}, Skip: {200, 200, 200}, Share: {200, 200, 429}} {
		limiter := open[string](t, policy.Must(policy.FixedWindow(2, time.Hour)))
		m, err := NewAll(Options{}, Limit[string]{Limiter: limiter, Key: ByHeader("X-Api-Key"), WhenNoKey: when})
		require.NoError(t, err)
		h := m.Handler(done)
		for i, code := range want {
			w := ask(h, from(alice))
			assert.Equal(t, code, w.Code, "%d, request %d", when, i)
			assert.Equal(t, when == Share, w.Header().Get("RateLimit") != "")
		}
		s := m.Stats()
		switch when {
		case Refuse:
			assert.Equal(t, uint64(3), s.Keyless)
		case Skip:
			assert.Equal(t, uint64(3), s.Exempt)
		case Share:
			assert.Equal(t, 1, limiter.Len())
		}
		assert.Equal(t, 200, ask(h, from(alice, "X-Api-Key", "k")).Code, "who has a key is not held to theirs")
	}
}

// Lists of prefixes come before any state.
func TestAllowAndDeny(t *testing.T) {
	limiter := open[netip.Addr](t, policy.Must(policy.FixedWindow(1, time.Hour)))
	proxies := clientAddr(t, AddrConfig{Header: XForwardedFor, Trusted: prefixList("10.0.0.0/8")})
	asked := 0
	m := Must(New(limiter, func(r *http.Request) netip.Addr { asked++; return proxies.Key(r) }, Options{
		ClientAddr: proxies,
		Allow:      prefixList("198.51.100.0/24", "2001:db8::17/128"),
		Deny:       prefixList("203.0.113.0/24", "198.51.100.66/32"),
	}))
	h := m.Handler(done)
	by := func(addr string) int { return ask(h, from("10.0.0.1:1", "X-Forwarded-For", "6.6.6.6, "+addr)).Code }
	for range 3 {
		assert.Equal(t, 200, by("198.51.100.7"))
		assert.Equal(t, 403, by("203.0.113.7"))
		assert.Equal(t, 403, by("198.51.100.66"), "in both")
		assert.Equal(t, 200, by("2001:db8::17"), "whole, though keys are cut")
		assert.Equal(t, 400, by("unknown"), "whoever is hidden may be denied")
	}
	assert.Zero(t, limiter.Len())
	assert.Zero(t, asked, "keys were looked for")
	assert.Equal(t, 200, by("2001:db8::18"))
	assert.Equal(t, 429, by("2001:db8::19"), "of the same 64 bits")
	s := m.Stats()
	assert.Equal(t, []uint64{1, 6, 1, 6, 3}, []uint64{s.Admitted, s.Exempt, s.OverLimit, s.Denied, s.Keyless})
}

func TestShadow(t *testing.T) {
	limiter := open[netip.Addr](t, policy.Must(policy.FixedWindow(1, time.Hour)))
	var verdicts []Verdict
	m := Must(New(limiter, ByAddr, Options{
		Shadow: true, Deny: prefixList("203.0.113.0/24"), WaitUpTo: time.Minute,
		OnVerdict: func(_ *http.Request, v Verdict) { verdicts = append(verdicts, v) },
		Charge:    func(*http.Request, Served) int64 { return 1 },
	}))
	h := m.Handler(done)
	for _, addr := range []string{alice, alice, "203.0.113.7:1"} {
		w := ask(h, from(addr))
		assert.Equal(t, 200, w.Code)
		assert.Empty(t, w.Header()["Ratelimit"])
		assert.Empty(t, w.Header()["Retry-After"])
	}
	require.Len(t, verdicts, 3)
	for i, want := range []Reason{Admitted, OverLimit, Denied} {
		assert.Equal(t, want, verdicts[i].Reason)
		assert.True(t, verdicts[i].Shadow)
		assert.False(t, verdicts[i].Refused())
	}
	s := m.Stats()
	assert.Equal(t, Stats{Admitted: 1, OverLimit: 1, Denied: 1, Shadow: true, Limits: s.Limits}, s)
}

// Who would have been delayed is reported so, with the turn that he would have had, and
// is not; who would have been refused too.
func TestShadowOfWaiting(t *testing.T) {
	for name, p := range map[string]policy.Policy{
		"funnel": policy.Must(policy.Funnel(1, 1, time.Second)),
		"queue":  policy.Must(policy.Queue(5, 1, time.Second)),
	} {
		synctest.Test(t, func(t *testing.T) {
			var waited []time.Duration
			m := Must(New(open[netip.Addr](t, p), ByAddr, Options{
				Shadow: true, WaitUpTo: 2500 * time.Millisecond,
				OnVerdict: func(_ *http.Request, v Verdict) { waited = append(waited, v.Waited) },
			}))
			began := time.Now()
			for range 5 {
				assert.Equal(t, 200, ask(m.Handler(done), from(alice)).Code)
			}
			assert.Zero(t, time.Since(began), "somebody was delayed")
			assert.Equal(t, []time.Duration{0, time.Second, 2 * time.Second, 0, 0}, waited, name)
			s := m.Stats()
			assert.Equal(t, Stats{Admitted: 3, OverLimit: 2, Delayed: 2, Shadow: true, Limits: s.Limits}, s, name)
		})
	}
}

// Several middlewares around each other have place for one limit in the older fields: it
// is the one that the client comes up against first.
func TestNestedLegacyFieldsTellTheTighterLimit(t *testing.T) {
	for set, field := range map[HeaderSet]string{LegacyHeaders: "RateLimit-", XRateLimitHeaders: "X-RateLimit-"} {
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
			{5, 3, 5, 429, "3", "0"}, // of the outer one nothing is left either
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
			assert.Equal(t, []string{c.limit}, w.Header()[http.CanonicalHeaderKey(field+"Limit")], "%+v", c)
			assert.Equal(t, []string{c.remaining}, w.Header()[http.CanonicalHeaderKey(field+"Remaining")], "%+v", c)
		}
	}
	// What somebody else wrote there is no limit.
	for _, strange := range [][]string{{"many"}, {"1", "2"}, {}} {
		m := Must(New(open[netip.Addr](t, policy.Must(policy.FixedWindow(5, time.Hour))), ByAddr, Options{Headers: LegacyHeaders}))
		w := ask(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header()["Ratelimit-Limit"], w.Header()["Ratelimit-Remaining"] = []string{"1"}, strange
			m.Handler(done).ServeHTTP(w, r)
		}), from(alice))
		assert.Equal(t, []string{"4"}, w.Header()["Ratelimit-Remaining"])
	}
}

// A request without a key is told what it lacks.
func TestKeylessAnswerSaysWhatIsMissing(t *testing.T) {
	limiter := open[string](t, policy.Must(policy.FixedWindow(1, time.Hour)))
	one := Must(NewAll(Options{}, Limit[string]{Name: `the "key"`, Limiter: limiter, Key: ByHeader("X-Api-Key")}))
	two := Must(NewAll(Options{}, Limit[string]{Name: "host", Limiter: limiter, Key: ByHeader("Host")},
		Limit[string]{Name: `the "key"`, Limiter: limiter, Key: ByHeader("X-Api-Key")}))
	for _, m := range []*Middleware{one, two} {
		w := ask(m.Handler(done), from(alice))
		assert.Equal(t, 400, w.Code)
		var problem map[string]any
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &problem))
		assert.Equal(t, map[string]any{
			"type": "about:blank", "title": "Bad Request", "status": 400.0,
			"detail": `the request lacks what the limit "the \"key\"" goes by`,
		}, problem)
		w = ask(m.Handler(done), from(alice, "Accept", "text/plain"))
		assert.Equal(t, `Bad Request: the request lacks what the limit "the \"key\"" goes by`+"\n", w.Body.String())
	}
}

func TestCost(t *testing.T) {
	limiter := open[netip.Addr](t, policy.Must(policy.FixedWindow(10, time.Hour)))
	h := Must(New(limiter, ByAddr, Options{Cost: costField})).Handler(done)
	for _, c := range []struct {
		cost, remaining, retry string
		code                   int
	}{
		{"7", "3", "", 200},
		{"4", "3", "3600", 429},
		{"11", "3", "", 429}, // never
		{"-1", "3", "", 429},
		{"-9223372036854775808", "3", "", 429},
		{"0", "3", "", 200},
		{"3", "0", "", 200},
		{"0", "0", "", 200},
	} {
		w := ask(h, from(alice, "Cost", c.cost))
		assert.Equal(t, c.code, w.Code, "%+v", c)
		assert.Contains(t, w.Header().Get("RateLimit"), ";r="+c.remaining+";", "%+v", c)
		if c.retry == "" {
			assert.Empty(t, w.Header().Get("Retry-After"), "%+v", c)
		} else {
			assert.NotEmpty(t, w.Header().Get("Retry-After"), "%+v", c)
		}
	}
}

// By address and by API key: all or nothing, and the limit that decides is the one that
// is told.
func TestSeveralLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		addresses := open[netip.Addr](t, policy.Must(policy.Funnel(10, 1, time.Second)))
		keys := open[string](t, policy.Must(policy.Funnel(3, 1, time.Minute)))
		m, err := NewAll(Options{},
			Limit[netip.Addr]{Name: "address", Limiter: addresses, Key: ByAddr},
			Limit[string]{Name: "key", Limiter: keys, Key: ByHeader("X-Api-Key"), WhenNoKey: Skip},
		)
		require.NoError(t, err)
		h := m.Handler(done)
		as := func(key string) (int, string, string, string) {
			w := ask(h, from(alice, "X-Api-Key", key))
			return w.Code, w.Header().Get("RateLimit-Policy"), w.Header().Get("RateLimit"), w.Header().Get("Retry-After")
		}
		expect := func(wantCode int, wantPolicy, wantLimit, wantRetry, key string) {
			t.Helper()
			code, policy, limit, retry := as(key)
			assert.Equal(t, []any{wantCode, wantPolicy, wantLimit, wantRetry}, []any{code, policy, limit, retry})
		}
		both := `"address";q=10;w=10, "key";q=3;w=180`
		expect(200, both, `"key";r=2;t=60`, "", "k")
		expect(200, both, `"key";r=1;t=120`, "", "k")
		expect(200, both, `"key";r=0;t=180`, "", "k")
		expect(429, both, `"key";r=0;t=60`, "60", "k")
		expect(429, both, `"key";r=0;t=60`, "60", "k")
		assert.Equal(t, int64(7), addresses.Peek(netip.MustParseAddr("192.0.2.1")).Remaining, "the refused took nothing")
		expect(200, `"address";q=10;w=10`, `"address";r=6;t=4`, "", "")
		for range 6 {
			as("")
		}
		expect(429, `"address";q=10;w=10`, `"address";r=0;t=1`, "1", "")
		expect(429, both, `"address";r=0;t=1`, "1", "other")
		// Both refuse: who comes back for one of them would come in vain.
		w := ask(h, from(alice, "X-Api-Key", "k"))
		assert.Equal(t, "60", w.Header().Get("Retry-After"))
		assert.Contains(t, w.Body.String(), `"violated-policies":["address","key"]`)
		time.Sleep(time.Minute)
		expect(200, both, `"key";r=0;t=180`, "", "k")
	})
}

// A limit that is skipped does not lend its name to the one that decides.
func TestSkippedLimitIsNotTheOneThatIsTold(t *testing.T) {
	engines := open[string](t, policy.Must(policy.Funnel(1, 1, time.Minute)))
	m, err := NewAll(Options{},
		Limit[string]{Name: "a", Limiter: engines, Key: ByHeader("A"), WhenNoKey: Skip},
		Limit[string]{Name: "b", Limiter: engines, Key: ByHeader("B")},
	)
	require.NoError(t, err)
	w := ask(m.Handler(done), from(alice, "B", "x"))
	assert.Equal(t, `"b";q=1;w=60`, w.Header().Get("RateLimit-Policy"))
	assert.Equal(t, `"b";r=0;t=60`, w.Header().Get("RateLimit"))
	w = ask(m.Handler(done), from(alice, "B", "x"))
	assert.Equal(t, `"b";r=0;t=60`, w.Header().Get("RateLimit"))
	assert.Contains(t, w.Body.String(), `"violated-policies":["b"]`)
}

func TestShadowOfSeveral(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := open[netip.Addr](t, policy.Must(policy.Funnel(1, 1, time.Minute)))
		m, err := NewAll(Options{Shadow: true, WaitUpTo: time.Hour},
			Limit[netip.Addr]{Name: "a", Limiter: limiter, Key: ByAddr},
			Limit[netip.Addr]{Name: "b", Limiter: open[netip.Addr](t, policy.Must(policy.Funnel(9, 1, time.Minute))), Key: ByAddr},
		)
		require.NoError(t, err)
		began := time.Now()
		for range 3 {
			assert.Equal(t, 200, ask(m.Handler(done), from(alice)).Code)
		}
		assert.Zero(t, time.Since(began), "somebody was delayed")
		s := m.Stats()
		assert.Equal(t, Stats{Admitted: 1, OverLimit: 2, Shadow: true, Limits: s.Limits}, s)
	})
}

func TestSeveralLimitsWithoutKeys(t *testing.T) {
	keys := open[string](t, policy.Must(policy.Funnel(3, 1, time.Minute)))
	limit := func(field string, when WhenNoKey) Limit[string] {
		return Limit[string]{Name: field, Limiter: keys, Key: ByHeader(field), WhenNoKey: when}
	}
	m, err := NewAll(Options{}, limit("A", Skip), limit("B", Skip))
	require.NoError(t, err)
	w := ask(m.Handler(done), from(alice))
	assert.Equal(t, 200, w.Code)
	assert.Empty(t, w.Header()["Ratelimit"])
	assert.Equal(t, uint64(1), m.Stats().Exempt)

	m, err = NewAll(Options{}, limit("A", Skip), limit("B", Refuse))
	require.NoError(t, err)
	assert.Equal(t, 400, ask(m.Handler(done), from(alice, "A", "a")).Code)
	assert.Equal(t, int64(3), keys.Peek("a").Remaining)

	// Two limits of one engine and one key: it is charged twice.
	m, err = NewAll(Options{}, limit("A", Refuse), limit("B", Refuse))
	require.NoError(t, err)
	assert.Equal(t, 200, ask(m.Handler(done), from(alice, "A", "x", "B", "x")).Code)
	assert.Equal(t, int64(1), keys.Peek("x").Remaining)
}

func TestBadSettings(t *testing.T) {
	limiter := open[netip.Addr](t, policy.Must(policy.Funnel(1, 1, time.Second)))
	good := Limit[netip.Addr]{Limiter: limiter, Key: ByAddr}
	named := func(name string) Limit[netip.Addr] {
		return Limit[netip.Addr]{Name: name, Limiter: limiter, Key: ByAddr}
	}
	for field, o := range map[string]Options{
		"Headers":    {Headers: 4},
		"WaitUpTo":   {WaitUpTo: -1},
		"Allow[0]":   {Allow: []netip.Prefix{{}}},
		"Deny[1]":    {Deny: append(prefixList("10.0.0.0/8"), netip.Prefix{})},
		"ClientAddr": {ClientAddr: &ClientAddr{}},
	} {
		_, err := NewAll(o, good)
		refusedBy(t, err, "httplimit.Options", field)
	}
	for _, name := range []string{"na\u00efve", "line\nbreak", strings.Repeat("x", 65)} {
		_, err := New(limiter, ByAddr, Options{Name: name})
		refusedBy(t, err, "httplimit.Options", "Name")
		assert.Less(t, len(err.Error()), 300)
		_, err = NewAll(Options{}, named("fine"), named(name))
		refusedBy(t, err, "httplimit.NewAll", "limits[1].Name")
	}
	_, err := NewAll(Options{Headers: -1}, good)
	refusedBy(t, err, "httplimit.Options", "Headers")
	for field, l := range map[string]Limit[netip.Addr]{
		"Limiter":   {Key: ByAddr},
		"Key":       {Limiter: limiter},
		"WhenNoKey": {Limiter: limiter, Key: ByAddr, WhenNoKey: 3},
	} {
		_, err := NewAll(Options{}, l)
		refusedBy(t, err, "httplimit.NewAll", "limits[0]."+field)
		_, err = NewAll(Options{}, named("fine"), &l)
		refusedBy(t, err, "httplimit.NewAll", "limits[1]."+field)
	}
	_, err = NewAll(Options{})
	refusedBy(t, err, "httplimit.NewAll", "limits")
	_, err = NewAll(Options{}, named("1"), named("2"), named("3"), named("4"), named("5"), named("6"), named("7"), named("8"), named("9"))
	refusedBy(t, err, "httplimit.NewAll", "limits")
	for _, missing := range []AnyLimit{nil, (*Limit[netip.Addr])(nil)} {
		_, err = NewAll(Options{}, good, missing)
		refusedBy(t, err, "httplimit.NewAll", "limits[1]")
	}
	_, err = NewAll(Options{}, good, named("x"), good)
	refusedBy(t, err, "httplimit.NewAll", "limits[2].Name")
	_, err = NewAll(Options{Name: "x"}, named("x"), good)
	refusedBy(t, err, "httplimit.NewAll", "limits[1].Name")
	_, err = New[netip.Addr](nil, ByAddr, Options{})
	assert.EqualError(t, err, "ral: httplimit.New: limiter is nil, want an engine, such as engine.New returns")
	_, err = New(limiter, nil, Options{})
	refusedBy(t, err, "httplimit.New", "key")
	assert.Panics(t, func() { Must(New[netip.Addr](nil, ByAddr, Options{})) })
	_, err = NewAll(Options{}, named("1"), named("2"), named("3"), named("4"), named("5"), named("6"), named("7"), named("8"))
	assert.NoError(t, err)
}

// The name that clients are told is the limit's, that of the options, or "default".
func TestNames(t *testing.T) {
	limiter := open[netip.Addr](t, policy.Must(policy.Funnel(1, 1, time.Second)))
	for want, m := range map[string]*Middleware{
		`"default";q=1;w=1`: Must(New(limiter, ByAddr, Options{})),
		`"log-in";q=1;w=1`:  Must(New(limiter, ByAddr, Options{Name: "log-in"})),
		`"own";q=1;w=1`:     Must(NewAll(Options{Name: "log-in"}, &Limit[netip.Addr]{Name: "own", Limiter: limiter, Key: ByAddr})),
		`"a";q=1;w=1, "log-in";q=1;w=1`: Must(NewAll(Options{Name: "log-in"},
			Limit[netip.Addr]{Name: "a", Limiter: limiter, Key: ByAddr}, Limit[netip.Addr]{Limiter: limiter, Key: ByAddr})),
	} {
		assert.Equal(t, want, ask(m.Handler(done), from(alice)).Header().Get("RateLimit-Policy"))
	}
}
