package outgoing

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/httplimit"
	"github.com/ral-limiter/ral/policy"
)

// Servers of four kinds, called by processes that share a limit.
//
// Promise: One process spends a limit without a refusal.
func TestPacedCallsUseTheServersLimit(t *testing.T) {
	for _, c := range []struct {
		name  string
		limit policy.Policy
	}{
		{"bucket", policy.Must(policy.Funnel(60, 60, time.Minute))},
		{"fixed window", policy.Must(policy.FixedWindow(60, time.Minute))},
		{"sliding window", policy.Must(policy.SlidingWindow(60, time.Minute))},
		{"aligned window", policy.Must(policy.AlignedWindow(60, time.Minute))},
	} {
		for _, pace := range []struct {
			name   string
			config Config
			share  float64
		}{{"Spend", Config{}, 1}, {"Even", Config{Pace: Even}, 1}, {"Spend, Reserve 0.2", Config{Reserve: 0.2}, 0.8}} {
			for _, processes := range []int{1, 2, 8} {
				if testing.Short() && processes > 1 {
					// These cases take seconds.
					continue
				}
				synctest.Test(t, func(t *testing.T) {
					far := &away{handler: server(t, httplimit.RateLimitHeaders, c.limit), rtt: 20 * time.Millisecond}
					const during = 20 * time.Minute
					var all []http.RoundTripper
					for range processes {
						rt, err := NewTransport(newLine(t, pace.config), ByHost, Options{Base: far})
						require.NoError(t, err)
						all = append(all, rt)
					}
					crowd(t, during, all...)
					used := 100 * float64(len(far.admitted)) / during.Minutes() / 60
					refused := 100 * float64(far.refused+far.early) / float64(far.sent)
					t.Logf("| %s | %s | %d | %.1f%% | %.2f%% |", c.name, pace.name, processes, used, refused)
					if processes == 1 {
						assert.Zero(t, far.refused+far.early, "%s, %s", c.name, pace.name)
						assert.GreaterOrEqual(t, used, 95*pace.share, "%s, %s", c.name, pace.name)
						assert.LessOrEqual(t, used, 105*pace.share, "%s, %s", c.name, pace.name)
					}
				})
			}
		}
	}
}

// The server counts calls that arrive after its reset in its next window.
func TestCallsUnderWayCountInTheNextWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near := &away{handler: server(t, httplimit.RateLimitHeaders, policy.Must(policy.FixedWindow(10, time.Second)))}
		rt := transport(t, Config{}, Options{Base: &base{answer: func(r *http.Request) (*http.Response, error) {
			time.Sleep(150 * time.Millisecond)
			resp, err := near.RoundTrip(r)
			time.Sleep(150 * time.Millisecond)
			return resp, err
		}}})
		var all sync.WaitGroup
		for _, step := range []struct {
			after time.Duration
			calls int
		}{{0, 1}, {1290 * time.Millisecond, 5}, {20 * time.Millisecond, 10}} {
			time.Sleep(step.after)
			for range step.calls {
				all.Go(func() {
					resp, err := rt.RoundTrip(request(t, "GET", nil))
					if assert.NoError(t, err) {
						assert.NoError(t, resp.Body.Close())
					}
				})
			}
		}
		all.Wait()
		assert.Len(t, near.admitted, 16)
	})
}

// next returns how long the key's next call waits for its turn, a minute at most.
func next(t *testing.T, l *Line[string]) time.Duration {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	turn, err := l.Wait(ctx, "key")
	if err != nil {
		return time.Minute
	}
	return turn.Waited
}

func TestSpendingEnds(t *testing.T) {
	const s = time.Second
	full := Answer{Limit: 60, Window: 10 * s, HasRemaining: true, Remaining: 59, Reset: 10 * s}
	for name, c := range map[string]struct {
		answers []Answer
		// turns are the next calls' turns.
		turns []time.Duration
	}{
		"a refusal without fields":            {[]Answer{full, {Refused: true, RetryAfter: 20 * s}}, []time.Duration{20 * s}},
		"nothing left, no reset":              {[]Answer{{Limit: 60, Window: 10 * s, HasRemaining: true}}, []time.Duration{10 * s}},
		"nothing left, a reset beyond reason": {[]Answer{{Limit: 60, Window: s, HasRemaining: true, Reset: 50 * s}}, []time.Duration{2 * s}},
		"nothing left, no window":             {[]Answer{{HasRemaining: true, Reset: 3 * s}}, []time.Duration{3 * s}},
		"two left, no window":                 {[]Answer{{HasRemaining: true, Remaining: 2, Reset: 3 * s}}, []time.Duration{0, 0, 3 * s}},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := newLine(t, Config{})
			time.Sleep(100 * time.Millisecond)
			for _, a := range c.answers {
				turnOf(t, l).Obey(a)
			}
			for i, want := range c.turns {
				assert.Equal(t, want, next(t, l), "%s: %d", name, i)
			}
		})
	}
}

// A bucket's reset counts the units taken until then.
func TestBucketIsNotSpentTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, Config{})
		turnOf(t, l).Obey(Answer{Limit: 60, Window: time.Second, HasRemaining: true, Remaining: 59, Reset: time.Second / 60})
		ctx, cancel := context.WithTimeout(t.Context(), 90*time.Millisecond)
		defer cancel()
		got, all := waiting(ctx, l, 100)
		all.Wait()
		n := 0
		got.Range(func(any, any) bool { n++; return true })
		assert.LessOrEqual(t, n, 62)
	})
}

// Answers to calls from before Reset are of a forgotten key.
func TestResetForgetsCallsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, Config{})
		old := turnOf(t, l)
		l.Reset("key")
		turnOf(t, l).Obey(Answer{})
		old.Obey(Answer{Limit: 60, Window: time.Hour, HasRemaining: true, Reset: time.Hour})
		assert.Zero(t, next(t, l))
	})
}
