package spaces

import (
	"context"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// Space keeps the keys of the limits of one family, in an engine. Calls bring their limit,
// which must be one that Spaces.Of returned the space for. The methods are those that do not
// depend on what keeps the keys. Their error says that there is no decision; an engine
// returns none.
type Space struct {
	// Limit is the limit that stands for the family.
	Limit policy.Policy
	// Engine keeps the keys in this process.
	Engine *engine.Engine[string]
}

// TakeWith takes n units of the key under the limit, all or none. n == 0 looks without taking.
func (s *Space) TakeWith(_ context.Context, limit policy.Policy, key string, n int64) (policy.Decision, error) {
	return s.Engine.TakeWith(limit, key, n), nil
}

// RefundWith gives n units back to the key. Below 0 it charges -n, whether the limit allows
// that or not.
func (s *Space) RefundWith(_ context.Context, limit policy.Policy, key string, n int64) (policy.Decision, error) {
	return s.Engine.RefundWith(limit, key, n), nil
}

// Hold takes units that may be given back, and waits for them if the call does: see
// limits.Limiter.
func (s *Space) Hold(ctx context.Context, call limits.Call[string]) (limits.Grant, error) {
	return s.Engine.Hold(ctx, call)
}

// Limiter returns what keeps the keys, for an adapter whose calls bring their limit.
func (s *Space) Limiter() limits.Limiter[string] { return s.Engine }

// Reset forgets what the key has used, and reports whether there was anything.
func (s *Space) Reset(_ context.Context, key string) (bool, error) {
	return s.Engine.Reset(key), nil
}

// Claim is a key of a space, for TakeAll.
type Claim struct {
	Space *Space
	Limit policy.Policy
	Key   string
	N     int64
}

// TakeAll takes the units of every claim or of none, and does not wait: see limits.AskAll.
func TakeAll(ctx context.Context, claims ...Claim) (limits.Outcome, error) {
	all := make([]limits.Claim, len(claims))
	for i, c := range claims {
		all[i] = limits.For(c.Space.Engine, limits.Call[string]{Key: c.Key, N: c.N, Limit: c.Limit})
	}
	return limits.AskAll(ctx, 0, all...)
}

func (s *Space) close() error { return s.Engine.Close() }
