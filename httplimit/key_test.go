package httplimit

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

func TestByHeaderTrimsAndHashesValues(t *testing.T) {
	key := ByHeader("x-api-key")
	assert.Equal(t, "", key(from("192.0.2.1:1")), "a missing field has a key")
	assert.Equal(t, "", key(from("192.0.2.1:1", "X-API-Key", "")), "an empty field has a key")
	assert.Equal(t, "abc", key(from("192.0.2.1:1", "X-API-Key", "abc", "X-Api-Key", "def")), "the first value counts, as for Header.Get")
	for _, padded := range []string{"abc ", " abc", "\tabc\t", " \t abc\t "} {
		assert.Equal(t, "abc", key(from("192.0.2.1:1", "X-API-Key", padded)), "%q", padded)
	}
	assert.Equal(t, "a c", key(from("192.0.2.1:1", "X-API-Key", " a c")))
	assert.Equal(t, "", key(from("192.0.2.1:1", "X-API-Key", " \t ")), "white space alone is no key")

	longest := strings.Repeat("k", 64)
	assert.Equal(t, longest, key(from("192.0.2.1:1", "X-API-Key", longest)))
	assert.Equal(t, longest, key(from("192.0.2.1:1", "X-API-Key", longest+" ")))
	keys := map[string]bool{}
	for _, long := range []string{
		longest + "k", longest + "l", strings.Repeat("k", 512), strings.Repeat("k", 513), strings.Repeat("k", 1<<20), strings.Repeat("k", 1<<20-1) + "l",
	} {
		k := key(from("192.0.2.1:1", "X-API-Key", long))
		assert.Len(t, k, 33)
		assert.Equal(t, byte(0), k[0], "no header field can hold this byte, so no short value equals a hash")
		keys[k] = true
	}
	assert.Len(t, keys, 6, "different values have different keys")
}

func TestByHeaderChecksNamesAndReadsHost(t *testing.T) {
	for _, name := range []string{"", " ", "X Api", "X-Api-Key:", "naïve", "a\n"} {
		key := ByHeader(name)
		assert.Nil(t, key, "%q", name)
		assert.Nil(t, Join(ByHeader("A"), key))
		assert.Nil(t, Both(key, ByAddr))
		assert.Nil(t, Both(ByAddr, key))
	}
	assert.Nil(t, ByString[netip.Addr](nil))
	for _, name := range []string{"Host", "host", "HOST"} {
		r := from("192.0.2.1:1", "Host", "6.6.6.6")
		r.Host = "example.org:8080"
		assert.Equal(t, "example.org", ByHeader(name)(r))
		r.Host = strings.Repeat("h", 1000)
		assert.Len(t, ByHeader(name)(r), 33)
	}
}

func TestHostIsLowerCaseWithoutPort(t *testing.T) {
	for authority, want := range map[string]string{
		"example.org":          "example.org",
		"Example.ORG:65536":    "example.org",
		"example.org:x":        "example.org",
		"example.org:1:2":      "example.org",
		"example.org.":         "example.org",
		" example.org\t":       "example.org", //nolint:gocritic // white space is what is tried
		"example.org..":        "example.org.",
		"192.0.2.1:80":         "192.0.2.1",
		"[2001:db8::1]:80":     "2001:db8::1",
		"[2001:DB8:0:0::1]:80": "2001:db8::1",
		"[::1]:99999":          "::1",
		"[Nonsense]:80":        "[nonsense]",
		// The lower case of this letter is an ASCII k.
		"\u212aelvin": "\u212aelvin",
		"":            "",
		"]":           "]",
	} {
		assert.Equal(t, want, hostOf(authority), "%q", authority)
	}
}

// Promise: Routes of nested muxes count apart; clients cannot invent any.
func TestByPatternOfNestedMuxes(t *testing.T) {
	inner, outer := http.NewServeMux(), http.NewServeMux()
	for _, pattern := range []string{
		"GET /a/{id}", "POST /a/{id}", "/b/{rest...}", "/tree/{id}/", "api.example.org/a/{id}",
	} {
		inner.HandleFunc(pattern, func(http.ResponseWriter, *http.Request) {})
	}
	type keys struct{ inner, outer string }
	var got keys
	front := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		got = keys{ByPattern(inner)(r), ByPattern(nil)(r)}
	})
	for _, prefix := range []string{"/v1", "/v2"} {
		outer.Handle(prefix+"/", http.StripPrefix(prefix, front))
	}
	for _, c := range []struct {
		method, host, path string
		want               keys
	}{
		{"GET", "x", "/v1/a/1", keys{"GET /a/{id}", "/v1/"}},
		{"HEAD", "x", "/v1/a/2", keys{"GET /a/{id}", "/v1/"}},
		{"GET", "x", "/v2/a/2", keys{"GET /a/{id}", "/v2/"}},
		{"GET", "x", "/v1/b/x/y", keys{"/b/{rest...}", "/v1/"}},
		{"GET", "api.example.org:80", "/v1/a/1", keys{"api.example.org/a/{id}", "/v1/"}},
		// The answer is 405.
		{"DELETE", "x", "/v1/a/1", keys{"", "/v1/"}},
		// The answer is a redirect.
		{"GET", "x", "/v1/tree/17", keys{"/tree/{id}/", "/v1/"}},
		// The target of CONNECT is the client's.
		{"CONNECT", "x", "/v1/tree/17", keys{"", "/v1/"}},
		// Escaped dots stay.
		{"GET", "x", "/v1/b/%2e%2e/a/1", keys{"/b/{rest...}", "/v1/"}},
	} {
		r := httptest.NewRequest(http.MethodGet, c.path, nil)
		r.Method, r.Host = c.method, c.host
		got = keys{"none", "none"}
		ask(outer, r)
		assert.Equal(t, c.want, got, "%+v", c)
	}

	// Two routes behind one outer pattern are counted apart.
	limiter := open[string](t, policy.Must(policy.FixedWindow(1, time.Hour)))
	limited := Must(New(limiter, ByPattern(inner), Options{})).Handler(inner)
	outer = http.NewServeMux()
	outer.Handle("/api/", http.StripPrefix("/api", limited))
	var codes []int
	for _, path := range []string{"/api/a/1", "/api/a/2", "/api/b/1", "/api/b/2", "/api/nothing"} {
		codes = append(codes, ask(outer, httptest.NewRequest(http.MethodGet, path, nil)).Code)
	}
	assert.Equal(t, []int{200, 429, 200, 429, 400}, codes)
}

func TestByContextReadsOnlyItsType(t *testing.T) {
	type name struct{}
	key := ByContext[string](name{})
	with := func(v any) *http.Request {
		return from("192.0.2.1:1").WithContext(context.WithValue(context.Background(), name{}, v))
	}
	assert.Equal(t, "alice", key(with("alice")))
	assert.Equal(t, "", key(with(17)), "a value of another type is a key")
	assert.Equal(t, "", key(from("192.0.2.1:1")))
}

func TestBothNeedsBothKeys(t *testing.T) {
	key := Both(ByAddr, ByHeader("User"))
	assert.Equal(t, limits.Pair[netip.Addr, string]{A: netip.MustParseAddr("192.0.2.1"), B: "alice"}, key(from("192.0.2.1:1", "User", "alice")))
	assert.Zero(t, key(from("192.0.2.1:1")), "a pair without its second part has a key")
	assert.Zero(t, key(from("@", "User", "alice")), "a pair without its first part has a key")
}

func TestByStringOfNoAddressIsEmpty(t *testing.T) {
	key := ByString(ByAddr)
	assert.Equal(t, "192.0.2.1", key(from("192.0.2.1:1")))
	assert.Equal(t, "", key(from("@")), "not \"invalid IP\"")
}

// A joined key can be taken apart again, so no two lists of parts give the same key.
//
// Promise: Keys of several parts are never mistaken for others.
func FuzzJoin(f *testing.F) {
	assert.Equal(f, "", Join()(nil))
	f.Add("x", "")
	f.Add("", "x")
	f.Add("a", "b")
	f.Add("1:a", "2:")
	f.Add("a:1", ":")
	constant := func(s string) func(*http.Request) string { return func(*http.Request) string { return s } }
	f.Fuzz(func(t *testing.T, a, b string) {
		joined := Join(constant(a), constant(b))(nil)
		if a == "" || b == "" {
			if joined != "" {
				t.Fatalf("%q of %q and %q", joined, a, b)
			}
			return
		}
		for _, want := range []string{a, b} {
			digits, rest, ok := strings.Cut(joined, ":")
			n, err := strconv.Atoi(digits)
			if !ok || err != nil || n > len(rest) || rest[:n] != want {
				t.Fatalf("%q does not begin with %q", joined, want)
			}
			joined = rest[n:]
		}
		if joined != "" {
			t.Fatalf("%q remains of %q and %q", joined, a, b)
		}
	})
}
