package outgoing

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/internal/testkit/must"
)

// A bubble begins at 2000-01-01T00:00:00Z, Unix time 946684800. Fields and statuses are those of the
// documentation named per API.
//
// Promise: Twelve APIs' waits are obeyed to the millisecond.
func TestNextTurnByAPI(t *testing.T) {
	const ms, s, m = time.Millisecond, time.Second, time.Minute
	for _, c := range []struct {
		api, situation string
		hook           func(*http.Response) (Answer, bool)
		status         int
		fields, body   string
		refused        bool
		turn           time.Duration
	}{
		// docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api
		{"GitHub", "primary limit", GitHub, 403, "X-RateLimit-Limit: 60|X-RateLimit-Remaining: 0|X-RateLimit-Used: 60|X-RateLimit-Reset: 946685400", "", true, 10 * m},
		{"GitHub", "primary limit, as 429", nil, 429, "X-RateLimit-Limit: 60|X-RateLimit-Remaining: 0|X-RateLimit-Reset: 946685400", "", true, 10 * m},
		{"GitHub", "secondary limit", nil, 403, "Retry-After: 60|X-RateLimit-Limit: 5000|X-RateLimit-Remaining: 4990|X-RateLimit-Reset: 946685400", "", true, m},
		{"GitHub", "forbidden", GitHub, 403, "X-RateLimit-Limit: 5000|X-RateLimit-Remaining: 4990", "", false, 0},
		// docs.github.com/graphql/overview/rate-limits-and-query-limits-for-the-graphql-api
		{"GitHub", "GraphQL, secondary limit", GitHub, 200, "Retry-After: 60|X-RateLimit-Limit: 5000|X-RateLimit-Remaining: 4000|X-RateLimit-Reset: 946685400", `{"errors":[{"type":"RATE_LIMITED"}]}`, true, m},
		{"GitHub", "GraphQL, older name", GitHub, 200, "Retry-After: 60", `{"data":null,"errors":[{"type":"FORBIDDEN"},{"type":"RATE_LIMIT"}]}`, true, m},
		{"GitHub", "GraphQL, primary limit", GitHub, 200, "X-RateLimit-Limit: 5000|X-RateLimit-Remaining: 0|X-RateLimit-Reset: 946685400", `{"errors":[{"type":"RATE_LIMITED"}]}`, true, 10 * m},
		{"GitHub", "GraphQL, another error", GitHub, 200, "Retry-After: 60", `{"errors":[{"type":"NOT_FOUND"}]}`, false, 0},
		{"GitHub", "GraphQL, a name in the data", GitHub, 200, "Retry-After: 60", `{"data":{"errors":[{"type":"RATE_LIMITED"}]}}`, false, 0},
		{"GitHub", "last call", GitHub, 200, "X-RateLimit-Limit: 60|X-RateLimit-Remaining: 0|X-RateLimit-Reset: 946685400", "", false, 10 * m},
		// platform.openai.com/docs/guides/rate-limits
		{"OpenAI", "requests", nil, 429, "X-RateLimit-Remaining-Requests: 0|X-RateLimit-Reset-Requests: 6m0s|X-RateLimit-Remaining-Tokens: 149984|X-RateLimit-Reset-Tokens: 12ms", "", true, 6 * m},
		{"OpenAI", "tokens", nil, 429, "X-RateLimit-Remaining-Requests: 59|X-RateLimit-Reset-Requests: 1s|X-RateLimit-Remaining-Tokens: 0|X-RateLimit-Reset-Tokens: 8.64s", "", true, 8640 * ms},
		{"OpenAI", "last tokens", nil, 200, "X-RateLimit-Remaining-Requests: 59|X-RateLimit-Reset-Requests: 1s|X-RateLimit-Remaining-Tokens: 0|X-RateLimit-Reset-Tokens: 120ms", "", false, 120 * ms},
		// platform.openai.com/docs/guides/error-codes
		{"OpenAI", "quota that is spent", nil, 429, "Content-Type: application/json", `{"error":{"type":"insufficient_quota","code":"insufficient_quota"}}`, true, 0},
		{"OpenAI", "quota that is spent, beside a time", nil, 429, "Content-Type: application/json; charset=utf-8|Retry-After: 5", `{"error":{"code":"insufficient_quota"}}`, true, 0},
		{"OpenAI", "quota that is spent, in a text", nil, 429, "Content-Type: text/plain", `{"error":{"code":"insufficient_quota"}}`, true, s},
		{"OpenAI", "a message about quotas", nil, 429, "Content-Type: application/json", `{"error":{"message":"not insufficient_quota"}}`, true, s},
		{"OpenAI", "no retry", nil, 429, "X-Should-Retry: false", "", true, 0},
		{"OpenAI", "no retry of this call", nil, 429, "X-Should-Retry: False|Retry-After: 7", "", true, 7 * s},
		{"OpenAI", "no retry of this call, by the reset", nil, 429, "X-Should-Retry: false|X-RateLimit-Remaining-Requests: 0|X-RateLimit-Reset-Requests: 6m0s", "", true, 6 * m},
		{"OpenAI", "no retry, with calls left", nil, 429, "X-Should-Retry: false|X-RateLimit-Remaining-Requests: 5|X-RateLimit-Reset-Requests: 6m0s", "", true, 0},
		// ai.google.dev/gemini-api/docs/troubleshooting; a stream's error is in a list
		{"Gemini", "delay in the body", nil, 429, "Content-Type: application/json; charset=UTF-8", `{"error":{"code":429,"details":[{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{"quotaValue":"5"}]},{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"39.837s"}]}}`, true, 39837 * ms},
		{"Gemini", "delay in a list", nil, 429, "Content-Type: application/json", `[{"error":{"details":[{"retryDelay":"9s"}]}}]`, true, 9 * s},
		{"Gemini", "the longer of two", nil, 429, "Content-Type: application/json|Retry-After: 20", `{"error":{"details":[{"retryDelay":"9s"}]}}`, true, 20 * s},
		{"Gemini", "a delay that is none", nil, 429, "Content-Type: application/json", `{"error":{"details":[{"retryDelay":"-9s"},{"retryDelay":"soon"},{"retryDelay":9},{"uptime":"9s"}]}}`, true, s},
		// httplimit.Options
		{"Ral", "never admitted", nil, 403, "X-Should-Retry: false", "", true, 0},
		{"Ral", "unavailable", nil, 503, "X-Other: 1", "", false, 0},
		{"Ral", "no key", nil, 400, "X-Should-Retry: false", "", false, 0},
		// docs.anthropic.com/en/api/rate-limits and /errors
		{"Anthropic", "requests", nil, 429, "Retry-After: 9|Anthropic-RateLimit-Requests-Remaining: 0|Anthropic-RateLimit-Requests-Reset: 2000-01-01T00:00:09Z", "", true, 9 * s},
		{"Anthropic", "output tokens", nil, 429, "Anthropic-RateLimit-Requests-Remaining: 49|Anthropic-RateLimit-Requests-Reset: 2000-01-01T00:00:02Z|" +
			"Anthropic-RateLimit-Output-Tokens-Remaining: 0|Anthropic-RateLimit-Output-Tokens-Reset: 2000-01-01T00:00:31Z", "", true, 31 * s},
		{"Anthropic", "overloaded", Anthropic, 529, "X-Should-Retry: true", "", true, s},
		{"Anthropic", "overloaded, no retry", Anthropic, 529, "X-Should-Retry: false", "", true, 0},
		{"Anthropic", "overloaded, unknown", nil, 529, "X-Should-Retry: true", "", false, 0},
		// docs.stripe.com/rate-limits
		{"Stripe", "rate limit", nil, 429, "Stripe-Rate-Limited-Reason: endpoint-rate", "", true, s},
		// discord.com/developers/docs/topics/rate-limits
		{"Discord", "bucket", nil, 429, "X-RateLimit-Limit: 5|X-RateLimit-Remaining: 0|X-RateLimit-Reset: 946684860.5|X-RateLimit-Reset-After: 1.337|X-RateLimit-Bucket: abcd1234", "", true, 1337 * ms},
		{"Discord", "global", nil, 429, "Retry-After: 65|X-RateLimit-Global: true|X-RateLimit-Scope: global", "", true, 65 * s},
		{"Discord", "last call", nil, 200, "X-RateLimit-Limit: 5|X-RateLimit-Remaining: 0|X-RateLimit-Reset: 946684800.47|X-RateLimit-Reset-After: 0.47", "", false, 470 * ms},
		// shopify.dev/docs/api/usage/limits and /response-codes
		{"Shopify", "bucket", nil, 429, "Retry-After: 2.0|X-Shopify-Shop-Api-Call-Limit: 40/40", "", true, 2 * s},
		{"Shopify", "security rejection", Shopify, 430, "X-Request-Id: 1", "", true, s},
		// docs.slack.dev/apis/web-api/rate-limits
		{"Slack", "method", nil, 429, "Retry-After: 30", `{"ok":false,"error":"ratelimited"}`, true, 30 * s},
		{"Slack", "error in a body", Slack, 200, "Retry-After: 3", `{"ok":false,"error":"ratelimited"}`, true, 3 * s},
		{"Slack", "older error in a body", Slack, 200, "X-Other: 1", `{"ok":false,"error":"rate_limited"}`, true, s},
		{"Slack", "another error", Slack, 200, "X-Other: 1", `{"ok":false,"error":"not_authed"}`, false, 0},
		{"Slack", "a text of it", Slack, 200, "X-Other: 1", `{"ok":true,"error":"ratelimited"}`, false, 0},
		// github.com/express-rate-limit/express-rate-limit, source/headers.ts
		{"express", "legacy", nil, 429, "Retry-After: 30|X-RateLimit-Limit: 100|X-RateLimit-Remaining: 0|X-RateLimit-Reset: 946684830", "", true, 30 * s},
		{"express", "draft 6", nil, 429, "Retry-After: 30|RateLimit-Policy: 100;w=60|RateLimit-Limit: 100|RateLimit-Remaining: 0|RateLimit-Reset: 30", "", true, 30 * s},
		{"express", "draft 7", nil, 429, "RateLimit-Policy: 100;w=60|RateLimit: limit=100, remaining=0, reset=30", "", true, 30 * s},
		{"express", "draft 7, last call", nil, 200, "RateLimit-Policy: 100;w=60|RateLimit: limit=100, remaining=0, reset=30", "", false, 30 * s},
		{"express", "draft 8", nil, 429, `RateLimit-Policy: "100-in-1min"; q=100; w=60; pk=:YQ==:|RateLimit: "100-in-1min"; r=0; t=30`, "", true, 30 * s},
		// learn.microsoft.com/azure/ai-services/openai/how-to/quota; RateLimit by API Management
		{"Azure", "milliseconds", nil, 429, "Retry-After: 2|Retry-After-Ms: 1234|X-RateLimit-Remaining-Requests: 9", "", true, 1234 * ms},
		{"Azure", "Cosmos DB", nil, 429, "X-Ms-Retry-After-Ms: 12.5", "", true, 13 * ms},
		{"Azure", "unavailable", nil, 503, "Retry-After-Ms: 700", "", true, 700 * ms},
		// draft-ietf-httpapi-ratelimit-headers
		{"IETF", "r and t", nil, 429, `RateLimit-Policy: "a";q=10;w=60|RateLimit: "a";r=0;t=17`, "", true, 17 * s},
		{"IETF", "a and w", nil, 429, `RateLimit-Policy: "a";q=10;w=60|RateLimit: "a";a=0;w=17`, "", true, 17 * s},
		{"IETF", "last call", nil, 200, `RateLimit-Policy: "a";q=10;w=60|RateLimit: "a";r=0;t=17`, "", false, 17 * s},
		// RFC 9110, 10.2.3
		{"plain", "seconds", nil, 429, "Retry-After: 7", "", true, 7 * s},
		{"plain", "1 second", nil, 429, "Retry-After: 1", "", true, s},
		{"plain", "date", nil, 503, "Retry-After: Sat, 01 Jan 2000 00:00:11 GMT", "", true, 11 * s},
		{"plain", "proxy", nil, 502, "Retry-After: 5", "", true, 5 * s},
		{"plain", "none", nil, 429, "X-Other: 1", "", true, s},
		{"plain", "days", nil, 429, "Retry-After: 198300", "", true, 198300 * s},
		{"OpenAI", "tokens of a day", nil, 429, "Retry-After-Ms: 86400000|X-RateLimit-Remaining-Tokens: 0|X-RateLimit-Reset-Tokens: 24h", "", true, 24 * 60 * m},
		{"plain", "failing proxy", nil, 502, "X-Other: 1", "", false, 0},
		// Resets in other units, and resets that are not believed.
		{"units", "milliseconds", nil, 429, "X-RateLimit-Remaining: 0|X-RateLimit-Reset: 946684805250", "", true, 5250 * ms},
		{"units", "microseconds", nil, 429, "X-RateLimit-Remaining: 0|X-RateLimit-Reset: 946684805250000", "", true, 5250 * ms},
		{"units", "nanoseconds", nil, 429, "X-RateLimit-Remaining: 0|X-RateLimit-Reset: 946684805250000000", "", true, 5250 * ms},
		{"units", "past", nil, 429, "X-RateLimit-Remaining: 0|X-RateLimit-Reset: 946684000", "", true, s},
		{"units", "a day ahead", nil, 429, "X-RateLimit-Remaining: 0|X-RateLimit-Reset: 946771200", "", true, s},
	} {
		t.Run(c.api+", "+c.situation, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var sent []time.Time
				rt := transport(t, Config{Logger: slog.New(slog.DiscardHandler), Probe: time.Hour}, Options{Answer: c.hook, Base: &base{answer: func(*http.Request) (*http.Response, error) {
					if sent = append(sent, time.Now()); len(sent) > 1 {
						return response(200, strings.NewReader("")), nil
					}
					return response(c.status, strings.NewReader(c.body), strings.Split(c.fields, "|")...), nil
				}}})
				resp, err := rt.RoundTrip(request(t, "GET", nil))
				require.NoError(t, err)
				content := must.Get(io.ReadAll(resp.Body))
				assert.Equal(t, c.body, string(content))
				require.NoError(t, resp.Body.Close())
				assert.Equal(t, c.refused, rt.line.Stats().Refusals == 1, "the line and the server disagree about the refusal")
				_, err = rt.RoundTrip(request(t, "GET", nil)) //nolint:bodyclose // it is empty
				if c.turn > time.Hour {
					var late *TurnError
					require.ErrorAs(t, err, &late)
					assert.Equal(t, c.turn, late.In)
					assert.Equal(t, sent[0], time.Now(), "no call sleeps so long")
					return
				}
				require.NoError(t, err)
				assert.Equal(t, c.turn, ((sent[1].Sub(sent[0]) + ms - 1) / ms * ms), "the call had another turn than the answer allows")
			})
		})
	}
}

// Promise: A refusal in a body leaves the body whole.
func TestSlackLeavesTheBody(t *testing.T) {
	long := `{"ok":true,"text":"` + strings.Repeat("a", 1<<20) + `"}`
	refused := `{"ok":false,"error":"ratelimited"}`
	for name, c := range map[string]struct {
		content string
		slow    time.Duration
		refused bool
	}{
		"long": {long, 0, false}, "slow": {refused, time.Minute, false}, "empty": {"", 0, false}, "no JSON": {"ok", 0, false},
		"refused": {refused, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				from, to := io.Pipe()
				go func() {
					time.Sleep(c.slow)
					_, err := io.WriteString(to, c.content)
					assert.NoError(t, err)
					assert.NoError(t, to.Close())
				}()
				resp := &http.Response{StatusCode: 200, Body: from, ContentLength: -1}
				began := time.Now()
				_, known := Slack(resp)
				assert.Equal(t, c.refused, known)
				assert.LessOrEqual(t, time.Since(began), time.Second)
				content := must.Get(io.ReadAll(resp.Body))
				assert.Equal(t, c.content, string(content))
				require.NoError(t, resp.Body.Close())
			})
		})
	}
}

// Promise: Resets past or too far ahead are ignored, counted and logged once.
func TestBadResetsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		l := free(t, Config{MaxBackoff: time.Minute, Logger: slog.New(slog.NewJSONHandler(&log, nil))})
		answered := func(fields ...string) Answer { return AnswerOf(response(429, nil, fields...)) }
		for _, a := range []Answer{
			answered("X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 100"),
			answered("X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 946684000"),
			{HasRemaining: true, Remaining: 5, Reset: 62 * time.Second},
			{HasRemaining: true, Reset: 1 << 60},
		} {
			turnOf(t, l).Obey(a)
			assert.LessOrEqual(t, l.BackoffLeft("key"), 2*time.Second)
		}
		assert.Equal(t, uint64(4), l.Stats().BadResets)
		// A stated wait and a reset within two windows, or rounded, are believed.
		turnOf(t, l).Obey(answered("X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 100", "Retry-After: 60"))
		assert.Equal(t, time.Minute, l.BackoffLeft("key"))
		turnOf(t, l).Obey(Answer{HasRemaining: true, Remaining: 5, Reset: 61 * time.Second})
		turnOf(t, l).Obey(Answer{Limit: 5, Window: time.Hour, HasRemaining: true, Remaining: 5, Reset: 2 * time.Hour})
		assert.Equal(t, uint64(5), l.Stats().BadResets)
		var line struct{ Level, Line, Field string }
		require.NoError(t, json.Unmarshal([]byte(log.String()), &line), log.String())
		assert.Equal(t, "WARN outgoing X-Ratelimit-Reset", fmt.Sprint(line.Level, " ", line.Line, " ", line.Field))
	})
}

// Promise: The error of a late turn names its key, time and cause.
func TestTurnErrorNamesTheAnswer(t *testing.T) {
	const s = time.Second
	for name, c := range map[string]struct {
		fields, field string
		status        int
		in            time.Duration
	}{
		"wait":         {"Retry-After: 90", "Retry-After", 429, 90 * s},
		"milliseconds": {"Retry-After-Ms: 90000", "Retry-After-Ms", 429, 90 * s},
		"status":       {"X-Other: 1", "", 429, 60 * s},
		"reset":        {"X-RateLimit-Remaining: 0|X-RateLimit-Reset-After: 90", "X-Ratelimit-Reset-After", 200, 90 * s},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := free(t, Config{Backoff: time.Minute})
			turn, err := l.Wait(t.Context(), "key")
			require.NoError(t, err)
			number := turn.number
			turn.Obey(AnswerOf(response(c.status, nil, strings.Split(c.fields, "|")...)))
			answered := time.Now()
			time.Sleep(10 * s)
			ctx, cancel := context.WithTimeout(t.Context(), 30*s)
			defer cancel()
			_, err = l.Wait(ctx, "key")
			require.ErrorIs(t, err, engine.ErrDeadline, name)
			var late *TurnError
			require.True(t, errors.As(err, &late), name)
			assert.Equal(t, TurnError{"key", answered.Add(c.in), c.in - 10*s, number, answered, c.field, late.Err}, *late, name)
			assert.Contains(t, err.Error(), `outgoing: "key": next turn at 2000-01-01T`, name)
			t.Log(err)
		})
	}
	// The turn is by the pace, and behind a first call.
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, Config{Patience: s})
		turn, err := l.Wait(t.Context(), "key")
		require.NoError(t, err)
		var late *TurnError
		_, err = l.Wait(t.Context(), "key")
		require.ErrorAs(t, err, &late)
		assert.Zero(t, late.Call)
		turn.Obey(AnswerOf(response(200, nil, "RateLimit-Policy: 1;w=100", "RateLimit: limit=1, remaining=1, reset=100")))
		turn, err = l.Wait(t.Context(), "key")
		for err == nil {
			turn.Abandon()
			turn, err = l.Wait(t.Context(), "key")
		}
		require.ErrorAs(t, err, &late)
		assert.Equal(t, "Ratelimit-Policy 1", fmt.Sprint(late.Field, " ", late.Call))
	})
}

// The fields of draft 6 tell the window, so that nearly all of a log of calls is used.
func TestDraft6UsesALogOfCalls(t *testing.T) {
	const limit, window = 100, time.Minute
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var log []time.Time
		far := &away{rtt: 20 * time.Millisecond, handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			for len(log) > 0 && time.Since(log[0]) >= window {
				log = log[1:]
			}
			status := http.StatusTooManyRequests
			if len(log) < limit {
				log, status = append(log, time.Now()), http.StatusOK
			}
			h := w.Header()
			h.Set("RateLimit-Policy", "100;w=60")
			h.Set("RateLimit-Limit", "100")
			h.Set("RateLimit-Remaining", strconv.Itoa(limit-len(log)))
			h.Set("RateLimit-Reset", strconv.Itoa(int((window-time.Since(log[0])+time.Second-1)/time.Second)))
			w.WriteHeader(status)
		})}
		rt := must.Get(NewTransport(newLine(t, Config{}), ByHost, Options{Base: far}))
		crowd(t, 10*window, rt)
		assert.Zero(t, far.refused+far.early)
		assert.GreaterOrEqual(t, len(far.admitted), 10*limit*95/100)
	})
}
