package admissiontest

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// NewEngine returns an engine that is closed with the test.
func NewEngine[K comparable](t testing.TB, limit policy.Policy, options ...engine.Option[K]) *engine.Engine[K] {
	t.Helper()
	limiter, err := engine.New(engine.Config{Policy: limit}, options...)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, limiter.Close()) })
	return limiter
}

// Hourly returns an engine of n units an hour. No unit comes back before the hour is over.
func Hourly[K comparable](t testing.TB, n int64) *engine.Engine[K] {
	t.Helper()
	return NewEngine[K](t, policy.Must(policy.FixedWindow(n, time.Hour)))
}

// Remote returns a limiter that hides that l is an engine, so that it is asked like a fleet.
func Remote[K comparable](l limits.Limiter[K]) limits.Limiter[K] { return remote[K]{l} }

type remote[K comparable] struct{ limits.Limiter[K] }

func (remote[K]) Remote() bool { return true }

// Fake is a limiter elsewhere with a fixed answer.
type Fake[K comparable] struct {
	// Limiter is for LimitFor.
	limits.Limiter[K]
	Answer limits.Answer
	Err    error
	// Settled is the result of Settle.
	Settled error
}

// NewFake returns a limiter whose limit is n units an hour. Its answer has that decision, source and
// exactness.
func NewFake[K comparable](t testing.TB, n int64, decision policy.Decision, source limits.Source, exact bool) *Fake[K] {
	fake := &Fake[K]{Limiter: Hourly[K](t, n)}
	fake.Answer = limits.Answer{Decision: decision, Provenance: limits.NewProvenance(source, exact, nil)}
	return fake
}

// Remote implements limits.Remote.
func (*Fake[K]) Remote() bool { return true }

// Admit implements limits.Limiter.
func (f *Fake[K]) Admit(context.Context, K, int64) (limits.Answer, error) { return f.Answer, f.Err }

// Hold implements limits.Limiter.
func (f *Fake[K]) Hold(context.Context, limits.Call[K]) (limits.Grant, error) {
	return limits.Grant{Answer: f.Answer, State: limits.GrantState{Settler: f}}, f.Err
}

// Settle implements limits.Settler.
func (f *Fake[K]) Settle(context.Context, limits.GrantState, int64) error { return f.Settled }

// Losing is a limit of one unit in use for each key. Its units are lost when a test says so, as those of a fleet's
// server.
type Losing struct {
	*engine.Engine[string]
	lost  atomic.Pointer[chan struct{}]
	asked atomic.Int64
}

// NewLosing returns a limiter that loses no unit.
func NewLosing(t testing.TB) *Losing {
	losing := &Losing{Engine: NewEngine[string](t, policy.Must(policy.InFlight(1, time.Hour)))}
	losing.Lose(make(chan struct{}))
	return losing
}

// Lose sets the channel whose end says that units taken from now on are lost.
func (l *Losing) Lose(lost chan struct{}) { l.lost.Store(&lost) }

// Asked returns how often Lost was called.
func (l *Losing) Asked() int64 { return l.asked.Load() }

// Hold implements limits.Limiter.
func (l *Losing) Hold(ctx context.Context, call limits.Call[string]) (limits.Grant, error) {
	grant, err := l.Engine.Hold(ctx, call)
	if grant.Allowed && err == nil {
		grant.State = limits.GrantState{Settler: l, Ref: grant.State}
	}
	return grant, err
}

// Settle implements limits.Settler.
func (l *Losing) Settle(ctx context.Context, state limits.GrantState, used int64) error {
	inner := state.Ref.(limits.GrantState)
	return inner.Settler.Settle(ctx, inner, used)
}

// Lost is for limits.Grant.
func (l *Losing) Lost(limits.GrantState) <-chan struct{} {
	l.asked.Add(1)
	return *l.lost.Load()
}

// ways are the paths on which a limit decides: alone, with another engine, and with an engine beside
// a limiter that is none.
var ways = []string{"alone", "two engines", "mixed"}

// inWay returns the limits for a limit that decides in that way. The other limit has room.
func inWay(t testing.TB, way string, limit Limit) []Limit {
	other := Limit{Name: "other", Limiter: Hourly[string](t, 1_000_000), Key: func(*Request) string { return "all" }}
	switch way {
	case "alone":
		return []Limit{limit}
	case "mixed":
		limit.Limiter = Remote[string](limit.Limiter)
	}
	return []Limit{other, limit}
}

func left(limiter *engine.Engine[string], key string) int64 { return limiter.Peek(key, 0).Remaining }
