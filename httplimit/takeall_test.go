package httplimit

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

func TestSeveralLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		addresses := open[netip.Addr](t, policy.Must(policy.Funnel(10, 1, time.Second)))
		keys := open[string](t, policy.Must(policy.Funnel(3, 1, time.Minute)))
		m, err := NewAll(Options{},
			Limit[netip.Addr]{Name: "address", Limiter: addresses, Key: ByAddr},
			Limit[string]{Name: "key", Limiter: keys, Key: ByHeader("X-Api-Key"), WhenNoKey: limits.Skip},
		)
		require.NoError(t, err)
		h := m.Handler(done)
		as := func(key string) (int, string, string, string) {
			w := ask(h, from(alice, "X-Api-Key", key))
			return w.Code, w.Header().Get("RateLimit-Policy"), w.Header().Get("RateLimit"), w.Header().Get("Retry-After")
		}
		expect := func(wantCode int, wantPolicy, wantLimit, wantRetry, key string) {
			t.Helper()
			code, policy, limit, retry := as(key)
			assert.Equal(t, []any{wantCode, wantPolicy, wantLimit, wantRetry}, []any{code, policy, limit, retry})
		}
		both := `"address";q=10;w=10, "key";q=3;w=180`
		expect(200, both, `"key";r=2;t=60`, "", "k")
		expect(200, both, `"key";r=1;t=120`, "", "k")
		expect(200, both, `"key";r=0;t=180`, "", "k")
		expect(429, both, `"key";r=0;t=60`, "60", "k")
		expect(429, both, `"key";r=0;t=60`, "60", "k")
		assert.Equal(t, int64(7), addresses.Peek(netip.MustParseAddr("192.0.2.1"), 0).Remaining, "the refused took nothing")
		expect(200, `"address";q=10;w=10`, `"address";r=6;t=4`, "", "")
		for range 6 {
			as("")
		}
		expect(429, `"address";q=10;w=10`, `"address";r=0;t=1`, "1", "")
		expect(429, both, `"address";r=0;t=1`, "1", "other")
		// Both refuse, and Retry-After is that of the later.
		w := ask(h, from(alice, "X-Api-Key", "k"))
		assert.Equal(t, "60", w.Header().Get("Retry-After"))
		assert.Contains(t, w.Body.String(), `"violated-policies":["address","key"]`)
		time.Sleep(time.Minute)
		expect(200, both, `"key";r=0;t=180`, "", "k")
	})
}

func TestSkippedLimitIsNotTold(t *testing.T) {
	engines := open[string](t, policy.Must(policy.Funnel(1, 1, time.Minute)))
	m, err := NewAll(Options{},
		Limit[string]{Name: "a", Limiter: engines, Key: ByHeader("A"), WhenNoKey: limits.Skip},
		Limit[string]{Name: "b", Limiter: engines, Key: ByHeader("B")},
	)
	require.NoError(t, err)
	w := ask(m.Handler(done), from(alice, "B", "x"))
	assert.Equal(t, `"b";q=1;w=60`, w.Header().Get("RateLimit-Policy"))
	assert.Equal(t, `"b";r=0;t=60`, w.Header().Get("RateLimit"))
	w = ask(m.Handler(done), from(alice, "B", "x"))
	assert.Equal(t, `"b";r=0;t=60`, w.Header().Get("RateLimit"))
	assert.Contains(t, w.Body.String(), `"violated-policies":["b"]`)
}

func TestShadowOfSeveral(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := open[netip.Addr](t, policy.Must(policy.Funnel(1, 1, time.Minute)))
		m, err := NewAll(Options{Shadow: true, WaitUpTo: time.Hour},
			Limit[netip.Addr]{Name: "a", Limiter: limiter, Key: ByAddr},
			Limit[netip.Addr]{Name: "b", Limiter: open[netip.Addr](t, policy.Must(policy.Funnel(9, 1, time.Minute))), Key: ByAddr},
		)
		require.NoError(t, err)
		began := time.Now()
		for range 3 {
			assert.Equal(t, 200, ask(m.Handler(done), from(alice)).Code)
		}
		assert.Zero(t, time.Since(began), "a request was delayed")
		s := m.Stats()
		assert.Equal(t, Stats{Admitted: 1, OverLimit: 2, Shadow: true, Limits: s.Limits}, s)
	})
}

func TestSeveralLimitsWithoutKeys(t *testing.T) {
	keys := open[string](t, policy.Must(policy.Funnel(3, 1, time.Minute)))
	limit := func(field string, when limits.WhenNoKey) Limit[string] {
		return Limit[string]{Name: field, Limiter: keys, Key: ByHeader(field), WhenNoKey: when}
	}
	m, err := NewAll(Options{}, limit("A", limits.Skip), limit("B", limits.Skip))
	require.NoError(t, err)
	w := ask(m.Handler(done), from(alice))
	assert.Equal(t, 200, w.Code)
	assert.Empty(t, w.Header()["Ratelimit"])
	assert.Equal(t, uint64(1), m.Stats().Exempt)

	m, err = NewAll(Options{}, limit("A", limits.Skip), limit("B", limits.Refuse))
	require.NoError(t, err)
	assert.Equal(t, 400, ask(m.Handler(done), from(alice, "A", "a")).Code)
	assert.Equal(t, int64(3), keys.Peek("a", 0).Remaining)

	// Two limits of one engine and one key charge it twice.
	m, err = NewAll(Options{}, limit("A", limits.Refuse), limit("B", limits.Refuse))
	require.NoError(t, err)
	assert.Equal(t, 200, ask(m.Handler(done), from(alice, "A", "x", "B", "x")).Code)
	assert.Equal(t, int64(1), keys.Peek("x", 0).Remaining)
}
