package outgoing

import (
	"context"
	"errors"
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
						return answer(201, strings.NewReader("served")), nil
					}
					final++
					return answer(c.status, strings.NewReader(c.body), strings.Split(c.fields, "|")...), nil
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
				assert.Equal(t, 25, final, "each is sent once")
				assert.Zero(t, time.Since(began))
				assert.Zero(t, rt.line.Held("there"))
				assert.Equal(t, Stats{Waits: rt.line.Stats().Waits, Turns: 50, Refusals: 25, Keys: 1}, rt.line.Stats())
			})
		})
	}
}

// The fields beside a final refusal tell the limit as those of a served call do.
func TestFinalRefusalSlowsNoPace(t *testing.T) {
	told := Answer{Limit: 100, Window: time.Minute, Told: true, Remaining: 50, Reset: time.Minute}
	final := told
	final.Refused, final.RetryAfter = true, policy.Never
	for _, pace := range []Pace{Spend, Even} {
		synctest.Test(t, func(t *testing.T) {
			served, refused := newLine(t, Config{Pace: pace}), newLine(t, Config{Pace: pace})
			for range 3 {
				turnOf(t, served).Obey(told)
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
		guess, limit := turn.state.mu.guess, l.Limit("key").String()
		turn.Obey(Answer{Refused: true, RetryAfter: policy.Never})
		assert.Equal(t, guess, turn.state.mu.guess)
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
		assert.Greater(t, waited, 50*time.Second, "a served call keeps its tokens")
	})
}

// Promise: `x-should-retry: false` beside a time holds the key and is not repeated.
func TestCallThatMustNotBeRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent []time.Duration
		began := time.Now()
		rt := transport(t, Config{}, Options{Retries: 3, Base: &base{answer: func(*http.Request) (*http.Response, error) {
			if sent = append(sent, time.Since(began)); len(sent) > 1 {
				return answer(200, strings.NewReader("served")), nil
			}
			return answer(503, strings.NewReader("slow down"), "Retry-After: 5", "X-Should-Retry: false"), nil
		}}})
		resp, err := rt.RoundTrip(request(t, "GET", nil))
		require.NoError(t, err)
		assert.Equal(t, "slow down", string(must.Get(io.ReadAll(resp.Body))))
		require.NoError(t, resp.Body.Close())
		var refused *RefusalError
		require.ErrorAs(t, RefusalOf(resp), &refused)
		assert.Equal(t, RefusalError{503, Answer{Refused: true, NoRetry: true, RetryAfter: 5 * time.Second, Field: retryAfterField}, resp}, *refused)
		assert.EqualError(t, refused, "outgoing: the server refused the call for 5s: status 503")
		assert.Equal(t, 5*time.Second, rt.line.Held("there"))
		resp, err = rt.RoundTrip(request(t, "GET", nil))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		assert.Equal(t, []time.Duration{0, 5 * time.Second}, sent)
	})
}

func TestRefusalOf(t *testing.T) {
	assert.NoError(t, RefusalOf(nil))
	assert.NoError(t, RefusalOf(&http.Response{}))
	synctest.Test(t, func(t *testing.T) {
		status := 429
		rt := transport(t, Config{}, Options{Base: &base{answer: func(r *http.Request) (*http.Response, error) {
			resp := answer(status, strings.NewReader(""))
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

// What a hook leaves 0 is read from the fields.
func TestHookTellsAnAnswer(t *testing.T) {
	const s = time.Second
	fields := []string{"Retry-After: 5", "RateLimit-Policy: 10;w=60", "RateLimit-Limit: 10", "RateLimit-Remaining: 3", "RateLimit-Reset: 7", "X-Should-Retry: true"}
	limit := Answer{Limit: 10, Window: time.Minute, Told: true, Remaining: 3, Reset: 7 * s, Field: "Ratelimit-Reset", limitField: policyField}
	with := func(change func(a *Answer)) (a Answer) {
		a = limit
		change(&a)
		return a
	}
	for name, c := range map[string]struct{ hook, want Answer }{
		"served":    {Answer{}, limit},
		"refused":   {Answer{Refused: true}, with(func(a *Answer) { a.Refused, a.RetryAfter, a.Field = true, 5*s, retryAfterField })},
		"its time":  {Answer{Refused: true, RetryAfter: 9 * s, Field: "retry"}, with(func(a *Answer) { a.Refused, a.RetryAfter, a.Field = true, 9*s, "retry" })},
		"no retry":  {Answer{Refused: true, NoRetry: true}, with(func(a *Answer) { a.Refused, a.NoRetry, a.RetryAfter, a.Field = true, true, 5*s, retryAfterField })},
		"final":     {Answer{Refused: true, RetryAfter: policy.Never}, with(func(a *Answer) { a.Refused, a.RetryAfter, a.Field = true, policy.Never, "" })},
		"its rest":  {Answer{Told: true, Remaining: 1}, Answer{Told: true, Remaining: 1}},
		"its limit": {Answer{Refused: true, Limit: 1, Window: s}, Answer{Refused: true, RetryAfter: 5 * s, Limit: 1, Window: s, Field: retryAfterField}},
		"its units": {Answer{Units: []Answer{{}}}, Answer{Units: []Answer{{}}}},
	} {
		asked := answer(429, nil, fields...)
		assert.Equal(t, c.want, answerOf(asked, func(*http.Response) (Answer, bool) { return c.hook, true }, nil), name)
	}
	unknown := func(*http.Response) (Answer, bool) { return Answer{RetryAfter: policy.Never}, false }
	assert.Equal(t, AnswerOf(answer(429, nil, fields...)), answerOf(answer(429, nil, fields...), unknown, nil))
}

// countedBody counts the bytes that are read of it.
type countedBody struct {
	io.Reader
	n int
}

func (c *countedBody) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += n
	return n, err
}

// A byte more than 4 KiB shows that there is more.
func TestPeekIsBounded(t *testing.T) {
	for length, parsed := range map[int]bool{100: true, maxPeek: true, maxPeek + 1: false, 3 * maxPeek: false} {
		text := `{"a":"` + strings.Repeat("b", length-len(`{"a":""}`)) + `"}`
		content := &countedBody{Reader: strings.NewReader(text)}
		resp := &http.Response{Body: io.NopCloser(content), ContentLength: -1}
		var v struct{ A string }
		assert.Equal(t, parsed, PeekJSON(resp, &v), length)
		assert.LessOrEqual(t, content.n, maxPeek+1)
		assert.Equal(t, text, string(must.Get(io.ReadAll(resp.Body))), length)
	}
	for text, parsed := range map[string]bool{`{"a":7,"b":"c"}`: true, `[]`: true, `{"a":`: false, ``: false} {
		var v struct{ A, B string }
		resp := &http.Response{Body: io.NopCloser(strings.NewReader(text))}
		assert.Equal(t, parsed, PeekJSON(resp, &v), text)
		assert.Equal(t, text == `{"a":7,"b":"c"}`, v.B == "c", text)
		assert.Equal(t, text, string(must.Get(io.ReadAll(resp.Body))))
	}
	broken := errors.New("broken")
	resp := &http.Response{Body: io.NopCloser(io.MultiReader(strings.NewReader("{}"), failing{broken}))}
	assert.False(t, PeekJSON(resp, new(any)))
	_, err := io.ReadAll(resp.Body)
	assert.ErrorIs(t, err, broken)
	assert.False(t, PeekJSON(&http.Response{}, new(any)))
}
