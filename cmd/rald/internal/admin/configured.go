package admin

import (
	"context"
	"fmt"
	"time"

	"github.com/ral-limiter/ral/cmd/rald/internal/spaces"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// configuredLimit is a configured limit, in the space that it shares with others. It implements
// limits.Limiter and what package inspect offers beside.
type configuredLimit struct {
	keep   *spaces.Spaces
	limit  policy.Policy
	prefix string // of its keys
}

var _ limits.Limiter[string] = (*configuredLimit)(nil)

// space returns the engine of the limit. It does not keep that from ending with the limit.
func (n *configuredLimit) space() (*spaces.Space, error) {
	if space, ok := n.keep.Find(n.limit); ok {
		return space, nil
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
	space, err := n.space()
	if err != nil {
		return grant, err
	}
	call.Key, call.Limit = n.prefix+call.Key, n.limit
	return space.Hold(ctx, call)
}

// LimitFor implements limits.Limiter.
func (n *configuredLimit) LimitFor(string) policy.Policy { return n.limit }

// Reset forgets what the key has used.
func (n *configuredLimit) Reset(ctx context.Context, key string) (bool, error) {
	space, err := n.space()
	if err != nil {
		return false, err
	}
	return space.Reset(ctx, n.prefix+key)
}

// Charge charges units, or gives them back below 0.
func (n *configuredLimit) Charge(ctx context.Context, key string, units int64) error {
	space, err := n.space()
	if err != nil {
		return err
	}
	return space.Charge(ctx, n.limit, n.prefix+key, units)
}

// Block refuses the key for so long, or no longer if d is 0.
func (n *configuredLimit) Block(ctx context.Context, key string, d time.Duration) error {
	space, err := n.space()
	if err != nil {
		return err
	}
	return space.Block(ctx, n.prefix+key, d)
}

// Blocked returns for how much longer the key is blocked.
func (n *configuredLimit) Blocked(ctx context.Context, key string) (time.Duration, error) {
	space, err := n.space()
	if err != nil {
		return 0, err
	}
	return space.Blocked(ctx, n.prefix+key)
}
