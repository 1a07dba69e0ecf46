package families

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/fleet"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/observe/metrics"
	"github.com/ral-limiter/ral/policy"
	"github.com/redis/rueidis"
)

// Fleet is a Redis that keeps the keys of several servers.
type Fleet struct {
	// Redis says where it is: see fleet.Config.
	Redis rueidis.ClientOption
	// Name is that of the servers that share keys, and part of the keys' names in Redis: up to
	// LongestName bytes. Every other setting except Budget must be the same on all of them.
	Name string
	// Leased has servers decide on leases of units. Each limit that can be leased has a limiter
	// of its own then. The others are kept as if it were not set.
	Leased bool
	// Budget, Outage and Servers are those of fleet.Config.
	Budget  time.Duration
	Outage  fleet.Fallback
	Servers int
	// OnEvent returns what is told of outages, for the limiter of that name.
	OnEvent func(name string) func(fleet.Event)
}

// outages are the names of how calls are answered without Redis.
var outages = [...]string{fleet.FallbackShare: "share", fleet.FallbackOpen: "open", fleet.FallbackClosed: "closed"}

// ParseOutage returns the fallback of that name: share, open or closed.
func ParseOutage(name string) (fleet.Fallback, error) {
	for of, known := range outages {
		if known == name {
			return fleet.Fallback(of), nil
		}
	}
	return 0, fmt.Errorf("outage is %q: share, open or closed is accepted", name)
}

// OutageName returns the name of Outage.
func (f *Fleet) OutageName() string { return outages[f.Outage] }

// LongestName is the most bytes of Fleet.Name.
const LongestName = 20

// mostLeased is the default of Config.Most in Leased mode, where each limit has a limiter.
const mostLeased = 256

// connect makes the first limiter, whose client the others use. It is that of all funnels.
func (s *Families) connect() error {
	_, err := s.addShared(policy.Must(policy.Funnel(1, 1, time.Second)), false)
	return err
}

// addShared makes a limiter for a family of limits or, if it is leased, for a limit.
func (s *Families) addShared(limit policy.Policy, leased bool) (Family, error) {
	f := s.config.Fleet
	all := *s.all.Load()
	if !leased {
		limit = representative(limit)
	}
	family := &remote{limit: limit, leased: leased}
	config := fleet.Config{
		Name: f.Name + ":" + strings.ReplaceAll(familyName(limit), " ", "_"), Policy: limit, MaxKeys: s.config.MaxKeys,
		Budget: f.Budget, Outage: f.Outage, Servers: f.Servers,
	}
	if leased {
		config.Name = f.Name + ":leased:" + strings.ReplaceAll(limit.String(), " ", "_")
		config.Mode = fleet.Leased
	} else if shared, err := family.logs.of(limit); err != nil {
		return nil, err
	} else {
		config.Policy = shared
	}
	if len(all) == 0 {
		config.Redis = f.Redis
	} else {
		config.Via = all[0].Fleet()
	}
	if f.OnEvent != nil {
		config.OnEvent = f.OnEvent(config.Name)
	}
	limiter, err := fleet.New(config)
	if err != nil {
		return nil, err
	}
	family.limiter, family.name = limiter, config.Name
	s.append(family)
	return family, nil
}

// isLeased reports whether units of a limit are leased, unless it is too small.
func (c *Config) isLeased(limit policy.Policy) bool {
	return c.Fleet != nil && c.Fleet.Leased && isLeasable(limit)
}

// isLeasable reports whether a limit is of a kind that can be leased.
func isLeasable(limit policy.Policy) bool {
	_, aligned := limit.(policy.Anchored)
	kind, _, _ := strings.Cut(limit.String(), " ")
	return !aligned && (kind == "funnel" || kind == "window" || kind == "sliding")
}

// bounded remembers something for limits. A limit is known by its address, as it is made once for
// many calls. Its zero value is ready.
type bounded[V any] struct {
	known sync.Map // policy.Policy to V
	n     atomic.Int64
}

// mostKnown bounds how many limits are remembered. A limiter takes no more than 1,024 different
// ones.
const mostKnown = 4096

func (b *bounded[V]) load(limit policy.Policy) (v V, ok bool) {
	known, ok := b.known.Load(limit)
	if ok {
		v = known.(V)
	}
	return v, ok
}

func (b *bounded[V]) store(limit policy.Policy, v V) {
	if b.n.Load() < mostKnown {
		b.n.Add(1)
		b.known.Store(limit, v)
	}
}

// drop forgets the limits of a value.
func (b *bounded[V]) drop(v any) {
	b.known.Range(func(limit, of any) bool {
		if of == v {
			b.known.Delete(limit)
			b.n.Add(-1)
		}
		return true
	})
}

// logs are the limits by which Redis keeps AtMosts: fleet.SlidingLog keeps their promise. The
// zero logs is ready.
type logs struct{ bounded[policy.Policy] }

// of returns the limit by which Redis keeps a limit.
func (l *logs) of(limit policy.Policy) (policy.Policy, error) {
	if log, ok := l.load(limit); ok {
		return log, nil
	}
	log := limit
	if w, ok := limit.(policy.Windowed); ok && strings.HasPrefix(limit.String(), "at most ") {
		var err error
		if log, err = fleet.SlidingLog(limit.Limit(), w.Window()); err != nil {
			return nil, err
		}
	}
	l.store(limit, log)
	return log, nil
}

// remote is a family over a fleet.
type remote struct {
	life    lifetime
	limit   policy.Policy
	limiter *fleet.Limiter
	name    string
	leased  bool // limiter is in Leased mode
	logs    logs // for AtMosts
}

func (f *remote) Limit() policy.Policy            { return f.limit }
func (f *remote) Engine() *engine.Engine[string]  { return nil }
func (f *remote) Fleet() *fleet.Limiter           { return f.limiter }
func (f *remote) Name() string                    { return f.name }
func (f *remote) Limiter() limits.Limiter[string] { return byCall{f} }
func (f *remote) Backend() limits.Limiter[string] { return f.limiter }
func (f *remote) CanCarry() bool                  { return false }
func (f *remote) Metrics() *metrics.Source        { return f.limiter.Metrics() }
func (f *remote) lifetime() *lifetime             { return &f.life }
func (f *remote) close() error                    { return f.limiter.Close() }

// Words in Redis stay as they are, and it alone knows the keys.

func (f *remote) ChangeLimit(string, policy.Policy, policy.Policy) error { return nil }
func (f *remote) Keys() iter.Seq[string]                                 { return func(func(string) bool) {} }
func (f *remote) Owing() iter.Seq[string]                                { return f.Keys() }
func (f *remote) Sync() error                                            { return nil }

// isLease reports whether units of a family's only limit are leased.
func isLease(family Family) bool {
	f, ok := family.(*remote)
	return ok && f.leased
}

// shared returns a call's limit as the limiter takes it.
func (f *remote) shared(limit policy.Policy) (policy.Policy, error) {
	if f.leased {
		return nil, nil // the limiter has no other
	}
	return f.logs.of(limit)
}

func (f *remote) TakeWith(ctx context.Context, limit policy.Policy, key string, n int64) (policy.Decision, error) {
	var a limits.Answer
	limit, err := f.shared(limit)
	switch {
	case err != nil:
	case f.leased:
		a, err = f.limiter.Take(ctx, key, n)
	default:
		a, err = f.limiter.TakeWith(ctx, limit, key, n)
	}
	return a.Decision, err
}

// RefundWith implements Family. It is an error if the units may not count.
func (f *remote) RefundWith(ctx context.Context, limit policy.Policy, key string, n int64) (policy.Decision, error) {
	limit, err := f.shared(limit)
	if err != nil {
		return policy.Decision{}, err
	}
	a, err := f.limiter.RefundWith(ctx, limit, key, n)
	if err == nil && !a.Allowed && n != 0 && a.Err() != nil && !errors.Is(a.Err(), limits.ErrBlocked) {
		err = a.Err()
	}
	return a.Decision, err
}

func (f *remote) Hold(ctx context.Context, call limits.Call[string]) (g limits.Grant, err error) {
	if call.Limit, err = f.shared(call.Limit); err != nil {
		return g, err
	}
	if g, err = f.limiter.Hold(ctx, call); err == nil && !g.Allowed {
		if cause := g.Err(); errors.Is(cause, fleet.ErrTooManyLimits) || errors.Is(cause, fleet.ErrMisfit) {
			err = cause
		}
	}
	return g, err
}

func (f *remote) Reset(ctx context.Context, key string) (bool, error) {
	return f.limiter.Reset(ctx, key)
}

func (f *remote) Block(ctx context.Context, key string, d time.Duration) error {
	return f.limiter.Block(ctx, key, d)
}

func (f *remote) Blocked(ctx context.Context, key string) (time.Duration, error) {
	return f.limiter.Blocked(ctx, key)
}

func (f *remote) Health() error {
	if f.life.isOver() {
		return nil
	}
	return f.limiter.Health()
}

// byCall is a family over a fleet, as adapters have it. Calls bring their limit.
type byCall struct{ *remote }

var (
	_ limits.Limiter[string] = byCall{}
	_ limits.Batcher[string] = byCall{}
)

// Ask implements limits.Limiter.
func (b byCall) Ask(ctx context.Context, key string, n int64) (limits.Answer, error) {
	return b.limiter.Ask(ctx, key, n)
}

// LimitFor implements limits.Limiter.
func (b byCall) LimitFor(key string) policy.Policy { return b.limiter.LimitFor(key) }

// Remote implements limits.Remote.
func (b byCall) Remote() bool { return true }

// HoldAll implements limits.Batcher. Limits that are leased are asked one by one.
func (b byCall) HoldAll(ctx context.Context, parts []limits.Part[string]) (grants []limits.Grant, ok bool, err error) {
	shared := make([]limits.Part[string], len(parts))
	for i, part := range parts {
		of, ok := part.Limiter.(byCall)
		if !ok || of.leased {
			return nil, false, nil
		}
		if part.Call.Limit, err = of.shared(part.Call.Limit); err != nil {
			return nil, true, err
		}
		part.Limiter = of.limiter
		shared[i] = part
	}
	return b.limiter.HoldAll(ctx, shared)
}
