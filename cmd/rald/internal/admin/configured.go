package admin

import (
	"context"
	"fmt"
	"time"

	"github.com/ral-limiter/ral/cmd/rald/internal/families"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// configuredLimit is a configured limit in its shared family. It implements limits.Limiter and the
// optional methods for package inspect.
type configuredLimit struct {
	family families.Family
	limit  policy.Policy
	// prefix is the prefix of its keys.
	prefix string
}

var _ limits.Limiter[string] = (*configuredLimit)(nil)

func (n *configuredLimit) Admit(ctx context.Context, key string, units int64) (limits.Answer, error) {
	grant, err := n.Hold(ctx, limits.Call[string]{Key: key, N: units, Brief: true})
	return grant.Answer, err
}

func (n *configuredLimit) Hold(ctx context.Context, call limits.Call[string]) (limits.Grant, error) {
	call.Key, call.Limit = n.prefix+call.Key, n.limit
	return n.family.ByCall().Hold(ctx, call)
}

// Explain explains a call for one unit of the key: see limits.Explain.
func (n *configuredLimit) Explain(ctx context.Context, key string) (limits.Explanation, error) {
	x, err := n.family.ExplainWith(ctx, n.limit, n.prefix+key)
	x.Name = "" // the family's
	return x, err
}

func (n *configuredLimit) LimitFor(string) policy.Policy { return n.limit }

func (n *configuredLimit) Reset(ctx context.Context, key string) (bool, error) {
	return n.family.Reset(ctx, n.prefix+key)
}

// Charge charges units, or gives them back below 0.
func (n *configuredLimit) Charge(ctx context.Context, key string, units int64) error {
	d, err := n.family.RefundWith(ctx, n.limit, n.prefix+key, -units)
	if err == nil && !d.Allowed && families.EngineOf(n.family) != nil && families.EngineOf(n.family).Blocked(n.prefix+key) == 0 {
		err = fmt.Errorf("%d units could not be recorded", units)
	}
	return err
}

// Block refuses the key for d, or ends its block if d is 0.
func (n *configuredLimit) Block(ctx context.Context, key string, d time.Duration) error {
	return n.family.Block(ctx, n.prefix+key, d)
}

func (n *configuredLimit) Blocked(ctx context.Context, key string) (time.Duration, error) {
	return n.family.Blocked(ctx, n.prefix+key)
}
