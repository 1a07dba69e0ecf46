//go:build unix

package sidebyside

import (
	"net/http"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/httplimit"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/policy"
)

// BenchmarkGoals measures the handler alone as ratios, medians of processor time: see
// docs/experiments.md. An operation is a round of turns, so that other load slows all alike.
//
//	go test -run '^$' -bench Goals -benchtime 40x -cpu 1 ./test/sidebyside/http
func BenchmarkGoals(b *testing.B) {
	const clients = 10_000
	type turn struct {
		name     string
		h        http.Handler
		requests []*http.Request
		times    []float64
	}
	all := clientRequests(clients)
	noHeaders := httplimit.Options{Headers: httplimit.NoHeaders}
	var turns []*turn
	add := func(name string, middleware func(http.Handler) http.Handler, requests []*http.Request) {
		turns = append(turns, &turn{name: name, h: middleware(hello), requests: requests})
	}
	bare := func(next http.Handler) http.Handler { return next }
	add("bare", bare, all[:1])
	add("naive", xtime(b, hourly(plenty)), all[:1])
	add("no-headers", ral(noHeaders)(b, hourly(plenty)), all[:1])
	add("ratelimit", ral(httplimit.Options{})(b, hourly(plenty)), all[:1])
	add("naive,10k", xtime(b, hourly(plenty)), all)
	add("no-headers,10k", ral(noHeaders)(b, hourly(plenty)), all)
	add("naive,refused", xtime(b, hourly(one)), all[:1])
	add("no-headers,refused", ral(noHeaders)(b, hourly(one)), all[:1])
	add("ratelimit,refused", ral(httplimit.Options{})(b, hourly(one)), all[:1])
	add("no-headers,two", two(b, noHeaders), all[:1])
	add("ratelimit,two", two(b, httplimit.Options{}), all[:1])
	// The minimum for a middleware that asks this engine, sets two header fields, or both.
	add("floor", floor(b, false), all[:1])
	add("floor,fields", floor(b, true), all[:1])
	add("floor,two", floorOfTwo(b), all[:1])

	w := &quiet{h: http.Header{}}
	pass := func(t *turn, calls int) {
		for i := range calls {
			clear(w.h)
			t.h.ServeHTTP(w, t.requests[i%len(t.requests)])
		}
	}
	for _, t := range turns {
		pass(t, 2*clients)
	}
	const calls = 5_000
	for b.Loop() {
		for _, t := range turns {
			began := cpuTime()
			pass(t, calls)
			t.times = append(t.times, float64(cpuTime()-began)/calls)
		}
	}
	ns := map[string]float64{}
	for _, t := range turns {
		slices.Sort(t.times)
		ns[t.name] = t.times[len(t.times)/2]
		b.ReportMetric(ns[t.name], t.name+"-ns")
	}
	b.ReportMetric(0, "ns/op") // a round means nothing
	for _, g := range []struct {
		of, to string
		most   float64
	}{
		{"no-headers", "naive", 1.3},
		{"no-headers,10k", "naive,10k", 1.3},
		{"ratelimit", "no-headers", 1.6},
		{"no-headers,two", "no-headers", 1.6},
		{"ratelimit,two", "ratelimit", 1.6},
		{"floor,two", "floor", 1.6},
		{"floor,fields", "floor", 1.6},
	} {
		b.Logf("%-16s / %-12s %.2f, goal %.1f", g.of, g.to, ns[g.of]/ns[g.to], g.most)
	}
	for _, of := range []string{"no-headers,refused", "ratelimit,refused"} {
		b.Logf("%-16s - naive,refused %4.0f ns, goal 200", of, ns[of]-ns["naive,refused"])
	}
}

func addresses(tb testing.TB) *engine.Engine[netip.Addr] {
	limiter := must.Get(engine.New[netip.Addr](engine.Config{Policy: policy.Must(policy.Funnel(plenty, plenty, time.Hour))}))
	tb.Cleanup(func() { assert.NoError(tb, limiter.Close()) })
	return limiter
}

func two(tb testing.TB, o httplimit.Options) func(http.Handler) http.Handler {
	m, err := httplimit.NewAll(o,
		httplimit.Limit[netip.Addr]{Name: "a", Limiter: addresses(tb), Key: httplimit.ByAddr},
		httplimit.Limit[netip.Addr]{Name: "b", Limiter: addresses(tb), Key: httplimit.ByAddr})
	return httplimit.Must(m, err).Handler
}

func floorOfTwo(tb testing.TB) func(http.Handler) http.Handler {
	a, b := addresses(tb), addresses(tb)
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			out := engine.TakeAll(a.Claim(httplimit.ByAddr(r), 1), b.Claim(httplimit.ByAddr(r), 1))
			if out.Allowed {
				next.ServeHTTP(w, r)
			}
		})
	}
}

// floor only takes from the engine and, with fields, sets two fields, one allocated.
func floor(tb testing.TB, fields bool) func(http.Handler) http.Handler {
	limiter := addresses(tb)
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			d := limiter.Take(httplimit.ByAddr(r), 1)
			if !d.Allowed {
				return
			}
			if fields {
				var buffer [16]byte
				buffer[0] = byte(d.Remaining)
				h, values := w.Header(), new([2]string)
				values[0], values[1] = "a policy", string(buffer[:])
				h["Ratelimit-Policy"], h["Ratelimit"] = values[0:1:1], values[1:2:2]
			}
			next.ServeHTTP(w, r)
		})
	}
}
