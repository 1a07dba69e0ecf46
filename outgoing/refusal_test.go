package outgoing

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/policy"
)

// finalRefusals are responses that refuse their calls for ever.
var finalRefusals = map[string]struct {
	hook         func(*http.Response) (Answer, bool)
	status       int
	fields, body string
}{
	"a hook": {func(resp *http.Response) (Answer, bool) {
		return Answer{Refused: true, RetryAfter: policy.Never}, resp.StatusCode == 200
	}, 200, "Retry-After: 5", "model is retired"},
	"a hook of the body": {func(resp *http.Response) (Answer, bool) {
		var body struct{ Reason string }
		return Answer{Refused: true, RetryAfter: policy.Never}, PeekJSON(resp, &body) && body.Reason == "dailyLimitExceeded"
	}, 403, "Retry-After: 5", `{"reason":"dailyLimitExceeded"}`},
	"quota that is spent": {nil, 429, "Content-Type: application/json", `{"error":{"code":"insufficient_quota"}}`},
	"no retry":            {nil, 429, "X-Should-Retry: false", "slow down"},
	"no retry, preset":    {Anthropic, 529, "X-Should-Retry: false", "overloaded"},
}

// Promise: A final refusal is sent once and returned whole; no call behind it waits.
func TestFinalRefusalHoldsNoCall(t *testing.T) {
	for name, c := range finalRefusals {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				final := 0
				began := time.Now()
				rt := transport(t, Config{Probe: time.Hour}, Options{Retries: 3, Answer: c.hook, Base: &base{answer: func(r *http.Request) (*http.Response, error) {
					mu.Lock()
					defer mu.Unlock()
					if r.Header.Get("Final") == "" {
						return response(201, strings.NewReader("served")), nil
					}
					final++
					return response(c.status, strings.NewReader(c.body), strings.Split(c.fields, "|")...), nil
				}}})
				var all sync.WaitGroup
				for i := range 50 {
					all.Go(func() {
						r := request(t, "GET", nil)
						if i%2 == 0 {
							r.Header.Set("Final", "1")
						}
						resp, err := rt.RoundTrip(r)
						require.NoError(t, err)
						content := must.Get(io.ReadAll(resp.Body))
						require.NoError(t, resp.Body.Close())
						err = RefusalOf(resp)
						if i%2 != 0 {
							assert.NoError(t, err)
							return
						}
						assert.Equal(t, c.body, string(content))
						var refused *RefusalError
						if assert.ErrorAs(t, err, &refused) {
							assert.Equal(t, policy.Never, refused.RetryAfter)
							assert.Equal(t, c.status, refused.Status)
							assert.False(t, refused.MayRetry())
						}
					})
				}
				all.Wait()
				assert.Equal(t, 25, final, "each call must be sent once")
				assert.Zero(t, time.Since(began))
				assert.Zero(t, rt.line.BackoffLeft("there"))
				assert.Equal(t, Stats{Waits: rt.line.Stats().Waits, Turns: 50, Refusals: 25, Keys: 1}, rt.line.Stats())
			})
		})
	}
}

// The fields beside a final refusal tell the limit as those of a served call do.
func TestFinalRefusalSlowsNoPace(t *testing.T) {
	answer := Answer{Limit: 100, Window: time.Minute, HasRemaining: true, Remaining: 50, Reset: time.Minute}
	final := answer
	final.Refused, final.RetryAfter = true, policy.Never
	for _, pace := range []Pace{Spend, Even} {
		synctest.Test(t, func(t *testing.T) {
			served, refused := newLine(t, Config{Pace: pace}), newLine(t, Config{Pace: pace})
			for range 3 {
				turnOf(t, served).Obey(answer)
				turnOf(t, refused).Obey(final)
				assert.Equal(t, served.Limit("key").String(), refused.Limit("key").String())
				assert.Equal(t, served.Engine().Peek("key", 0), refused.Engine().Peek("key", 0))
			}
		})
	}
	// It counts neither as a served call nor as a refusal where the pace is learned from refusals.
	synctest.Test(t, func(t *testing.T) {
		l := free(t, Config{})
		turnOf(t, l).Obey(Answer{Refused: true, RetryAfter: time.Second})
		turn := turnOf(t, l)
		limit := l.Limit("key").String()
		turn.Obey(Answer{Refused: true, RetryAfter: policy.Never})
		assert.Equal(t, limit, l.Limit("key").String())
	})
}

// A call of 900 of 1000 tokens leaves room for another.
func TestFinalRefusalGivesItsUnitsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, Config{Pace: Even, Units: []string{"tokens"}})
		tokens := func() Answer {
			return Answer{Units: []Answer{{Limit: 1000, Window: time.Minute}}}
		}
		take := func(cost ...int64) (*Turn[string], time.Duration) {
			began := time.Now()
			turn, err := l.Wait(t.Context(), "key", cost...)
			require.NoError(t, err)
			return &turn, time.Since(began)
		}
		turn, _ := take(1, 1)
		turn.Obey(tokens())
		time.Sleep(time.Hour)
		turn, _ = take(1, 900)
		a := tokens()
		a.Refused, a.RetryAfter = true, policy.Never
		turn.Obey(a)
		turn, waited := take(1, 900)
		assert.Zero(t, waited)
		turn.Obey(tokens())
		_, waited = take(1, 900)
		assert.Greater(t, waited, 50*time.Second, "a served call must keep its tokens")
	})
}

// Promise: `x-should-retry: false` beside a time holds the key and is not repeated.
func TestCallThatMustNotBeRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent []time.Duration
		began := time.Now()
		rt := transport(t, Config{}, Options{Retries: 3, Base: &base{answer: func(*http.Request) (*http.Response, error) {
			if sent = append(sent, time.Since(began)); len(sent) > 1 {
				return response(200, strings.NewReader("served")), nil
			}
			return response(503, strings.NewReader("slow down"), "Retry-After: 5", "X-Should-Retry: false"), nil
		}}})
		resp, err := rt.RoundTrip(request(t, "GET", nil))
		require.NoError(t, err)
		assert.Equal(t, "slow down", string(must.Get(io.ReadAll(resp.Body))))
		require.NoError(t, resp.Body.Close())
		var refused *RefusalError
		require.ErrorAs(t, RefusalOf(resp), &refused)
		assert.Equal(t, RefusalError{503, Answer{Refused: true, NoRetry: true, RetryAfter: 5 * time.Second, Field: "Retry-After"}, resp}, *refused)
		assert.EqualError(t, refused, "outgoing: the server refused the call for 5s: status 503")
		assert.Equal(t, 5*time.Second, rt.line.BackoffLeft("there"))
		resp, err = rt.RoundTrip(request(t, "GET", nil))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		assert.Equal(t, []time.Duration{0, 5 * time.Second}, sent)
	})
}

func TestRefusalOfTellsStatusAndRetry(t *testing.T) {
	assert.NoError(t, RefusalOf(nil))
	assert.NoError(t, RefusalOf(&http.Response{}))
	synctest.Test(t, func(t *testing.T) {
		status := 429
		rt := transport(t, Config{}, Options{Base: &base{answer: func(r *http.Request) (*http.Response, error) {
			resp := response(status, strings.NewReader(""))
			resp.Request = r
			return resp, nil
		}}})
		client := &http.Client{Transport: rt, Timeout: time.Minute}
		resp, err := client.Do(request(t, "GET", nil))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		var refused *RefusalError
		require.ErrorAs(t, RefusalOf(resp), &refused)
		assert.EqualError(t, refused, "outgoing: the server refused the call without a time to retry: status 429")
		assert.True(t, refused.MayRetry())
		refused.RetryAfter = policy.Never
		assert.EqualError(t, refused, "outgoing: the server refused the call for ever: status 429")
		// The request of a refusal is sent again, and served.
		status = 200
		resp, err = rt.RoundTrip(resp.Request.WithContext(context.WithoutCancel(resp.Request.Context())))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		assert.NoError(t, RefusalOf(resp))
	})
}
