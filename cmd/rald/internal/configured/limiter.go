package configured

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

var _ limits.Limiter[string] = (*Limits)(nil)

// Admit implements limits.Limiter, like Hold.
func (l *Limits) Admit(ctx context.Context, key string, n int64) (limits.Answer, error) {
	grant, err := l.Hold(ctx, limits.Call[string]{Key: key, N: n, Brief: true})
	return grant.Answer, err
}

// Hold implements limits.Limiter, for keys with a Prefix that names the limit; the call's limit is
// ignored. If the limit changes while the call waits, it waits under the new limit. The error is
// the engine's, or reports an unknown limit.
func (l *Limits) Hold(ctx context.Context, call limits.Call[string]) (limits.Grant, error) {
	for begun, patience := time.Now(), call.Patience; ; call.Patience = patience - time.Since(begun) {
		c := l.Begin()
		c.hold()
		one := l.limitOf(call.Key)
		if one == nil {
			c.End()
			return limits.Grant{}, fmt.Errorf("no limit is configured for the key %.80q", call.Key)
		}
		call.Key, call.Limit = one.translated(call.Key), one.Policy
		if call.NoWait || call.Patience <= 0 && !one.Policy.Delays() {
			defer c.End()
			return one.Hold(ctx, call)
		}
		turn, done := c.wait(ctx, one)
		grant, err := one.Hold(turn, call)
		if changed := done(); changed && !grant.Allowed && ctx.Err() == nil {
			continue
		}
		return grant, err
	}
}

// LimitFor implements limits.Limiter. It is nil for an unknown limit.
func (l *Limits) LimitFor(key string) policy.Policy {
	if one := l.limitOf(key); one != nil {
		return one.Policy
	}
	return nil
}

// Servers returns the number of servers that keep the keys: httplimit.Options.Spread goes by it. guess
// reports whether a share of a fleet's limit refused the call.
func (l *Limits) Servers(guess bool) int { return l.config.Families.Servers(guess) }

// limitOf returns a key's limit, or nil. It may be removed: a request keeps the rules at its beginning.
func (l *Limits) limitOf(key string) *limit {
	name, ok := nameOf(key)
	if !ok {
		return nil
	}
	return (*l.table.Load())[name]
}

func nameOf(key string) (name string, ok bool) {
	key, ok = strings.CutPrefix(key, Mark)
	name, _, whole := strings.Cut(key, Mark)
	return name, ok && whole
}
