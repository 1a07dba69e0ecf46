package outgoing

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/outgoing/internal/answer"
	"github.com/ral-limiter/ral/policy"
)

// outcome waits for a call of the key, sends it, and returns its turn's error.
func outcome(l *Line[string], a Answer) error {
	turn, err := l.Wait(context.Background(), "key")
	if err == nil {
		turn.Obey(a)
	}
	return err
}

// Promise: Behind a time longer than `Config.MaxBackoff` calls fail at once with the server's time; 5 of 55 hours' calls are sent.
func TestOverlongTimeIsToldAtOnce(t *testing.T) {
	const stated = 198300 * time.Second
	for name, config := range map[string]Config{
		"learned": {}, "policy": {Policy: policy.Must(policy.Funnel(100, 1, time.Second))}, "even": {Pace: Even},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLine(t, config)
				began := time.Now()
				require.NoError(t, outcome(l, Answer{Refused: true, RetryAfter: stated, Field: "Retry-After"}))
				var sent []time.Duration
				for ; time.Since(began) < stated-time.Hour; time.Sleep(10 * time.Minute) {
					asked, left := time.Since(began), stated-time.Since(began)
					require.Equal(t, left, l.BackoffLeft("key"))
					require.Equal(t, 1, l.Stats().Held)
					err := outcome(l, Answer{Refused: true, RetryAfter: left, Field: "Retry-After"})
					require.Equal(t, asked, time.Since(began), "no call sleeps")
					if err == nil {
						sent = append(sent, asked)
						continue
					}
					require.ErrorIs(t, err, engine.ErrDeadline)
					var late *TurnError
					require.True(t, errors.As(err, &late))
					require.Equal(t, left, late.In)
					require.Equal(t, began.Add(stated), late.At)
					require.Equal(t, "Retry-After", late.Field)
				}
				const h = time.Hour
				assert.Equal(t, []time.Duration{h, 3 * h, 7 * h, 15 * h, 31 * h}, sent)
				// At most an hour is left.
				_, err := l.Wait(t.Context(), "key")
				require.NoError(t, err)
				assert.Equal(t, stated, time.Since(began))
				assert.Zero(t, l.BackoffLeft("key"))
				assert.Zero(t, l.Stats().Held)
			})
		})
	}
}

// Calls in line do not sleep through an overlong time either, and a call with less patience fails in
// its last hour.
func TestOverlongTimeEndsTheWaitsOfCallsInLine(t *testing.T) {
	for name, units := range map[string][]string{"calls": nil, "calls and tokens": {"tokens"}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLine(t, Config{Units: units})
				// The others wait for the end of a told window.
				first, err := l.Wait(t.Context(), "key", 1, 10)
				require.NoError(t, err)
				first.Obey(Answer{Limit: 2, Window: 20 * time.Minute, HasRemaining: true, Remaining: 1, Reset: 20 * time.Minute})
				first, err = l.Wait(t.Context(), "key", 1, 10)
				require.NoError(t, err)
				began := time.Now()
				var all sync.WaitGroup
				for range 10 {
					all.Go(func() {
						_, err := l.Wait(t.Context(), "key", 1, 10)
						assert.ErrorIs(t, err, engine.ErrDeadline)
						assert.Less(t, time.Since(began), 2*time.Second)
					})
				}
				time.Sleep(time.Second)
				first.Obey(Answer{Refused: true, RetryAfter: 5 * time.Hour})
				all.Wait()
				time.Sleep(4*time.Hour + time.Second)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				_, err = l.Wait(ctx, "key", 1, 10)
				require.ErrorIs(t, err, context.DeadlineExceeded)
			})
		})
	}
}

// Promise: A call served in an overlong time, or `Line.Reset`, lets the others go.
func TestOverlongTimeEndsEarly(t *testing.T) {
	for name, c := range map[string]struct {
		after time.Duration
		end   func(t *testing.T, l *Line[string])
	}{
		"reset":  {0, func(_ *testing.T, l *Line[string]) { l.Reset("key") }},
		"served": {time.Hour, func(t *testing.T, l *Line[string]) { require.NoError(t, outcome(l, Answer{})) }},
		"a shorter time": {time.Hour, func(t *testing.T, l *Line[string]) {
			require.NoError(t, outcome(l, Answer{Refused: true, RetryAfter: time.Minute}))
			require.Equal(t, time.Minute, l.BackoffLeft("key"))
			require.NoError(t, outcome(l, Answer{}), "calls sleep for a minute")
		}},
		"a probe that was not sent": {time.Hour, func(t *testing.T, l *Line[string]) {
			turn, err := l.Wait(t.Context(), "key")
			require.NoError(t, err)
			require.Error(t, outcome(l, Answer{}))
			turn.Cancel()
			require.NoError(t, outcome(l, Answer{}), "the next is the probe")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLine(t, Config{})
				require.NoError(t, outcome(l, Answer{Refused: true, RetryAfter: 48 * time.Hour}))
				require.Error(t, outcome(l, Answer{}))
				time.Sleep(c.after)
				c.end(t, l)
				require.Zero(t, l.BackoffLeft("key"))
				require.Zero(t, l.Stats().Held)
				for range 3 {
					require.NoError(t, outcome(l, Answer{}))
				}
			})
		})
	}
}

// Answers to calls from before neither shorten nor end an overlong time, nor does a probe's refusal
// without a time.
func TestOverlongTimeStands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := free(t, Config{})
		refused, early, served, longer := turnOf(t, l), turnOf(t, l), turnOf(t, l), turnOf(t, l)
		refused.Obey(Answer{Refused: true, RetryAfter: 48 * time.Hour})
		early.Obey(Answer{Refused: true, RetryAfter: time.Minute})
		served.Obey(Answer{Limit: 10, Window: time.Second, HasRemaining: true, Remaining: 9, Reset: time.Second})
		require.Equal(t, 48*time.Hour, l.BackoffLeft("key"))
		time.Sleep(time.Hour)
		require.NoError(t, outcome(l, Answer{Refused: true}))
		require.Equal(t, 47*time.Hour, l.BackoffLeft("key"))
		longer.Obey(Answer{Refused: true, RetryAfter: 50 * time.Hour})
		require.Equal(t, 50*time.Hour, l.BackoffLeft("key"))
		require.Error(t, outcome(l, Answer{}))
	})
}

// Promise: A cost above a told limit is `engine.ErrNever` at once, and delays no other call.
func TestCostAboveTheToldLimit(t *testing.T) {
	const big, small = 56919, 100
	for api, fields := range map[string]string{
		"Anthropic": "Anthropic-RateLimit-Tokens-Limit: 30000|Anthropic-RateLimit-Tokens-Remaining: 29900|Anthropic-RateLimit-Tokens-Reset: 2000-01-01T00:10:00Z",
		"OpenAI":    "X-RateLimit-Limit-Tokens: 30000|X-RateLimit-Remaining-Tokens: 29900|X-RateLimit-Reset-Tokens: 6m0s",
		"IETF":      `RateLimit-Policy: "t";q=30000;w=60;qu="tokens"|RateLimit: "t";r=29900;t=60`,
	} {
		for _, debts := range []bool{false, true} {
			name := api
			if debts {
				name += ", with debts"
			}
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					l := newLine(t, Config{Units: []string{"tokens"}, Debts: debts})
					answerOf := func(status int) Answer {
						return answer.Of(response(status, nil, strings.Split(fields, "|")...), nil, l.config.Units)
					}
					// While the limit is unknown the call is sent, and others wait behind it.
					first, err := l.Wait(t.Context(), "key", 1, big)
					require.NoError(t, err)
					began := time.Now()
					var all sync.WaitGroup
					for _, cost := range []int64{big, small} {
						all.Go(func() {
							turn, err := l.Wait(t.Context(), "key", 1, cost)
							if cost == big && !debts {
								assert.ErrorIs(t, err, engine.ErrNever)
							} else if assert.NoError(t, err) {
								turn.Obey(answerOf(http.StatusOK))
							}
							if !debts {
								assert.Less(t, time.Since(began), 10*time.Second)
							}
						})
						synctest.Wait()
					}
					first.Obey(answerOf(http.StatusTooManyRequests))
					all.Wait()
					if debts {
						return
					}
					assert.Equal(t, uint64(1), l.Stats().Refusals)
					assert.Zero(t, l.BackoffLeft("key"))
					turn, err := l.Wait(t.Context(), "key", 1, small)
					require.NoError(t, err)
					turn.Obey(answerOf(http.StatusOK))
					began = time.Now()
					_, err = l.Wait(t.Context(), "key", 1, big)
					require.ErrorIs(t, err, engine.ErrNever)
					assert.Contains(t, err.Error(), "the call costs 56919, and the server admits at most 30000")
					assert.Zero(t, time.Since(began))
					// The limit may have changed: after a while the server is asked again.
					time.Sleep(l.config.MaxBackoff)
					_, err = l.Wait(t.Context(), "key", 1, big)
					require.NoError(t, err)
				})
			})
		}
	}
}
