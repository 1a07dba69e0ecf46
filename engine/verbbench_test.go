package engine

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/ral-limiter/ral/policy"
)

// timedVerb is a call on a known key, of which benchmarks measure the time.
type timedVerb struct {
	name string
	// base is the verb whose time is 1. Empty means Choke.
	base string
	// open makes the engines, and returns the call.
	open func(b *testing.B) (call func())
}

var (
	wide  = funnel(1<<40, 1<<20, time.Second)
	other = funnel(1<<39, 1<<19, time.Second)
	never = funnel(1, 1, 24*time.Hour)
	slots = policy.Must(policy.InFlight(100, time.Minute))
)

// timedVerbs returns all verbs. Calls with a context that can end have ctx.
func timedVerbs(ctx context.Context) (all []timedVerb) {
	three := []policy.Policy{wide, other, funnel(1<<38, 1<<18, time.Second)}
	choose := PolicyFor(func(key string) policy.Policy { return three[len(key)%3] })
	hot := func(name string, limit policy.Policy, call func(e *Engine[string], key string), options ...Option[string]) {
		all = append(all, timedVerb{name: name, open: func(b *testing.B) func() {
			e := openHot(b, limit, options...)
			return func() { call(e, hotKey) }
		}})
	}
	// Each call among many keys builds its key anew, as a server does.
	many := func(name string, limit policy.Policy, call func(e *Engine[string], key string)) {
		all = append(all, timedVerb{name: "Many-" + name, base: "Many-Choke", open: func(b *testing.B) func() {
			e, text := open[string](b, Config{Policy: limit}), make([]byte, 13)
			for i := range uint32(manyKeys) {
				e.Take(string(nameOf(text, i)), 1)
			}
			settled(b, e)
			random := rand.NewPCG(1, 1)
			return func() { call(e, unsafe.String(&nameOf(text, uint32(random.Uint64()%manyKeys))[0], len(text))) }
		}})
	}
	cancel := func(e *Engine[string], key string) {
		r := e.Reserve(key, 2, time.Hour)
		r.Cancel()
	}
	release := func(e *Engine[string], key string) {
		r := e.Reserve(key, 1, 0)
		r.Release()
	}
	hot("Choke", wide, func(e *Engine[string], key string) { e.Choke(key) })
	hot("Take", wide, func(e *Engine[string], key string) { e.Take(key, 2) })
	hot("Take-refused", never, func(e *Engine[string], key string) { e.Take(key, 1) })
	hot("Peek", wide, func(e *Engine[string], key string) { e.Peek(key, 0) })
	hot("TakeWith", wide, func(e *Engine[string], key string) { e.TakeWith(other, key, 2) })
	hot("Refund", wide, func(e *Engine[string], key string) { e.Refund(key, 1) })
	hot("Refund-charge", wide, func(e *Engine[string], key string) { e.Refund(key, -1) })
	hot("InFlight-Reserve-Release", slots, release)
	hot("Window-Reserve-Cancel", policy.Must(policy.FixedWindow(100, time.Minute)), cancel)
	hot("Reserve-Cancel", wide, cancel)
	hot("Reserve-Keep", wide, func(e *Engine[string], key string) {
		r := e.Reserve(key, 2, time.Hour)
		r.Keep(1)
	})
	hot("Wait", wide, func(e *Engine[string], key string) { _ = e.Wait(background, key, 1) })
	hot("Wait-cancellable", wide, func(e *Engine[string], key string) { _ = e.Wait(ctx, key, 1) })
	hot("Acquire-Cancel", wide, func(e *Engine[string], key string) {
		r, _ := e.Acquire(background, key, 1, 0)
		r.Cancel()
	})
	hot("PolicyFor-Choke", wide, func(e *Engine[string], key string) { e.Choke(key) }, choose)
	hot("PolicyFor-Take", wide, func(e *Engine[string], key string) { e.Take(key, 2) }, choose)

	tiers := func(name string, second policy.Policy, call func(t *Tiered[string], key string)) {
		all = append(all, timedVerb{name: name, open: func(b *testing.B) func() {
			t := openTiered[string](b, Config{Policy: wide}, second)
			t.Choke(hotKey)
			for _, e := range t.Engines() {
				settled(b, e)
			}
			return func() { call(t, hotKey) }
		}})
	}
	tiers("Tiered-Choke", other, func(t *Tiered[string], key string) { t.Choke(key) })
	tiers("Tiered-Choke-refused", never, func(t *Tiered[string], key string) { t.Choke(key) })
	tiers("Tiered-Take", other, func(t *Tiered[string], key string) { t.Take(key, 2) })
	tiers("Tiered-Take-refused", never, func(t *Tiered[string], key string) { t.Take(key, 1) })

	takeAll := func(name string, second policy.Policy, call func(e, service *Engine[string])) {
		all = append(all, timedVerb{name: name, open: func(b *testing.B) func() {
			e, service := openHot(b, wide), open[string](b, Config{Policy: second})
			service.Choke("all")
			settled(b, service)
			return func() { call(e, service) }
		}})
	}
	takeAll("TakeAll-of-2", other, func(e, service *Engine[string]) {
		TakeAll(e.Claim(hotKey, 1), service.Claim("all", 1))
	})
	takeAll("TakeAll-of-2-Brief", other, func(e, service *Engine[string]) {
		TakeAll(e.Claim(hotKey, 1).Brief(), service.Claim("all", 1).Brief())
	})
	takeAll("TakeAll-of-2-Cancel", other, func(e, service *Engine[string]) {
		out := TakeAll(e.Claim(hotKey, 1), service.Claim("all", 1))
		out.Cancel()
	})
	takeAll("TakeAll-of-2-refused", never, func(e, service *Engine[string]) {
		TakeAll(e.Claim(hotKey, 1), service.Claim("all", 1))
	})

	many("Choke", wide, func(e *Engine[string], key string) { e.Choke(key) })
	many("InFlight-Reserve-Release", slots, release)
	many("Reserve-Cancel", wide, cancel)
	return all
}

const (
	hotKey   = "client-1"
	manyKeys = 100_000
)

// openHot returns an engine that knows hotKey.
func openHot(b *testing.B, limit policy.Policy, options ...Option[string]) *Engine[string] {
	e, err := New(Config{Policy: limit}, options...)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { check(b, e) })
	e.Take(hotKey, limit.Limit()/2)
	e.Choke(hotKey)
	settled(b, e)
	return e
}

// BenchmarkVerb has each verb alone, for a profile.
func BenchmarkVerb(b *testing.B) {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	for _, v := range timedVerbs(ctx) {
		b.Run(v.name, func(b *testing.B) {
			call := v.open(b)
			b.ReportAllocs()
			for b.Loop() {
				call()
			}
		})
	}
}

// BenchmarkVerbs prints a table of the time of each verb as a ratio to Choke of the same run, as in
// docs/experiments.md. The verbs run in turn, a few milliseconds at a time, and each has its least
// time: other programs disturb few of many short turns. The environment's VERBS is a regular
// expression of the verbs to measure, with their base.
func BenchmarkVerbs(b *testing.B) {
	const turn, rounds = 3 * time.Millisecond, 60
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	chosen := regexp.MustCompile(os.Getenv("VERBS"))
	all := slices.DeleteFunc(timedVerbs(ctx), func(v timedVerb) bool {
		return !chosen.MatchString(v.name) && v.name != "Choke" && v.name != "Many-Choke"
	})
	calls, times, least := make([]func(), len(all)), make([]int, len(all)), map[string]float64{}
	for i, v := range all {
		calls[i], times[i], least[v.name] = v.open(b), 1, math.Inf(1)
	}
	b.ResetTimer()
	for range b.N {
		for range rounds {
			for i, call := range calls {
				began := time.Now()
				for range times[i] {
					call()
				}
				took := time.Since(began)
				if took < turn/2 {
					times[i] *= 2
				}
				least[all[i].name] = min(least[all[i].name], float64(took)/float64(times[i]))
			}
		}
	}
	b.StopTimer()
	var table strings.Builder
	for i, v := range all {
		base := cmp.Or(v.base, "Choke")
		fmt.Fprintf(&table, "\n%-30s %7.1f ns %6.2f x %-10s %g allocations", v.name, least[v.name], least[v.name]/least[base], base,
			testing.AllocsPerRun(100, calls[i]))
	}
	fmt.Println(table.String())
}

// BenchmarkWarnings measures a call on a known key without warnings, with them on a key that is far
// from its limit, and on one that hovers above a share.
func BenchmarkWarnings(b *testing.B) {
	const many = 1_000_000
	for _, limit := range []struct {
		name   string
		policy policy.Policy
		// low is a share that the calls pass at once.
		low float64
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
