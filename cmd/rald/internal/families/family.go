package families

import (
	"context"
	"iter"
	"time"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/fleet"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/observe/metrics"
	"github.com/ral-limiter/ral/policy"
)

// Family keeps the keys of a family of limits: in an engine of this process, or in Redis. Calls
// bring their limit, for which Families.Of or Families.Keep must have returned the family. An error
// says that there is no decision; an engine returns none. A Family is also InProcess or InRedis.
type Family interface {
	// Limit returns the limit that stands for the family. A leased limit is the only limit of its
	// family.
	Limit() policy.Policy
	// Name is the name of the engine, or of the limiter in Redis.
	Name() string

	// TakeWith takes n units of the key under the limit, all or none. n == 0 looks without taking.
	TakeWith(ctx context.Context, limit policy.Policy, key string, n int64) (policy.Decision, error)
	// RefundWith gives n units back. Below 0 it charges -n, even beyond the limit.
	RefundWith(ctx context.Context, limit policy.Policy, key string, n int64) (policy.Decision, error)
	// ExplainWith explains a call for one unit of the key under the limit, without taking or counting.
	ExplainWith(ctx context.Context, limit policy.Policy, key string) (limits.Explanation, error)
	// ByCall returns the limiter of calls that bring their limit, also for adapters.
	ByCall() limits.Limiter[string]
	// Reset forgets the key's usage, and reports whether there was any.
	Reset(ctx context.Context, key string) (bool, error)
	// Block refuses the key for d, or ends its block if d is 0.
	Block(ctx context.Context, key string, d time.Duration) error
	// Blocked returns how much longer the key is blocked.
	Blocked(ctx context.Context, key string) (time.Duration, error)
	// ChangeLimit counts the key's usage under another limit: see engine.Engine.ChangeLimit.
	ChangeLimit(ctx context.Context, key string, from, to policy.Policy, keep ...engine.Keep) error

	// Metrics returns the counters of the engine or limiter.
	Metrics() *metrics.Source
	// Health returns the fault of the engine or limiter, nil if Release has ended it.
	Health() error

	lifetime() *lifetime
}

// InProcess is a Family whose keys are in this process.
type InProcess interface {
	Family
	Engine() *engine.Engine[string]
	// Ledger returns the record of the limits under which the keys' usage counts.
	Ledger() *Ledger
	// Owing iterates over keys that owe or are blocked. A key may come twice.
	Owing() iter.Seq[string]
	// Sync saves the keys now, if they are saved at all.
	Sync() error
}

// InRedis is a Family whose keys are in Redis, which alone knows all of them.
type InRedis interface {
	Family
	Fleet() *fleet.Limiter
}

// EngineOf returns the engine of a family, or nil if Redis keeps the keys.
func EngineOf(family Family) *engine.Engine[string] {
	if here, ok := family.(InProcess); ok {
		return here.Engine()
	}
	return nil
}

type local struct {
	life   lifetime
	limit  policy.Policy
	engine *engine.Engine[string]
	ledger *Ledger
}

func (f *local) Limit() policy.Policy           { return f.limit }
func (f *local) Engine() *engine.Engine[string] { return f.engine }
func (f *local) Name() string                   { return f.engine.Stats().Name }
func (f *local) ByCall() limits.Limiter[string] { return f.engine }
func (f *local) Ledger() *Ledger                { return f.ledger }
func (f *local) Metrics() *metrics.Source       { return metrics.Engine(f.engine) }
func (f *local) lifetime() *lifetime            { return &f.life }

func (f *local) TakeWith(_ context.Context, limit policy.Policy, key string, n int64) (policy.Decision, error) {
	return f.engine.TakeWith(limit, key, n), nil
}

func (f *local) RefundWith(_ context.Context, limit policy.Policy, key string, n int64) (policy.Decision, error) {
	return f.engine.RefundWith(limit, key, n), nil
}

func (f *local) ExplainWith(_ context.Context, limit policy.Policy, key string) (limits.Explanation, error) {
	return f.engine.ExplainWith(limit, key), nil
}

func (f *local) Reset(_ context.Context, key string) (bool, error) { return f.engine.Reset(key), nil }

func (f *local) Block(_ context.Context, key string, duration time.Duration) error {
	return f.engine.Block(key, duration)
}

func (f *local) Blocked(_ context.Context, key string) (time.Duration, error) {
	return f.engine.Blocked(key), nil
}

func (f *local) ChangeLimit(_ context.Context, key string, from, to policy.Policy, keep ...engine.Keep) error {
	return f.engine.ChangeLimit(key, from, to, keep...)
}

func (f *local) Owing() iter.Seq[string] {
	return func(yield func(string) bool) {
		// A word is as good as new at the same time under all limits of the family.
		for key, decision := range f.engine.All() {
			if decision.ResetAfter > 0 && !yield(key) {
				return
			}
		}
		for key := range f.engine.AllBlocked() {
			if !yield(key) {
				return
			}
		}
	}
}

func (f *local) Sync() error {
	f.life.saving.Lock()
	defer f.life.saving.Unlock()
	if f.life.isOver() {
		return nil
	}
	return f.engine.Sync()
}

func (f *local) Health() error { return f.life.health(f.engine.Health) }

// Claim is a take of N units of a key under a limit, for TakeAll.
type Claim struct {
	Family Family
	Limit  policy.Policy
	Key    string
	N      int64
}

// TakeAll takes the units of every claim or of none, without waiting: see limits.AskAll. The outcome
// must be settled at once or not at all.
func TakeAll(ctx context.Context, claims ...Claim) (limits.Outcome, error) {
	all := make([]limits.Claim, len(claims))
	for i, claim := range claims {
		all[i] = limits.NewClaim(claim.Family.ByCall(), limits.Call[string]{Key: claim.Key, N: claim.N, Limit: claim.Limit, Brief: true})
	}
	return limits.AskAll(ctx, 0, all...)
}
