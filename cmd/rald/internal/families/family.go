package families

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/fleet"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/observe/metrics"
	"github.com/ral-limiter/ral/policy"
)

// Family keeps the keys of the limits of one family, in an engine or over a fleet. Calls bring
// their limit, which must be one that Families.Of or Families.Keep returned the family for. The
// methods are those that do not depend on what keeps the keys. Their error says that there is no
// decision; an engine returns none.
type Family struct {
	// Limit is the limit that stands for the family. Of leases it is the only one.
	Limit policy.Policy
	// Engine keeps the keys in this process. It is nil if Fleet is not.
	Engine *engine.Engine[string]
	// Fleet keeps the keys in Redis.
	Fleet *fleet.Limiter

	kept   bool         // for the configuration; guarded by Families.mu
	users  atomic.Int32 // see claim
	saving sync.Mutex   // held by Sync, and while Release ends the family
	name   string       // of Fleet
	leased bool         // Fleet is in Leased mode
	logs   logs         // for AtMosts over Fleet
}

// Name is that of the engine, or of the limiter in Redis.
func (s *Family) Name() string {
	if s.Engine != nil {
		return s.Engine.Stats().Name
	}
	return s.name
}

// TakeWith takes n units of the key under the limit, all or none. n == 0 looks without taking.
func (s *Family) TakeWith(ctx context.Context, limit policy.Policy, key string, n int64) (policy.Decision, error) {
	if s.Engine != nil {
		return s.Engine.TakeWith(limit, key, n), nil
	}
	return s.takeShared(ctx, limit, key, n)
}

// RefundWith gives n units back to the key. Below 0 it charges -n, whether the limit allows
// that or not.
func (s *Family) RefundWith(ctx context.Context, limit policy.Policy, key string, n int64) (policy.Decision, error) {
	if s.Engine != nil {
		return s.Engine.RefundWith(limit, key, n), nil
	}
	return s.refundShared(ctx, limit, key, n)
}

// Charge is RefundWith of -n. It is an error if the units may not count.
func (s *Family) Charge(ctx context.Context, limit policy.Policy, key string, n int64) error {
	d, err := s.RefundWith(ctx, limit, key, -n)
	if err == nil && s.Engine != nil && !d.Allowed && s.Engine.Blocked(key) == 0 {
		err = fmt.Errorf("%d units could not be recorded", n)
	}
	return err
}

// Hold takes units that may be given back, and waits for them if the call does: see
// limits.Limiter.
func (s *Family) Hold(ctx context.Context, call limits.Call[string]) (limits.Grant, error) {
	if s.Engine != nil {
		return s.Engine.Hold(ctx, call)
	}
	return s.holdShared(ctx, call)
}

// Limiter returns what keeps the keys, for an adapter whose calls bring their limit.
func (s *Family) Limiter() limits.Limiter[string] {
	if s.Engine != nil {
		return s.Engine
	}
	return byCall{s}
}

// Reset forgets what the key has used, and reports whether there was anything.
func (s *Family) Reset(ctx context.Context, key string) (bool, error) {
	if s.Engine != nil {
		return s.Engine.Reset(key), nil
	}
	return s.Fleet.Reset(ctx, key)
}

// Block refuses the key for so long, or no longer if d is 0.
func (s *Family) Block(ctx context.Context, key string, d time.Duration) error {
	if s.Engine != nil {
		return s.Engine.Block(key, d)
	}
	return s.Fleet.Block(ctx, key, d)
}

// Blocked returns for how much longer the key is blocked.
func (s *Family) Blocked(ctx context.Context, key string) (time.Duration, error) {
	if s.Engine != nil {
		return s.Engine.Blocked(key), nil
	}
	return s.Fleet.Blocked(ctx, key)
}

// Backend returns what keeps the keys, with the limit that stands for the family.
func (s *Family) Backend() limits.Limiter[string] {
	if s.Engine != nil {
		return s.Engine
	}
	return s.Fleet
}

// Metrics returns the counters of what keeps the keys.
func (s *Family) Metrics() *metrics.Source {
	if s.Engine != nil {
		return metrics.Engine(s.Engine)
	}
	return s.Fleet.Metrics()
}

// Health returns nil, or what is wrong with what keeps the keys. Nothing is wrong with a family that
// Release has ended.
func (s *Family) Health() error {
	if s.users.Load() == retired {
		return nil
	}
	if s.Engine != nil {
		return s.Engine.Health()
	}
	return s.Fleet.Health()
}

func (s *Family) close() error {
	if s.Engine != nil {
		return s.Engine.Close()
	}
	return s.Fleet.Close()
}

// Claim is a key of a family, for TakeAll.
type Claim struct {
	Family *Family
	Limit  policy.Policy
	Key    string
	N      int64
}

// TakeAll takes the units of every claim or of none, and does not wait: see limits.AskAll.
func TakeAll(ctx context.Context, claims ...Claim) (limits.Outcome, error) {
	all := make([]limits.Claim, len(claims))
	for i, c := range claims {
		all[i] = limits.NewClaim(c.Family.Limiter(), limits.Call[string]{Key: c.Key, N: c.N, Limit: c.Limit})
	}
	return limits.AskAll(ctx, 0, all...)
}
