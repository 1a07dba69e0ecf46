package families

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/fleet"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
	"github.com/redis/rueidis"
)

// Fleet is a Redis that keeps the keys of several servers.
type Fleet struct {
	// Redis is its address: see fleet.Config.
	Redis rueidis.ClientOption
	// Name is the name of the servers that share keys, a part of the keys' names in Redis: up to
	// MaxName bytes. Every other setting except Budget must be the same on all servers.
	Name string
	// Leased makes servers decide on leases of units. Each limit that can be leased then has a
	// limiter; others are kept as usual.
	Leased bool
	// Budget, Outage and Servers are as in fleet.Config. So is Term, which is used only for limits in
	// flight.
	Budget  time.Duration
	Term    time.Duration
	Outage  fleet.Fallback
	Servers int
	// OnEvent returns the function that gets the named limiter's outages.
	OnEvent func(name string) func(fleet.Event)
}

var outages = [...]string{fleet.FallbackShare: "share", fleet.FallbackOpen: "open", fleet.FallbackClosed: "closed"}

// ParseOutage returns the fallback of a name: share, open or closed.
func ParseOutage(name string) (fleet.Fallback, error) {
	i := slices.Index(outages[:], name)
	if i < 0 {
		return 0, fmt.Errorf("outage is %q: share, open or closed is accepted", name)
	}
	return fleet.Fallback(i), nil
}

// OutageName returns the name of Outage.
func (f *Fleet) OutageName() string { return outages[f.Outage] }

// MaxName bounds the bytes of Fleet.Name.
const MaxName = 20

// Each leased limit has a limiter.
const maxLeased = 256

// connect makes the first limiter, for funnels. The others use its client.
func (s *Families) connect() error {
	_, err := s.addShared(policy.Must(policy.Funnel(1, 1, time.Second)), false)
	return err
}

func (s *Families) addShared(limit policy.Policy, leased bool) (Family, error) {
	name := "leased:" + limit.String()
	if !leased {
		limit = representative(limit)
		name = familyName(limit)
	}
	family := &remote{limit: limit, leased: leased, known: NewKnown[policy.Policy, policy.Policy]()}
	config := s.fleetConfig(strings.ReplaceAll(name, " ", "_"))
	if _, inFlight := limit.(policy.Occupier); inFlight {
		config.Term = s.config.Fleet.Term
	}
	var err error
	if config.Policy, err = family.shared(limit); err != nil {
		return nil, err
	}
	if leased {
		config.Policy, config.Mode = limit, fleet.Leased
	}
	limiter, err := fleet.New(config)
	if field := (*policy.FieldError)(nil); errors.As(err, &field) && field.Field == "Policy" {
		return nil, fmt.Errorf("%v cannot be kept in Redis, want %s", limit, field.Want)
	}
	if err != nil {
		return nil, err
	}
	family.Limiter, family.name, family.life.close = limiter, config.Name, limiter.Close
	s.append(family)
	return family, nil
}

// fleetConfig configures a limiter or shares of that name among the servers. All use the first limiter's client.
func (s *Families) fleetConfig(name string) fleet.Config {
	f := s.config.Fleet
	config := fleet.Config{
		Redis: f.Redis, Name: f.Name + ":" + name, MaxKeys: s.config.MaxKeys, Budget: f.Budget, Outage: f.Outage, Servers: f.Servers,
	}
	if all := *s.all.Load(); len(all) > 0 {
		config.Redis, config.Via = rueidis.ClientOption{}, all[0].(InRedis).Fleet()
	}
	if f.OnEvent != nil {
		config.OnEvent = f.OnEvent(config.Name)
	}
	return config
}

// isLeased reports whether a limit is leased, unless it is too small.
func (c *Config) isLeased(limit policy.Policy) bool {
	return c.Fleet != nil && c.Fleet.Leased && isLeasable(limit)
}

func isLeasable(limit policy.Policy) bool {
	_, aligned := limit.(policy.Anchored)
	kind, _, _ := strings.Cut(limit.String(), " ")
	return !aligned && (kind == "funnel" || kind == "window" || kind == "sliding")
}

// sharedLimit returns the limit that Redis keeps for a limit. For an AtMost that is a
// fleet.SlidingLog, which keeps its promise.
func sharedLimit(limit policy.Policy) (policy.Policy, error) {
	if w, ok := limit.(policy.Windowed); ok && strings.HasPrefix(limit.String(), "at most ") {
		return fleet.SlidingLog(limit.Limit(), w.Window())
	}
	return limit, nil
}

// remote is a Family whose keys are in Redis. It is also the limiter for calls that bring their
// limit.
type remote struct {
	*fleet.Limiter
	life  lifetime
	limit policy.Policy
	name  string
	// leased means that Limiter is in Leased mode.
	leased bool
	// known has the results of sharedLimit.
	known Known[policy.Policy, policy.Policy]
}

func (f *remote) Limit() policy.Policy           { return f.limit }
func (f *remote) Fleet() *fleet.Limiter          { return f.Limiter }
func (f *remote) Name() string                   { return f.name }
func (f *remote) ByCall() limits.Limiter[string] { return f }
func (f *remote) Health() error                  { return f.life.health(f.Limiter.Health) }
func (f *remote) lifetime() *lifetime            { return &f.life }

func (f *remote) ChangeLimit(ctx context.Context, key string, from, to policy.Policy, keep ...engine.Keep) error {
	from, err := f.shared(from)
	if err != nil {
		return err
	}
	if to, err = f.shared(to); err != nil {
		return err
	}
	return f.Limiter.ChangeLimit(ctx, key, from, to, keep...)
}

func isLease(family Family) bool {
	f, ok := family.(*remote)
	return ok && f.leased
}

func (f *remote) shared(limit policy.Policy) (policy.Policy, error) {
	if f.leased {
		// The limiter has no other limit.
		return nil, nil
	}
	return f.known.Get(limit, func() (policy.Policy, error) { return sharedLimit(limit) })
}

func (f *remote) TakeWith(ctx context.Context, limit policy.Policy, key string, n int64) (policy.Decision, error) {
	var answer limits.Answer
	limit, err := f.shared(limit)
	switch {
	case err != nil:
	case f.leased:
		answer, err = f.Limiter.Take(ctx, key, n)
	default:
		answer, err = f.Limiter.TakeWith(ctx, limit, key, n)
	}
	return answer.Decision, err
}

// ExplainWith implements Family. It names the limit that Redis keeps: a log for an AtMost.
func (f *remote) ExplainWith(ctx context.Context, limit policy.Policy, key string) (limits.Explanation, error) {
	limit, err := f.shared(limit)
	if err != nil {
		return limits.Explanation{}, err
	}
	return f.Limiter.ExplainWith(ctx, limit, key)
}

// RefundWith implements Family. It fails if the units may not count.
func (f *remote) RefundWith(ctx context.Context, limit policy.Policy, key string, n int64) (policy.Decision, error) {
	limit, err := f.shared(limit)
	if err != nil {
		return policy.Decision{}, err
	}
	answer, err := f.Limiter.RefundWith(ctx, limit, key, n)
	if err == nil && !answer.Allowed && n != 0 && answer.Err() != nil && !errors.Is(answer.Err(), limits.ErrBlocked) {
		err = answer.Err()
	}
	return answer.Decision, err
}

func (f *remote) Hold(ctx context.Context, call limits.Call[string]) (grant limits.Grant, err error) {
	if call.Limit, err = f.shared(call.Limit); err != nil {
		return grant, err
	}
	if grant, err = f.Limiter.Hold(ctx, call); err == nil && !grant.Allowed {
		if cause := grant.Err(); errors.Is(cause, fleet.ErrTooManyLimits) || errors.Is(cause, fleet.ErrMisfit) {
			err = cause
		}
	}
	return grant, err
}

// Join implements the optional interface of limits.AskAll. Leased limits are asked separately, and so is a limit
// that cannot be shared, for its error.
func (f *remote) Join(all any, call limits.Call[string]) any {
	limit, err := f.shared(call.Limit)
	if f.leased || err != nil {
		return nil
	}
	call.Limit = limit
	return f.Limiter.Join(all, call)
}
