package configured

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ral-limiter/ral/cmd/rald/internal/families"
	"github.com/ral-limiter/ral/cmd/rald/internal/limitfile"
	"github.com/ral-limiter/ral/engine"
	root "github.com/ral-limiter/ral/limitfile"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// group is a limit that tenants share, as a Family of its own. A key is a tenant, after the prefix of the limit.
type group struct {
	// Family is nil, since a group has no lifetime.
	families.Family
	shares families.Shares
	prefix string
	// limit is the limit in the file.
	limit atomic.Pointer[limitfile.Named]
	// inForce has the texts of the shares in force, guarded by Limits.changing.
	inForce map[string]string
}

func closeAll(groups []*group) (err error) {
	for _, group := range groups {
		err = errors.Join(err, group.shares.Close())
	}
	return err
}

// newGroup returns the group of a limit with shares.
func (l *Limits) newGroup(named limitfile.Named) (*group, error) {
	g := &group{prefix: Prefix(named.Name)}
	g.limit.Store(&named)
	config, inForce := named.Of.SharesConfig(func() *root.Limit { return g.limit.Load().Of })
	shares, err := l.config.Families.NewShares(config)
	g.shares, g.inForce = shares, inForce
	return g, err
}

// groupFor returns the group of a limit. The group of the limit before serves on, if there is one, with its Total and
// Reserved.
func (l *Limits) groupFor(named limitfile.Named, was *limit) (*group, error) {
	if was == nil {
		return l.newGroup(named)
	}
	if g, ok := was.family.(*group); ok {
		return g, nil
	}
	return nil, errors.New("a limit with shares takes the place of one without: another name is accepted")
}

// Share has the tenants of limits with shares follow the last file. The error joins a fault for each share that cannot
// follow yet: call Share again.
func (l *Limits) Share() (err error) {
	l.changing.Lock()
	defer l.changing.Unlock()
	for _, one := range *l.table.Load() {
		if g, ok := one.family.(*group); ok {
			err = errors.Join(err, g.limit.Load().Of.Share(g.shares, g.inForce))
		}
	}
	return err
}

// Shares returns the shares of the limit, or nil.
func (u *Use) Shares() families.Shares {
	if g, ok := u.Family.(*group); ok {
		return g.shares
	}
	return nil
}

var errShared = errors.New("tenants share this limit: RAL.TAKE, RAL.PEEK, RAL.EXPLAIN, RAL.WAIT and RAL.RESERVE with RAL.COMMIT, RAL.EXTEND and RAL.RELEASE are accepted")

func (g *group) tenant(key string) string { return strings.TrimPrefix(key, g.prefix) }

func (g *group) Limit() policy.Policy           { return g.limit.Load().Policy }
func (g *group) Name() string                   { return g.limit.Load().Name }
func (g *group) ByCall() limits.Limiter[string] { return g }

func (g *group) Admit(ctx context.Context, key string, n int64) (limits.Answer, error) {
	return g.shares.Admit(ctx, g.tenant(key), n)
}

func (g *group) Hold(ctx context.Context, call limits.Call[string]) (limits.Grant, error) {
	call.Key, call.Limit = g.tenant(call.Key), nil
	return g.shares.Hold(ctx, call)
}

func (g *group) LimitFor(key string) policy.Policy { return g.shares.LimitFor(g.tenant(key)) }

// Remote implements limits.Remote.
func (g *group) Remote() bool { return g.shares.Remote() }

func (g *group) TakeWith(ctx context.Context, _ policy.Policy, key string, n int64) (policy.Decision, error) {
	answer, err := g.Admit(ctx, key, n)
	return answer.Decision, err
}

// RefundWith charges -n units, as a reservation does that needs more. Nothing is given back.
func (g *group) RefundWith(ctx context.Context, _ policy.Policy, key string, n int64) (policy.Decision, error) {
	if n > 0 {
		return policy.Decision{}, errShared
	}
	grant, err := g.Hold(ctx, limits.Call[string]{Key: key, NoWait: true})
	if err == nil {
		err = grant.Settle(ctx, -n)
	}
	return grant.Decision, err
}

func (g *group) ExplainWith(ctx context.Context, _ policy.Policy, key string) (limits.Explanation, error) {
	return limits.Explain(ctx, limits.Limiter[string](g.shares), g.tenant(key))
}

func (g *group) Reset(context.Context, string) (bool, error)            { return false, errShared }
func (g *group) Block(context.Context, string, time.Duration) error     { return errShared }
func (g *group) Blocked(context.Context, string) (time.Duration, error) { return 0, nil }
func (g *group) Health() error                                          { return g.shares.Health() }
func (g *group) ChangeLimit(context.Context, string, policy.Policy, policy.Policy, ...engine.Keep) error {
	return errShared
}
