package inspect_test

import (
	"math"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/inspect"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// fault is an error by pointer, which a program may leave nil.
type fault struct{ text string }

func (f *fault) Error() string { return f.text }

// spiteful is a number that cannot be written as JSON.
type spiteful int

func (spiteful) MarshalJSON() ([]byte, error) { panic("spite") }

// broken is a limiter of which a part panics.
type broken struct {
	limits.Limiter[string]
	health func() error
}

func (b broken) Health() error { return b.health() }

type user struct{ name string }

// byUser is an engine whose PolicyFor reads what its keys point to.
func byUser(t *testing.T) *engine.Engine[*user] {
	return newEngine(t, engine.Config{}, engine.PolicyFor(func(u *user) policy.Policy {
		if u.name == "" {
			return policy.Must(policy.Funnel(5, 1, time.Hour))
		}
		return nil
	}))
}

// bare hides what a limiter has beside limits.Limiter.
type bare[K comparable] struct{ limits.Limiter[K] }

// What is wrong with one limit is shown there, and the others are shown all the same.
func TestTroubleOfOneLimitIsItsOwn(t *testing.T) {
	good := newEngine[string](t, engine.Config{Name: "good"})
	users := byUser(t)
	trial, err := limits.NewTrial(limits.TrialConfig[*user]{Live: users, Candidate: bare[*user]{byUser(t)}})
	require.NoError(t, err)
	format, parse := func(u *user) string { return u.name }, func(text string) (*user, error) { return &user{text}, nil }
	stats := func(name string, of func() any) inspect.AnyLimit {
		return inspect.Limit[string]{Name: name, Limiter: newEngine[string](t, engine.Config{}), Stats: of}
	}
	log := &records{}
	c := serve(t, newHandler(t, inspect.Config{ShowKeys: true, Logger: log.logger()},
		stats("panics", func() any { panic("no counters") }),
		stats("nil error", func() any { return struct{ Last error }{(*fault)(nil)} }),
		stats("error", func() any { return struct{ Last error }{&fault{"disk"}} }),
		stats("odd numbers", func() any {
			return struct {
				A, B float64
				C    spiteful
				D    time.Time
				E    any
			}{math.NaN(), math.Inf(1), 3, time.Date(20000, 1, 1, 0, 0, 0, 0, time.UTC), nil}
		}),
		stats("nothing", func() any { return nil }),
		inspect.Limit[*user]{Name: "pointers", Limiter: bare[*user]{users}, Format: format, Parse: parse},
		inspect.Limit[*user]{Name: "trial", Limiter: trial, Format: format, Parse: parse},
		inspect.Limit[string]{Name: "sick", Limiter: broken{good, func() error { panic("unwell") }}},
		inspect.Limit[string]{Name: "well", Limiter: broken{good, func() error { return (*fault)(nil) }}},
		inspect.Limit[string]{Limiter: good},
	))
	by := map[string]inspect.LimitSummary{}
	for _, l := range get[inspect.Overview](c, "limits").Limits {
		by[l.Name] = l
	}
	require.Len(t, by, 10)
	for name, want := range map[string]string{
		"panics": "Stats: panic: no counters", "pointers": "the limit: panic: ", "trial": "the candidate: panic: ", "sick": "Health: panic: unwell",
		"nil error": "", "error": "", "odd numbers": "", "nothing": "", "well": "", "good": "",
	} {
		if want == "" {
			assert.Empty(t, by[name].Trouble, name)
		} else {
			assert.Contains(t, by[name].Trouble, want)
		}
		assert.Empty(t, by[name].Health, name)
		assert.Equal(t, name != "pointers", by[name].Policy == "funnel 10, 1/h", "the rest of it is shown")
	}
	assert.Empty(t, by["nil error"].Figures)
	assert.Equal(t, map[string]any{"Last": "disk"}, by["error"].Figures)
	assert.Equal(t, map[string]any{"A": "NaN", "B": "+Inf", "C": 3.0, "D": "20000-01-01T00:00:00Z"}, by["odd numbers"].Figures)
	assert.Len(t, by["trial"].Trials, 0)
	require.Len(t, log.lines(), 1, "New noticed one")
	assert.Contains(t, log.lines()[0], "limit=panics")
}

// A request that runs into a panic of the program's is answered, and the process goes on.
func TestPanicOfARequestIsAnswered(t *testing.T) {
	e := newEngine[string](t, engine.Config{Name: "api"})
	log := &records{}
	c := serve(t, newHandler(t, inspect.Config{ShowKeys: true, Logger: log.logger()}, inspect.Limit[string]{
		Limiter: e,
		Format: func(key string) string {
			if key == "bad" {
				panic("cannot write it")
			}
			return key
		},
		Parse: func(text string) (string, error) { return text, nil },
	}))
	e.Take("good", 1)
	assertFault(t, c.post("key", key("api", "bad")), http.StatusInternalServerError, "cannot write it")
	assert.True(t, c.explains("key", key("api", "good")).Known)
	require.Len(t, log.lines(), 1)
	assert.Contains(t, log.lines()[0], "trouble_test.go", "with its stack")
}

// A trial is shown with its figures, the lists and verbs of its live limiter, and what each
// candidate would say.
func TestTrialIsShown(t *testing.T) {
	live := newEngine[string](t, engine.Config{Name: "api"})
	strict := newEngine[string](t, engine.Config{Policy: policy.Must(policy.Funnel(3, 1, time.Hour))})
	window := newEngine[string](t, engine.Config{Policy: policy.Must(policy.FixedWindow(20, time.Hour))})
	inner, err := limits.NewTrial(limits.TrialConfig[string]{Live: live, Candidate: window})
	require.NoError(t, err)
	trial, err := limits.NewTrial(limits.TrialConfig[string]{Live: inner, Candidate: strict})
	require.NoError(t, err)
	c := serve(t, newHandler(t, inspect.Config{ShowKeys: true, Tokens: map[string]string{"anna": anna}}, inspect.Limit[string]{Limiter: trial}))
	c.token = anna
	for range 12 {
		_, err := trial.Ask(t.Context(), "a", 1)
		require.NoError(t, err)
	}
	l := get[inspect.Overview](c, "limits").Limits[0]
	assert.Equal(t, "api", l.Name)
	assert.Equal(t, "funnel 10, 1/h", l.Policy)
	assert.Equal(t, 10.0, l.Figures["Admitted"])
	assert.Equal(t, []inspect.TrialSummary{
		{Policy: "funnel 3, 1/h", Admitted: 3, Refused: 2, WouldRefuse: 7},
		{Policy: window.Limit().String(), Admitted: 10, WouldAdmit: 2},
	}, l.Trials)
	rows := get[inspect.List](c, "keys?limit=api&by=owed").Rows
	require.Len(t, rows, 1)
	assert.Equal(t, "a", rows[0].Key)
	x := c.explains("key", key("api", "a"))
	assert.False(t, x.Allowed)
	require.Len(t, x.Candidates, 2)
	assert.Equal(t, []bool{false, true}, []bool{x.Candidates[0].Allowed, x.Candidates[1].Allowed})
	assert.Equal(t, int64(8), x.Candidates[1].Parts[0].Remaining)
	x = c.explains("change", inspect.ChangeRequest{KeyRequest: key("api", "a"), Do: "reset"})
	assert.True(t, x.Allowed)
	assert.False(t, x.Candidates[0].Allowed, "changes are made to the live limiter alone")
	assert.Equal(t, []any{int64(10), int64(0)}, []any{live.Peek("a").Remaining, strict.Peek("a").Remaining})
}
