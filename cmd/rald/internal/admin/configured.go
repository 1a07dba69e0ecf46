package admin

import (
	"context"
	"fmt"
	"time"

	"github.com/ral-limiter/ral/cmd/rald/internal/configured"
	"github.com/ral-limiter/ral/cmd/rald/internal/families"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// configuredLimit is a configured limit in its shared family: Key is the prefix of its keys. It implements
// limits.Limiter and the optional methods for package inspect.
type configuredLimit struct{ configured.Use }

var _ limits.Limiter[string] = (*configuredLimit)(nil)

// useOf returns the use of a key.
func (n *configuredLimit) useOf(key string) *configured.Use {
	use := n.Use
	use.Key += key
	return &use
}

func (n *configuredLimit) Admit(ctx context.Context, key string, units int64) (limits.Answer, error) {
	grant, err := n.Hold(ctx, limits.Call[string]{Key: key, N: units, Brief: true})
	return grant.Answer, err
}

func (n *configuredLimit) Hold(ctx context.Context, call limits.Call[string]) (limits.Grant, error) {
	call.Key, call.Limit = n.Key+call.Key, n.Limit
	return n.Limiter().Hold(ctx, call)
}

// Explain explains a call for one unit of the key: see limits.Explain.
func (n *configuredLimit) Explain(ctx context.Context, key string) (limits.Explanation, error) {
	explanation, err := n.useOf(key).Explain(ctx)
	explanation.Name = "" // the family's
	return explanation, err
}

func (n *configuredLimit) LimitFor(string) policy.Policy { return n.Limit }

func (n *configuredLimit) Reset(ctx context.Context, key string) (bool, error) {
	return n.useOf(key).Reset(ctx)
}

// Charge charges units, or gives them back below 0.
func (n *configuredLimit) Charge(ctx context.Context, key string, units int64) error {
	decision, err := n.useOf(key).Refund(ctx, -units)
	if err == nil && !decision.Allowed && families.EngineOf(n.Family) != nil && families.EngineOf(n.Family).Blocked(n.Key+key) == 0 {
		err = fmt.Errorf("%d units could not be recorded", units)
	}
	return err
}

// Block refuses the key for d, or ends its block if d is 0.
func (n *configuredLimit) Block(ctx context.Context, key string, d time.Duration) error {
	return n.Family.Block(ctx, n.Key+key, d)
}

func (n *configuredLimit) Blocked(ctx context.Context, key string) (time.Duration, error) {
	return n.Family.Blocked(ctx, n.Key+key)
}
