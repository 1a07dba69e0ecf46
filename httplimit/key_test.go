package httplimit

import (
	"context"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestByHeader(t *testing.T) {
	key := ByHeader("x-api-key")
	assert.Equal(t, "", key(from("192.0.2.1:1")), "missing")
	assert.Equal(t, "", key(from("192.0.2.1:1", "X-API-Key", "")), "empty")
	assert.Equal(t, "abc", key(from("192.0.2.1:1", "X-API-Key", "abc")))
	assert.Equal(t, "abc", key(from("192.0.2.1:1", "X-API-Key", "abc", "X-Api-Key", "def")), "the first counts, as for Header.Get")

	longest := strings.Repeat("k", 64)
	assert.Equal(t, longest, key(from("192.0.2.1:1", "X-API-Key", longest)))
	keys := map[string]bool{}
	for _, long := range []string{
		longest + "k", longest + "l", strings.Repeat("k", 512), strings.Repeat("k", 513), strings.Repeat("k", 1<<20), strings.Repeat("k", 1<<20-1) + "l",
	} {
		k := key(from("192.0.2.1:1", "X-API-Key", long))
		assert.Len(t, k, 33)
		assert.Equal(t, byte(0), k[0], "no header field can hold that, so no short value is a hash")
		keys[k] = true
	}
	assert.Len(t, keys, 6, "different values have different keys")
}

// What is no field, or not where fields are.
func TestByHeaderOfStrangeNames(t *testing.T) {
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
		assert.Equal(t, "example.org:8080", ByHeader(name)(r))
		r.Host = strings.Repeat("h", 1000)
		assert.Len(t, ByHeader(name)(r), 33)
	}
}

func TestByPattern(t *testing.T) {
	mux := http.NewServeMux()
	inside, outside := "", ""
	mux.HandleFunc("GET /things/{id}", func(_ http.ResponseWriter, r *http.Request) { inside = ByPattern(nil)(r) })
	front := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		outside = ByPattern(mux)(r)
		assert.Equal(t, "", ByPattern(nil)(r), "nobody has looked for the route yet")
		mux.ServeHTTP(w, r)
	})
	r := from("192.0.2.1:1")
	r.URL.Path = "/things/17"
	ask(front, r)
	assert.Equal(t, "GET /things/{id}", inside)
	assert.Equal(t, "GET /things/{id}", outside)
	r = from("192.0.2.1:1")
	r.URL.Path = "/nothing"
	ask(front, r)
	assert.Equal(t, "", outside)

	// The mux would name the path, which the client makes up.
	mux.HandleFunc("/users/{id}/", done)
	r = from("192.0.2.1:1")
	r.Method, r.URL.Path = http.MethodConnect, "/users/x17"
	ask(front, r)
	assert.Equal(t, "", outside)
}

func TestByContext(t *testing.T) {
	type name struct{}
	key := ByContext[string](name{})
	with := func(v any) *http.Request {
		return from("192.0.2.1:1").WithContext(context.WithValue(context.Background(), name{}, v))
	}
	assert.Equal(t, "alice", key(with("alice")))
	assert.Equal(t, "", key(with("")))
	assert.Equal(t, "", key(with(17)), "another type")
	assert.Equal(t, "", key(with(nil)))
	assert.Equal(t, "", key(from("192.0.2.1:1")))
	assert.Equal(t, 17, ByContext[int](name{})(with(17)))
}

func TestBoth(t *testing.T) {
	key := Both(ByAddr, ByHeader("User"))
	assert.Equal(t, Pair[netip.Addr, string]{netip.MustParseAddr("192.0.2.1"), "alice"}, key(from("192.0.2.1:1", "User", "alice")))
	assert.Zero(t, key(from("192.0.2.1:1")), "one part is missing")
	assert.Zero(t, key(from("@", "User", "alice")), "the other part is missing")
}

func TestJoin(t *testing.T) {
	a, b := ByHeader("A"), ByHeader("B")
	key := Join(a, b)
	assert.Equal(t, "1:x2:yz", key(from("", "A", "x", "B", "yz")))
	assert.Equal(t, "", key(from("", "A", "x")))
	assert.Equal(t, "", key(from("", "B", "x")))
	assert.NotEqual(t, key(from("", "A", "x", "B", "1:y1:z")), key(from("", "A", "x1:y", "B", "z")))
	assert.Equal(t, "", Join()(from("")))
}

func TestByString(t *testing.T) {
	key := ByString(ByAddr)
	assert.Equal(t, "192.0.2.1", key(from("192.0.2.1:1")))
	assert.Equal(t, "", key(from("@")), "not \"invalid IP\"")
}

// What is joined can be told apart again, so no two rows of parts are joined alike.
func FuzzJoin(f *testing.F) {
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
			t.Fatalf("%q is left of %q and %q", joined, a, b)
		}
	})
}
