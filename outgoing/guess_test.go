package outgoing

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/policy"
)

// silent returns a handler that tells neither its limit nor when to come back.
func silent(t testing.TB, limit policy.Policy) http.Handler {
	e, err := engine.New[string](engine.Config{Policy: limit})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, e.Close()) })
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !e.Choke("all") {
			w.WriteHeader(http.StatusTooManyRequests)
		}
	})
}

// From the second minute on. More processes share a limit worse the smaller it is.
//
// Promise: Refusals alone tell a limit: one process uses 75%, and has 5% of its calls refused.
func TestLimitIsLearnedFromRefusals(t *testing.T) {
	const during = 5 * time.Minute
	for _, c := range []struct {
		name  string
		limit policy.Policy
		// rate is the rate in a second.
		rate      float64
		processes int
	}{
		{"bucket of 1, 1/s", policy.Must(policy.Funnel(1, 1, time.Second)), 1, 1},
		{"bucket of 100, 10/s", policy.Must(policy.Funnel(100, 10, time.Second)), 10, 1},
		{"bucket of 100, 10/s", policy.Must(policy.Funnel(100, 10, time.Second)), 10, 8},
		{"bucket of 10, 100/s", policy.Must(policy.Funnel(10, 100, time.Second)), 100, 1},
		{"bucket of 1000, 1000/s", policy.Must(policy.Funnel(1000, 1000, time.Second)), 1000, 1},
		{"bucket of 1000, 1000/s", policy.Must(policy.Funnel(1000, 1000, time.Second)), 1000, 8},
		{"fixed window 600/m", policy.Must(policy.FixedWindow(600, time.Minute)), 10, 1},
		{"fixed window 100/s", policy.Must(policy.FixedWindow(100, time.Second)), 100, 1},
		{"sliding window 100/10s", policy.Must(policy.SlidingWindow(100, 10*time.Second)), 10, 1},
		{"sliding window 100/10s", policy.Must(policy.SlidingWindow(100, 10*time.Second)), 10, 8},
		{"aligned window 100/10s", policy.Must(policy.AlignedWindow(100, 10*time.Second)), 10, 1},
		{"aligned window 100/10s", policy.Must(policy.AlignedWindow(100, 10*time.Second)), 10, 8},
	} {
		if testing.Short() && (c.rate > 10 || c.processes > 1) {
			// These cases take seconds.
			continue
		}
		synctest.Test(t, func(t *testing.T) {
			far := &away{handler: silent(t, c.limit), rtt: 20 * time.Millisecond}
			var all []http.RoundTripper
			for range c.processes {
				rt := must.Get(NewTransport(newLine(t, Config{}), ByHost, Options{Base: far}))
				all = append(all, rt)
			}
			crowd(t, time.Minute, all...)
			served, refused := len(far.admitted), far.refused+far.early
			crowd(t, during, all...)
			served, refused = len(far.admitted)-served, far.refused+far.early-refused
			used, part := 100*float64(served)/c.rate/during.Seconds(), 100*float64(refused)/float64(refused+served)
			t.Logf("| %s | %d | %.0f%% | %.1f%% |", c.name, c.processes, used, part)
			assert.GreaterOrEqual(t, used, 75., c.name)
			assert.LessOrEqual(t, part, map[bool]float64{true: 5, false: 12}[c.processes == 1], c.name)
		})
	}
}

// A higher limit is found in minutes.
func TestLearnedLimitGrows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow, fast := silent(t, policy.Must(policy.Funnel(1, 1, time.Second))), silent(t, policy.Must(policy.Funnel(100, 100, time.Second)))
		began := time.Now()
		far := &away{rtt: 20 * time.Millisecond, handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if time.Since(began) < 2*time.Minute {
				slow.ServeHTTP(w, r)
				return
			}
			fast.ServeHTTP(w, r)
		})}
		rt := must.Get(NewTransport(newLine(t, Config{}), ByHost, Options{Base: far}))
		crowd(t, 10*time.Minute, rt)
		before := len(far.admitted)
		crowd(t, time.Minute, rt)
		assert.GreaterOrEqual(t, len(far.admitted)-before, 5000)
	})
}
