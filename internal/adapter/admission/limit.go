package admission

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"reflect"
	"time"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/internal/core/decide"
	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// Limit is a limiter and the key that it limits requests by. Call Check before a Controller uses
// it.
type Limit[R any, K comparable, S any] struct {
	Parts[R, S]
	Limiter limits.Limiter[K]
	// Key returns the key of a request. The zero value of K means no key.
	Key func(r R) K
	// PolicyFor may be nil.
	PolicyFor func(r R) policy.Policy

	// engine is the Limiter if that is an engine, or nil.
	engine *engine.Engine[K]
	// servers is the Limiter, or the live limiter of a Trial, if it is of a fleet, or nil.
	servers sharing
	// tiers reports whether the limiter is an engine.Tiered.
	tiers bool
	words words
}

// sharing is implemented by limiters of a fleet. Servers returns the number of servers that tell turns to refused calls
// of a key. guess reports whether a server's share of the limit refused the call.
type sharing interface{ Servers(guess bool) int }

// Parts are the fields of a limit that do not depend on the type of its keys.
type Parts[R, S any] struct {
	Name      string
	WhenNoKey limits.WhenNoKey
	// Cost may be nil. Config.Cost then holds.
	Cost func(r R) int64
	// Charge may be nil. Config.Charge then holds.
	Charge func(r R, served S) int64
	// Stream returns the units of the part of an answer that soFar describes. It is also the Charge if Charge is
	// nil.
	Stream func(r R, soFar S) int64
	// Shadow reports whether the limit is asked but not enforced.
	Shadow bool
	// Hidden reports whether clients are not told of the limit.
	Hidden bool

	// index is the index of the limit.
	index int
	// plain reports whether the limiter is an engine, and no plan comes with requests by PolicyFor.
	plain bool
	// occupies reports whether the limiter is known to have units in use: see the function occupies.
	occupies bool

	// own is the engine's limit when Check ran. quota is the quota of own, which is kept since making a Quota takes
	// 50 ns.
	own   policy.Policy
	quota Quota
}

// Any is a Limit with the type of its keys hidden.
type Any[R, S any] interface {
	Of() *Parts[R, S]
	// Stats returns the counters of the limiter. ok is false if it is no engine.
	Stats() (s engine.Stats, ok bool)
	Remote() bool
	// limiter returns the limit's limiter.
	limiter() any
	// Take is TakeOne with the Result by value, since a pointer passed through an interface would escape to the heap.
	Take(ctx context.Context, r R, d *Controller[R, S], v Result) (Result, Settlement)
	// KeyOf returns a short hash of the request's key, for logs. If described is true, it also returns the policy that
	// holds for the key.
	KeyOf(r R, described bool) (fingerprint, policy string)
	// Describe returns the policy that holds for the request's key in words, or "".
	Describe(r R) string

	// claim stores a claim of n units of the request's key in to, and returns the key's limit, or nil if there is
	// no key. The limit must be Parts.plain. A returned claim would be copied four times, and each copy waits for
	// the stores before it. If charge is not nil, claim sets it to a function that charges the key for units used
	// beyond n.
	claim(r R, n int64, to *engine.Claim, charge *func(used int64)) (limit policy.Policy)
	// claimOfAny is claim for any limiter. ok is false if there is no key. brief is passed as limits.Call.Brief,
	// unless the limit has units in use.
	claimOfAny(r R, n int64, brief bool) (claim limits.Claim, limit policy.Policy, ok bool)
	// turn returns the time until the turn of a refused request of n units. guess reports whether a server's share of
	// the limit refused it. Arguments are values, since pointers would escape to the heap.
	turn(r R, after time.Duration, n int64, of Quota, t *Turns, guess bool) time.Duration
	// comesBackAfter is Limit.comesBack for the key of a request.
	comesBackAfter(r R, n int64, after, guess time.Duration) time.Duration
	// stepper returns a function that takes units of the request's key, or nil if there is no key.
	stepper(r R, noWait bool) func(ctx context.Context, n int64) (limits.Grant, error)
	// hold takes n units of the request's key, and does not wait. inUse reports whether the limit has units in use,
	// and ok is false if there is no key.
	hold(ctx context.Context, r R, n int64) (g limits.Grant, inUse, ok bool, err error)
}

// Settlement holds a request's units until its true cost is known.
type Settlement interface {
	// holds returns a bit for each limit that holds units.
	holds() uint8
	// cost returns the units that the limit at that index holds.
	cost(index int) int64
	// lost returns the channels of units in use that can be lost: see limits.Grant.Lost.
	lost() []<-chan struct{}
	// settle ends the take. used has the units used of each limit, or asTaken. It reports whether all charges are
	// certain to count.
	settle(ctx context.Context, used [MaxLimits]int64) bool
}

// EndWhenLost calls end with limits.ErrLost once one of the channels is closed. end must be the cancel function of the
// context until. The caller must call end when the request is done, or the goroutines of EndWhenLost stay.
func EndWhenLost(until context.Context, end context.CancelCauseFunc, all []<-chan struct{}) {
	for _, lost := range all {
		go func() {
			select {
			case <-lost:
				end(limits.ErrLost)
			case <-until.Done():
			}
		}()
	}
}

// asTaken is the number of used units of a request that used all units taken. Units in use then come back.
const asTaken = limits.AllUsed

var allAsTaken = [MaxLimits]int64{asTaken, asTaken, asTaken, asTaken, asTaken, asTaken, asTaken, asTaken}

// Of returns p.
func (p *Parts[R, S]) Of() *Parts[R, S] { return p }

// HasUnitsInUse reports whether the limiter is known to have units in use until a request ends.
func (p *Parts[R, S]) HasUnitsInUse() bool { return p.occupies }

// costs returns the units that a request takes of the limit. ok is false if they are below 0.
func (p *Parts[R, S]) costs(request R, result *Result) (n int64, ok bool) {
	if p.Cost == nil {
		return result.common, true
	}
	return p.ownCosts(request, result)
}

func (p *Parts[R, S]) ownCosts(request R, result *Result) (n int64, ok bool) {
	if n = p.Cost(request); n < 0 {
		result.Reason, result.Cost = limits.Misconfigured, n
		return n, false
	}
	return n, true
}

// Check checks the fields, and completes the Limit. index is the limit's index, and name its default name.
// wantKey is the hint for a missing Key, and bad makes the error about a field.
func (l *Limit[R, K, S]) Check(index int, name, wantKey string, bad FieldFault) error {
	if l.Name == "" {
		l.Name = name
	}
	switch want := WrongName(l.Name); {
	case want != "":
		return bad("Name", fmt.Sprintf("%.80q", l.Name), want)
	case shape.IsNil(l.Limiter):
		return bad("Limiter", "nil", "a limiter, such as engine.New returns")
	case l.Key == nil:
		return bad("Key", "nil", wantKey)
	case l.WhenNoKey < limits.Refuse || l.WhenNoKey > limits.Share:
		return bad("WhenNoKey", int(l.WhenNoKey), "Refuse, Skip or Share")
	}
	if _, l.tiers = l.Limiter.(*engine.Tiered[K]); l.tiers && l.PolicyFor != nil {
		return bad("PolicyFor", "a function", "nil under an *engine.Tiered, whose several limits a plan cannot replace: make each of its engines a Limit")
	}
	if l.Stream != nil && occupies(l.Limiter) {
		return bad("Stream", "a function", "nil under a policy.InFlight, whose units are in use and not used up")
	}
	l.engine, _ = l.Limiter.(*engine.Engine[K])
	decider := l.Limiter
	if trial, ok := decider.(*limits.Trial[K]); ok {
		decider = trial.Live()
	}
	l.servers, _ = decider.(sharing)
	// Only a pointer is kept, since quotaOf compares the limit, and a pointer is comparable.
	if l.engine != nil && reflect.TypeOf(l.engine.Limit()).Kind() == reflect.Pointer {
		l.own, l.quota = l.engine.Limit(), l.quotaOf(l.engine.Limit())
	}
	if l.Charge == nil {
		l.Charge = l.Stream
	}
	l.index, l.plain, l.occupies = index, l.engine != nil && l.PolicyFor == nil, occupies(l.Limiter)
	return nil
}

// Stats implements Any.
func (l *Limit[R, K, S]) Stats() (stats engine.Stats, ok bool) {
	if l.engine == nil {
		return stats, false
	}
	return l.engine.Stats(), true
}

// Remote implements Any.
func (l *Limit[R, K, S]) Remote() bool {
	remote, ok := l.Limiter.(limits.Remote)
	return ok && remote.Remote()
}

func (l *Limit[R, K, S]) limiter() any { return l.Limiter }

// find returns the request's key, and reports whether the limit applies.
func (l *Limit[R, K, S]) find(request R) (key K, ok bool) {
	var none K
	key = l.Key(request)
	return key, key != none || l.WhenNoKey == limits.Share
}

func (l *Limit[R, K, S]) claim(request R, n int64, to *engine.Claim, charge *func(used int64)) (limit policy.Policy) {
	key, ok := l.find(request)
	if !ok {
		return nil
	}
	if charge == nil {
		*to = l.engine.Claim(key, n).Brief()
	} else {
		*to = l.engine.Claim(key, n)
		*charge = l.charge(key, n)
	}
	return l.engine.LimitFor(key)
}

// charge returns the function that charges the key for units used beyond n. It is a function of its own so that only a
// request that is charged allocates the key.
func (l *Limit[R, K, S]) charge(key K, n int64) func(used int64) {
	return func(used int64) {
		if used > n {
			l.engine.Refund(key, -min(used-n, decide.MostCharge(l.engine.LimitFor(key))))
		}
	}
}

func (l *Limit[R, K, S]) claimOfAny(request R, n int64, brief bool) (claim limits.Claim, limit policy.Policy, ok bool) {
	key, ok := l.find(request)
	if !ok {
		return claim, nil, false
	}
	plan := l.plan(request)
	limit = l.limit(key, plan)
	brief = brief && !l.occupies && !isOccupier(limit)
	return limits.NewClaim(l.Limiter, limits.Call[K]{Key: key, N: n, Limit: plan, Brief: brief}), limit, true
}

func (l *Limit[R, K, S]) hold(ctx context.Context, request R, n int64) (grant limits.Grant, inUse, ok bool, err error) {
	key, ok := l.find(request)
	if !ok {
		return grant, false, false, nil
	}
	plan := l.plan(request)
	inUse = l.occupies || isOccupier(l.limit(key, plan))
	grant, err = l.Limiter.Hold(ctx, limits.Call[K]{Key: key, N: n, NoWait: true, Limit: plan})
	return grant, inUse, true, err
}

func (l *Limit[R, K, S]) stepper(request R, noWait bool) func(ctx context.Context, n int64) (limits.Grant, error) {
	key, ok := l.find(request)
	if !ok {
		return nil
	}
	plan := l.plan(request)
	return func(ctx context.Context, n int64) (limits.Grant, error) {
		return l.Limiter.Hold(ctx, limits.Call[K]{Key: key, N: n, NoWait: noWait, Limit: plan})
	}
}

// plan returns the limit that comes with the request, or nil.
func (l *Limit[R, K, S]) plan(request R) policy.Policy {
	if l.PolicyFor == nil {
		return nil
	}
	return l.PolicyFor(request)
}

func (l *Limit[R, K, S]) limit(key K, plan policy.Policy) policy.Policy {
	if plan != nil {
		return plan
	}
	return l.Limiter.LimitFor(key)
}

func (p *Parts[R, S]) quotaOf(limit policy.Policy) Quota {
	if limit == p.own {
		return p.quota
	}
	quota := claimed(limit)
	quota.Applies = quota.Applies && !p.Hidden
	return quota
}

// tellTurn sets the time until the turn of a request that a single limit refused.
func (l *Limit[R, K, S]) tellTurn(t *Turns, key K, limit policy.Policy, after time.Duration, result *Result) {
	if result.keepsTurn(&result.Quota) {
		result.setRetryAfter(l.turnOf(key, limit, after, result.Cost, result.Quota, t, result.Provenance.Guess()))
	}
}

func (l *Limit[R, K, S]) turn(request R, after time.Duration, n int64, of Quota, t *Turns, guess bool) time.Duration {
	if key, ok := l.find(request); ok {
		return l.turnOf(key, l.limit(key, l.plan(request)), after, n, of, t, guess)
	}
	return after
}

func (l *Limit[R, K, S]) turnOf(key K, limit policy.Policy, after time.Duration, n int64, quota Quota, turns *Turns, guess bool) time.Duration {
	if l.tiers {
		// It is not known which of the tiers decided.
		return after
	}
	servers := 1
	if l.servers != nil {
		servers = max(1, l.servers.Servers(guess))
	}
	hash := maphash.Comparable(turns.seed, key) + uint64(l.index) //nolint:gosec // an index
	return turns.after(hash, after, turns.pace(limit, quota, n), servers)
}

// tellInUse replaces the times of result under a limit of units in use. They are upper bounds, since any request that ends
// makes room.
func (l *Limit[R, K, S]) tellInUse(key K, result *Result, guess time.Duration) {
	if result.Reason == limits.OverLimit && result.keepsTurn(&result.Quota) {
		result.setRetryAfter(l.comesBack(key, result.Cost, result.RetryAfter, guess))
	}
	if result.Quota.InUse {
		result.boundReset(guess)
	}
}

func (l *Limit[R, K, S]) comesBackAfter(request R, n int64, after, guess time.Duration) time.Duration {
	if key, ok := l.find(request); ok && after > 0 {
		return l.comesBack(key, n, after, guess)
	}
	return after
}

// comesBack returns the time after which a refused request of n units is told to come back. after is the time that the
// limit told, and guess bounds the time under a limit of units in use. The time is random, so that requests that were
// refused together come back at different times.
func (l *Limit[R, K, S]) comesBack(key K, n int64, after, guess time.Duration) time.Duration {
	guess = guess/2 + rand.N(guess/2+1)
	switch tiered, _ := l.Limiter.(*engine.Tiered[K]); {
	case after == policy.Never:
	case tiered != nil:
		// A request may have ended since the refusal, so the tiers are asked again.
		after = 1
		for _, limiter := range tiered.Engines() {
			if decision := limiter.Peek(key, n); !decision.Allowed {
				after = max(after, guessIn(limiter, key, decision.RetryAfter, guess))
			}
		}
	case l.engine != nil:
		after = guessIn(l.engine, key, after, guess)
	case isOccupier(l.Limiter.LimitFor(key)):
		after = min(after, guess)
	}
	return after
}

// KeyOf implements Any.
func (l *Limit[R, K, S]) KeyOf(request R, described bool) (fingerprint, limit string) {
	key, ok := l.find(request)
	if !ok {
		return "", ""
	}
	if described {
		limit = l.words.text(l.limit(key, l.plan(request)))
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%v", key))
	return hex.EncodeToString(sum[:6]), limit
}

// Describe implements Any.
func (l *Limit[R, K, S]) Describe(request R) string {
	key, ok := l.find(request)
	if !ok {
		return ""
	}
	return l.words.text(l.limit(key, l.plan(request)))
}

// Take implements Any.
func (l *Limit[R, K, S]) Take(ctx context.Context, request R, controller *Controller[R, S], result Result) (Result, Settlement) {
	settlement := l.TakeOne(ctx, request, &result, controller)
	return result, settlement
}

// TakeOne takes under this limit alone, and may wait for the request's turn. The settlement is as for
// Controller.Decide.
func (l *Limit[R, K, S]) TakeOne(ctx context.Context, request R, result *Result, controller *Controller[R, S]) Settlement {
	var ok bool
	result.Binding = l.index
	if result.Cost, ok = l.costs(request, result); !ok {
		return nil
	}
	key, ok := l.find(request)
	if !ok {
		result.keyless(l.WhenNoKey, l.Name)
		return nil
	}
	// The limit is looked up before the take, since engine.PolicyFor may panic. It may change until the take.
	plan := l.plan(request)
	limit := l.limit(key, plan)
	upTo := controller.patience(ctx, limit)
	result.Limit, result.Quota = l.Name, l.quotaOf(limit)
	holds := controller.charges || result.Quota.InUse || l.occupies
	if upTo <= 0 && !holds && !controller.shadow && plan == nil {
		answer, err := l.Limiter.Admit(ctx, key, result.Cost)
		result.conclude(ctx, limit, &answer, err)
		if result.Reason == limits.OverLimit && controller.config.Turns != nil {
			l.tellTurn(controller.config.Turns, key, limit, answer.RetryAfter, result)
		}
		return nil
	}
	grant, err := l.Limiter.Hold(ctx, limits.Call[K]{
		Key: key, N: result.Cost, Patience: upTo, NoWait: controller.shadow, Limit: plan, Brief: !holds,
	})
	if grant.Wait > 0 && grant.Allowed && !controller.shadow && plan == nil {
		l.describeAgain(ctx, result, key, &grant)
	}
	result.conclude(ctx, limit, &grant.Answer, err)
	switch {
	case result.Quota.InUse || l.tiers && l.occupies:
		l.tellInUse(key, result, controller.config.RetryGuess)
	case result.Reason == limits.OverLimit && controller.config.Turns != nil:
		l.tellTurn(controller.config.Turns, key, limit, grant.RetryAfter, result)
	}
	if !holds || result.Reason != limits.Admitted {
		return nil
	}
	return &grantTaken[R, S]{Grant: grant, index: l.index, n: result.Cost}
}

// describeAgain looks up the limit again after a wait, and sets the quota. If engine.PolicyFor panics, describeAgain
// gives the units back.
func (l *Limit[R, K, S]) describeAgain(ctx context.Context, result *Result, key K, grant *limits.Grant) {
	described := false
	defer func() {
		if !described {
			_ = grant.Cancel(context.WithoutCancel(ctx))
		}
	}()
	// If the limit is not the one that decided, such as a limit of another family, the quota stays.
	if quota := l.quotaOf(l.Limiter.LimitFor(key)); quota.limit == grant.Limit {
		result.Quota = quota
	}
	described = true
}

// conclude completes the result of a request under a single limit.
func (v *Result) conclude(ctx context.Context, limit policy.Policy, answer *limits.Answer, err error) {
	v.Decision, v.Provenance, v.Waited = answer.Decision, answer.Provenance, answer.Wait
	switch {
	case err != nil:
		v.failed(ctx, err)
	case !answer.Allowed:
		v.Reason, v.Violated = v.Quota.reasonOf(answer), 1<<v.Binding
	}
	if answer.ResetAfter > v.Quota.Window && answer.Limit == v.Quota.limit {
		v.Quota.lasts = lasts(limit)
		v.bound(&v.Quota)
	}
	if v.Violated != 0 {
		v.RetryAfter = v.Decision.RetryAfter
	}
	v.Quota.follow(answer)
}

func (v *Result) failed(ctx context.Context, err error) {
	v.Reason, v.Provenance = limits.Unavailable, limits.NewProvenance(v.Provenance.Source(), false, err)
	if ctx.Err() != nil {
		v.Reason = limits.Cancelled
	}
}

func (v *Result) keyless(when limits.WhenNoKey, name string) {
	if when == limits.Skip {
		v.Reason = limits.Exempt
		return
	}
	v.Reason, v.Limit = limits.NoKey, name
}

// grantTaken holds the units of a request under one limit.
type grantTaken[R, S any] struct {
	limits.Grant
	index int
	n     int64
	// tried is the Controller of a limit with Shadow, or nil. enforced holds the units of the other limits
	// of that request, or is nil.
	tried    *Controller[R, S]
	enforced Settlement
}

func (t *grantTaken[R, S]) holds() (bits uint8) {
	if t.enforced != nil {
		bits = t.enforced.holds()
	}
	return bits | 1<<t.index
}

func (t *grantTaken[R, S]) cost(index int) int64 {
	if index != t.index && t.enforced != nil {
		return t.enforced.cost(index)
	}
	return t.n
}

func (t *grantTaken[R, S]) lost() (all []<-chan struct{}) {
	if t.enforced != nil {
		all = t.enforced.lost()
	}
	if lost := t.Grant.Lost(); lost != nil && t.tried == nil {
		all = append(all, lost)
	}
	return all
}

func (t *grantTaken[R, S]) settle(ctx context.Context, used [MaxLimits]int64) (sure bool) {
	sure = t.enforced == nil || t.enforced.settle(ctx, used)
	if t.tried != nil {
		t.settleShadow(ctx, used[t.index])
		return sure
	}
	return t.settleOne(ctx, used[t.index]) == nil && sure
}

func (t *grantTaken[R, S]) settleOne(ctx context.Context, used int64) error {
	if used == asTaken {
		return t.Grant.Release(ctx)
	}
	// Settle gives unused units back to the window of the take.
	return t.Settle(ctx, used)
}

func (t *grantTaken[R, S]) settleShadow(ctx context.Context, used int64) {
	defer t.tried.endShadow(ctx, t.index)
	if err := t.settleOne(ctx, used); err != nil {
		t.tried.shadowFailed(ctx, t.index, err)
	}
}
