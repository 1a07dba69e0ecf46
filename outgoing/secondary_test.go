package outgoing

import (
	"context"
	"fmt"
	"net/http"
	"sort"
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
	primary := must.Get(engine.New[string](engine.Config{Policy: policy.Must(policy.FixedWindow(5000, time.Hour))}))
	silent := must.Get(engine.New[string](engine.Config{Policy: beside}))
	t.Cleanup(func() { assert.NoError(t, primary.Close()); assert.NoError(t, silent.Close()) })
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		outcome := engine.TakeAll(primary.Claim("all", 1), silent.Claim("all", 1))
		d, s := primary.Peek("all", 0), silent.Peek("all", 1)
		w.Header().Set("X-RateLimit-Limit", "5000")
		w.Header().Set("X-RateLimit-Remaining", strconv.FormatInt(d.Remaining, 10))
		w.Header().Set("X-RateLimit-Reset", strconv.FormatInt(time.Now().Add(d.ResetAfter+time.Second-1).Unix(), 10))
		if !outcome.Allowed {
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
func TestSecondaryLimitIsLearnedFromRefusals(t *testing.T) {
	window := policy.Must(policy.FixedWindow(900, time.Minute))
	minute := func(time.Duration) time.Duration { return time.Minute }
	rest := func(d time.Duration) time.Duration { return d }
	for _, c := range []struct {
		name       string
		beside     policy.Policy
		retryAfter func(time.Duration) time.Duration
		goroutines int
		// least is the least time for 3,000 calls.
		least time.Duration
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
				assert.LessOrEqual(t, far.refused, 2*c.goroutines, "more calls were refused than were under way before the limit was known")
				send(t, far, rt, c.goroutines, 5000)
				// The told limit begins anew.
				time.Sleep(time.Hour)
				refused := far.refused
				began = time.Now()
				send(t, far, rt, c.goroutines, 8000)
				took = time.Since(began)
				t.Logf("3000 in %v, %d refused", took, far.refused-refused)
				assert.LessOrEqual(t, took.Seconds()/c.least.Seconds(), 1.1, "the limit must be remembered")
				assert.LessOrEqual(t, far.refused-refused, 30)
			})
		})
	}
}

// Answers overtake each other on their way. Calls 2 to 31 are sent at once, and the server serves 20 of all.
func TestSecondaryLimitCountsCallsUnderWay(t *testing.T) {
	const first, calls = 1, 30
	served := Answer{HasRemaining: true, Remaining: 4980, Reset: time.Hour}
	refused := served
	refused.Refused, refused.RetryAfter = true, time.Second
	// answers are in the order of the calls.
	var answers []Answer
	for i := range calls {
		if answers = append(answers, served); i >= 20-first {
			answers[i] = refused
		}
	}
	order := func(less func(i, j int) bool) (order []int) {
		for i := range calls {
			order = append(order, i)
		}
		sort.SliceStable(order, func(i, j int) bool { return less(order[i], order[j]) })
		return order
	}
	for _, c := range []struct {
		name  string
		order []int
		// The first lost calls get no answer.
		lost int
		// The last late answers come after the answer to a call that was sent after the refusal.
		late int
		// want is the number of calls of the limit that is learned, 0 if none is.
		want int64
	}{
		{"as sent", order(func(i, j int) bool { return i < j }), 0, 0, 20},
		{"refusals first", order(func(i, j int) bool { return answers[i].Refused && !answers[j].Refused }), 0, 0, 20},
		{"the last sent first", order(func(i, j int) bool { return i > j }), 0, 0, 20},
		{"a refusal in the midst", order(func(i, j int) bool { return i%2 > j%2 }), 0, 0, 20},
		{"refusals first, some answers lost", order(func(i, j int) bool { return i > j }), 4, 0, 16},
		{"refusals first, some answers after the hold", order(func(i, j int) bool { return i > j }), 0, 5, 15},
		{"refusals first, only one answer not lost", order(func(i, j int) bool { return i > j }), 19, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				line := newLine(t, Config{})
				wait := func() Turn[string] { return must.Get(line.Wait(t.Context(), "key")) }
				probe := wait()
				time.Sleep(10 * time.Millisecond)
				probe.Obey(Answer{HasRemaining: true, Remaining: 4999, Reset: time.Hour})
				var turns []Turn[string]
				for range calls {
					turns = append(turns, wait())
				}
				time.Sleep(10 * time.Millisecond)
				obey := func(calls []int) {
					for _, i := range calls {
						if i < c.lost {
							turns[i].Abandon()
						} else {
							turns[i].Obey(answers[i])
						}
					}
				}
				obey(c.order[:calls-c.late])
				next := wait()
				time.Sleep(10 * time.Millisecond)
				next.Obey(Answer{HasRemaining: true, Remaining: 4979, Reset: time.Hour})
				obey(c.order[calls-c.late:])
				if p := line.keys.find("key").pace.Load(); c.want > 0 {
					assert.True(t, p.Spends())
					assert.Equal(t, c.want, p.Count)
					assert.InDelta(t, 1020*time.Millisecond, p.Window, float64(time.Millisecond), "the window must be the hold and the time under way")
				} else {
					assert.False(t, p.Spends(), "calls must be spaced by the limit that the server told")
					spacing, word := p.Limit, uint64(0)
					word, _ = spacing.Take(word, 1, 1, 0)
					_, d := spacing.Take(word, 1, 1, 0)
					assert.InDelta(t, time.Hour/5000, d.RetryAfter, float64(time.Hour/5000)/5)
				}
			})
		})
	}
}
