package admin

import (
	"context"
	"fmt"
	"time"

	"github.com/ral-limiter/ral/cmd/rald/families"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// configuredLimit is a configured limit, in the family that it shares with others. It implements
// limits.Limiter and what package inspect offers beside.
type configuredLimit struct {
	keep   *families.Families
	limit  policy.Policy
	prefix string // of its keys
}

var _ limits.Limiter[string] = (*configuredLimit)(nil)

// family returns the engine of the limit. It does not keep that from ending with the limit.
func (n *configuredLimit) family() (families.Family, error) {
	if family, ok := n.keep.Find(n.limit); ok {
		return family, nil
	}
	return nil, fmt.Errorf("the limit %q is not in force any more", n.limit)
}

// Ask implements limits.Limiter.
func (n *configuredLimit) Ask(ctx context.Context, key string, units int64) (limits.Answer, error) {
	grant, err := n.Hold(ctx, limits.Call[string]{Key: key, N: units})
	return grant.Answer, err
}

// Hold implements limits.Limiter.
func (n *configuredLimit) Hold(ctx context.Context, call limits.Call[string]) (grant limits.Grant, err error) {
	family, err := n.family()
	if err != nil {
		return grant, err
	}
	call.Key, call.Limit = n.prefix+call.Key, n.limit
	return family.Hold(ctx, call)
}

// LimitFor implements limits.Limiter.
func (n *configuredLimit) LimitFor(string) policy.Policy { return n.limit }

// Reset forgets what the key has used.
func (n *configuredLimit) Reset(ctx context.Context, key string) (bool, error) {
	family, err := n.family()
	if err != nil {
		return false, err
	}
	return family.Reset(ctx, n.prefix+key)
}

// Charge charges units, or gives them back below 0.
func (n *configuredLimit) Charge(ctx context.Context, key string, units int64) error {
	family, err := n.family()
	if err != nil {
		return err
	}
	d, err := family.RefundWith(ctx, n.limit, n.prefix+key, -units)
	if err == nil && !d.Allowed && family.Engine() != nil && family.Engine().Blocked(n.prefix+key) == 0 {
		err = fmt.Errorf("%d units could not be recorded", units)
	}
	return err
}

// Block refuses the key for so long, or no longer if d is 0.
func (n *configuredLimit) Block(ctx context.Context, key string, d time.Duration) error {
	family, err := n.family()
	if err != nil {
		return err
	}
	return family.Block(ctx, n.prefix+key, d)
}

// Blocked returns for how much longer the key is blocked.
func (n *configuredLimit) Blocked(ctx context.Context, key string) (time.Duration, error) {
	family, err := n.family()
	if err != nil {
		return 0, err
	}
	return family.Blocked(ctx, n.prefix+key)
}
