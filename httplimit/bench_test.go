package httplimit

import (
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/policy"
)

func BenchmarkMiddleware(b *testing.B) {
	plenty := func(b *testing.B) *engine.Engine[netip.Addr] {
		return open[netip.Addr](b, policy.Must(policy.Funnel(1_000_000_000, 1_000_000, time.Second)))
	}
	empty := func(b *testing.B) *engine.Engine[netip.Addr] {
		return open[netip.Addr](b, policy.Must(policy.FixedWindow(1, 24*time.Hour)))
	}
	two := func(b *testing.B, second *engine.Engine[netip.Addr], o Options) *Middleware {
		m, err := NewAll(o, Limit[netip.Addr]{Name: "a", Limiter: plenty(b), Key: ByAddr}, Limit[netip.Addr]{Name: "b", Limiter: second, Key: ByAddr})
		return Must(m, err)
	}
	all := func(*http.Request, Served) int64 { return 0 }
	for _, c := range []struct {
		name string
		make func(b *testing.B) *Middleware
	}{
		{"one limit", func(b *testing.B) *Middleware { return Must(New(plenty(b), ByAddr, Options{})) }},
		{"one limit, refused", func(b *testing.B) *Middleware { return Must(New(empty(b), ByAddr, Options{})) }},
		{"one limit, refused, spread", func(b *testing.B) *Middleware { return Must(New(empty(b), ByAddr, Options{Spread: time.Minute})) }},
		{"charge", func(b *testing.B) *Middleware { return Must(New(plenty(b), ByAddr, Options{Charge: all})) }},
		{"two limits", func(b *testing.B) *Middleware { return two(b, plenty(b), Options{}) }},
		{"two limits, refused", func(b *testing.B) *Middleware { return two(b, empty(b), Options{}) }},
		{"two limits, refused, spread", func(b *testing.B) *Middleware { return two(b, empty(b), Options{Spread: time.Minute}) }},
		{"two limits, charge", func(b *testing.B) *Middleware { return two(b, plenty(b), Options{Charge: all}) }},
		{"many policies", func(b *testing.B) *Middleware {
			var limits []policy.Policy
			for i := range 64 {
				limits = append(limits, policy.Must(policy.Funnel(int64(1_000_000_000+i), 1_000_000, time.Second)))
			}
			at := 0
			e, err := engine.New(engine.Config{Policy: limits[0]}, engine.PolicyFor(func(netip.Addr) policy.Policy { return limits[at] }))
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { _ = e.Close() })
			return Must(New(e, func(r *http.Request) netip.Addr { at = (at + 1) % len(limits); return ByAddr(r) }, Options{}))
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			h := c.make(b).Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			w, r := &quiet{h: http.Header{}}, from(alice)
			h.ServeHTTP(w, r)
			b.ReportAllocs()
			for b.Loop() {
				clear(w.h)
				h.ServeHTTP(w, r)
			}
		})
	}
}
