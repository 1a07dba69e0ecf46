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
// says that there is no decision; an engine returns none.
type Family interface {
	// Limit stands for the family. A lease has no other.
	Limit() policy.Policy
	// Engine is nil if Redis keeps the keys, and Fleet if an engine does.
	Engine() *engine.Engine[string]
	Fleet() *fleet.Limiter
	// Name is the name of the engine, or of the limiter in Redis.
	Name() string

	// TakeWith takes n units of the key under the limit, all or none. n == 0 looks without taking.
	TakeWith(ctx context.Context, limit policy.Policy, key string, n int64) (policy.Decision, error)
	// RefundWith gives n units back. Below 0 it charges -n, even beyond the limit.
	RefundWith(ctx context.Context, limit policy.Policy, key string, n int64) (policy.Decision, error)
	// Hold takes units to settle later, and waits if the call does: see limits.Limiter.
	Hold(ctx context.Context, call limits.Call[string]) (limits.Grant, error)
	// Limiter is for adapters with limits in their calls, Backend for calls under Limit.
	Limiter() limits.Limiter[string]
	Backend() limits.Limiter[string]
	// Reset forgets the key's usage, and reports whether there was any.
	Reset(ctx context.Context, key string) (bool, error)
	// Block refuses the key for d, or ends its block if d is 0.
	Block(ctx context.Context, key string, d time.Duration) error
	// Blocked returns how much longer the key is blocked.
	Blocked(ctx context.Context, key string) (time.Duration, error)

	// Ledger counts the keys' usage under other limits. It is nil if Redis keeps the keys, since Keys
	// does not list every key then.
	Ledger() *Ledger
	// ChangeLimit counts the key's usage under another limit: see engine.Engine.ChangeLimit.
	ChangeLimit(ctx context.Context, key string, from, to policy.Policy) error
	// Keys iterates over the keys used in this process without blocking calls, so it may miss some.
	Keys() iter.Seq[string]
	// Owing iterates over keys that owe or are blocked. A key may come twice.
	Owing() iter.Seq[string]
	// Sync saves the keys now, if they are saved at all.
	Sync() error

	// Metrics returns the counters of the engine or limiter.
	Metrics() *metrics.Source
	// Health returns the fault of the engine or limiter, nil if Release has ended it.
	Health() error

	lifetime() *lifetime
	close() error
}

type local struct {
	life   lifetime
	limit  policy.Policy
	engine *engine.Engine[string]
	ledger *Ledger
}

func (f *local) Limit() policy.Policy            { return f.limit }
func (f *local) Engine() *engine.Engine[string]  { return f.engine }
func (f *local) Fleet() *fleet.Limiter           { return nil }
func (f *local) Name() string                    { return f.engine.Stats().Name }
func (f *local) Limiter() limits.Limiter[string] { return f.engine }
func (f *local) Backend() limits.Limiter[string] { return f.engine }
func (f *local) Ledger() *Ledger                 { return f.ledger }
func (f *local) Metrics() *metrics.Source        { return metrics.Engine(f.engine) }
func (f *local) lifetime() *lifetime             { return &f.life }
func (f *local) close() error                    { return f.engine.Close() }

func (f *local) TakeWith(_ context.Context, limit policy.Policy, key string, n int64) (policy.Decision, error) {
	return f.engine.TakeWith(limit, key, n), nil
}

func (f *local) RefundWith(_ context.Context, limit policy.Policy, key string, n int64) (policy.Decision, error) {
	return f.engine.RefundWith(limit, key, n), nil
}

func (f *local) Hold(ctx context.Context, call limits.Call[string]) (limits.Grant, error) {
	return f.engine.Hold(ctx, call)
}

func (f *local) Reset(_ context.Context, key string) (bool, error) { return f.engine.Reset(key), nil }

func (f *local) Block(_ context.Context, key string, d time.Duration) error {
	return f.engine.Block(key, d)
}

func (f *local) Blocked(_ context.Context, key string) (time.Duration, error) {
	return f.engine.Blocked(key), nil
}

func (f *local) ChangeLimit(_ context.Context, key string, from, to policy.Policy) error {
	return f.engine.ChangeLimit(key, from, to)
}

func (f *local) Keys() iter.Seq[string] {
	return func(yield func(string) bool) {
		for key := range f.engine.All() {
			if !yield(key) {
				return
			}
		}
	}
}

func (f *local) Owing() iter.Seq[string] {
	return func(yield func(string) bool) {
		// A word is as good as new at the same time under all limits of the family.
		for key, d := range f.engine.All() {
			if d.ResetAfter > 0 && !yield(key) {
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

func (f *local) Health() error {
	if f.life.isOver() {
		return nil
	}
	return f.engine.Health()
}

// Claim is a key of a family, for TakeAll.
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
	for i, c := range claims {
		all[i] = limits.NewClaim(c.Family.Limiter(), limits.Call[string]{Key: c.Key, N: c.N, Limit: c.Limit, Brief: true})
	}
	return limits.AskAll(ctx, 0, all...)
}
