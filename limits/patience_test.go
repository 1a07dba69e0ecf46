package limits_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// A wait in process counts once as admitted; a wait beyond the patience once as refused.
func TestPatientCallIsCountedOnce(t *testing.T) {
	for _, claims := range []int{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			e, err := engine.New[string](engine.Config{Policy: policy.Must(policy.Funnel(1, 1, time.Second))})
			require.NoError(t, err)
			defer e.Close()
			all := []limits.Claim{claim(e, 1), claim(window(t, 9), 1)}[:claims]
			for range 3 {
				out, err := limits.AskAll(t.Context(), time.Minute, all...)
				require.NoError(t, err)
				require.True(t, out.Allowed)
			}
			s := e.Stats()
			assert.EqualValues(t, 3, s.Admitted)
			assert.Zero(t, s.Refused)
			out, err := limits.AskAll(t.Context(), time.Millisecond, all...)
			require.NoError(t, err)
			assert.False(t, out.Allowed)
			s = e.Stats()
			assert.EqualValues(t, 3, s.Admitted)
			assert.EqualValues(t, 1, s.Refused)
		})
	}
}

// scripted is a limiter elsewhere that gives its answers in turn, and repeats the last.
type scripted struct {
	limits.Limiter[string]
	answers []limits.Answer
}

func (s *scripted) Remote() bool { return true }

func (s *scripted) Hold(context.Context, limits.Call[string]) (g limits.Grant, err error) {
	g.Answer = s.answers[0]
	s.answers = s.answers[min(1, len(s.answers)-1):]
	return g, nil
}

func (s *scripted) HoldAll(ctx context.Context, parts []limits.Part[string]) (grants []limits.Grant, ok bool, err error) {
	for _, p := range parts {
		g, _ := p.Limiter.Hold(ctx, p.Call)
		grants = append(grants, g)
	}
	return grants, true, nil
}

// A claim that was not asked again has no answer.
func TestAnswersFromBeforeAWaitAreGone(t *testing.T) {
	basis := limits.NewProvenance(limits.SourceRedis, true, nil)
	no := func(retry time.Duration) limits.Answer {
		return limits.Answer{Decision: policy.Decision{Limit: 9, RetryAfter: retry}, Provenance: basis}
	}
	yes := limits.Answer{Decision: policy.Decision{Allowed: true, Limit: 9}, Provenance: basis}
	near := window(t, 1)
	first := &scripted{window(t, 9), []limits.Answer{no(time.Second)}}
	second := &scripted{window(t, 9), []limits.Answer{no(time.Minute), yes}}
	turn := &taking{second, func() { assert.True(t, near.Choke("key")) }}
	out, err := limits.AskAll(t.Context(), 2*time.Minute, claim(near, 1), claim(first, 1), claim(turn, 1))
	require.NoError(t, err)
	assert.False(t, out.Allowed)
	assert.Equal(t, limits.SourceNone, out.Answers[1].Source())
	assert.Equal(t, 0, out.Binding)
}

type taking struct {
	*scripted
	alone func()
}

func (l *taking) Hold(ctx context.Context, call limits.Call[string]) (limits.Grant, error) {
	if call.Patience > time.Second {
		l.alone()
	}
	return l.scripted.Hold(ctx, call)
}
