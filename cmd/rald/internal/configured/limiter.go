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

// Ask implements limits.Limiter, as Hold does.
func (l *Limits) Ask(ctx context.Context, key string, n int64) (limits.Answer, error) {
	grant, err := l.Hold(ctx, limits.Call[string]{Key: key, N: n})
	return grant.Answer, err
}

// Hold implements limits.Limiter, for keys that begin with a Prefix, which names the limit. That
// of the call is left aside. If the limit changes while the call waits, it waits for a turn under
// the new one. The error is one of the engine, or says that there is no limit of that name.
func (l *Limits) Hold(ctx context.Context, call limits.Call[string]) (limits.Grant, error) {
	for begun, patience := time.Now(), call.Patience; ; call.Patience = patience - time.Since(begun) {
		c := l.Begin()
		c.hold()
		one := l.of(call.Key)
		if one == nil {
			c.End()
			return limits.Grant{}, fmt.Errorf("no limit is configured for the key %.80q", call.Key)
		}
		call.Key, call.Limit = one.translated(call.Key), one.policy
		if call.NoWait || call.Patience <= 0 && !one.policy.Delays() {
			defer c.End()
			return one.family.Hold(ctx, call)
		}
		turn, done := c.wait(ctx, one)
		grant, err := one.family.Hold(turn, call)
		if changed := done(); changed && !grant.Allowed && ctx.Err() == nil {
			continue
		}
		return grant, err
	}
}

// LimitFor implements limits.Limiter. It is nil for a key of no limit.
func (l *Limits) LimitFor(key string) policy.Policy {
	if one := l.of(key); one != nil {
		return one.policy
	}
	return nil
}

// of returns the limit that a key names, or nil. It may be in no file any more, as a request is
// held to the rules at its beginning.
func (l *Limits) of(key string) *limit {
	name, ok := nameOf(key)
	if !ok {
		return nil
	}
	return (*l.table.Load())[name]
}

// nameOf returns the name of the limit that a key names.
func nameOf(key string) (name string, ok bool) {
	key, ok = strings.CutPrefix(key, Mark)
	name, _, whole := strings.Cut(key, Mark)
	return name, ok && whole
}
