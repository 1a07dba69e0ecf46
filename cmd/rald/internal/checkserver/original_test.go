package checkserver

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"path"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Promise: Checks find a path's rule in every spelling.
func TestPathsAreFoundInEverySpelling(t *testing.T) {
	for _, uri := range []string{
		"/login", "//login", `\login`, `/\login`, "/%5clogin", `/login\.%5C`, "/./login", "/%2flogin", "/%2Flogin", "/login/", "/login//", "/login/.",
		"/%6cogin", "/l%6Fgin", "/login?", "/login?a=/b", "/login?a#b c", "/login;a=b", "/;a/login", "/login;a/", "/login?a;b%2f",
		"http://example.org/login", "https://example.org//login?a", "login", "/login%2f", "/.//./login/./", "http://example.org/%2e/login",
	} {
		for _, match := range []string{"/login", "POST /login", "example.org/login", "/{page}", "/login/", "/login/{$}"} {
			d := open(t, "proxy: caddy\nparameters: drop\nescaped_slashes: decode\nbackslashes: slash\nescaped_backslashes: decode\nleading_slashes: merge\nrules:\n  - {match: '"+match+"', limit: one, key: everybody}\n  - {match: '/', unlimited: true}\n")
			assert.Equal(t, http.StatusNoContent, d.ask("POST", uri).Code, uri)
			assert.Equal(t, http.StatusTooManyRequests, d.ask("POST", uri).Code, "%s hides from %s", uri, match)
			assert.Equal(t, http.StatusNoContent, d.ask("POST", "/other/page").Code, uri)
		}
	}
	d := open(t, "proxy: caddy\nrules:\n  - {match: 'POST example.org/login', limit: one, key: everybody}\n")
	require.Equal(t, http.StatusNoContent, d.ask("POST", "/login").Code)
	for _, host := range []string{"example.org:443", "EXAMPLE.org", "example.org.", "Example.Org.:80"} {
		assert.Equal(t, http.StatusTooManyRequests, d.ask("POST", "/login", "X-Forwarded-Host", host).Code, host)
	}
	assert.Equal(t, http.StatusTooManyRequests, d.ask("post", "/login").Code)
	for _, other := range [][]string{{"GET", "/login"}, {"POST", "/login2"}, {"POST", "/login", "X-Forwarded-Host", "example.com"}, {"POST", "/login", "X-Forwarded-Host", ""}} {
		assert.Equal(t, http.StatusNoContent, d.ask(other[0], other[1], other[2:]...).Code, "%s", other)
	}
}

// The most specific rule holds. Requests without a rule pass.
//
// Promise: A rule for `OPTIONS` comes before rules for other methods, so that one exempts preflights.
func TestMostSpecificRuleHolds(t *testing.T) {
	d := open(t, `
proxy: caddy
rules:
  - {match: /api/, limit: two, key: everybody}
  - {match: GET /api/health, unlimited: true}
  - {match: "POST /api/{thing}", limit: one, key: path thing}
  - {match: "OPTIONS\t/", unlimited: true}
  - {match: OPTIONS /api/old/, limit: window 3/h, key: everybody}
`)
	for _, c := range []struct {
		method, path string
		passes       int
	}{
		{"GET", "/other", 10},
		{"GET", "/api/health", 10},
		{"POST", "/api/a", 1},
		{"POST", "/api/b", 1},
		{"GET", "/api", 2},
		{"GET", "/api/a/b", 0},
		{"OPTIONS", "/api/a", 10},
		{"OPTIONS", "/a", 10},
		{"OPTIONS", "/api/old/a", 3},
	} {
		assert.Equal(t, c.passes, d.passes(t, c.method, c.path), "%s %s", c.method, c.path)
	}
}

// A path has the more specific rule with and without a final slash. Two rules are refused if
// neither is more specific.
func TestSlashAtTheEndChoosesNoOtherRule(t *testing.T) {
	const head = "proxy: caddy\nrules:\n  - {match: %q, limit: two, key: everybody}\n  - {match: %q, unlimited: true}\n"
	for _, match := range [][]string{
		{"/api/", "/"}, {"/api/", "/{all...}"}, {"/api", "/{page}"}, {"/api", "/api/"}, {"GET /api", "/{page}/"}, {"/{page}", "/{page}/"},
		{"example.org/api/", "/{page}"}, {"/api/{$}", "/api/"},
	} {
		for _, uri := range []string{"/api", "/api/"} {
			d := open(t, fmt.Sprintf(head, match[0], match[1]))
			assert.Equal(t, 2, d.passes(t, "GET", uri), "%s %s", uri, match)
		}
	}
	for _, match := range [][]string{{"/api/", "/{page}"}, {"/users/me/", "GET /users/{id}"}, {"/api", "/api/{$}"}} {
		_, err := Parse("check.yaml", fmt.Appendf(nil, head, match[0], match[1]), limitNamed)
		assert.ErrorContains(t, err, "check.yaml:4: rules[1].match: with a slash at the end of each path, pattern ", "%s", match)
		assert.ErrorContains(t, err, " conflicts with pattern ", "%s", match)
	}
	d := open(t, "proxy: caddy\nrules:\n  - {match: '/files/{name...}', limit: one, key: path name}\n")
	assert.Equal(t, 1, d.passes(t, "GET", "/files/a/b"))
	assert.Zero(t, d.passes(t, "GET", "/files/a/b/"))
	assert.Equal(t, 1, d.passes(t, "GET", "/files/a"))
	assert.Equal(t, http.StatusBadRequest, d.ask("GET", "/files").Code, "there is no key")
	assert.Equal(t, "/files/{name...}", withSlash("/files/{name...}"))
}

// Bad escapes, and paths that backends read differently.
func TestPathsWithoutARuleAreRefused(t *testing.T) {
	d := open(t, "proxy: caddy\nrules:\n  - {match: /static/, unlimited: true}\n")
	for _, uri := range []string{
		"/%zz", "/%", "/login/../static/a", "/..", "..", "/a/%2e%2e/static/a", "/a/.%2E/b", "/a%2f..%2fstatic", "/a/..;/static/a", "/a/..;b=c", "/../a", "/a/..?",
		`/a\..\static/a`, `/a\..`, `/%2e%2e\static`, "/a%5c..%5Cstatic", "/a%5c../static", `/a\%2e%2e/static`, `..\a`, "//x/../a",
		"/a#", "/static#/a", "/static/#/../a", "#", "//x#/a", "/static /a", "/static ", " /static", "/st\tatic", "\t/static", "/a\nb", "/a\x00", "/a\x7f", "/static%0a", "/static/%00", "/%1F/static", "/static%7f",
		"/static\x80", "/static\x85", "/static\xa0", "/a/\x9f/b", "/static%85", "/static%A0", "/static%80", "/\xe9%85", "/static\xe2\x80", "/%c3/%a0", "/%c3\xa0",
		"/static\u0080", "/static\u0085", "/static%c2%85", "/static\u009f", "/static\u00a0", "/static%C2%A0", "/static\u2028", "/static\u2029", "/static%E2%80%A8", "/static%e2%80%a9", "/st\u2028atic",
		"http:/static", "http:static", `http:\\x\static`, "x:/static", "static:80", "http://a?/static", "http://a#/static", `http://a\b/static`, "http://a@b/static",
		"http://a:b/static", "http://a b/static", "http://ä/static", "//a%2fb/static", "//a;b/static", "//a:b/static", "//u@a/static", `//\a..`,
	} {
		assert.Equal(t, http.StatusBadRequest, d.ask("GET", uri).Code, uri)
	}
	assert.Empty(t, d.log.String(), "a client can cause it")
	for _, uri := range []string{"/a..b", "/...", "/a../b", "/..a", "/a?../b", "/a/...;b", "/.../b", "http://[::1]:80/a", "http://a_b.example:8080/a", "http://a", "//a.b:80/c", "*", "/a:b", "/a:80/b",
		"/é", "/à", "/caf\xe9", "/caf%e9", "/caf%C3%A9", "/%C3%A0", "/\xa1", "/\xff", "/日本", "/%E6%97%A5%E6%9C%AC", "/👍", "/Å\u0305", "/\u200b", "/\u202a", "/\ufffd", "/\u00a1", "/ş/Ğ"} {
		assert.Equal(t, http.StatusNoContent, d.ask("GET", uri).Code, uri)
	}
}

// They have ; or %2F, backslashes or several leading slashes. Operators are told once. Settings say
// how backends read them.
//
// Promise: Paths that backends read differently are refused.
func TestPathsThatBackendsReadDifferently(t *testing.T) {
	const rules = `
rules:
  - {match: /login, limit: one, key: everybody}
  - {match: /api/, limit: one, key: everybody}
  - {match: /api/health, unlimited: true}
  - {match: "/users/{id}", limit: "funnel 1, 1/365d", key: path id}
`
	const counted, free, refused = 1, 10, 0
	for _, group := range []struct {
		settings [4]string
		paths    map[string][4]int
	}{
		{[4]string{
			"", "parameters: drop\nescaped_slashes: decode", "parameters: keep\nescaped_slashes: decode", "parameters: keep\nescaped_slashes: keep",
		}, map[string][4]int{
			"/api/health":    {free, free, free, free},
			"/api/health;1":  {refused, free, counted, counted},
			"/api/;1/health": {refused, free, counted, counted},
			"/api/other;1":   {counted, counted, counted, counted},
			// In the last reading no rule applies.
			"/api%2Fhealth":    {refused, free, free, free},
			"/api%2fother":     {refused, counted, counted, free},
			"/users/1%2F2":     {refused, free, free, counted},
			"/users/1;a":       {counted, counted, counted, counted},
			"/api/health%2f;a": {refused, free, counted, counted},
			"/other;a%2fb":     {free, free, free, free},
			"/a/..;b":          {refused, refused, free, free},
			"/a%2f..%2fapi":    {refused, refused, refused, refused},
		}},
		{[4]string{
			// These settings are for Node's URL.
			"", "backslashes: slash\nescaped_backslashes: keep\nleading_slashes: host",
			// These settings are for Python's urlsplit.
			"backslashes: keep\nescaped_backslashes: keep\nleading_slashes: host",
			// These settings are for Go.
			"backslashes: keep\nescaped_backslashes: keep\nleading_slashes: merge",
		}, map[string][4]int{
			"//login":           {refused, free, free, counted},
			"//x/login":         {refused, counted, counted, free},
			"///x/login":        {refused, refused, refused, free},
			`/\x/login`:         {refused, counted, free, free},
			`/\login`:           {refused, free, free, free},
			`\login`:            {refused, counted, free, free},
			`/login\`:           {refused, counted, free, free},
			`/.\login`:          {refused, counted, free, free},
			`/x\..\login`:       {refused, refused, refused, refused},
			"/%5Clogin":         {refused, free, free, free},
			"//x/y":             {free, free, free, free},
			"//x//login":        {refused, counted, counted, free},
			"/.//x/login":       {free, free, free, free},
			"//./login":         {counted, counted, counted, counted},
			`/a\b`:              {free, free, free, free},
			"http://h//x/login": {refused, counted, counted, free},
			"//x":               {free, free, free, free},
			`/login?\//x`:       {counted, counted, counted, counted},
		}},
	} {
		for uri, want := range group.paths {
			for i, settings := range group.settings {
				d := open(t, "proxy: caddy\n"+settings+rules)
				assert.Equal(t, want[i], d.passes(t, "GET", uri), "%s %s", uri, settings)
				if want[i] == refused {
					assert.Equal(t, http.StatusBadRequest, d.ask("GET", uri).Code, uri)
				}
				if i == 0 && want[i] == refused && !strings.Contains(uri, "..") {
					assert.Equal(t, 1, strings.Count(d.log.String(), "depends on their meaning to the backend"), d.log)
				}
			}
		}
	}

	// Kept text is part of a key.
	d := open(t, "proxy: caddy\nparameters: keep\nescaped_slashes: keep"+rules)
	for _, uri := range []string{"/users/1", "/users/1;a", "/users/1%2f2", "/users/1%2f3"} {
		assert.Equal(t, 1, d.passes(t, "GET", uri), uri)
	}
	d = open(t, "proxy: caddy"+rules)
	assert.Equal(t, 1, d.passes(t, "GET", "/users/1"))
	assert.Zero(t, d.passes(t, "GET", "/users/1;a"))
}

// Without the fields of its rules nothing is decided, and that is logged once.
func TestProxyThatDoesNotSendTheFields(t *testing.T) {
	for _, missing := range []string{"X-Forwarded-Uri", "X-Forwarded-Method", "X-Forwarded-For"} {
		d := open(t, "proxy: caddy\nrules: []\n")
		for range 3 {
			assert.Equal(t, http.StatusInternalServerError, d.ask("GET", "/", missing, "").Code, missing)
		}
		assert.Equal(t, 1, strings.Count(d.log.String(), "there is no field "+missing), d.log)
	}
	for _, twice := range []string{"X-Forwarded-Uri", "X-Forwarded-Method", "X-Forwarded-Host"} {
		r := asked("X-Forwarded-Host", "a")
		r.Header.Add(twice, "/b")
		assert.Equal(t, http.StatusInternalServerError, open(t, "proxy: caddy\nrules: []\n").do(r).Code, twice)
	}
}

// The client may send fields that the proxy does not set.
//
// Promise: Checks believe only fields that their rules name, from trusted proxies.
func TestFieldsOfTheClientAreNotBelieved(t *testing.T) {
	const rules = "\nrules:\n  - {match: POST /login, limit: one, key: address}\n"
	d := open(t, "proxy: nginx"+rules)
	require.Equal(t, http.StatusNoContent, d.asNginx("POST", "/login").Code)
	for _, forged := range [][]string{
		{"X-Forwarded-Uri", "/other"}, {"X-Forwarded-Method", "GET"}, {"X-Forwarded-For", "192.0.2.2"}, {"X-Original-Url", "/other"},
		{"X-Forwarded-Host", "a"}, {"Forwarded", "for=192.0.2.2"}, {"X-Http-Method-Override", "GET"}, {"X-Rewrite-Url", "/other"},
	} {
		assert.Equal(t, http.StatusForbidden, d.asNginx("POST", "/login", forged...).Code, "%s", forged)
	}
	d = open(t, "proxy: traefik"+rules)
	require.Equal(t, http.StatusNoContent, d.ask("POST", "/login").Code)
	for _, forged := range [][]string{{"X-Original-Uri", "/other"}, {"X-Original-Method", "GET"}, {"X-Real-Ip", "192.0.2.2"}, {"X-Forwarded-For", "192.0.2.2, 192.0.2.1"}} {
		assert.Equal(t, http.StatusTooManyRequests, d.ask("POST", "/login", forged...).Code, "%s", forged)
	}
	d = open(t, "proxy: {uri: X-Uri, method: X-Method, host: Host, address: Cf-Connecting-Ip}"+rules)
	for _, want := range []int{http.StatusNoContent, http.StatusTooManyRequests} {
		assert.Equal(t, want, d.do(asking("X-Uri", "/login", "X-Method", "POST", "Cf-Connecting-Ip", "192.0.2.1")).Code)
	}
}

// Promise: Checks answer only trusted proxies; the last other address is the client's.
func TestOnlyTrustedProxiesAreAnswered(t *testing.T) {
	const rules = "\nrules:\n  - {match: /, limit: one, key: address}\n"
	from := func(d opened, peer, forwarded string) int {
		r := asked("X-Forwarded-For", forwarded)
		r.RemoteAddr = peer
		return d.do(r).Code
	}
	d := open(t, "proxy: caddy"+rules)
	assert.Equal(t, http.StatusForbidden, from(d, "192.0.2.9:1", "192.0.2.1"))
	assert.Contains(t, d.log.String(), "no proxy that is trusted")
	assert.Equal(t, http.StatusNoContent, from(d, "[::1]:1", "192.0.2.1"))
	assert.Equal(t, http.StatusTooManyRequests, from(d, "127.9.9.9:1", "192.0.2.1"))

	d = open(t, "proxy: caddy\ntrusted: [10.0.0.0/8, 198.51.100.7]"+rules)
	assert.Equal(t, http.StatusForbidden, from(d, "127.0.0.1:1", "192.0.2.1"))
	assert.Equal(t, http.StatusNoContent, from(d, "10.1.2.3:1", "203.0.113.1, 192.0.2.1, 198.51.100.7"))
	assert.Equal(t, http.StatusTooManyRequests, from(d, "198.51.100.7:1", "203.0.113.2, 192.0.2.1"))
}

// Whatever addresses are trusted: no peer has the address 0.0.0.0 or ::. The client is found as usual.
func TestUnixSocketIsTrusted(t *testing.T) {
	for _, trusted := range []string{"", "trusted: ['2001:db8::/32', 10.0.0.1]\n", "trusted: ['0.0.0.0/8']\n", "trusted: ['::/8']\n"} {
		d := open(t, "proxy: caddy\n"+trusted+"rules:\n  - {match: /, limit: one, key: address}\n")
		for _, want := range []int{http.StatusNoContent, http.StatusTooManyRequests} {
			r := asked().WithContext(context.WithValue(t.Context(), http.LocalAddrContextKey, &net.UnixAddr{Name: "check.sock", Net: "unix"}))
			r.RemoteAddr = "@"
			assert.Equal(t, want, d.do(r).Code, trusted)
		}
	}
}

// A clean path is its own clean path, except for escaped escapes.
func FuzzCleanPath(f *testing.F) {
	for _, seed := range []string{"/a//b", "/a/../../b", "/%2e%2e/a;b/c?d#e", "http://a/b", "*", "", "/%25%32f", "//a:b@c/d", "/a;/..;/b", ":///", "/%00"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, uri string) {
		cleanPath := func(uri string) (string, error) {
			raw, _, err := splitURI(uri)
			if err != nil {
				return "", err
			}
			u, err := mergesSlashes.clean(raw)
			if err != nil {
				return "", err
			}
			if unescaped, err := url.PathUnescape(u.EscapedPath()); err != nil || unescaped != u.Path {
				t.Fatalf("%q gives %q and %q", uri, u.Path, u.EscapedPath())
			}
			return u.Path, nil
		}
		clean, err := cleanPath(uri)
		if err != nil {
			return
		}
		if !strings.HasPrefix(clean, "/") || path.Clean(clean) != clean || strings.Contains(clean+"/", "/../") {
			t.Fatalf("%q gives %q", uri, clean)
		}
		for _, other := range []string{"/" + strings.TrimPrefix(uri, "/"), "//" + uri, "/." + "/" + uri, "/;a/" + uri} {
			if strings.Contains(strings.SplitN(uri, "?", 2)[0], ":") {
				// The target is a whole URL.
				continue
			}
			if got, err := cleanPath(other); err != nil || got != clean {
				t.Fatalf("%q gives %q, %v, and %q gives %q", uri, clean, err, other, got)
			}
		}
	})
}
