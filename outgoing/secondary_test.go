package outgoing

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/policy"
)

// withSecondary returns a handler that tells 5,000 an hour, as GitHub does, and refuses by another limit
// beside it. retryAfter has the field of such a refusal, from the time until the limit admits a call.
func withSecondary(t *testing.T, beside policy.Policy, retryAfter func(time.Duration) time.Duration) http.Handler {
	told := must.Get(engine.New[string](engine.Config{Policy: policy.Must(policy.FixedWindow(5000, time.Hour))}))
	silent := must.Get(engine.New[string](engine.Config{Policy: beside}))
	t.Cleanup(func() { assert.NoError(t, told.Close()); assert.NoError(t, silent.Close()) })
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		outcome := engine.TakeAll(told.Claim("all", 1), silent.Claim("all", 1))
		d, s := told.Peek("all", 0), silent.Peek("all", 1)
		w.Header().Set("X-RateLimit-Limit", "5000")
		w.Header().Set("X-RateLimit-Remaining", strconv.FormatInt(d.Remaining, 10))
		w.Header().Set("X-RateLimit-Reset", strconv.FormatInt(time.Now().Add(d.ResetAfter+time.Second-1).Unix(), 10))
		if !outcome.Allowed {
			// A refusal that overtakes the answers of calls that were served before tells too low a limit.
			time.Sleep(time.Millisecond)
			if !s.Allowed {
				w.Header().Set("Retry-After", fmt.Sprint(int(retryAfter(s.RetryAfter+time.Second-1)/time.Second)))
			}
			w.WriteHeader(http.StatusForbidden)
		}
	})
}

// send sends requests from a number of goroutines until as many as wanted are served.
func send(t *testing.T, far *away, rt http.RoundTripper, goroutines, wanted int) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var all sync.WaitGroup
	for range goroutines {
		all.Go(func() {
			for ctx.Err() == nil {
				r, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://there/", nil)
				if resp, err := rt.RoundTrip(r); err == nil {
					_ = resp.Body.Close()
				}
				far.mu.Lock()
				if len(far.admitted) >= wanted {
					cancel()
				}
				far.mu.Unlock()
			}
		})
	}
	all.Wait()
}

// The server tells 5,000 an hour. The least time is of a caller who knows both limits and waits as the
// first refusal demands.
//
// Promise: A limit that refuses calls untold, beside a told one, is learned: calls take 1.1 of the least time, and 1% are refused then.
func TestSecondaryLimit(t *testing.T) {
	window := policy.Must(policy.FixedWindow(900, time.Minute))
	minute := func(time.Duration) time.Duration { return time.Minute }
	rest := func(d time.Duration) time.Duration { return d }
	for _, c := range []struct {
		name       string
		beside     policy.Policy
		retryAfter func(time.Duration) time.Duration
		goroutines int
		least      time.Duration // for 3,000 calls
	}{
		{"window, a minute", window, minute, 100, 3 * time.Minute},
		{"window, its rest", window, rest, 100, 3 * time.Minute},
		{"window, a minute, 10 goroutines", window, minute, 10, 3 * time.Minute},
		{"window, its rest, 2 goroutines", window, rest, 2, 3 * time.Minute},
		{"bucket, a minute", policy.Must(policy.Funnel(900, 900, time.Minute)), minute, 100, 3 * time.Minute},
		{"window of a second", policy.Must(policy.FixedWindow(20, time.Second)), rest, 100, 149 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				far := &away{handler: withSecondary(t, c.beside, c.retryAfter), rtt: 20 * time.Millisecond}
				rt := must.Get(NewTransport(newLine(t, Config{}), ByHost, Options{Base: far}))
				began := time.Now()
				send(t, far, rt, c.goroutines, 3000)
				took := time.Since(began)
				t.Logf("3000 in %v, %d refused", took, far.refused)
				assert.LessOrEqual(t, took.Seconds()/c.least.Seconds(), 1.1)
				assert.LessOrEqual(t, far.refused, 2*c.goroutines, "until the limit is known, the calls under way")
				send(t, far, rt, c.goroutines, 5000)
				time.Sleep(time.Hour) // the told limit begins anew
				refused := far.refused
				began = time.Now()
				send(t, far, rt, c.goroutines, 8000)
				took = time.Since(began)
				t.Logf("3000 in %v, %d refused", took, far.refused-refused)
				assert.LessOrEqual(t, took.Seconds()/c.least.Seconds(), 1.1, "the limit is remembered")
				assert.LessOrEqual(t, far.refused-refused, 30)
			})
		})
	}
}

func TestSecondaryLimitIsForgotten(t *testing.T) {
	p := &pace{learned: learned{count: 20, window: time.Second}}
	for refused, periods := range map[int64]int{1: forgiving, 80: 400} {
		b := secondary{quota: quota{20, time.Second}, refused: refused}
		for range periods - 1 {
			b.open(p)
			b.open(&pace{learned: learned{count: 21, window: time.Second}})
		}
		assert.Equal(t, quota{20, time.Second}, b.quota, "after %d refusals", refused)
		b.open(p)
		assert.Zero(t, b, "after %d refusals", refused)
	}
}
