package limits_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/internal/testkit/limitstest"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/internal/testkit/testenv"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func trial(t *testing.T, c limits.TrialConfig[string]) *limits.Trial[string] {
	return must.Get(limits.NewTrial(c))
}

// Promise: A candidate on trial has no effect.
func TestTrialKeepsTheContract(t *testing.T) {
	for name, candidate := range map[string]func(t *testing.T, p policy.Policy) limits.Limiter[string]{
		"of less": func(t *testing.T, _ policy.Policy) limits.Limiter[string] { return window(t, 3) },
		"of more": func(t *testing.T, _ policy.Policy) limits.Limiter[string] { return window(t, 1000) },
		"queue": func(t *testing.T, _ policy.Policy) limits.Limiter[string] {
			return under(t, policy.Must(policy.Queue(50, 1, time.Hour)))
		},
		"panics": func(*testing.T, policy.Policy) limits.Limiter[string] { return broken{} },
		"fails":  func(*testing.T, policy.Policy) limits.Limiter[string] { return broken{err: errors.New("away")} },
	} {
		s := limitstest.Subject{
			Source: limits.SourceProcess, Promised: true, Turns: true,
			New: func(t *testing.T, p policy.Policy) limits.Limiter[string] {
				return trial(t, limits.TrialConfig[string]{
					Live: under(t, p), Candidate: candidate(t, p),
					OnDifference: func(string, int64, limits.Answer, limits.Answer) { panic("a hook of the caller's") },
				})
			},
		}
		for _, c := range limitstest.Cases {
			t.Run(name+"/"+c.Name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					began := time.Now()
					c.Run(t, s)
					assert.Less(t, time.Since(began), time.Minute, "the candidate delayed a call")
				})
			})
		}
	}
}

type broken struct{ err error }

func (b broken) LimitFor(string) policy.Policy { panic("broken") }

func (b broken) Admit(context.Context, string, int64) (limits.Answer, error) { panic("broken") }

func (b broken) Hold(context.Context, limits.Call[string]) (limits.Grant, error) {
	if b.err == nil {
		panic("broken")
	}
	return limits.Grant{}, b.err
}

// The hook gets both answers. The candidate counts as if it were live.
//
// Promise: A trial counts differences exactly.
func TestTrialCountsDifferences(t *testing.T) {
	for _, c := range []struct {
		live, candidate int64
		// want counts 15 calls.
		want limits.TrialStats
	}{
		{10, 4, limits.TrialStats{Admitted: 4, Refused: 5, WouldRefuse: 6}},
		{4, 10, limits.TrialStats{Admitted: 4, Refused: 5, WouldAdmit: 6}},
		{7, 7, limits.TrialStats{Admitted: 7, Refused: 8}},
	} {
		var stats limits.TrialStats
		tr := trial(t, limits.TrialConfig[string]{
			Live: window(t, c.live), Candidate: window(t, c.candidate),
			OnDifference: func(key string, n int64, live, candidate limits.Answer) {
				assert.Equal(t, []any{"key", int64(1), !live.Allowed}, []any{key, n, candidate.Allowed})
				if live.Allowed {
					stats.WouldRefuse++
				} else {
					stats.WouldAdmit++
				}
			},
		})
		for i := range int64(15) {
			var g limits.Grant
			var err error
			if i%2 == 0 {
				g.Answer, err = tr.Admit(t.Context(), "key", 1)
			} else {
				g, err = tr.Hold(t.Context(), limits.Call[string]{Key: "key", N: 1})
			}
			require.NoError(t, err)
			assert.Equal(t, i < c.live, g.Allowed)
			// A look is not counted.
			_, err = tr.Admit(t.Context(), "key", 0)
			require.NoError(t, err)
		}
		assert.Equal(t, c.want, tr.Stats())
		assert.Equal(t, limits.TrialStats{WouldRefuse: c.want.WouldRefuse, WouldAdmit: c.want.WouldAdmit}, stats)
	}
}

// Promise: A sampled trial tries each key always or never.
func TestTrialOfSomeKeys(t *testing.T) {
	candidate := window(t, 100)
	tr := trial(t, limits.TrialConfig[string]{Live: window(t, 100), Candidate: candidate, OneIn: 8})
	const keys = 4000
	for i := range 3 * keys {
		must.Get(tr.Admit(t.Context(), strconv.Itoa(i%keys), 1))
	}
	tried := 0
	for key, d := range candidate.All() {
		tried++
		assert.Equal(t, int64(97), d.Remaining, key)
	}
	assert.InDelta(t, keys/8, tried, 150, "7 standard deviations")
	assert.Equal(t, uint64(3*tried), tr.Stats().Admitted)
}

func TestTrialSettlesBoth(t *testing.T) {
	live, candidate := window(t, 100), window(t, 100)
	tr := trial(t, limits.TrialConfig[string]{Live: live, Candidate: candidate})
	random := rand.New(rand.NewPCG(1, 1))
	for range 20 {
		// A call for 0 units is charged later.
		g, err := tr.Hold(t.Context(), limits.Call[string]{Key: "key", N: random.Int64N(5)})
		require.NoError(t, err)
		require.NoError(t, g.Settle(t.Context(), random.Int64N(7)))
		assert.Equal(t, left(live), left(candidate))
	}
	// A call that another limiter refuses takes from neither.
	before := left(candidate)
	assert.False(t, must.Get(limits.AskAll(t.Context(), 0, claim(tr, 1), claim(window(t, 1), 2))).Allowed)
	assert.Equal(t, before, left(candidate))
	assert.Zero(t, tr.Stats().Failed)
}

// A look costs no trip to a candidate elsewhere. A failure of the candidate is counted.
func TestTrialDoesNotTryLooks(t *testing.T) {
	candidate := &far{Limiter: window(t, 2), on: func(context.Context) error { return errors.New("away") }}
	tr := trial(t, limits.TrialConfig[string]{Live: window(t, 2), Candidate: candidate})
	for i, n := range []int64{0, 1, 1, 1} {
		assert.Equal(t, i < 3, must.Get(tr.Admit(t.Context(), "key", n)).Allowed)
		assert.Equal(t, i, candidate.trips)
	}
	assert.Equal(t, limits.TrialStats{Failed: 3}, tr.Stats())
}

// The live limiter fails because the call's context has ended.
func TestTrialGivesBackWhenTheContextHasEnded(t *testing.T) {
	tenants, live := window(t, 10), &far{Limiter: window(t, 10)}
	tr := trial(t, limits.TrialConfig[string]{Live: live, Candidate: &far{Limiter: tenants}})
	ctx, cancel := context.WithCancel(t.Context())
	live.on = func(ctx context.Context) error { cancel(); return context.Cause(ctx) }
	_, err := tr.Hold(ctx, limits.Call[string]{Key: "key", N: 1})
	require.ErrorIs(t, err, context.Canceled)
	assert.Equal(t, int64(10), left(tenants))
	assert.Zero(t, tr.Stats().Failed)
}

// Promise: A trial allocates nothing.
func TestTrialAllocatesNothing(t *testing.T) {
	if testenv.Race {
		t.Skip("the race detector allocates")
	}
	plenty := policy.Must(policy.Funnel(1<<40, 1<<20, time.Second))
	tr := trial(t, limits.TrialConfig[string]{Live: under(t, plenty), Candidate: under(t, plenty), OneIn: 1})
	ctx := t.Context()
	// The key is filed then.
	must.Await(t, func() bool {
		return testing.AllocsPerRun(1000, func() { _, _ = tr.Admit(ctx, "key", 1) }) == 0
	}, "a call allocates nothing")
}

func TestTrialConfigIsChecked(t *testing.T) {
	good := window(t, 1)
	var none *engine.Engine[string]
	odd := uncomparable{good, nil}
	for field, configs := range map[string][]limits.TrialConfig[string]{
		"Live":      {{Candidate: good}},
		"Candidate": {{Live: good, Candidate: none}, {Live: good, Candidate: good}},
		"OneIn":     {{Live: good, Candidate: window(t, 1), OneIn: -1}},
		// NewTrial cannot see that the two are one limiter.
		"": {{Live: odd, Candidate: odd}},
	} {
		for _, config := range configs {
			_, err := limits.NewTrial(config)
			var fault *policy.FieldError
			if assert.Equal(t, field != "", errors.As(err, &fault)) && field != "" {
				assert.Equal(t, field, fault.Field)
			}
		}
	}
}
