package httplimit

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/single"
)

func hourly(t testing.TB, n int64) *engine.Engine[netip.Addr] {
	return open[netip.Addr](t, policy.Must(policy.FixedWindow(n, time.Hour)))
}

// fieldAs returns a cost that the client states.
func fieldAs(name string) func(*http.Request) int64 {
	return func(r *http.Request) int64 {
		n, _ := strconv.ParseInt(r.Header.Get(name), 10, 64)
		return n
	}
}

// elsewhere hides that a limiter is an engine, so that it is asked like a fleet.
type elsewhere struct{ limits.Limiter[netip.Addr] }

func (elsewhere) Remote() bool { return true }

// A gateway of a language model limits requests, estimated tokens and bytes, in process and mixed.
//
// Promise: Each limit has its own key, cost and charge.
func TestLimitForEachThing(t *testing.T) {
	for _, mixed := range []bool{false, true} {
		t.Run(fmt.Sprint("mixed: ", mixed), func(t *testing.T) {
			requests, tokens, sent := hourly(t, 4), open[string](t, policy.Must(policy.FixedWindow(10_000, time.Hour))), hourly(t, 1000)
			var bytes limits.Limiter[netip.Addr] = sent
			if mixed {
				bytes = elsewhere{sent}
			}
			var verdict limits.Verdict
			m := Must(NewAll(Options{OnVerdict: func(_ *http.Request, v limits.Verdict) { verdict = v }},
				Limit[netip.Addr]{Name: "requests", Limiter: requests, Key: ByAddr},
				Limit[string]{
					Name: "tokens", Limiter: tokens, Key: ByHeader("Tenant"), Cost: fieldAs("Estimate"),
					Charge: func(r *http.Request, _ Served) int64 { return fieldAs("Used")(r) },
				},
				Limit[netip.Addr]{
					Name: "bytes", Limiter: bytes, Key: ByAddr, Cost: func(*http.Request) int64 { return 0 },
					Charge: func(_ *http.Request, served Served) int64 { return served.Bytes },
				},
			))
			h := m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = w.Write(make([]byte, fieldAs("Size")(r)))
			}))
			left := func() []int64 {
				return []int64{requests.Peek(aliceKey, 0).Remaining, tokens.Peek("acme", 0).Remaining, sent.Peek(aliceKey, 0).Remaining}
			}
			for i, c := range []struct {
				estimate, used, size string
				code                 int
				limit                string
				cost                 int64
				left                 []int64
			}{
				{"5000", "3000", "100", 200, "tokens", 5000, []int64{3, 7000, 900}},
				{"5000", "6500", "200", 200, "tokens", 5000, []int64{2, 500, 700}},
				{"501", "1", "1", 429, "tokens", 501, []int64{2, 500, 700}},
				{"10001", "1", "1", 403, "tokens", 10001, []int64{2, 500, 700}},
				{"100", "100", "900", 200, "tokens", 100, []int64{1, 400, 0}},
				{"-1", "1", "1", 500, "", -1, []int64{1, 400, 0}},
			} {
				w := ask(h, from(alice, "Tenant", "acme", "Estimate", c.estimate, "Used", c.used, "Size", c.size))
				assert.Equal(t, c.code, w.Code, i)
				assert.Equal(t, c.limit, verdict.Limit, i)
				assert.Equal(t, c.cost, verdict.Cost, i)
				assert.Equal(t, c.left, left(), i)
			}
			assert.Equal(t, uint64(0), m.Stats().Unsettled)
			// 200 bytes are owed. A request that costs none passes, and is charged for its answer.
			assert.Equal(t, 200, ask(h, from(alice, "Tenant", "acme", "Estimate", "1", "Used", "1")).Code)
			assert.Equal(t, 429, ask(h, from(alice, "Tenant", "acme", "Estimate", "1", "Used", "1")).Code, "requests")
		})
	}
}

func TestCostAndChargeOfTheOptions(t *testing.T) {
	for _, mixed := range []bool{false, true} {
		common, own := hourly(t, 100), hourly(t, 100)
		var second limits.Limiter[netip.Addr] = own
		if mixed {
			second = elsewhere{own}
		}
		m := Must(NewAll(Options{
			Cost: func(*http.Request) int64 { return 10 }, Charge: func(*http.Request, Served) int64 { return 4 },
		},
			Limit[netip.Addr]{Name: "common", Limiter: common, Key: ByAddr},
			Limit[netip.Addr]{Name: "own", Limiter: second, Key: ByAddr, Cost: func(*http.Request) int64 { return 20 }, Charge: func(*http.Request, Served) int64 { return 30 }},
		))
		assert.Equal(t, 200, ask(m.Handler(done), from(alice)).Code)
		assert.Equal(t, []int64{96, 70}, []int64{common.Peek(aliceKey, 0).Remaining, own.Peek(aliceKey, 0).Remaining})
		m = Must(NewAll(Options{},
			Limit[netip.Addr]{Name: "common", Limiter: common, Key: ByAddr, Cost: func(*http.Request) int64 { return 6 }},
			Limit[netip.Addr]{Name: "own", Limiter: second, Key: ByAddr, Charge: func(*http.Request, Served) int64 { return 0 }},
		))
		assert.Equal(t, 200, ask(m.Handler(done), from(alice)).Code)
		assert.Equal(t, []int64{90, 70}, []int64{common.Peek(aliceKey, 0).Remaining, own.Peek(aliceKey, 0).Remaining})
	}
	alone := hourly(t, 100)
	m := Must(NewAll(Options{}, Limit[netip.Addr]{
		Limiter: alone, Key: ByAddr, Cost: func(*http.Request) int64 { return 20 }, Charge: func(*http.Request, Served) int64 { return 30 },
	}))
	assert.Equal(t, 200, ask(m.Handler(done), from(alice)).Code)
	assert.Equal(t, int64(70), alone.Peek(aliceKey, 0).Remaining)
}

func TestShadowOfOneLimit(t *testing.T) {
	for _, mixed := range []bool{false, true} {
		live, tried := hourly(t, 4), hourly(t, 2)
		var first limits.Limiter[netip.Addr] = live
		if mixed {
			first = elsewhere{live}
		}
		var shadowed [][]string
		m := Must(NewAll(Options{OnVerdict: func(_ *http.Request, v limits.Verdict) { shadowed = append(shadowed, v.Shadowed) }},
			Limit[netip.Addr]{Name: "tried", Limiter: tried, Key: ByAddr, Shadow: true},
			Limit[netip.Addr]{Name: "live", Limiter: first, Key: ByAddr},
			Limit[string]{Name: "keyless", Limiter: open[string](t, policy.Must(policy.FixedWindow(9, time.Hour))), Key: ByHeader("X-Key"), Shadow: true},
		))
		for i, code := range []int{200, 200, 200, 200, 429, 429} {
			w := ask(m.Handler(done), from(alice, "X-Key", "k"))
			assert.Equal(t, code, w.Code, i)
			assert.Equal(t, `"live";q=4;w=3600`, w.Header().Get("RateLimit-Policy"))
		}
		assert.Equal(t, [][]string{nil, nil, {"tried"}, {"tried"}, nil, nil}, shadowed)
		ask(m.Handler(done), from(bob))
		assert.Equal(t, []string{"keyless"}, shadowed[6])
		s := m.Stats()
		assert.Equal(t, map[string]uint64{"tried": 2, "keyless": 1}, s.Shadowed)
		assert.False(t, s.Shadow)
		assert.Equal(t, uint64(5), s.Admitted)
	}
	m := Must(NewAll(Options{}, Limit[netip.Addr]{Limiter: hourly(t, 1), Key: ByAddr, Shadow: true}))
	for range 3 {
		w := ask(m.Handler(done), from(alice))
		assert.Equal(t, 200, w.Code)
		assert.Empty(t, w.Header().Get("RateLimit"))
	}
	s := m.Stats()
	assert.True(t, s.Shadow)
	assert.Equal(t, uint64(2), s.OverLimit)
	assert.Nil(t, s.Shadowed)
}

func TestShadowOfOneLimitIsCharged(t *testing.T) {
	live, tried := hourly(t, 100), hourly(t, 100)
	charge := func(*http.Request, Served) int64 { return 7 }
	m := Must(NewAll(Options{Cost: func(*http.Request) int64 { return 3 }},
		Limit[netip.Addr]{Name: "live", Limiter: live, Key: ByAddr},
		Limit[netip.Addr]{Name: "tried", Limiter: tried, Key: ByAddr, Shadow: true, Charge: charge},
	))
	assert.Equal(t, 200, ask(m.Handler(done), from(alice)).Code)
	assert.Equal(t, []int64{97, 93}, []int64{live.Peek(aliceKey, 0).Remaining, tried.Peek(aliceKey, 0).Remaining})
}

// The plan holds alone, waiting, charged and beside other limits. All plans count the key's use.
func TestPlansByRequest(t *testing.T) {
	window := func(n int64) policy.Policy { return policy.Must(policy.FixedWindow(n, time.Hour)) }
	plans := map[string]policy.Policy{"small": window(5), "large": window(50)}
	planOf := func(r *http.Request) policy.Policy { return plans[r.Header.Get("Plan")] }
	for name, more := range map[string][]AnyLimit{
		"alone": nil, "beside another": {Limit[netip.Addr]{Name: "other", Limiter: hourly(t, 1000), Key: ByAddr}},
	} {
		for _, o := range []Options{
			{}, {WaitUpTo: time.Millisecond}, {Charge: func(*http.Request, Served) int64 { return 1 }},
		} {
			limiter := hourly(t, 10)
			m := Must(NewAll(o, append([]AnyLimit{Limit[netip.Addr]{Limiter: limiter, Key: ByAddr, PolicyFor: planOf}}, more...)...))
			h := m.Handler(done)
			for i, c := range []struct {
				plan string
				n    int // requests that pass
				told string
			}{
				{"small", 5, `"default";q=5;w=3600`}, {"", 5, `"default";q=10;w=3600`}, {"large", 40, `"default";q=50;w=3600`}, {"small", 0, `"default";q=5;w=3600`},
			} {
				for j := range c.n + 1 {
					w := ask(h, from(alice, "Plan", c.plan))
					assert.Equal(t, j == c.n, w.Code == 429, "%s, step %d, request %d", name, i, j)
					assert.Contains(t, w.Header().Get("RateLimit-Policy"), c.told, name)
				}
			}
		}
	}
	wrong := Limit[netip.Addr]{Limiter: hourly(t, 10), Key: ByAddr, PolicyFor: func(*http.Request) policy.Policy {
		return policy.Must(policy.Funnel(1, 1, time.Second))
	}}
	for _, all := range [][]AnyLimit{{wrong}, {wrong, Limit[netip.Addr]{Name: "other", Limiter: hourly(t, 1000), Key: ByAddr}}} {
		assert.Equal(t, 500, ask(Must(NewAll(Options{}, all...)).Handler(done), from(alice)).Code)
	}

	var text bytes.Buffer
	m := Must(NewAll(Options{Logger: slog.New(slog.NewTextHandler(&text, nil))}, Limit[netip.Addr]{
		Limiter: limits.ForAnyKey[netip.Addr](single.MustNew(policy.Funnel(10, 1, time.Hour))), Key: ByAddr,
		PolicyFor: func(*http.Request) policy.Policy { return policy.Must(policy.Funnel(1, 1, time.Hour)) },
	}))
	assert.Equal(t, 500, ask(m.Handler(done), from(alice)).Code)
	assert.Equal(t, 2, strings.Count(text.String(), "takes none that comes with the call"), "%s", text.String())
	assert.NotContains(t, text.String(), "another family")
}

// Promise: A plan may change anytime and keeps used units.
func TestPlansChangeLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		window := func(n int64) policy.Policy { return policy.Must(policy.FixedWindow(n, time.Hour)) }
		var plan atomic.Pointer[policy.Policy]
		small, large := window(100), window(300)
		plan.Store(&small)
		limiter := hourly(t, 10)
		var passed atomic.Int64
		h := Must(NewAll(Options{}, Limit[netip.Addr]{
			Limiter: limiter, Key: ByAddr, PolicyFor: func(*http.Request) policy.Policy { return *plan.Load() },
		})).Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { passed.Add(1) }))
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for range 500 {
					ask(h, from(alice))
				}
			})
		}
		wg.Go(func() {
			for range 100 {
				plan.Store(&large)
				plan.Store(&small)
			}
			plan.Store(&large)
		})
		wg.Wait()
		for range 300 {
			ask(h, from(alice))
		}
		assert.Equal(t, int64(300), passed.Load())
		plan.Store(&small)
		assert.Equal(t, 429, ask(h, from(alice)).Code, "what was used is not forgotten")
	})
}

func TestPanicOfPlanTakesNothing(t *testing.T) {
	first, second := hourly(t, 5), hourly(t, 5)
	require.Panics(t, func() {
		ask(Must(NewAll(Options{}, Limit[netip.Addr]{Name: "first", Limiter: first, Key: ByAddr}, Limit[netip.Addr]{
			Name: "second", Limiter: second, Key: ByAddr, PolicyFor: func(*http.Request) policy.Policy { panic("plans are not loaded") },
		})).Handler(done), from(alice))
	})
	assert.Equal(t, []int64{5, 5}, []int64{first.Peek(aliceKey, 0).Remaining, second.Peek(aliceKey, 0).Remaining})
}

func TestPlanOfTiers(t *testing.T) {
	tiers, err := engine.NewTiered[netip.Addr](engine.Config{Policy: policy.Must(policy.FixedWindow(10, time.Hour))})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, tiers.Close()) })
	_, err = NewAll(Options{}, Limit[netip.Addr]{Limiter: tiers, Key: ByAddr, PolicyFor: func(*http.Request) policy.Policy { return nil }})
	refusedBy(t, err, "httplimit.NewAll", "limits[0].PolicyFor")
}
