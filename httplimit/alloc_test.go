package httplimit

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/internal/testkit/testenv"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// quiet is a ResponseWriter that allocates nothing. Tests empty its header before each request.
type quiet struct{ h http.Header }

func (q *quiet) Header() http.Header         { return q.h }
func (q *quiet) Write(b []byte) (int, error) { return len(b), nil }
func (q *quiet) WriteHeader(int)             {}

// RateLimit allocates two strings, one of them cached, and their slice; the older sets a string and
// a slice. Several limits allocate the results of engine.TakeAll.
//
// Promise: Admitted requests allocate only header values.
func TestAdmittedPathAllocatesHeaderValuesOnly(t *testing.T) {
	if testenv.Race {
		t.Skip("the race detector allocates")
	}
	limiter := open[netip.Addr](t, policy.Must(policy.Funnel(1_000_000, 1, time.Second)))
	named := open[string](t, policy.Must(policy.Funnel(1_000_000, 1, time.Second)))
	trusted := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	xff := must.Get(NewClientAddr(AddrConfig{Header: XForwardedFor, Trusted: trusted}))
	forwarded := must.Get(NewClientAddr(AddrConfig{Header: Forwarded, Hops: 2}))
	type user struct{}
	two := func(o Options) *Middleware {
		return Must(NewAll(o, Limit[netip.Addr]{Name: "a", Limiter: limiter, Key: ByAddr}, Limit[string]{Name: "b", Limiter: named, Key: ByPattern(nil)}))
	}

	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.RemoteAddr = "10.0.0.1:4711"
	r.Header.Set("X-Forwarded-For", "203.0.113.9, 2001:db8::1%eth0, 10.1.2.3")
	r.Header.Set("Forwarded", `for=6.6.6.6, for="[2001:db8::17]:4711";proto=https, for=10.1.2.3`)
	r.Header.Set("X-Api-Key", "0123456789abcdef")
	r.Pattern = "GET /things/{id}"
	r = r.WithContext(context.WithValue(r.Context(), user{}, "alice"))

	// long is for a claim of an address, which is more than three words of 32 bits.
	long := 0.0
	if strconv.IntSize == 32 {
		long = 1
	}
	for _, c := range []struct {
		name string
		most float64
		m    *Middleware
	}{
		{"no fields", 0, Must(New(limiter, ByAddr, Options{Headers: NoHeaders}))},
		{"RateLimit", 2, Must(New(limiter, ByAddr, Options{}))},
		{"RateLimit-*", 2, Must(New(limiter, ByAddr, Options{Headers: LegacyHeaders}))},
		{"X-RateLimit-*", 2, Must(New(limiter, ByAddr, Options{Headers: XRateLimitHeaders}))},
		{"shadow", 0, Must(New(limiter, ByAddr, Options{Shadow: true}))},
		{"behind proxies", 0, Must(New(limiter, xff.Key, Options{Headers: NoHeaders}))},
		{"behind proxies, Forwarded", 0, Must(New(limiter, forwarded.Key, Options{Headers: NoHeaders}))},
		{"lists", 0, Must(New(limiter, xff.Key, Options{
			Headers: NoHeaders, ClientAddr: xff, Deny: trusted, Allow: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")},
		}))},
		{"waiting allowed", 0, Must(New(limiter, ByAddr, Options{Headers: NoHeaders, WaitUpTo: time.Second}))},
		{"header", 0, Must(New(named, ByHeader("x-api-key"), Options{Headers: NoHeaders}))},
		{"pattern", 0, Must(New(named, ByPattern(nil), Options{Headers: NoHeaders}))},
		{"pair", 0, Must(New(open[limits.Pair[netip.Addr, string]](t, policy.Must(policy.Funnel(1_000_000, 1, time.Second))),
			Both(ByAddr, ByPattern(nil)), Options{Headers: NoHeaders}))},
		{"context", 0, Must(New(named, ByContext[string](user{}), Options{Headers: NoHeaders}))},
		{"shadow, waiting allowed", 0, Must(New(limiter, ByAddr, Options{Shadow: true, WaitUpTo: time.Second}))},
		{"two limits", 3 + long, two(Options{})},
		{"two limits, waiting allowed", 6 + long, two(Options{WaitUpTo: time.Second})},
		{"two limits, charge", 8 + long, two(Options{Charge: func(*http.Request, Served) int64 { return 0 }})},
		{"cost and hook", 0, Must(New(limiter, ByAddr, Options{
			Headers: NoHeaders, Cost: func(*http.Request) int64 { return 2 }, OnVerdict: func(*http.Request, limits.Verdict) {},
		}))},
	} {
		w := &quiet{h: http.Header{}}
		served := 0
		h := c.m.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served++ }))
		// The map of fields has its size then.
		for range 100 {
			clear(w.h)
			h.ServeHTTP(w, r)
		}
		got, want := 0.0, 100
		// The key may not have been filed.
		must.Await(t, func() bool {
			got = testing.AllocsPerRun(1000, func() {
				clear(w.h)
				h.ServeHTTP(w, r)
			})
			want += 1001
			return got <= c.most
		}, "%s allocates %v at most", c.name, c.most)
		t.Logf("%-28s %v allocations", c.name, got)
		assert.Equal(t, want, served, c.name)
	}
}

// RateLimit allocates two slices and two strings; no fields, the slice and string of Retry-After.
//
// Promise: So do refused requests without `Accept`.
func TestRefusalAllocatesHeaderValuesOnly(t *testing.T) {
	if testenv.Race {
		t.Skip("the race detector allocates")
	}
	for _, c := range []struct {
		headers HeaderSet
		spread  time.Duration
		most    float64
	}{{RateLimitHeaders, 0, 4}, {NoHeaders, 0, 2}, {NoHeaders, time.Minute, 2}} {
		h := Must(New(open[netip.Addr](t, policy.Must(policy.FixedWindow(1, 24*time.Hour))), ByAddr, Options{Headers: c.headers, Spread: c.spread})).Handler(done)
		w, r := &quiet{h: http.Header{}}, from(alice)
		for range 100 {
			clear(w.h)
			h.ServeHTTP(w, r)
		}
		got := testing.AllocsPerRun(1000, func() {
			clear(w.h)
			h.ServeHTTP(w, r)
		})
		assert.LessOrEqual(t, got, c.most, "header set %d", c.headers)
		assert.Contains(t, w.h, "Retry-After")
	}
}
