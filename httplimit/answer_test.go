package httplimit

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/internal/testkit/admissiontest"
	"github.com/ral-limiter/ral/policy"
)

func TestRefusalHasTheAcceptedContentType(t *testing.T) {
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
	assert.Equal(t, "Bad Request: the client's address is unknown\n", w.Body.String())
	for _, m := range []*Middleware{m, Must(New(limiter, ByAddr, Options{}))} {
		w = ask(m.Handler(done), from(""))
		assert.Equal(t, 400, w.Code)
		assert.Contains(t, w.Body.String(), "RemoteAddr is empty, as http.NewRequest leaves it")
	}
}

func TestWantsProblemFollowsAccept(t *testing.T) {
	for accept, want := range map[string]bool{
		"*/*":                                    true,
		"application/problem+json":               true,
		"application/*":                          true,
		"application/json":                       true,
		"Application/JSON; charset=utf-8":        true,
		"application/json, text/plain, */*":      true,
		"text/plain;q=0.5, application/json":     true,
		"text/plain":                             false,
		"text/*, application/json;q=0.9":         false,
		"text/html, application/json;q=0.999":    false,
		"text/html, application/json;q=1.000":    true,
		"*/*;q=0.1, application/json;q=0":        false,
		"*/*, application/problem+json;q=0":      false,
		"":                                       false,
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
	assert.True(t, wantsProblem([]string{text + strings.Repeat(",", maxRanges-1) + problem}), "the last that is read")
	assert.False(t, wantsProblem([]string{text + strings.Repeat(",", maxRanges) + problem}), "the first that is not")
	assert.False(t, wantsProblem(append([]string{text}, append(make([]string, maxRanges), problem)...)), "a line each")
	assert.True(t, wantsProblem([]string{text + "," + problem + strings.Repeat(" ", maxRange-len(problem))}), "the longest")
	assert.False(t, wantsProblem([]string{text + "," + problem + strings.Repeat(" ", maxRange)}), "a field above the bound is read")
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
		if strings.Count(accept, ",") > maxRanges-3 {
			return
		}
		if !wantsProblem([]string{accept, "text/plain;q=0, application/problem+json;q=1"}) {
			t.Fatalf("%q keeps a client from problem details", accept)
		}
		if wantsProblem([]string{accept, "text/plain;q=1, application/problem+json;q=0"}) {
			t.Fatalf("%q forces problem details on a client", accept)
		}
	})
}

// Promise: A request that can never pass is 403.
// Promise: A misconfigured limit or cost is 500, counted and logged once.
// Promise: An unavailable limiter that refuses is 503.
func TestReasonDecidesStatusAndText(t *testing.T) {
	funnel := func(name string, capacity int64) Limit[netip.Addr] {
		return Limit[netip.Addr]{Name: name, Limiter: open[netip.Addr](t, policy.Must(policy.Funnel(capacity, 10, time.Hour))), Key: ByAddr}
	}
	ten, hundred := funnel("ten", 10), funnel("hundred", 100)
	again := ten
	again.Name = "again"
	misfit := ten
	misfit.PolicyFor = func(*http.Request) policy.Policy { return policy.Must(policy.FixedWindow(10, time.Hour)) }
	keyless := Limit[string]{Name: `the "key"`, Limiter: open[string](t, policy.Must(policy.FixedWindow(1, time.Hour))), Key: ByHeader("X-Api-Key")}
	down := Limit[netip.Addr]{Name: "down", Limiter: &admissiontest.Fake[netip.Addr]{Limiter: hourly(t, 1), Err: errors.New("connection refused")}, Key: ByAddr}
	const blank = "about:blank"
	for _, c := range []struct {
		limits      []AnyLimit
		cost        string
		status      int
		kind, title string
		detail      string
	}{
		{[]AnyLimit{ten}, "20", 403, blank, "Forbidden", `the limit "ten" never admits this request, which costs 20: the most that it allows is 10`},
		{[]AnyLimit{hundred, ten}, "20", 403, blank, "Forbidden", `the limit "ten" never admits this request, which costs 20: the most that it allows is 10`},
		// The limit takes twice.
		{[]AnyLimit{ten, again}, "6", 403, blank, "Forbidden", `the limit "ten" never admits this request`},
		{[]AnyLimit{misfit}, "1", 500, blank, "Internal Server Error", `the server is misconfigured: the limit "ten" cannot be applied to this client`},
		{[]AnyLimit{ten}, "-1", 500, blank, "Internal Server Error", "the server is misconfigured: the request's cost is below 0"},
		{[]AnyLimit{keyless}, "1", 400, blank, "Bad Request", `the request lacks the key of the limit "the \"key\""`},
		{[]AnyLimit{ten, keyless}, "1", 400, blank, "Bad Request", `the request lacks the key of the limit "the \"key\""`},
		{[]AnyLimit{down}, "1", 503, reducedCapacity, reducedCapacityTitle, ""},
		{[]AnyLimit{down, ten}, "1", 503, reducedCapacity, reducedCapacityTitle, ""},
	} {
		m := Must(NewAll(Options{Cost: costField}, c.limits...))
		w := ask(m.Handler(done), from(alice, "Cost", c.cost, "Accept", "application/json"))
		assert.Equal(t, c.status, w.Code, c.detail)
		var problem map[string]any
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &problem))
		want := map[string]any{"type": c.kind, "title": c.title, "status": float64(c.status)}
		if c.detail != "" {
			want["detail"] = c.detail
		}
		assert.Equal(t, want, problem)
		assert.Equal(t, "application/problem+json", w.Header().Get("Content-Type"))
		assert.Equal(t, "no-store", w.Header().Get("Cache-Control"))
		assert.NotContains(t, w.Header(), "Retry-After", c.detail)
		assert.NotContains(t, w.Header(), "Ratelimit", c.detail)
		if c.detail != "" {
			w = ask(m.Handler(done), from(alice, "Cost", c.cost, "Accept", "text/plain"))
			assert.Equal(t, c.title+": "+c.detail+"\n", w.Body.String())
		}
	}
}
