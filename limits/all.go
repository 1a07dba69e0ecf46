package limits

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/ral-limiter/ral/internal/adapter/binding"
	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/policy"
)

// Claim is a call of a limiter, for AskAll. Call NewClaim; the zero Claim panics.
type Claim struct {
	call claimed
	n    int64
	// atOnce is the highest Remaining that the limit can have.
	atOnce int64
	remote bool
}

// claimed is a call of a limiter with the type of its keys hidden, since AskAll takes claims on keys of
// different types.
type claimed interface {
	look(n int64, patience time.Duration, noWait bool) (a Answer, ok bool)
	// join adds the call, for n units, to a joint decision: see joiner.Join.
	join(all any, n int64) any
	hold(ctx context.Context, n int64, patience time.Duration, noWait bool) (Grant, error)
	// limiter returns the limiter that keeps the key, whether that limiter counts all keys together, and
	// Call.Limit. It tells whether two claims are on the same key: see Claim.sameKey.
	limiter() (of any, keyless bool, limit policy.Policy)
	equalKey(other claimed) bool
}

// NewClaim makes a Claim. AskAll sets the call's Patience and NoWait.
func NewClaim[K comparable](limiter Limiter[K], call Call[K]) Claim {
	limit := call.Limit
	if limit == nil {
		limit = limiter.LimitFor(call.Key)
	}
	claim := Claim{call: &claimOf[K]{limiter, call}, n: call.N, remote: isRemote(limiter)}
	if limit != nil {
		claim.atOnce = shape.AtOnce(limit)
	}
	return claim
}

type claimOf[K comparable] struct {
	keeper Limiter[K]
	call   Call[K]
}

func (c *claimOf[K]) hold(ctx context.Context, n int64, patience time.Duration, noWait bool) (Grant, error) {
	call := c.call
	call.N, call.Patience, call.NoWait = n, patience, noWait
	return c.keeper.Hold(ctx, call)
}

func (c *claimOf[K]) look(n int64, patience time.Duration, noWait bool) (answer Answer, ok bool) {
	l, ok := c.keeper.(looker[K])
	if !ok {
		return answer, false
	}
	call := c.call
	call.N, call.Patience, call.NoWait = n, patience, noWait
	return l.Look(call)
}

func (c *claimOf[K]) join(all any, n int64) any {
	l, ok := c.keeper.(joiner[K])
	if !ok {
		return nil
	}
	call := c.call
	call.N = n
	return l.Join(all, call)
}

func (c *claimOf[K]) limiter() (of any, all bool, limit policy.Policy) {
	if l, ok := c.keeper.(keyless[K]); ok {
		return l.only, true, c.call.Limit
	}
	return c.keeper, false, c.call.Limit
}

func (c *claimOf[K]) equalKey(other claimed) bool {
	o, ok := other.(*claimOf[K])
	return ok && c.call.Key == o.call.Key
}

// sameKey reports whether two claims are on the same key and limiter, and whether they are under the
// same limit. Values that cannot be compared, such as a structure with a slice, differ.
func (c *Claim) sameKey(other *Claim) (key, limit bool) {
	defer func() {
		if recover() != nil {
			key, limit = false, false
		}
	}()
	limiter, keyless, under := c.call.limiter()
	otherLimiter, _, otherUnder := other.call.limiter()
	if limiter != otherLimiter || !keyless && !c.call.equalKey(other.call) {
		return false, false
	}
	return true, under == otherUnder
}

// join merges claims on the same key under the same limit. parts has, for each claim, the index of its
// merged claim in joined. parts is nil if none were merged.
func join(claims []Claim) (joined []Claim, parts []int) {
	joined = claims
	for i := range claims {
		first := slices.IndexFunc(claims[:i], func(claim Claim) bool {
			key, limit := claim.sameKey(&claims[i])
			return key && limit
		})
		switch {
		case first == none && parts != nil:
			parts, joined = append(parts, len(joined)), append(joined, claims[i])
		case first != none && parts == nil:
			joined = slices.Clone(claims[:i])
			for before := range i {
				parts = append(parts, before)
			}
			fallthrough
		case first != none:
			parts = append(parts, parts[first])
			to := &joined[parts[first]]
			to.n = binding.Sum(to.n, claims[i].n)
		}
	}
	return joined, parts
}

// Outcome is the answer of AskAll. A single goroutine at a time may call its methods. The first
// call of Settle or Cancel ends the Outcome.
type Outcome struct {
	// Allowed reports whether all claims were met. Otherwise nothing is held.
	Allowed bool
	// RetryAfter is 0 if Allowed, and otherwise the longest RetryAfter of the claims that refused. A
	// claim that was not asked may still refuse at that time. RetryAfter is policy.Never if a claim
	// that was asked can never be met.
	RetryAfter time.Duration
	// Binding is the index of the claim that decided, -1 if none. Binding is the refused claim with
	// the longest wait, or the allowed claim with the least share left.
	Binding int
	// Answers has an answer for each claim, in order. A claim that was not asked, because another
	// claim refused first, has SourceNone. If the outcome is refused, an allowed answer tells the
	// state before its units were given back.
	Answers []Answer
	// Waited is how long the call waited.
	Waited time.Duration

	// grants is nil if nothing is held.
	grants []Grant
	// parts has the index of each claim's grant. parts is nil if each claim has its own grant.
	parts []int
	// units returns the units of each claim.
	units func(i int) int64
}

// String says, for example, "refused for 3s by claim 1". Claims are counted from 0.
func (o Outcome) String() string { return binding.Text(o.Allowed, o.Binding, o.RetryAfter, o.Waited) }

// Hold is for limiters. It gives an allowed outcome its grants, which the outcome's methods then end. parts has the index of each
// answer's grant, or is nil if each answer has a grant of its own. units returns the units of each answer.
func (o *Outcome) Hold(grants []Grant, parts []int, units func(i int) int64) {
	o.grants, o.parts, o.units = grants, parts, units
}

// maxFutile bounds the consecutive attempts at which a call gets its turn on one key and is refused
// by another key. Without it, claims on limiters that share state unknown to AskAll, such as a Tiered
// and its own engine, could loop for ever.
const maxFutile = 16

// none is the index of no claim.
const none = -1

// AskAll takes the units of every claim, or of none. For example, one claim is on the address in
// process, and another on the tenant over a fleet. AskAll looks at claims in process first: if any refuses, nothing is taken and no round
// trip is made. Then AskAll takes from the remote claims, and last from the claims in process. Remote
// claims of one client are taken in a single exchange. Other remote claims are taken in their order, up
// to the first refusal. No limit is ever exceeded. Without claims the call is allowed.
//
// Claims on a key of the same limiter are met together, by the sum of their units, and share their
// answer. Such claims should not have different values of Call.Limit. If they do, AskAll asks them
// one after the other, and the RetryAfter of a refusal is not exact.
//
// With patience the call waits at most that long, in the line of the claim that refuses longest,
// while it holds nothing else. At its turn the call takes from the others at once. Without patience
// a limit that would delay the call refuses.
//
// If a claim refuses, fails or panics after others were taken, AskAll gives these back as by
// Grant.Cancel; another call may be refused meanwhile. This happens if another call takes units
// between the look and the take, if remote claims of several clients disagree, or with a limiter in
// process that has no method Look, which is taken first. If the process dies in between, only units
// that were taken from remote limiters stay charged.
//
// The error is the error of Limiter.Hold for the first claim that failed. The Outcome is then not
// Allowed, and has the answers up to the failure. engine.TakeAll, and fleet.TakeAll for limiters of one Redis, are
// faster.
func AskAll(ctx context.Context, patience time.Duration, claims ...Claim) (Outcome, error) {
	joined, parts := join(claims)
	m := mixed{claims: joined, grants: make([]Grant, len(joined)), patient: patience > 0, left: patience}
	if near := m.indices(func(i int) bool { return !m.claims[i].remote }); len(near) == len(joined) {
		if allowed, decided, err := m.holdAll(ctx, near, patience); decided {
			return m.outcome(allowed, claims, parts), err
		}
	}
	began := time.Now()
	allowed, err := m.take(ctx, none)
	for futile := 0; !allowed && err == nil && m.patient && futile < maxFutile; futile++ {
		refused, retry := m.last()
		if refused == none || retry > m.left {
			break
		}
		var grant Grant
		grant, err = m.claims[refused].call.hold(ctx, m.claims[refused].n, max(patience-time.Since(began), atOnce), false)
		m.grants[refused] = grant
		if m.waited += grant.Wait; grant.Wait > 0 {
			futile = 0
		}
		if err != nil || !grant.Allowed {
			break
		}
		m.left = patience - time.Since(began)
		allowed, err = m.take(ctx, refused)
	}
	return m.outcome(allowed && err == nil, claims, parts), err
}

// joiner is an optional interface of limiters whose calls can be decided together: engines in process, and
// fleet.Limiters in one exchange with Redis.
type joiner[K comparable] interface {
	// Join adds a call to a decision, or begins one if all is nil. Join returns nil, and changes
	// nothing, if the calls cannot be decided together. Patience and NoWait are ignored. The result
	// is a joint.
	Join(all any, call Call[K]) any
}

// joint is a decision about several calls, so that AskAll need not know the limiter that decides them together.
// Only one goroutine at a time may use a joint.
type joint interface {
	// HoldAll takes the units of every call or of none. In process HoldAll waits up to patience, as AskAll
	// does. There is a grant for each call, in order. If not all are Allowed nothing is held. If HoldAll
	// returns neither grants nor an error, the calls cannot be decided together, and no limiter was asked. The
	// error is as for Limiter.Hold.
	HoldAll(ctx context.Context, patience time.Duration) (grants []Grant, waited time.Duration, err error)
}

// mixed is a call on claims of any limiters, no two of them on the same key and limit.
type mixed struct {
	claims  []Claim
	grants  []Grant
	patient bool
	// left is the patience that is left when take is called.
	left time.Duration
	// waited is the time that the call has waited so far.
	waited time.Duration
}

// indices returns the indices of the claims for which the function is returns true.
func (m *mixed) indices(is func(i int) bool) (indices []int) {
	for i := range m.claims {
		if is(i) {
			indices = append(indices, i)
		}
	}
	return indices
}

// holdAll takes from the claims at those indices together. decided is false if that is impossible.
func (m *mixed) holdAll(ctx context.Context, indices []int, patience time.Duration) (allowed, decided bool, err error) {
	var calls any
	for _, i := range indices {
		if calls = m.claims[i].call.join(calls, m.claims[i].n); calls == nil {
			return false, false, nil
		}
	}
	all, ok := calls.(joint)
	if !ok {
		return false, false, nil
	}
	grants, waited, err := all.HoldAll(ctx, patience)
	m.waited += waited
	allowed = err == nil
	for i, grant := range grants {
		m.grants[indices[i]] = grant
		allowed = allowed && grant.Allowed
	}
	return allowed, grants != nil || err != nil, err
}

// take takes from each claim except the claim has, whose grant is held already. If any claim refuses or fails, take
// gives all grants back, also that of has.
func (m *mixed) take(ctx context.Context, has int) (allowed bool, err error) {
	defer func() {
		if !allowed {
			m.giveBack(ctx)
		}
	}()
	for i := range m.grants {
		if i != has {
			// Answers before a wait are outdated.
			m.grants[i] = Grant{}
		}
	}
	looked, met, err := m.lookNear(ctx, has)
	if met && err == nil {
		met, err = m.takeFar(ctx, has)
	}
	for _, i := range looked {
		if !met || err != nil {
			break
		}
		met, err = m.hold(ctx, i)
	}
	allowed = met && err == nil
	return allowed, err
}

// lookNear looks at all claims in process, so that the outcome has all refusals. It returns the claims
// that a look allows, which are still to be taken. A claim that a look refuses, or cannot answer, is
// taken at once: the limiter then counts the refusal, or has room by now. A refused claim that has room
// within the patience is not taken, since AskAll lets the call wait in that limiter's line, which counts
// the refusal if there is one.
func (m *mixed) lookNear(ctx context.Context, has int) (looked []int, met bool, err error) {
	met = true
	for i := range m.claims {
		claim := &m.claims[i]
		if claim.remote || i == has {
			continue
		}
		if len(m.claims) > 1 || m.patient {
			answer, ok := claim.call.look(claim.n, atOnce, !m.patient)
			switch {
			case ok && answer.Allowed:
				m.grants[i] = Grant{Answer: answer}
				looked = append(looked, i)
				continue
			case ok && m.patient && answer.RetryAfter <= m.left:
				m.grants[i], met = Grant{Answer: answer}, false
				continue
			}
		}
		allowed, err := m.hold(ctx, i)
		if err != nil {
			return looked, false, err
		}
		met = met && allowed
	}
	return looked, met, nil
}

// takeFar takes the remote claims, together if that is possible, and reports whether all were met.
func (m *mixed) takeFar(ctx context.Context, has int) (met bool, err error) {
	asks := m.indices(func(i int) bool { return m.claims[i].remote && i != has && m.claims[i].n > 0 })
	together := false
	if len(asks) > 1 {
		if met, together, err = m.holdAll(ctx, asks, 0); together && !met {
			return false, err
		}
	}
	for i := range m.claims {
		if claim := &m.claims[i]; !claim.remote || i == has || together && claim.n > 0 {
			continue
		}
		if met, err = m.hold(ctx, i); !met || err != nil {
			return false, err
		}
	}
	return true, nil
}

// atOnce is the patience of a call that already holds units of other claims. A nanosecond is no wait,
// and unlike 0 it also keeps a limit that delays calls by itself, such as a policy.Queue, from delaying
// the call.
const atOnce = 1

// hold takes from a claim at once. Without patience hold ignores the line, as Take does.
func (m *mixed) hold(ctx context.Context, i int) (allowed bool, err error) {
	claim := &m.claims[i]
	m.grants[i], err = claim.call.hold(ctx, claim.n, atOnce, !m.patient)
	return m.grants[i].Allowed, err
}

// giveBack gives all grants back, even if a limiter panics. A remote limiter that cannot be reached keeps its charge.
func (m *mixed) giveBack(ctx context.Context) {
	ctx = context.WithoutCancel(ctx)
	for i := range m.grants {
		defer func() { _ = m.grants[i].Cancel(ctx) }()
	}
}

// last returns the refusing claim with the longest wait.
func (m *mixed) last() (index int, retry time.Duration) {
	index = none
	for i := range m.grants {
		grant := &m.grants[i]
		if grant.Source() != SourceNone && !grant.Allowed && (index == none || grant.RetryAfter > retry) {
			index, retry = i, grant.RetryAfter
		}
	}
	return index, retry
}

func (m *mixed) outcome(allowed bool, claims []Claim, parts []int) Outcome {
	if !allowed {
		m.markInexact()
	}
	out := Outcome{Allowed: allowed, Answers: make([]Answer, len(claims)), Waited: m.waited}
	claim := binding.New(allowed)
	for i := range claims {
		part := i
		if parts != nil {
			part = parts[i]
		}
		answer := m.grants[part].Answer
		if out.Answers[i] = answer; answer.Source() != SourceNone {
			claim.See(i, &answer.Decision, claims[i].atOnce)
		}
	}
	out.Binding, out.RetryAfter = claim.Index, claim.RetryAfter
	if allowed {
		out.Hold(m.grants, parts, func(i int) int64 { return claims[i].n })
	}
	return out
}

var errTwoLimits = errors.New("ral: limits: two claims on one key bring different limits, and when both would be met is unknown")

// markInexact marks the answers of claims on the same key under different limits as not exact.
func (m *mixed) markInexact() {
	for i := range m.claims {
		for j := range i {
			if key, _ := m.claims[i].sameKey(&m.claims[j]); key {
				for _, at := range [...]int{i, j} {
					if grant := &m.grants[at]; grant.Source() != SourceNone {
						grant.Provenance = NewProvenance(grant.Source(), false, errTwoLimits)
					}
				}
			}
		}
	}
}

// Settle ends the outcome. used has the units used of each claim, in the order of the claims: see
// Grant.Settle. A claim without a number used all its units. Settle settles all claims, and returns the
// first error.
func (o *Outcome) Settle(ctx context.Context, used ...int64) (err error) {
	grants := o.grants
	o.grants = nil
	if o.parts != nil {
		used = o.sums(used)
	}
	for i := range slices.Backward(grants) {
		if i >= len(used) {
			continue
		}
		defer func() {
			if failed := grants[i].Settle(ctx, used[i]); err == nil {
				err = failed
			}
		}()
	}
	return nil
}

// sums returns the units used of each grant, as the sum over the claims that share the grant.
func (o *Outcome) sums(used []int64) []int64 {
	sums := make([]int64, len(o.parts))
	for i, part := range o.parts {
		n := o.units(i)
		if i < len(used) {
			n = max(used[i], 0)
		}
		sums[part] = binding.Sum(sums[part], n)
	}
	return sums
}

// Lost returns a channel for each grant that can lose units in use: see Grant.Lost. A caller must
// call Lost before the outcome ends.
func (o *Outcome) Lost() (all []<-chan struct{}) {
	for i := range o.grants {
		if lost := o.grants[i].Lost(); lost != nil {
			all = append(all, lost)
		}
	}
	return all
}

// Release ends the outcome and gives back its units in use, those of a policy.InFlight: see Grant.Release. Release
// releases all grants, and returns the first error.
func (o *Outcome) Release(ctx context.Context) (err error) {
	grants := o.grants
	o.grants = nil
	for i := range slices.Backward(grants) {
		defer func() {
			if failed := grants[i].Release(ctx); err == nil {
				err = failed
			}
		}()
	}
	return nil
}

// Cancel ends the outcome, and gives all units back.
func (o *Outcome) Cancel(ctx context.Context) error {
	return o.Settle(ctx, make([]int64, len(o.Answers))...)
}
