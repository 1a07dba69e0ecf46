package outgoing

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/outgoing/internal/pacing"
)

func TestLostFirstCallHoldsNoOther(t *testing.T) {
	for name, end := range map[string]func(*Turn[string]){
		"lost": (*Turn[string]).Abandon, "not sent": (*Turn[string]).Cancel,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLine(t, Config{})
				first := turnOf(t, l)
				got, all := waiting(t.Context(), l, 3)
				time.Sleep(100 * time.Millisecond)
				end(first)
				// The turn has ended.
				first.Obey(Answer{Refused: true, RetryAfter: time.Hour})
				all.Wait()
				for i := range 3 {
					instant, ok := got.Load(i)
					require.True(t, ok)
					assert.GreaterOrEqual(t, instant, 100*time.Millisecond)
					assert.LessOrEqual(t, instant, 100*time.Millisecond+time.Duration(i+1)*pacing.ProbePause)
				}
			})
		})
	}
}

func TestFailedCallHoldsNoOther(t *testing.T) {
	for name, fail := range map[string]func() error{
		"no connection": func() error { return errors.New("refused") }, "panic of the base": func() error { panic("broken") },
	} {
		synctest.Test(t, func(t *testing.T) {
			rt := transport(t, Config{Probe: time.Hour}, Options{Base: &base{answer: func(*http.Request) (*http.Response, error) { return nil, fail() }}})
			began := time.Now()
			for range 2 {
				func() {
					defer func() { _ = recover() }()
					_, err := rt.RoundTrip(request(t, "GET", nil)) //nolint:bodyclose // there is none
					assert.EqualError(t, err, "refused", name)
				}()
			}
			assert.LessOrEqual(t, time.Since(began), pacing.ProbePause, name)
		})
	}
}

// Turns that were taken before the limit was told are not among its units.
func TestCancelGivesBackNoOthersTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := free(t, Config{Pace: Even})
		old, last := turnOf(t, l), turnOf(t, l)
		last.Obey(Answer{Limit: 10, Window: 10 * time.Second})
		turnOf(t, l)
		began := time.Now()
		old.Cancel()
		turnOf(t, l)
		assert.GreaterOrEqual(t, time.Since(began), time.Second)
	})
}

// A call sent before a refusal is answered after it.
func TestOldSuccessKeepsRoomForOneCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := free(t, Config{})
		refused, old := turnOf(t, l), turnOf(t, l)
		refused.Obey(Answer{Refused: true, RetryAfter: 30 * time.Second})
		old.Obey(Answer{})
		var all []*Turn[string]
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second+pacing.ProbePause/2)
		defer cancel()
		for {
			turn, err := l.Wait(ctx, "key")
			if err != nil {
				break
			}
			all = append(all, &turn)
		}
		assert.Len(t, all, 1)
	})
}

// The key is held but not remembered.
func TestForgottenHeldKeyKeepsToContexts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, Config{})
		require.NoError(t, l.Engine().Block("key", time.Hour))
		waits, stop := context.WithCancel(t.Context())
		_, all := waiting(waits, l, 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := l.Wait(ctx, "key")
		assert.ErrorIs(t, err, engine.ErrDeadline)
		stop()
		all.Wait()
	})
}

func TestRefusalWithoutABody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := transport(t, Config{}, Options{Retries: 1, Base: &base{answer: func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusTooManyRequests, Header: http.Header{}}, nil
		}}})
		_, err := rt.RoundTrip(request(t, "GET", nil)) //nolint:bodyclose // there is none
		require.NoError(t, err)
		assert.Equal(t, uint64(1), rt.line.Stats().Retries)
	})
}

func TestTurnFromBeforeReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, Config{})
		old, err := l.Wait(t.Context(), "key")
		require.NoError(t, err)
		l.Reset("key")
		turn, err := l.Wait(t.Context(), "key")
		require.NoError(t, err)
		turn.Obey(Answer{Limit: 100, Window: time.Hour, HasRemaining: true, Remaining: 50, Reset: time.Hour})
		old.Abandon()
		assert.EqualValues(t, 50, l.Engine().Peek("key", 0).Remaining)
	})
}

// A panic of send abandons the turn of the attempt, so that it holds up no other call.
func TestSendRepeatsInNewTurns(t *testing.T) {
	for name, c := range map[string]struct {
		retries, sent int
		again         bool
		patience      time.Duration
	}{
		"no retries":             {0, 1, true, 0},
		"as often as allowed":    {2, 3, true, 0},
		"not to be repeated":     {2, 1, false, 0},
		"no turn for the second": {2, 1, true, time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			l, sent := newLine(t, Config{Patience: c.patience}), 0
			assert.NoError(t, l.Send(t.Context(), "key", c.retries, func(turn *Turn[string]) bool {
				turn.Obey(Answer{Refused: true, RetryAfter: time.Minute})
				sent++
				return c.again
			}), name)
			assert.Equal(t, c.sent, sent, name)
			assert.EqualValues(t, c.sent-1, l.Stats().Retries, name)
			assert.PanicsWithValue(t, "send", func() {
				_ = l.Send(t.Context(), "other", 0, func(*Turn[string]) bool { panic("send") })
			})
			assert.NoError(t, l.Send(t.Context(), "other", 0, func(turn *Turn[string]) bool { return false }), "Send must return without an answer")
			assert.NoError(t, l.Close())
			assert.ErrorIs(t, l.Send(t.Context(), "key", 0, func(*Turn[string]) bool { panic("not sent") }), engine.ErrClosed)
		})
	}
}
