package engine

import (
	"context"
	"testing"
	"time"

	"github.com/ral-limiter/ral/policy"
)

// BenchmarkVerbs has each verb on one hot key. docs/experiments.md has the ratios to Choke of the
// same run.
func BenchmarkVerbs(b *testing.B) {
	wide, other := funnel(1<<40, 1<<20, time.Second), funnel(1<<39, 1<<19, time.Second)
	never := funnel(1, 1, 24*time.Hour)
	three := []policy.Policy{wide, other, funnel(1<<38, 1<<18, time.Second)}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	for _, verb := range []struct {
		name  string
		limit policy.Policy
		call  func(e *Engine[string], key string)
	}{
		{"Choke", wide, func(e *Engine[string], key string) { e.Choke(key) }},
		{"Take", wide, func(e *Engine[string], key string) { e.Take(key, 2) }},
		{"Take-refused", never, func(e *Engine[string], key string) { e.Take(key, 1) }},
		{"Peek", wide, func(e *Engine[string], key string) { e.Peek(key, 0) }},
		{"TakeWith", wide, func(e *Engine[string], key string) { e.TakeWith(other, key, 2) }},
		{"Refund", wide, func(e *Engine[string], key string) { e.Refund(key, 1) }},
		{"Refund-charge", wide, func(e *Engine[string], key string) { e.Refund(key, -1) }},
		{"Reserve-Cancel", wide, func(e *Engine[string], key string) {
			r := e.Reserve(key, 2, time.Hour)
			r.Cancel()
		}},
		{"Reserve-Keep", wide, func(e *Engine[string], key string) {
			r := e.Reserve(key, 2, time.Hour)
			r.Keep(1)
		}},
		{"Wait", wide, func(e *Engine[string], key string) { _ = e.Wait(background, key, 1) }},
		{"Wait-cancellable", wide, func(e *Engine[string], key string) { _ = e.Wait(ctx, key, 1) }},
		{"Acquire-Cancel", wide, func(e *Engine[string], key string) {
			r, _ := e.Acquire(background, key, 1, 0)
			r.Cancel()
		}},
	} {
		b.Run(verb.name, func(b *testing.B) { benchHot(b, verb.limit, verb.call) })
	}
	choose := PolicyFor(func(key string) policy.Policy { return three[len(key)%3] })
	b.Run("PolicyFor-Choke", func(b *testing.B) {
		benchHot(b, wide, func(e *Engine[string], key string) { e.Choke(key) }, choose)
	})
	b.Run("PolicyFor-Take", func(b *testing.B) {
		benchHot(b, wide, func(e *Engine[string], key string) { e.Take(key, 2) }, choose)
	})
	for _, tiers := range []struct {
		name   string
		second policy.Policy
		call   func(t *Tiered[string], key string)
	}{
		{"Tiered-Choke", other, func(t *Tiered[string], key string) { t.Choke(key) }},
		{"Tiered-Choke-refused", never, func(t *Tiered[string], key string) { t.Choke(key) }},
		{"Tiered-Take", other, func(t *Tiered[string], key string) { t.Take(key, 2) }},
		{"Tiered-Take-refused", never, func(t *Tiered[string], key string) { t.Take(key, 1) }},
	} {
		b.Run(tiers.name, func(b *testing.B) {
			t := openTiered[string](b, Config{Policy: wide}, tiers.second)
			t.Choke("client-1")
			for _, e := range t.Engines() {
				settled(b, e)
			}
			b.ReportAllocs()
			for b.Loop() {
				tiers.call(t, "client-1")
			}
		})
	}
	for name, second := range map[string]policy.Policy{"TakeAll-of-2": other, "TakeAll-of-2-refused": never} {
		b.Run(name, func(b *testing.B) {
			all := open[string](b, Config{Policy: second})
			all.Choke("all")
			settled(b, all)
			benchHot(b, wide, func(e *Engine[string], key string) { TakeAll(e.Claim(key, 1), all.Claim("all", 1)) })
		})
	}
}

func benchHot(b *testing.B, limit policy.Policy, call func(e *Engine[string], key string), options ...Option[string]) {
	e, err := New(Config{Policy: limit}, options...)
	if err != nil {
		b.Fatal(err)
	}
	defer e.Close()
	e.Take("client-1", limit.Limit()/2)
	e.Choke("client-1")
	settled(b, e)
	b.ReportAllocs()
	for b.Loop() {
		call(e, "client-1")
	}
}

// BenchmarkWarnings measures a call on a known key without warnings, with them on a key that is far
// from its limit, and on one that hovers above a share.
func BenchmarkWarnings(b *testing.B) {
	const many = 1_000_000
	for _, limit := range []struct {
		name   string
		policy policy.Policy
		low    float64 // a share that the calls pass at once
	}{
		{"funnel", funnel(1<<40, 1<<20, time.Second), 1e-9},
		{"window", policy.Must(policy.FixedWindow(many, time.Millisecond)), 1e-4},
		{"sliding", policy.Must(policy.SlidingWindow(30*many, 24*time.Hour)), 1e-6},
		{"at most", policy.Must(policy.AtMost(many, 24*time.Hour)), 1e-5},
		{"bursty", policy.Must(policy.Bursty(many, time.Millisecond, many)), 1e-4},
	} {
		for _, c := range []struct {
			name string
			at   []float64
		}{{"none", nil}, {"far", []float64{0.8, 0.95}}, {"near", []float64{limit.low, 0.95}}} {
			e, err := New[string](Config{Policy: limit.policy, WarnAt: c.at})
			if err != nil {
				b.Fatal(err)
			}
			e.Choke("key")
			settled(b, e)
			for name, call := range map[string]func(){"Choke": func() { e.Choke("key") }, "Take": func() { e.Take("key", 1) }} {
				b.Run(limit.name+"/"+name+"/"+c.name, func(b *testing.B) {
					for range b.N {
						call()
					}
				})
			}
			if err := e.Close(); err != nil {
				b.Error(err)
			}
		}
	}
}
