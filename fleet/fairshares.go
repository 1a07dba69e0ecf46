package fleet

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"math/big"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/fleet/internal/share"
	"github.com/ral-limiter/ral/fleet/internal/store"
	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// Shares are an engine.Shares over all servers with the same Config.Name: a group of tenants with one limit,
// which each tenant's guarantee is a part of. NewShares makes Shares; the zero value is of no use. Any number
// of goroutines may call the methods.
//
// One script in Redis reads and writes the words of the tenant and of the group, at one instant. So the
// group never holds more than Total's capacity C, and C + G*p if Reserve is called with patience p, where
// G is the rate of Reserved. The argument is in the comment of engine.Shares. It needs the same guarantees on all
// servers; Health returns ErrLimits if they differ for long.
//
// The same script grants guarantees to tenants that were not known in advance, out of what is left of the reserve, and
// Redis keeps the grants. So no part of the reserve has two tenants, whichever servers they call.
//
// # Without Redis
//
// Config.Outage says how calls are answered. Under FallbackShare each server divides every limit by the
// number of servers: the guarantees, the ceilings, and that of loans. So all servers together lend and
// guarantee at most C units, each guarantee and the loans counting as a unit on each server at least, in addition
// to units that Redis admitted for other servers since this server last asked. Two promises are weaker. A tenant's guarantee
// is divided, so it may be refused to a tenant that calls one server alone. A tenant that this server has
// not asked Redis about while its guarantee drains begins with its part used up, except for one call: see
// Config.FullShares. Once Redis is back, it is charged with the units. The group may hold C more until they have drained.
// Loans wait for that, and guarantees do not. Under FallbackOpen the group has no bound, and under FallbackClosed it
// admits nothing. A tenant that was not known in advance only borrows without Redis.
type Shares struct {
	// limiter is of the group, under the limit of loans.
	limiter *Limiter
	config  SharesConfig
	// whole is the limit under which the group is charged.
	whole *store.Limit
	// reservedUnits is the capacity of the reserve.
	reservedUnits int64

	changing sync.Mutex
	book     atomic.Pointer[book]

	guaranteed, borrowed, refused, unguaranteed, used atomic.Uint64
	// given is the capacity that Redis last said to have granted out of the reserve.
	given atomic.Int64
	// waiting counts the calls that wait for the group on this server.
	waiting atomic.Int64
}

// book has the guarantees that are known in advance or were set. It does not change.
type book struct {
	tenants map[string]guarantee
	// rest is what they leave of the reserve, for tenants that come by themselves.
	rest store.Grant
	// agreed reports whether all servers have this book. If some guarantee has others before it, these hold until Redis
	// has granted no more than rest.
	agreed bool
}

// guarantee is a tenant's. before has the guarantees that other servers may still keep, nil for none.
type guarantee struct {
	limit  policy.Policy
	before []policy.Policy
	// grant is what the guarantee, and those that it has replaced, need of the reserve.
	grant store.Grant
	// terms are of a limit that admits only calls that all of them admit. They are nil if one of them is.
	terms *terms
}

// SharesConfig configures Shares. Total and Config.Name are required, and so is a Redis. All servers must
// have the same.
type SharesConfig struct {
	// Config has the settings of the group: Client, Redis, RequireRedis, Via, Name, Tag, Budget, Outage,
	// Servers, FullShares, MaxKeys, MaxWaiting, MaxWaitingTotal, Epoch and OnEvent. Others must be zero. Mode must be Exact. In a cluster
	// a Tag is required: the group and its tenants are on one node.
	Config Config

	// Total and Reserved are as in engine.SharesConfig, and funnels.
	Total, Reserved policy.Policy

	// Tenants are as in engine.SharesConfig.
	Tenants []string

	// Guarantee returns a tenant's guarantee, a policy.Funnel, or nil for none. NewShares calls it for Tenants. Every
	// call of another tenant calls it, and Redis grants the guarantee out of what Tenants leave of Reserved. If too
	// little is left the tenant only borrows: see SharesStats.Unguaranteed. OnEvent receives SharePassed when
	// that begins. Redis takes a grant back if another tenant needs it, and the tenant has owed nothing for five
	// minutes. A result that is no funnel counts as a guarantee for which nothing is left. At most 1,024 guarantees and
	// ceilings of different text are accepted.
	Guarantee func(tenant string) policy.Policy

	// Ceiling is as in engine.SharesConfig: a tenant borrows nothing if the result is no funnel. Every call calls it, so
	// a new ceiling holds once the function returns it.
	Ceiling func(tenant string) policy.Policy
}

// NewShares checks the configuration, and starts as New does. The error is a *policy.FieldError, or as of New.
func NewShares(config SharesConfig) (*Shares, error) {
	bad := func(field string, value any, want string) error {
		return &policy.FieldError{Of: "fleet.SharesConfig", Field: field, Value: value, Want: want}
	}
	if config.Config.Mode != Exact {
		return nil, bad("Config.Mode", int(config.Config.Mode), "Exact: a lease is units taken ahead, which are not there for the tenant that they are guaranteed to")
	}
	if field := unshared(config.Config); field != "" {
		return nil, bad("Config."+field, "set", "it unset: shares have no such setting, and Total is their policy")
	}
	if policy.MaxTimeInUse(config.Total) > 0 {
		return nil, bad("Total", config.Total, "a policy.Funnel: units in use are shared in process only")
	}
	// An engine has the same rules, and takes no calls.
	checked, err := engine.NewShares(engine.SharesConfig[string]{
		Config: engine.Config{MaxKeys: config.Config.MaxKeys},
		Total:  config.Total, Reserved: config.Reserved, Tenants: config.Tenants, Guarantee: config.Guarantee,
	})
	if err != nil {
		if fault := (*policy.FieldError)(nil); errors.As(err, &fault) {
			fault.Of = "fleet.SharesConfig"
		}
		return nil, err
	}
	shares := &Shares{config: config, reservedUnits: checked.Stats().Reserved}
	known := &book{tenants: map[string]guarantee{}, rest: reservedGrant(config.Reserved)}
	for _, tenant := range config.Tenants {
		if limit := config.Guarantee(tenant); !shape.IsNil(limit) {
			g := guarantee{limit: limit, grant: needOf(limit)}
			known.tenants[tenant] = g
			if !shape.IsNil(config.Reserved) {
				known.rest = known.rest.Plus(g.grant, -1)
			}
		}
	}
	shares.book.Store(known)
	total := config.Total.(shape.Shaped).Shape()
	if config.Config.Policy, err = policy.Funnel(total.Capacity-shares.reservedUnits, total.Count, total.Per); err != nil {
		return nil, err
	}
	config.Config.also, config.Config.onAgreed = shares.text, shares.agreed
	if shares.limiter, err = New(config.Config); err != nil {
		return nil, err
	}
	if err := shares.prepare(total); err != nil {
		return nil, errors.Join(err, shares.Close())
	}
	if remote := shares.limiter.remote.Load(); config.Config.Tag == "" && remote != nil && remote.clustered() {
		return nil, errors.Join(bad("Config.Tag", `""`, "a tag, as Redis is a cluster: one node has the whole group"), shares.Close())
	}
	return shares, nil
}

// prepare makes the limits of the group and the tenants.
func (s *Shares) prepare(total shape.Shape) error {
	const depth = uint64(1) << 62 // of a word, as in engine.Shares
	whole, err := policy.Funnel(int64(depth/total.Interval), total.Count, total.Per)
	if err != nil {
		return err
	}
	if s.whole, err = s.limiter.newLimit(whole); err != nil {
		return err
	}
	s.changing.Lock()
	defer s.changing.Unlock()
	for tenant, guarantee := range s.book.Load().tenants {
		if err := s.put(tenant, guarantee); err != nil {
			return err
		}
	}
	return nil
}

// unshared returns the first field that is set and has no meaning for Shares.
func unshared(config Config) string {
	return shape.SetBesides(config, "Client", "Redis", "RequireRedis", "Via", "Name", "Tag", "Budget", "Outage", "Servers", "FullShares", "MaxKeys", "MaxWaiting", "MaxWaitingTotal", "Epoch", "OnEvent")
}

// reservedGrant returns all of a reserve, whose rate is as it was given.
func reservedGrant(reserved policy.Policy) (grant store.Grant) {
	if !shape.IsNil(reserved) {
		form := reserved.(shape.Shaped).Shape()
		grant = store.NewGrant(form.Capacity, big.NewInt(form.Count), new(big.Int).Mul(big.NewInt(int64(form.Per)), big.NewInt(ticks)))
	}
	return grant
}

// needOf returns the part of a reserve that a guarantee needs.
func needOf(guarantee policy.Policy) store.Grant {
	form := guarantee.(shape.Shaped).Shape()
	return store.NewGrant(form.Capacity, big.NewInt(1), new(big.Int).SetUint64(form.Interval))
}

func isFunnel(limit policy.Policy) bool {
	shaped, ok := limit.(shape.Shaped)
	return ok && !shape.IsNil(limit) && shaped.Shape().Kind == shape.Funnel
}

// put puts a tenant's guarantee in force. The caller locks changing.
func (s *Shares) put(tenant string, guarantee guarantee) error {
	if guarantee.terms = nil; !slices.ContainsFunc(guarantee.before, func(limit policy.Policy) bool { return shape.IsNil(limit) }) {
		kept, err := strictest(guarantee.limit, guarantee.before)
		if err != nil {
			return err
		}
		for _, before := range guarantee.before {
			// Of one rate, the larger burst may have been granted to tenants that came by themselves.
			if s.grants() && before.Limit() < kept.Limit() {
				kept = before
			}
		}
		if guarantee.terms, err = s.limiter.under(kept, ownKey(tenant)); err != nil {
			return err
		}
	}
	old := s.book.Load()
	next := &book{tenants: maps.Clone(old.tenants), rest: old.rest.Plus(old.tenants[tenant].grant, 1).Plus(guarantee.grant, -1)}
	next.tenants[tenant] = guarantee
	s.book.Store(next)
	return nil
}

// grants reports whether tenants that come by themselves may have guarantees.
func (s *Shares) grants() bool { return s.config.Guarantee != nil && !shape.IsNil(s.config.Reserved) }

// text returns a text that tells the guarantees, for servers to compare.
func (s *Shares) text() string {
	all := s.book.Load().tenants
	sum := fnv.New64a()
	for _, tenant := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(sum, "%q %v\n", tenant, all[tenant].limit)
	}
	return fmt.Sprintf(", reserved %d, guarantees %016x", s.reservedUnits, sum.Sum64())
}

// SetGuarantee replaces a tenant's guarantee on this server, and keeps it in the reserve as one of Tenants. Every server must
// call it. What a larger guarantee needs comes out of what Tenants leave of the reserve. What a smaller one leaves
// returns to the reserve when the server starts again. Until all servers have changed, this server admits only guaranteed
// calls that both guarantees allow, as after Limiter.SetPolicy. If tenants that came by themselves have more of the reserve
// than the change leaves for them, that lasts until they have left. A tenant without a guarantee is one of them until then. Units that were used stay used for the same time. So after
// a change to a lower rate the group may hold more once, by at most the old capacity.
//
// The error is a *policy.FieldError if the guarantee is no funnel, too little is left for it, or 1,024 limits of
// different text are in use; otherwise engine.ErrClosed. Nothing has changed then.
func (s *Shares) SetGuarantee(tenant string, limit policy.Policy) error {
	bad := func(want string) error {
		return &policy.FieldError{Of: "SetGuarantee", Field: "limit", Value: limit, Want: want}
	}
	if !isFunnel(limit) {
		return bad("a policy.Funnel; a server that starts again may leave the tenant without one")
	}
	s.changing.Lock()
	defer s.changing.Unlock()
	book := s.book.Load()
	old, had := book.tenants[tenant]
	g := guarantee{limit: limit, grant: old.grant.Max(needOf(limit))}
	if had || s.grants() {
		g.before = slices.Concat(old.before, []policy.Policy{old.limit})
	}
	if !g.grant.Plus(old.grant, -1).Within(book.rest) {
		return bad(fmt.Sprintf("a limit within the rest of the reserve, whose capacity is %d", book.rest.Units))
	}
	if _, err := s.limiter.under(limit, ownKey(tenant)); err != nil {
		return bad(err.Error())
	}
	if s.limiter.closed.Load() {
		return engine.ErrClosed
	}
	return s.put(tenant, g)
}

// agreed is called when all counted servers have limits of that text.
func (s *Shares) agreed(text string) {
	s.changing.Lock()
	defer s.changing.Unlock()
	if !strings.HasSuffix(text, s.text()) {
		return // a guarantee has changed meanwhile
	}
	book := *s.book.Load()
	pending := slices.ContainsFunc(slices.Collect(maps.Values(book.tenants)), func(guarantee guarantee) bool { return len(guarantee.before) > 0 })
	switch {
	case !pending || book.agreed:
	case !s.grants():
		s.settle(&book)
	default:
		book.agreed = true
		s.book.Store(&book)
	}
}

// settle has the guarantees of a book hold alone. The caller locks changing.
func (s *Shares) settle(book *book) {
	for tenant, guarantee := range book.tenants {
		if len(guarantee.before) > 0 {
			guarantee.before = nil
			_ = s.put(tenant, guarantee) // its limit was made before
		}
	}
}

// reserved notes the sum of Redis's grants, which were read after a call had loaded the book.
func (s *Shares) reserved(book *book, given store.Grant) {
	s.given.Store(given.Units)
	if !book.agreed || !given.Within(book.rest) {
		return
	}
	s.changing.Lock()
	defer s.changing.Unlock()
	if s.book.Load() == book {
		s.settle(book)
	}
}

// The keys of a group.
const (
	groupKey   = "group"
	reserveKey = "reserve"
)

func ownKey(tenant string) string     { return "own:" + tenant }
func ceilingKey(tenant string) string { return "ceiling:" + tenant }

// ShareAnswer is the answer to a call of Shares. Its figures are as in engine.ShareDecision, and of this server's parts
// without Redis.
type ShareAnswer struct {
	limits.Answer
	// Borrowed reports whether the units are lent.
	Borrowed bool
}

// Choke reports whether the tenant may act now, and takes a unit if so. It is false on an error.
func (s *Shares) Choke(ctx context.Context, tenant string) bool {
	answer, err := s.Take(ctx, tenant, 1)
	return err == nil && answer.Allowed
}

// Take takes n units of the tenant's guarantee, or else borrows n units. Units below 0, and units above both the
// guarantee's capacity and what the group lends, are refused with policy.Never. n == 0 looks. It waits
// as Limiter.Take does, and has the same errors; ErrCrossSlot means that Config.Tag is empty in a cluster.
func (s *Shares) Take(ctx context.Context, tenant string, n int64) (ShareAnswer, error) {
	_, answer, err := s.ask(ctx, tenant, store.TenantAsk{N: n}, false)
	s.count(n, &answer, err)
	return answer, err
}

// Peek returns the answer of Take(tenant, n) now. It takes nothing and is not counted.
func (s *Shares) Peek(ctx context.Context, tenant string, n int64) (ShareAnswer, error) {
	_, answer, err := s.ask(ctx, tenant, store.TenantAsk{N: n, Looks: true}, false)
	return answer, err
}

// Reserve is Take for units that may be given back. With patience, and if it cannot borrow now, it takes
// the guarantee's units for a turn within patience, of at most 4 years: use them after Answer.Wait. Nothing is borrowed
// ahead, and without Redis nothing is taken ahead.
func (s *Shares) Reserve(ctx context.Context, tenant string, n int64, patience time.Duration) (ShareReservation, error) {
	const maxPatience = time.Duration(1) << 57
	tenantAsk := store.TenantAsk{N: n, Patience: min(max(patience, 0), maxPatience), Returns: true}
	reservation, err := s.reserve(ctx, tenant, tenantAsk, false)
	s.count(n, &reservation.ShareAnswer, err)
	return reservation, err
}

// reserve is Reserve without a count.
func (s *Shares) reserve(ctx context.Context, tenant string, tenantAsk store.TenantAsk, waits bool) (ShareReservation, error) {
	t, answer, err := s.ask(ctx, tenant, tenantAsk, waits)
	return ShareReservation{ShareAnswer: answer, shares: s, taken: t, n: tenantAsk.N}, err
}

// ShareReservation has the units that Reserve took. If it is Allowed, act after Wait, and call Keep if
// less was needed, or Cancel; the first call ends it. Its methods are for one goroutine at a time. The
// zero ShareReservation is a refusal.
type ShareReservation struct {
	ShareAnswer
	shares *Shares
	taken  *tenantTaken // nil without Redis
	n      int64
}

// Cancel gives all units back, on the terms of Keep.
func (r *ShareReservation) Cancel(ctx context.Context) error { return r.Keep(ctx, 0) }

// Keep ends the reservation with n of its units used, and gives the others back: to the group, and then to
// the tenant's guarantee or its ceiling, on the terms of Reservation.Keep, where the calls since are those of
// all tenants. The guarantee gets at most as many units as the group. On an error, such as ErrOutage, the
// units still count where Redis was not asked. Units that were taken without Redis stay used.
func (r *ShareReservation) Keep(ctx context.Context, n int64) error {
	tenantTaken := r.taken
	r.taken = nil
	if n = max(n, 0); tenantTaken == nil || !r.Allowed || n >= r.n {
		return nil
	}
	shares := r.shares
	group, err := shares.giveBack(ctx, store.TenantKey{Limit: shares.whole, Key: groupKey}, tenantTaken.Group, r.n, n)
	if err != nil {
		return err
	}
	if tenantTaken.Way == store.Lent {
		if tenantTaken.ask.Ceiling.Limit != nil {
			_, err = shares.giveBack(ctx, tenantTaken.ask.Ceiling, tenantTaken.Ceiling, r.n, n)
		}
		return err
	}
	if _, decision := shares.whole.Policy().Take(group.After, group.At, 0, 0); !group.Exact && decision.ResetAfter > 0 {
		// The guarantee could give out at once what the group still has.
		interval := shares.whole.Policy().(shape.Shaped).Shape().Interval
		n = max(n, r.n-int64((group.Before-group.After)/interval))
	}
	if n < r.n {
		_, err = shares.giveBack(ctx, tenantTaken.ask.Own, tenantTaken.Own, r.n, n)
	}
	return err
}

func (s *Shares) giveBack(ctx context.Context, tenantKey store.TenantKey, taken store.Taken, n, kept int64) (store.Taken, error) {
	return changeWord(ctx, s, func(ctx context.Context, decider decider) (store.Taken, error) {
		return decider.Keep(ctx, tenantKey.Limit, tenantKey.Key, taken, n, kept)
	})
}

// changeWord has Redis change the group's words within the budget.
func changeWord[T any](ctx context.Context, shares *Shares, do func(context.Context, decider) (T, error)) (value T, err error) {
	limiter := shares.limiter
	value, err = askWithin(ctx, &limiter.access, limiter.guardOf(limiter.own.Load(), groupKey), limiter.budget, do)
	err, _ = forCaller(err)
	return value, err
}

// tenantTaken is Redis's answer, with the ask that it is about, without the own funnel if that was not granted.
type tenantTaken struct {
	store.TenantTaken
	ask store.TenantAsk
}

// guaranteeOf returns a tenant's guarantee. wanted reports whether the tenant has none in the book, and should have one.
// Then its grant comes out of the reserve, and terms are nil if it cannot have one.
func (s *Shares) guaranteeOf(book *book, tenant string) (terms *terms, wanted bool) {
	if terms = book.tenants[tenant].terms; terms != nil || s.config.Guarantee == nil {
		return terms, false
	}
	limit := s.config.Guarantee(tenant)
	if shape.IsNil(limit) {
		return nil, false
	}
	if s.grants() && isFunnel(limit) {
		terms, _ = s.limiter.under(limit, ownKey(tenant))
	}
	return terms, true
}

// ask has Redis answer a call, or otherwise the fallback, and returns Redis's answer if there is one. waits
// reports whether the call waits for the group. While any does, other calls do not borrow.
func (s *Shares) ask(ctx context.Context, tenant string, tenantAsk store.TenantAsk, waits bool) (*tenantTaken, ShareAnswer, error) {
	limiter := s.limiter
	group, book := limiter.own.Load(), s.book.Load()
	own, wanted := s.guaranteeOf(book, tenant)
	ceiling, barred := s.ceilingOf(tenant)
	behind := !waits && tenantAsk.N > 0 && s.waiting.Load() > 0
	tenantAsk.Charge, tenantAsk.Barred, tenantAsk.Group = s.whole, barred || behind, store.TenantKey{Limit: group.limit, Key: groupKey}
	if own != nil {
		tenantAsk.Own = store.TenantKey{Limit: own.limit, Key: ownKey(tenant)}
	}
	if own != nil && wanted || book.agreed {
		tenantAsk.Reserve = &store.Reserve{Key: reserveKey, Rest: book.rest}
		if wanted && own != nil {
			tenantAsk.Reserve.Grant = needOf(own.policy)
		}
	}
	if ceiling != nil {
		tenantAsk.Ceiling = store.TenantKey{Limit: ceiling.limit, Key: ceilingKey(tenant)}
	}
	var passed atomic.Bool // the fallback answers
	t, err := askWithin(ctx, &limiter.access, limiter.guardOf(group, groupKey), limiter.budget, func(ctx context.Context, decider decider) (store.TenantTaken, error) {
		t, err := decider.TakeTenant(ctx, tenantAsk)
		if err == nil {
			all := []*terms{group, own, ceiling}
			if !t.Granted {
				all[1] = nil
			}
			s.learn(&tenantAsk, &t, all, passed.Load())
			if tenantAsk.Reserve != nil {
				s.reserved(book, t.Given)
			}
		}
		return t, err
	})
	why, passes := err.(noAnswer) //nolint:errorlint // askWithin does not wrap it
	switch {
	case passes:
		passed.Store(true)
		if wanted {
			// Only Redis knows whether it was granted.
			own, tenantAsk.Own = nil, store.TenantKey{}
		}
		shareAnswer := s.without(&tenantAsk, why, barred, group, own, ceiling)
		shareAnswer.stand(behind)
		if limiter.closed.Load() {
			return nil, ShareAnswer{}, engine.ErrClosed
		}
		return nil, shareAnswer, nil
	case err != nil:
		return nil, ShareAnswer{}, err
	}
	if wanted && (own == nil || !t.Granted) {
		if tenantAsk.Own = (store.TenantKey{}); !tenantAsk.Looks {
			s.noteUnguaranteed()
		}
	}
	shareAnswer := ShareAnswer{Answer: limits.Answer{Provenance: byRedis}}
	shareAnswer.compose(&tenantAsk, barred, t.Own.Decision, t.Group.Decision, t.Ceiling.Decision, group.maxTake)
	shareAnswer.Borrowed = t.Way == store.Lent
	shareAnswer.Allowed = t.Way != store.Refused || tenantAsk.N == 0
	shareAnswer.stand(behind)
	return &tenantTaken{t, tenantAsk}, shareAnswer, nil
}

// noteUnguaranteed counts a call of a tenant that has to do without its guarantee, and has the first told.
func (s *Shares) noteUnguaranteed() {
	if s.unguaranteed.Add(1) == 1 {
		s.limiter.warned.post(Event{Kind: SharePassed, Err: errUnguaranteed})
	}
}

var errUnguaranteed = errors.New("nothing is left of the reserve for the guarantee of a tenant, which only borrows: see SharesStats.Unguaranteed")

// stand tells a call that may not borrow while others wait for the group when to come again.
func (a *ShareAnswer) stand(behind bool) {
	if behind && !a.Allowed && a.RetryAfter == 0 {
		a.RetryAfter = askAgain
		a.Provenance = limits.NewProvenance(a.Source(), false, a.Err())
	}
}

// ceilingOf returns a tenant's ceiling, or nil, and reports whether the tenant must not borrow.
func (s *Shares) ceilingOf(tenant string) (terms *terms, barred bool) {
	if s.config.Ceiling == nil {
		return nil, false
	}
	limit := s.config.Ceiling(tenant)
	if shape.IsNil(limit) {
		return nil, false
	}
	if !isFunnel(limit) {
		return nil, true
	}
	terms, err := s.limiter.under(limit, ceilingKey(tenant))
	return terms, err != nil
}

// learn has the shares begin from Redis's answer. If the fallback has answered the call, they need not be
// charged for units that Redis has counted.
func (s *Shares) learn(tenantAsk *store.TenantAsk, tenantTaken *store.TenantTaken, all []*terms, late bool) {
	keys, taken := []string{groupKey, tenantAsk.Own.Key, tenantAsk.Ceiling.Key}, []store.Taken{tenantTaken.Group, tenantTaken.Own, tenantTaken.Ceiling}
	for i, one := range all {
		if one == nil || one.local == nil {
			continue
		}
		one.remember(keys[i], taken[i], late)
		if late && taken[i].After != taken[i].Before {
			s.limiter.tally.charged.Add(uint64(one.local.Credit(keys[i], tenantAsk.N)))
		}
	}
	_, decision := s.whole.Policy().Take(tenantTaken.Group.After, tenantTaken.Group.At, 0, 0)
	s.used.Store(uint64(decision.Limit - decision.Remaining))
}

// compose sets the decision from those of the tenant's guarantee, of the loan and of the ceiling, of which
// the unwanted are zero. barred reports whether the tenant never borrows, and lends is the largest loan.
func (a *ShareAnswer) compose(tenantAsk *store.TenantAsk, barred bool, own, loan, ceiling policy.Decision, lends int64) {
	if tenantAsk.Own.Limit == nil {
		own = policy.Decision{Limit: lends, RetryAfter: policy.Never}
		if tenantAsk.N == 0 {
			own.RetryAfter = 0
		}
	}
	a.Decision = own
	switch loan.RetryAfter = max(loan.RetryAfter, ceiling.RetryAfter); {
	case barred:
	case loan.Allowed && (tenantAsk.Ceiling.Limit == nil || ceiling.Allowed):
		a.RetryAfter = 0
	default:
		a.RetryAfter = min(a.RetryAfter, loan.RetryAfter)
	}
}

// without answers a call without Redis.
func (s *Shares) without(tenantAsk *store.TenantAsk, why noAnswer, barred bool, group, own, ceiling *terms) (shareAnswer ShareAnswer) {
	f := fallback{s.limiter}
	if group.local == nil {
		widest := group
		if own != nil && own.maxTake > group.maxTake {
			widest = own
		}
		shareAnswer.Answer = f.without(&ask{terms: widest, why: why}, tenantAsk.N).answer
		return shareAnswer
	}
	if own != nil && tenantAsk.N != 0 && !tenantAsk.Looks {
		reservation := own.local.Take(tenantAsk.Own.Key, tenantAsk.N, 0)
		if shareAnswer.Answer = f.shared(&ask{terms: own, why: why}, reservation.Decision, tenantAsk.N).answer; reservation.Allowed {
			group.local.Refund(groupKey, -tenantAsk.N) // it is charged in any case
			return shareAnswer
		}
	}
	var decided [3]policy.Decision
	for i, one := range []*terms{group, own, ceiling} {
		if one != nil {
			decided[i] = f.shared(&ask{terms: one, why: why}, one.local.Peek([]string{groupKey, tenantAsk.Own.Key, tenantAsk.Ceiling.Key}[i], tenantAsk.N), tenantAsk.N).answer.Decision
		}
	}
	shareAnswer.compose(tenantAsk, barred, decided[1], decided[0], decided[2], group.maxTake)
	shareAnswer.Provenance = f.shared(&ask{terms: group, why: why}, shareAnswer.Decision, 0).answer.Provenance
	guaranteed := own != nil && decided[1].Allowed
	lent := !tenantAsk.Barred && decided[0].Allowed && (ceiling == nil || decided[2].Allowed)
	if tenantAsk.N != 0 && !tenantAsk.Looks {
		guaranteed = false // it was refused before
		claims := []share.Claim{{Local: group.local, Key: groupKey, N: tenantAsk.N}}
		if ceiling != nil {
			claims = append(claims, share.Claim{Local: ceiling.local, Key: tenantAsk.Ceiling.Key, N: tenantAsk.N})
		}
		if lent {
			_, lent = share.TakeAll(claims...) // another call may have been faster
		}
	}
	shareAnswer.Allowed, shareAnswer.Borrowed = guaranteed || lent || tenantAsk.N == 0, lent && !guaranteed && tenantAsk.N > 0
	return shareAnswer
}

// count counts the answer to a call.
func (s *Shares) count(n int64, shareAnswer *ShareAnswer, err error) {
	if n == 0 || err != nil {
		return
	}
	s.limiter.tally.count(n, &shareAnswer.Answer)
	switch {
	case !shareAnswer.Allowed:
		s.refused.Add(1)
	case shareAnswer.Borrowed:
		s.borrowed.Add(1)
	default:
		s.guaranteed.Add(1)
	}
}

var ceilingBarred = limits.NewProvenance(limits.SourceRedis, true, errors.New("the ceiling is no funnel, or one of more than 1,024 limits of different text"))

// Explain returns why a unit of the tenant is admitted or refused now. Each explains the tenant's guarantee, if it has
// one, then the group as far as it lends, and then the tenant's ceiling, if it has one. Binding, and the figures of a tenant without a guarantee, are as in engine.Shares. Without Redis,
// Each is empty. It takes nothing and is not counted. The errors are Take's.
func (s *Shares) Explain(ctx context.Context, tenant string) (limits.Explanation, error) {
	tenantTaken, shareAnswer, err := s.ask(ctx, tenant, store.TenantAsk{N: 1, Looks: true}, false)
	if err != nil {
		return limits.Explanation{Binding: -1}, err
	}
	name := s.config.Config.Name
	if tenantTaken == nil {
		return limits.Explanation{Name: name, Known: true, Decision: shareAnswer.Decision, Provenance: forAdapters(shareAnswer.Answer).Provenance, Binding: -1}, nil
	}
	var each []limits.Explanation
	explain := func(part string, limit *store.Limit, taken store.Taken) {
		if limit != nil {
			explanation := limits.ExplainWord(limit.Policy(), taken.Before, taken.At, 1, 0)
			explanation.Name, explanation.Provenance, explanation.Known = name+part, byRedis, true
			each = append(each, explanation)
		}
	}
	explain("/guarantee", tenantTaken.ask.Own.Limit, tenantTaken.Own)
	explain("/group", s.limiter.own.Load().limit, tenantTaken.Group)
	explain("/ceiling", tenantTaken.ask.Ceiling.Limit, tenantTaken.Ceiling)
	if _, barred := s.ceilingOf(tenant); barred {
		refusal := policy.Decision{RetryAfter: policy.Never}
		each = append(each, limits.Explanation{Name: name + "/ceiling", Limit: s.config.Ceiling(tenant), Binding: -1, Decision: refusal, Provenance: ceilingBarred})
	}
	explanation := limits.Together(each...)
	explanation.Name, explanation.Provenance = name, byRedis
	switch {
	case tenantTaken.ask.Own.Limit == nil:
		explanation.Allowed, explanation.RetryAfter = shareAnswer.Allowed, shareAnswer.RetryAfter
	case each[0].Allowed:
		explanation.Decision, explanation.Binding = shareAnswer.Decision, 0
	default:
		explanation.Decision, explanation.Binding = shareAnswer.Decision, 1+limits.Together(each[1:]...).Binding
	}
	return explanation, nil
}

// SharesStats are the counters of this server. Its Used and Unreserved are as Redis last told this server. Its Tenants are those
// whose guarantees were known in advance or set.
type SharesStats struct {
	engine.SharesStats
	// Fleet has the counters of Limiter.Stats: how calls were answered, and Redis.
	Fleet Stats
}

// Stats returns the counters, read one by one while calls go on.
func (s *Shares) Stats() SharesStats {
	book, stats := s.book.Load(), s.limiter.Stats()
	return SharesStats{engine.SharesStats{
		Name: s.config.Config.Name, Guaranteed: s.guaranteed.Load(), Borrowed: s.borrowed.Load(), Refused: s.refused.Load(), Unguaranteed: s.unguaranteed.Load(),
		Tenants: len(book.tenants), Waiting: stats.Waiting, Used: int64(s.used.Load()), Reserved: s.reservedUnits, Unreserved: book.rest.Units - s.given.Load(),
	}, stats}
}

// Health is Limiter.Health of the group.
func (s *Shares) Health() error { return s.limiter.Health() }

// Close ends the use of the shares as Limiter.Close does.
func (s *Shares) Close() error { return s.limiter.Close() }
