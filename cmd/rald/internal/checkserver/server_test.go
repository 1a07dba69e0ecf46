package checkserver

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/cmd/rald/internal/configured"
	"github.com/ral-limiter/ral/cmd/rald/internal/families"
	"github.com/ral-limiter/ral/cmd/rald/internal/redistest"
	"github.com/ral-limiter/ral/fleet"
	"github.com/ral-limiter/ral/internal/testkit/must"
)

// For refusals that a client causes: the configured status, and 403 behind nginx. Answers under a
// rule have package httplimit's fields.
func TestRefusalsHaveTheConfiguredStatus(t *testing.T) {
	const rules = "\nrules:\n  - {match: /, limit: one, key: address}\n  - {match: /key, limit: two, key: header X-Api-Key}\n"
	for _, c := range []struct {
		head              string
		over, noKey, path int
	}{
		{"proxy: nginx", 403, 403, 403},
		{"proxy: nginx\nstatus: 401", 401, 401, 401},
		{"proxy: caddy", 429, 400, 400},
		{"proxy: traefik\nstatus: 503", 503, 503, 503},
	} {
		d := open(t, c.head+rules)
		ask := d.ask
		if strings.Contains(c.head, "nginx") {
			ask = d.asNginx
		}
		passed := ask("GET", "/")
		assert.Equal(t, http.StatusNoContent, passed.Code)
		assert.Contains(t, passed.Header().Get("RateLimit"), `"one";r=0`)
		assert.Contains(t, passed.Header().Get("RateLimit-Policy"), `"one";q=1`)
		over := ask("GET", "/")
		assert.Equal(t, c.over, over.Code, c.head)
		assert.NotEmpty(t, over.Header().Get("Retry-After"))
		assert.Contains(t, over.Body.String(), `"violated-policies":["one"]`)
		noKey := ask("GET", "/key")
		assert.Equal(t, c.noKey, noKey.Code, c.head)
		assert.Empty(t, noKey.Header().Get("Retry-After"), "by which nginx tells them apart")
		assert.Equal(t, c.path, ask("GET", "/%").Code, c.head)
	}
}

// A value that a request has twice is none.
//
// Promise: Each part of a key tells clients apart.
func TestEachPartOfAKeyTellsClientsApart(t *testing.T) {
	// The field is /x by default.
	const field = "X-Forwarded-Uri"
	for key, clients := range map[string][2][]string{
		"address":              {{"X-Forwarded-For", "192.0.2.1"}, {"X-Forwarded-For", "192.0.2.2"}},
		"address/64":           {{"X-Forwarded-For", "2001:db8:0:1::1"}, {"X-Forwarded-For", "2001:db8:0:2::1"}},
		"header X-Api-Key":     {{"X-Api-Key", "a"}, {"X-Api-Key", "b"}},
		"header x-api-key":     {{"X-Api-Key", strings.Repeat("a", 5000)}, {"X-Api-Key", strings.Repeat("b", 5000)}},
		"header Host":          {{"X-Forwarded-Host", "a"}, {"X-Forwarded-Host", "b"}},
		"cookie sid":           {{"Cookie", "sid=a; other=1"}, {"Cookie", "sid=b"}},
		"query token":          {{field, "/x?token=a"}, {field, "/x?b=1&token=b"}},
		"path id":              {{field, "/a"}, {field, "/b"}},
		"[address, path id]":   {{field, "/a"}, {field, "/b"}},
		"[header A, header B]": {{"A", "xy", "B", "z"}, {"A", "x", "B", "yz"}},
	} {
		d := open(t, "proxy: caddy\nrules:\n  - {match: '/{id}', limit: one, key: "+key+"}\n")
		for _, want := range []int{http.StatusNoContent, http.StatusTooManyRequests} {
			for _, fields := range clients {
				assert.Equal(t, want, d.ask("GET", "/x", fields...).Code, "%s: %s", key, fields)
			}
		}
	}
	wide := open(t, "proxy: caddy\nrules:\n  - {match: /, limit: one, key: address/48}\n")
	for _, address := range []string{"2001:db8:1::", "2001:db8:2::"} {
		assert.Equal(t, 1, wide.passes(t, "GET", "/", "X-Forwarded-For", address+"1:1"))
		assert.Zero(t, wide.passes(t, "GET", "/", "X-Forwarded-For", address+"2:1"))
	}
	everybody := open(t, "proxy: caddy\nrules:\n  - {match: /, limit: one, key: everybody}\n")
	assert.Equal(t, 1, everybody.passes(t, "GET", "/"))
	assert.Zero(t, everybody.passes(t, "GET", "/", "X-Forwarded-For", "192.0.2.2"))
}

func TestRepeatedValuesAreNoKey(t *testing.T) {
	for key, r := range map[string]struct{ uri, field string }{
		"header X-Api-Key": {"/", "X-Api-Key"},
		"cookie sid":       {"/", "Cookie"},
		"query token":      {"/?token=sid=a&token=b", ""},
	} {
		d := open(t, "proxy: caddy\nrules:\n  - {match: /, limit: five, key: "+key+"}\n")
		request := asked("X-Forwarded-Uri", r.uri)
		if r.field != "" {
			request.Header[r.field] = []string{"sid=a", "sid=b"}
		}
		assert.Equal(t, http.StatusBadRequest, d.do(request).Code, key)
	}
}

// No client can send the address that stands for a key.
//
// Promise: Requests without keys are refused unless their rule says otherwise.
func TestRequestsWithoutAKey(t *testing.T) {
	rule := func(more string) string {
		return "proxy: caddy\nrules:\n  - {match: /, limit: one, key: header X-Api-Key" + more + "}\n"
	}
	assert.Equal(t, http.StatusBadRequest, open(t, rule("")).ask("GET", "/").Code)
	assert.Equal(t, http.StatusBadRequest, open(t, rule(", without_key: refuse")).ask("GET", "/").Code)
	assert.Equal(t, 10, open(t, rule(", without_key: pass")).passes(t, "GET", "/"))
	d := open(t, rule(", without_key: address"))
	assert.Equal(t, 1, d.passes(t, "GET", "/", "X-Api-Key", "192.0.2.1"))
	assert.Equal(t, 1, d.passes(t, "GET", "/", "X-Api-Key", "a"))
	assert.Equal(t, 1, d.passes(t, "GET", "/"))
	assert.Equal(t, 1, d.passes(t, "GET", "/", "X-Forwarded-For", "192.0.2.2"))
	assert.Zero(t, d.passes(t, "GET", "/"))
	assert.Equal(t, http.StatusBadRequest, d.ask("GET", "/", "X-Forwarded-For", "unknown").Code)
}

// Each request is counted once, over changes of rules. Shadow limits tell clients nothing.
func TestEachRequestIsCountedOnce(t *testing.T) {
	const shadows = "\n  - {match: /tried, limit: one, key: address, shadow: true}\n  - {match: /beside, limits: [{limit: one, key: address, shadow: true}, {limit: five, key: address}]}\n"
	d := open(t, "proxy: caddy\nrules:\n  - {match: /, limit: two, key: header A}\n  - {match: /free, unlimited: true}\n")
	d.passes(t, "GET", "/", "A", "a")
	d.ask("GET", "/")
	d.ask("GET", "/free")
	d.ask("GET", "/..")
	d.ask("GET", "/", "X-Forwarded-For", "")
	assert.Equal(t, figures{Passed: 2, Refused: 9, Unlimited: 1, Undecided: 2, Rules: 2}, figuresOf(d))
	require.NoError(t, d.set(parsed(t, "proxy: caddy\nrules:"+shadows)))
	assert.Equal(t, 10, d.passes(t, "GET", "/tried"))
	assert.Equal(t, 5, d.passes(t, "GET", "/beside"))
	d.ask("GET", "/other")
	assert.Equal(t, figures{Passed: 17, Refused: 14, WouldRefuse: 14, Unlimited: 2, Undecided: 2, Rules: 2}, figuresOf(d))
	assert.Empty(t, d.ask("GET", "/tried").Header().Get("RateLimit"))
	// The field is for access logs.
	for uri, status := range map[string]string{"/tried": "shadow", "/beside": "limited", "/other": ""} {
		assert.Equal(t, status, d.ask("GET", uri).Header().Get("X-RateLimit-Status"), uri)
	}
}

// A hidden limit refuses without its name and numbers, beside a visible limit or alone.
func TestHiddenLimitStaysHidden(t *testing.T) {
	d := open(t, "proxy: caddy\nrules:\n  - {match: /, limits: [{limit: two, key: address, hidden: true}, {limit: five, key: address}]}\n"+
		"  - {match: /alone, limit: one, key: everybody, hidden: true}\n")
	for path, passes := range map[string]int{"/": 2, "/alone": 1} {
		assert.Equal(t, passes, d.passes(t, "GET", path))
		refused := d.ask("GET", path)
		assert.Equal(t, http.StatusTooManyRequests, refused.Code)
		assert.Equal(t, path == "/", refused.Header().Get("RateLimit-Policy") != "", path)
		answer := fmt.Sprint(refused.Header(), refused.Body)
		assert.NotContains(t, answer, "two")
		assert.NotContains(t, answer, "one")
		assert.NotEmpty(t, refused.Header().Get("Retry-After"))
	}
}

// RAL.TAKE shares them. Unnamed limits and rules of other patterns have different keys.
//
// Promise: Checks and Redis clients share a key's debt under a named limit.
func TestKeysInTheEngine(t *testing.T) {
	d := open(t, `
proxy: caddy
rules:
  - {match: /a, limit: five, key: address}
  - {match: /b, limit: five, key: address}
  - {match: /c, limit: "funnel 5, 1/365d", key: address}
  - {match: /d, limit: "funnel 5, 1/365d", key: address}
`)
	limit, _ := limitNamed("five")
	family, err := d.families.Of(limit)
	require.NoError(t, err)
	shared := configured.Prefix("five") + "192.0.2.1"
	require.True(t, families.EngineOf(family).TakeWith(limit, shared, 3).Allowed)
	require.True(t, families.EngineOf(family).TakeWith(limit, "192.0.2.1", 5).Allowed)
	assert.Equal(t, 2, d.passes(t, "GET", "/a"))
	assert.Zero(t, d.passes(t, "GET", "/b"))
	assert.Zero(t, families.EngineOf(family).TakeWith(limit, shared, 0).Remaining)
	require.True(t, families.EngineOf(family).TakeWith(limit, configured.Prefix("five")+"2001:db8:1:2::", 5).Allowed)
	assert.Zero(t, d.passes(t, "GET", "/a", "X-Forwarded-For", "2001:db8:1:2:3::4"))
	assert.Equal(t, 5, d.passes(t, "GET", "/c"))
	assert.Equal(t, 5, d.passes(t, "GET", "/d"))
}

// Promise: New rules apply at once, keeping used units.
func TestNewRulesKeepUsedUnits(t *testing.T) {
	const rules = "proxy: caddy\nrules:\n  - {match: /a, limit: %s, key: address}\n"
	in, err := families.New(families.Config{Max: 1})
	require.NoError(t, err)
	defer in.Close()
	named := parsed(t, fmt.Sprintf(rules, "five"))
	d, err := openIn(in, named)
	require.NoError(t, err)
	assert.Equal(t, 5, d.passes(t, "GET", "/a"))

	require.NoError(t, d.set(parsed(t, "proxy: caddy\nrules:\n  - {match: GET /, limit: five, key: address}\n")))
	assert.Zero(t, d.passes(t, "GET", "/a"))
	assert.Equal(t, 10, d.passes(t, "POST", "/a"))

	err = d.set(parsed(t, "proxy: caddy\nrules:\n  - {match: /b, limit: five, key: address}\n  - {match: /, limit: window, key: address}\n"))
	assert.ErrorIs(t, err, families.ErrTooMany)
	assert.ErrorContains(t, err, "check.yaml:4: rules[1]: ")
	assert.Zero(t, d.passes(t, "GET", "/a"), "the rules in force stay")

	require.NoError(t, d.set(parsed(t, fmt.Sprintf(rules, `"funnel 3, 1/365d"`))))
	assert.Equal(t, 3, d.passes(t, "GET", "/a"))
	require.NoError(t, d.set(parsed(t, fmt.Sprintf(rules, `"funnel 5, 1/365d"`))))
	assert.Equal(t, 2, d.passes(t, "GET", "/a"), "the limit of a rule may change")
	_, err = New(Config{}, named)
	assert.ErrorContains(t, err, "Families or Limits is nil")
}

// Promise: Checks wait for no body: a proxy may announce one and send none.
func TestBodiesAreNotRead(t *testing.T) {
	server := httptest.NewServer(open(t, "proxy: caddy\nrules: []\n"))
	defer server.Close()
	for _, body := range []string{"Content-Length: 1000", "Transfer-Encoding: chunked"} {
		c, err := net.Dial("tcp", server.Listener.Addr().String())
		require.NoError(t, err)
		defer c.Close()
		require.NoError(t, c.SetDeadline(time.Now().Add(time.Minute)))
		_, err = fmt.Fprintf(c, "POST /check HTTP/1.1\r\nHost: a\r\nX-Forwarded-Uri: /\r\nX-Forwarded-Method: GET\r\nX-Forwarded-For: 192.0.2.1\r\n%s\r\n\r\n", body)
		require.NoError(t, err)
		a, err := http.ReadResponse(bufio.NewReader(c), nil)
		require.NoError(t, err)
		assert.Equal(t, http.StatusNoContent, a.StatusCode)
		assert.True(t, a.Close)
		assert.NoError(t, a.Body.Close())
	}
}

// In an outage of Redis the server is healthy.
func TestServerIsHealthyInAnOutage(t *testing.T) {
	const rules = "proxy: caddy\nrules:\n  - {match: /, limit: five, key: address}\n"
	d := open(t, rules)
	get := func(d opened, path string) int { return d.do(httptest.NewRequest(http.MethodGet, path, nil)).Code }
	assert.Equal(t, http.StatusOK, get(d, "/healthz"))
	assert.Equal(t, http.StatusNotFound, get(d, "/"))
	require.NoError(t, d.families.Close())
	assert.Equal(t, http.StatusServiceUnavailable, get(d, "/healthz"))

	of, r := redistest.Open(t, fleet.FallbackShare)
	in, err := families.New(of)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, in.Close()) })
	d, err = openIn(in, parsed(t, rules))
	require.NoError(t, err)
	assert.Equal(t, 5, d.passes(t, "GET", "/"))
	r.Kill()
	must.Await(t, func() bool {
		d.ask("GET", "/")
		for family := range in.All() {
			if family.Health() != nil {
				return true
			}
		}
		return false
	}, "the breaker opens")
	assert.Equal(t, http.StatusOK, get(d, "/healthz"))
}

// The proxy copies the field from the answer to the backend's request.
func TestBackendIsInformed(t *testing.T) {
	d := open(t, `
proxy: caddy
rules:
  - {match: /search, limit: one, key: address, inform: x-over-limit}
  - {match: /, limit: one, key: address}
`)
	for _, want := range []string{"", `"one";r=0;t=`} {
		w := d.ask("GET", "/search", "X-Over-Limit", "forged")
		assert.Equal(t, http.StatusNoContent, w.Code)
		assert.Equal(t, want, strings.TrimRight(w.Header().Get("X-Over-Limit"), "0123456789"))
	}
	w := d.ask("GET", "/other", "X-Over-Limit", "forged")
	assert.Equal(t, http.StatusTooManyRequests, w.Code)
	assert.NotContains(t, w.Header(), "X-Over-Limit")
	stats := figuresOf(d)
	assert.Equal(t, []uint64{2, 1, 1}, []uint64{stats.Passed, stats.Refused, stats.WouldRefuse})
}

// Promise: With `once`, a request that nginx asks about twice counts once.
func TestRequestIsCountedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, "proxy: nginx\nonce: X-Id\nrules: [{match: /, limit: five, key: everybody}]\n")
		defer func() { _ = d.families.Close() }()
		ask := func(id, uri string) int { return d.asNginx(http.MethodGet, uri, "X-Id", id).Code }
		first := d.asNginx(http.MethodGet, "/a", "X-Id", "1")
		for range 10 {
			again := d.asNginx(http.MethodGet, "/a", "X-Id", "1")
			assert.Equal(t, http.StatusNoContent, again.Code)
			assert.Equal(t, first.Header(), again.Header())
		}
		for _, uri := range []string{"/b", "/a?q", "/c"} {
			assert.Equal(t, http.StatusNoContent, ask("1", uri), "another request counts: 4 units")
		}
		time.Sleep(2 * onceFor)
		assert.Equal(t, http.StatusNoContent, ask("1", "/a"), "forgotten: 5 units")
		assert.Equal(t, http.StatusForbidden, ask("1", "/b"))
		assert.Equal(t, http.StatusForbidden, ask("1", "/b"), "a refusal is not remembered")
		assert.Equal(t, http.StatusInternalServerError, ask("", "/a"))
		assert.Equal(t, figures{Passed: 5, Refused: 2, Undecided: 1, Rules: 1}, figuresOf(d))
	})
}

func TestRememberedAnswersAreBounded(t *testing.T) {
	var o once
	for i := range 3 * maxOnce {
		o.add(strconv.Itoa(i), nil)
	}
	assert.LessOrEqual(t, len(o.recent)+len(o.past), maxOnce)
	_, ok := o.find(strconv.Itoa(3*maxOnce - 1))
	assert.True(t, ok)
}

// Promise: An override limits the requests with its value, and no others.
func TestOverrideLimitsOnlyItsRequests(t *testing.T) {
	d := open(t, `
proxy: caddy
rules:
  - match: /by-key
    limit: two
    key: header X-Api-Key
    without_key: address
    overrides: {partner: "funnel 4, 1/365d", named: five}
  - match: /by-plan
    limits:
      - {limit: one, key: everybody, override_by: header X-Plan, overrides: {pro: "funnel 3, 1/365d"}}
  - match: /by-address
    limit: "funnel 1, 1/365d"
    key: address
    overrides: {192.0.2.7: "funnel 6, 1/365d", "2001:db8:1:2::": "funnel 7, 1/365d"}
`)
	for fields, passed := range map[[2]string]int{
		{"X-Api-Key", "partner"}: 4, {"X-Api-Key", "named"}: 5, {"X-Api-Key", "another"}: 2, {"X-Api-Key", ""}: 2,
	} {
		assert.Equal(t, passed, d.passes(t, http.MethodGet, "/by-key", fields[0], fields[1]), fields)
	}
	assert.Equal(t, 3, d.passes(t, http.MethodGet, "/by-plan", "X-Plan", "pro"))
	assert.Equal(t, 1, d.passes(t, http.MethodGet, "/by-plan", "X-Plan", "free"))
	for address, passed := range map[string]int{"192.0.2.7": 6, "2001:db8:1:2::5": 7, "192.0.2.8": 1} {
		assert.Equal(t, passed, d.passes(t, http.MethodGet, "/by-address", "X-Forwarded-For", address), address)
	}
	assert.Equal(t, `"two";q=4;w=126144000`, d.ask(http.MethodGet, "/by-key", "X-Api-Key", "partner").Header().Get("RateLimit-Policy"))
}

// Promise: Allowed addresses and values pass every rule, and count nothing.
func TestAllowedRequestsPass(t *testing.T) {
	d := open(t, `
proxy: caddy
allow: {address: [198.51.100.0/24, "2001:db8::7"], header X-Api-Key: [monitor]}
rules:
  - {match: /, limit: one, key: everybody}
`)
	for _, fields := range [][2]string{{"X-Forwarded-For", "198.51.100.7"}, {"X-Forwarded-For", "2001:db8::7"}, {"X-Api-Key", "monitor"}} {
		assert.Equal(t, 10, d.passes(t, http.MethodGet, "/", fields[:]...), fields)
	}
	assert.Equal(t, 1, d.passes(t, http.MethodGet, "/", "X-Forwarded-For", "2001:db8::8"))
	assert.Equal(t, figures{Passed: 1, Refused: 9, Unlimited: 30, Rules: 1}, figuresOf(d))
}

func TestOverridesOfAFile(t *testing.T) {
	five, _ := limitNamed("five")
	dir := t.TempDir()
	check, others := filepath.Join(dir, Name), filepath.Join(dir, OverridesName)
	require.NoError(t, os.WriteFile(check, []byte("proxy: caddy\nrules: [{match: /, limit: one, key: header X, overrides: partners}]\n"), 0o600))
	_, err := Read(dir, limitNamed)
	assert.ErrorContains(t, err, `check.yaml:2: rules[0].overrides: "partners": a map from values to limits is accepted, or the name of such a map in overrides.yaml`)
	require.NoError(t, os.WriteFile(others, []byte("partners: {a: five}\n"), 0o600))
	rules, err := Read(dir, limitNamed)
	require.NoError(t, err)
	assert.Equal(t, five, rules.rules[0].limits[0].overrides["a"].limit)
	require.NoError(t, os.WriteFile(others, []byte("partners:\n  a: fife\nspare: {}\n"), 0o600))
	_, err = Read(dir, limitNamed)
	assert.ErrorContains(t, err, `overrides.yaml:2: partners.a: "fife": the name of a limit`)
	assert.ErrorContains(t, err, "overrides.yaml:3: spare: no rule of check.yaml has these overrides")
}

// figures are a Door's counters and its number of rules.
type figures struct {
	Passed, Refused, WouldRefuse, Unlimited, Undecided uint64
	Rules                                              int
}

func figuresOf(d opened) figures {
	c := d.Stats()
	return figures{c.Passed.Load(), c.Refused.Load(), c.WouldRefuse.Load(), c.Unlimited.Load(), c.Undecided.Load(), d.Rules().Len()}
}
