package inspect_test

import (
	"context"
	"errors"
	"math"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/internal/adapter/pagejson"
	"github.com/ral-limiter/ral/internal/testkit/logbuffer"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/observe/inspect"
	"github.com/ral-limiter/ral/policy"
)

// fault is an error by pointer, which a program may leave nil.
type fault struct{ text string }

func (f *fault) Error() string { return f.text }

// spiteful cannot be written as JSON.
type spiteful int

func (spiteful) MarshalJSON() ([]byte, error) { panic("spite") }

// broken is a limiter with a Health that panics.
type broken struct {
	limits.Limiter[string]
	health func() error
}

func (b broken) Health() error { return b.health() }

type user struct{ name string }

// byUser is an engine with a PolicyFor that dereferences its keys.
func byUser(t *testing.T) *engine.Engine[*user] {
	return newEngine(t, engine.Config{}, engine.PolicyFor(func(u *user) policy.Policy {
		if u.name == "" {
			return policy.Must(policy.Funnel(5, 1, time.Hour))
		}
		return nil
	}))
}

// bare hides a limiter's optional methods.
type bare[K comparable] struct{ limits.Limiter[K] }

// Promise: A limit's trouble is shown there and costs no other.
func TestTroubleOfOneLimitIsItsOwn(t *testing.T) {
	good := newEngine[string](t, engine.Config{Name: "good"})
	users := byUser(t)
	trial := must.Get(limits.NewTrial(limits.TrialConfig[*user]{Live: users, Candidate: bare[*user]{byUser(t)}}))
	format, parse := func(u *user) string { return u.name }, func(text string) (*user, error) { return &user{text}, nil }
	stats := func(name string, of func() any) inspect.AnyLimit {
		return inspect.Limit[string]{Name: name, Limiter: newEngine[string](t, engine.Config{}), Stats: of}
	}
	log := &logbuffer.Buffer{}
	c := serve(t, newHandler(t, inspect.Config{ShowKeys: true, Logger: log.Logger()},
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
	by := map[string]pagejson.LimitSummary{}
	for _, l := range get[pagejson.Overview](c, "limits").Limits {
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
	require.Len(t, log.Lines(), 1, "New noticed one")
	assert.Contains(t, log.Lines()[0], "limit=panics")
}

// breaking is a limit with a Format and a Parse that panic for "bad".
func breaking(e *engine.Engine[string]) inspect.Limit[string] {
	text := func(key string) string {
		if key == "bad" {
			panic("cannot be text")
		}
		return key
	}
	return inspect.Limit[string]{Limiter: e, Format: text, Parse: func(key string) (string, error) { return text(key), nil }}
}

// The process goes on. Wrong tokens do not hide the panic from the log.
func TestPanicOfARequestIsAnswered(t *testing.T) {
	e := newEngine[string](t, engine.Config{Name: "api"})
	c, log := operated(t, breaking(e))
	e.Take("good", 1)
	c.token = ""
	for range 30 {
		assert.Equal(t, http.StatusUnauthorized, c.send(http.MethodPost, "change", changeBody).status)
	}
	assertFault(t, c.post("key", key("api", "bad")), http.StatusInternalServerError, "cannot be text")
	assert.True(t, c.explains("key", key("api", "good")).Known)
	lines := strings.Join(log.Lines(), "\n")
	assert.Equal(t, 1, strings.Count(lines, "a request panicked"), lines)
	assert.Contains(t, lines, "trouble_test.go", "with its stack")
}

// Promise: A trial shows its figures and each candidate's answer.
func TestTrialIsShown(t *testing.T) {
	live := newEngine[string](t, engine.Config{Name: "api"})
	strict := newEngine[string](t, engine.Config{Policy: policy.Must(policy.Funnel(3, 1, time.Hour))})
	window := newEngine[string](t, engine.Config{Policy: policy.Must(policy.FixedWindow(20, time.Hour))})
	inner := must.Get(limits.NewTrial(limits.TrialConfig[string]{Live: live, Candidate: window}))
	trial := must.Get(limits.NewTrial(limits.TrialConfig[string]{Live: inner, Candidate: strict}))
	c, _ := operated(t, inspect.Limit[string]{Limiter: trial})
	for range 12 {
		must.Get(trial.Admit(t.Context(), "a", 1))
	}
	l := get[pagejson.Overview](c, "limits").Limits[0]
	assert.Equal(t, "api", l.Name)
	assert.Equal(t, "funnel 10, 1/h", l.Policy)
	assert.Equal(t, 10.0, l.Figures["Admitted"])
	assert.Equal(t, []pagejson.TrialSummary{
		{Policy: "funnel 3, 1/h", Admitted: 3, Refused: 2, WouldRefuse: 7},
		{Policy: window.Limit().String(), Admitted: 10, WouldAdmit: 2},
	}, l.Trials)
	rows := get[pagejson.List](c, "keys?limit=api&by=owed").Rows
	require.Len(t, rows, 1)
	assert.Equal(t, "a", rows[0].Key)
	x := c.explains("key", key("api", "a"))
	assert.False(t, x.Allowed)
	require.Len(t, x.Candidates, 2)
	assert.Equal(t, []bool{false, true}, []bool{x.Candidates[0].Allowed, x.Candidates[1].Allowed})
	assert.Equal(t, int64(8), x.Candidates[1].Parts[0].Remaining)
	x = c.explains("change", pagejson.ChangeRequest{KeyRequest: key("api", "a"), Do: "reset"})
	assert.True(t, x.Allowed)
	assert.False(t, x.Candidates[0].Allowed, "changes are made to the live limiter alone")
	assert.Equal(t, []any{int64(10), int64(0)}, []any{live.Peek("a", 0).Remaining, strict.Peek("a", 0).Remaining})
}

// It can be changed by the ID, and the other keys are shown.
func TestKeyThatCannotBeWrittenHasAnID(t *testing.T) {
	e := newEngine[string](t, engine.Config{Name: "api"})
	c, log := operated(t, breaking(e))
	for _, k := range []string{"bad", "good"} {
		e.Take(k, 10)
		e.Choke(k)
	}
	for _, by := range []string{"owed", "refused"} {
		rows := get[pagejson.List](c, "keys?limit=api&by="+by).Rows
		require.Len(t, rows, 2, by)
		for _, row := range rows {
			require.NotEmpty(t, row.ID)
			assert.True(t, row.Least <= 1 && row.Most >= 1, "refused once, in both lists")
			if row.Key == "" {
				x := c.explains("change", pagejson.ChangeRequest{KeyRequest: pagejson.KeyRequest{Limit: "api", ID: row.ID}, Do: "block", For: "10m"})
				assert.Equal(t, row.ID, x.ID)
				assert.Positive(t, e.Blocked("bad"))
				require.NoError(t, e.Block("bad", 0))
			} else {
				assert.Equal(t, "good", row.Key)
			}
		}
	}
	assert.Contains(t, log.Lines()[0], "a key cannot be written")
}

// lostAfter can be charged but not explained.
type lostAfter struct {
	limits.Limiter[string]
	charged atomic.Int64
	explain func() (limits.Explanation, error)
}

func (l *lostAfter) Charge(_ context.Context, _ string, n int64) error {
	l.charged.Add(n)
	return nil
}

func (l *lostAfter) Explain(context.Context, string) (limits.Explanation, error) { return l.explain() }

func TestChangeThatCannotBeExplainedIsMade(t *testing.T) {
	for name, explain := range map[string]func() (limits.Explanation, error){
		"an error": func() (limits.Explanation, error) { return limits.Explanation{}, errors.New("no Redis") },
		"a panic":  func() (limits.Explanation, error) { panic("no Redis") },
	} {
		t.Run(name, func(t *testing.T) {
			l := &lostAfter{Limiter: newEngine[string](t, engine.Config{}), explain: explain}
			c, log := operated(t, inspect.Limit[string]{Name: "fleet", Limiter: l})
			x := c.explains("change", charge("fleet", "k", 3))
			assert.Equal(t, int64(3), l.charged.Load())
			assert.Equal(t, []string{"fleet", "k"}, []string{x.Limit, x.Key})
			assert.Contains(t, x.Note, "The change was made.")
			assert.Contains(t, x.Note, "no Redis")
			assert.NotEmpty(t, x.ID)
			require.Len(t, log.Lines(), 1)
			assert.Contains(t, log.Lines()[0], "a key was changed")
			assert.Contains(t, log.Lines()[0], "units=3")
		})
	}
}

// Its Stats or Health hangs, in a single goroutine. The other limits are shown, and Close returns.
func TestHungCallOfALimitIsItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end, hangs := make(chan struct{}), atomic.Bool{}
		var calls atomic.Int64
		hang := func() {
			if hangs.Load() {
				calls.Add(1)
				<-end
			}
		}
		good := newEngine[string](t, engine.Config{Name: "good"})
		h := newHandler(t, inspect.Config{},
			inspect.Limit[string]{Name: "stats", Limiter: newEngine[string](t, engine.Config{}), Stats: func() any { hang(); return engine.Stats{} }},
			inspect.Limit[string]{Name: "health", Limiter: broken{good, func() error { hang(); return nil }}},
			inspect.Limit[struct{}]{Name: "one", Limiter: hanging{good, hang}},
			inspect.Limit[string]{Limiter: good})
		good.Take("a", 1)
		time.Sleep(3 * time.Second)
		hangs.Store(true)
		for range 5 {
			o := ask[pagejson.Overview](t, h, "limits")
			require.Len(t, o.Limits, 4)
			assert.Contains(t, o.Limits[0].Trouble, "Stats did not answer")
			assert.Contains(t, o.Limits[1].Trouble, "Health did not answer")
			assert.Empty(t, o.Limits[3].Trouble)
			assert.Equal(t, 1.0, o.Limits[3].Figures["Admitted"])
		}
		time.Sleep(time.Minute)
		assert.Positive(t, len(ask[pagejson.Overview](t, h, "limits").Limits[3].Points), "points go on")
		require.NoError(t, h.Close())
		assert.Equal(t, int64(3), calls.Load(), "one call of each")
		close(end)
		hangs.Store(false)
		synctest.Wait()
		assert.Empty(t, ask[pagejson.Overview](t, h, "limits").Limits[0].Trouble, "a limit that answers again is in trouble")
	})
}

// hanging is a limiter of a single key with an Admit that may hang.
type hanging struct {
	of   *engine.Engine[string]
	hang func()
}

func (l hanging) Admit(ctx context.Context, _ struct{}, n int64) (limits.Answer, error) {
	l.hang()
	return l.of.Admit(ctx, "", n)
}

func (l hanging) Hold(context.Context, limits.Call[struct{}]) (limits.Grant, error) {
	return limits.Grant{}, errors.New("no")
}

func (l hanging) LimitFor(struct{}) policy.Policy { return l.of.Limit() }
