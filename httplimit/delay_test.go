package httplimit

import (
	"net/http"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

const interval = 50 * time.Millisecond

func spaced(capacity int64) policy.Policy {
	return policy.Must(policy.Queue(capacity, int64(time.Second/interval), time.Second))
}

// oneAndSeveral returns a middleware of one limit, and a middleware with another limit that has
// room.
func oneAndSeveral(t *testing.T, limiter *engine.Engine[netip.Addr], o Options) map[string]*Middleware {
	return map[string]*Middleware{
		"one limit": Must(New(limiter, ByAddr, o)),
		"several": Must(NewAll(o, Limit[netip.Addr]{Name: "a", Limiter: limiter, Key: ByAddr},
			Limit[netip.Addr]{Name: "b", Limiter: open[netip.Addr](t, policy.Must(policy.Funnel(100, 100, time.Second))), Key: ByAddr})),
	}
}

// atIntervals is n requests admitted an interval apart.
func atIntervals(n int) (all []timed) {
	for i := range n {
		all = append(all, timed{200, time.Duration(i) * interval})
	}
	return all
}

// A limit may become a queue, or cease to be, after the first request.
func TestQueueSpacesAfterSetPolicy(t *testing.T) {
	for _, upTo := range []time.Duration{0, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			limiter := open[netip.Addr](t, spaced(0))
			for name, m := range oneAndSeveral(t, limiter, Options{WaitUpTo: upTo}) {
				if name == "several" && upTo == 0 {
					continue // several limits never wait for a queue
				}
				h := m.Handler(done)
				require.Equal(t, 200, ask(h, from(alice)).Code)
				require.NoError(t, limiter.SetPolicy(spaced(20)))
				time.Sleep(time.Second)
				assert.Equal(t, atIntervals(6), atOnce(h, repeat(6, alice)...), "%s, up to %v", name, upTo)

				require.NoError(t, limiter.SetPolicy(spaced(0)))
				time.Sleep(time.Second)
				assert.Equal(t, []timed{{200, 0}, {429, 0}}, atOnce(h, repeat(2, alice)...), "%s, up to %v", name, upTo)
				time.Sleep(time.Second)
			}
		})
	}
}

// A limit that is no queue for the first key seen may be a queue for another key, at any time.
func TestQueueSpacesUnderPolicyFor(t *testing.T) {
	for _, upTo := range []time.Duration{0, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			bobKey := netip.MustParseAddr("192.0.2.2")
			var plans sync.Map
			plans.Store(aliceKey, spaced(0))
			plans.Store(bobKey, spaced(20))
			limiter, err := engine.New(engine.Config{Policy: spaced(5)}, engine.PolicyFor(func(key netip.Addr) policy.Policy {
				plan, _ := plans.Load(key)
				p, _ := plan.(policy.Policy)
				return p
			}))
			require.NoError(t, err)
			defer limiter.Close()
			h := Must(New(limiter, ByAddr, Options{WaitUpTo: upTo})).Handler(done)
			require.Equal(t, 200, ask(h, from(alice)).Code)
			assert.Equal(t, atIntervals(6), atOnce(h, repeat(6, bob)...), "up to %v", upTo)
			assert.Equal(t, atIntervals(6), atOnce(h, repeat(6, "192.0.2.3:1")...), "no plan of its own, up to %v", upTo)
			plans.Store(aliceKey, spaced(20))
			assert.Equal(t, atIntervals(6), atOnce(h, repeat(6, alice)...), "up to %v", upTo)
		})
	}
}

func TestShadowOfQueueAfterSetPolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := open[netip.Addr](t, spaced(0))
		var waited []time.Duration
		h := Must(New(limiter, ByAddr, Options{Shadow: true, OnVerdict: func(_ *http.Request, v limits.Verdict) { waited = append(waited, v.Waited) }})).Handler(done)
		ask(h, from(alice))
		require.NoError(t, limiter.SetPolicy(spaced(20)))
		time.Sleep(time.Second)
		began := time.Now()
		for range 3 {
			ask(h, from(alice))
		}
		assert.Zero(t, time.Since(began), "a request was delayed")
		assert.Equal(t, []time.Duration{0, 0, interval, 2 * interval}, waited)
	})
}
