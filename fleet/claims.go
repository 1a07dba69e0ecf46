package fleet

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/fleet/internal/share"
	"github.com/ral-limiter/ral/fleet/internal/slots"
	"github.com/ral-limiter/ral/fleet/internal/store"
	"github.com/ral-limiter/ral/internal/adapter/binding"
	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// Claim is a number of units of a key, for TakeAll. Limiter.Claim makes a Claim.
type Claim struct {
	limiter *Limiter
	limit   policy.Policy
	key     string
	n       int64
	// returns is TakeAsk.Returns.
	returns bool
}

// Claim names n units of a key, for TakeAll: 1 request, for example, beside 5,000 tokens. n == 0
// looks without taking; n < 0 and n above the limit are refused with policy.Never.
func (l *Limiter) Claim(key string, n int64) Claim { return Claim{limiter: l, key: key, n: n} }

// ClaimWith is Claim under a limit that comes with the call, as by TakeWith.
func (l *Limiter) ClaimWith(limit policy.Policy, key string, n int64) Claim {
	return Claim{limiter: l, limit: limit, key: key, n: n}
}

// TakeAll takes the units of every claim or of none, by one atomic call of Redis. So a request can
// be limited by its address, by its user and by a limit on all callers together.
//
// The limiters must share a client, as those with equal Config.Redis do, and the same Config.Epoch (or
// the error is ErrDifferentClients). They must be in Exact mode (ErrModeUnsupported), and in a cluster have the
// same Config.Tag (ErrCrossSlot). A limit of ClaimWith must be of its limiter's family (ErrMisfit).
// The first limiter's Budget holds. If that limiter cannot ask Redis, each answers by its Outage:
// FallbackClosed refuses all claims, FallbackOpen none.
//
// Claims on one key are met together, by the sum of their units, with the same answer. Claims on
// one key under different limits are asked in turn; if one refuses, RetryAfter may be too short.
// Without claims the call is allowed. A policy that would delay the call refuses it. An allowed
// call counts for each key, a refused call for each key that refuses, a claim for no units never.
// The zero Claim panics.
//
// The Outcome is held: Cancel and Settle give back as those of limits.AskAll. Beside a limit in
// flight units come back as by Reservation.Keep. Without one, units of a Funnel and a Bursty come back
// without the part that would drain meanwhile, since most such calls give nothing back: use
// limits.AskAll if that matters. Calls that wait for units in flight on this server do not hold up a
// TakeAll.
func TakeAll(ctx context.Context, claims ...Claim) (limits.Outcome, error) {
	out := limits.Outcome{Allowed: true, Binding: -1, Answers: make([]limits.Answer, len(claims))}
	if len(claims) == 0 {
		return out, nil
	}
	parts, indices, err := join(claims)
	if err != nil {
		return limits.Outcome{Binding: -1}, err
	}
	began := time.Now()
	all, err := takeAll(ctx, parts)
	if err != nil {
		return limits.Outcome{Binding: -1}, err
	}
	for _, t := range all {
		out.Allowed = out.Allowed && t.answer.Allowed
	}
	claim := binding.New(out.Allowed)
	for i, at := range indices {
		out.Answers[i] = all[at].answer
		claim.See(i, &out.Answers[i].Decision, shape.AtOnce(parts[at].terms.policy))
	}
	out.Binding, out.RetryAfter = claim.Index, claim.RetryAfter
	if out.Allowed {
		out.Hold(grantsOf(parts, all, began), indices, func(i int) int64 { return claims[i].n })
	}
	return out, nil
}

// grantsOf returns the grants of parts that were asked for at that time. The grants hold nothing if
// any part is refused.
func grantsOf(parts []part, all []taken, began time.Time) []limits.Grant {
	grants, allowed := make([]limits.Grant, len(parts)), true
	for i, part := range parts {
		grants[i] = grantOf(part.limiter.reserved(part.ask, all[i]), began)
		allowed = allowed && grants[i].Allowed
	}
	for i := range grants {
		if !allowed {
			grants[i].State = limits.GrantState{}
		}
	}
	return grants
}

// SharesClient reports whether other is a limiter with the same client of Redis and Config.Epoch, as
// TakeAll needs.
func (l *Limiter) SharesClient(other any) bool {
	limiter, ok := other.(*Limiter)
	// One script reads one clock.
	return ok && limiter.conn == l.conn && limiter.config.Epoch.Equal(l.config.Epoch)
}

// part is claims on a key of a limiter, under one limit.
type part struct {
	limiter *Limiter
	ask
}

// join adds up the claims on the same key, limiter and limit. at has the index of each claim's
// part. The error says why a single call of Redis cannot decide.
func join(claims []Claim) (parts []part, indices []int, err error) {
	indices = make([]int, len(claims))
	first, inFlight := claims[0].limiter, false
	for i, claim := range claims {
		switch {
		case claim.limiter.closed.Load():
			return nil, nil, engine.ErrClosed
		case claim.limiter.config.Mode != Exact:
			return nil, nil, unsupported("TakeAll")
		case !claim.limiter.SharesClient(first):
			return nil, nil, ErrDifferentClients
		}
		terms, err := claim.limiter.under(claim.limit, claim.key)
		if err != nil {
			return nil, nil, err
		}
		inFlight = inFlight || claim.limiter.slots != nil
		indices[i] = slices.IndexFunc(parts, func(part part) bool {
			return part.limiter == claim.limiter && part.key == claim.key && part.terms == terms
		})
		if indices[i] < 0 {
			indices[i] = len(parts)
			parts = append(parts, part{claim.limiter, ask{terms: terms, key: claim.key, n: claim.n, returns: claim.returns}})
			continue
		}
		n := &parts[indices[i]].n
		switch {
		case *n < 0 || claim.n < 0:
			*n = -1
		default:
			*n += min(claim.n, math.MaxInt64-*n)
		}
	}
	for i := range parts {
		part := &parts[i]
		if part.returns = part.returns || inFlight; part.limiter.slots != nil {
			part.id = part.limiter.slots.newID(part.n)
		}
	}
	return parts, indices, nil
}

// takeAll has the links take all parts or none, and counts the answers.
func takeAll(ctx context.Context, parts []part) ([]taken, error) {
	all, err := exactTogether(ctx, parts)
	if why, passes := err.(noAnswer); passes { //nolint:errorlint // links do not wrap it
		all, err = withoutTogether(parts, why)
	}
	if err != nil {
		return nil, err
	}
	allowed := true
	for i := range all {
		refuseBlocked(&all[i].answer, all[i].blocked)
		allowed = allowed && all[i].answer.Allowed
	}
	type key struct {
		limiter *Limiter
		key     string
	}
	counted := make(map[key]bool, len(parts))
	for i, part := range parts {
		k := key{part.limiter, part.key}
		if answer := &all[i].answer; part.n != 0 && answer.Allowed == allowed && !counted[k] {
			counted[k] = true
			part.limiter.tally.count(part.n, answer)
		}
		if allowed {
			part.limiter.warned.add(part.terms, part.key, all[i].passed, &all[i].answer.Decision)
		}
	}
	return all, nil
}

// exactTogether takes all parts or none, by one script of the first limiter's Redis.
func exactTogether(ctx context.Context, parts []part) ([]taken, error) {
	asks, requests := make([]store.Ask, len(parts)), make([]slots.Request, len(parts))
	for i, part := range parts {
		asks[i] = store.Ask{Limit: part.terms.limit, Key: part.key, N: part.n, Returns: part.returns, ID: part.id}
		if part.limiter.slots != nil {
			var err error
			if requests[i], err = part.limiter.slots.mayEnter(); err != nil {
				return nil, err
			}
		}
	}
	first := parts[0]
	all, err := about(ctx, &first.limiter.access, first.terms, first.key, func(ctx context.Context, decider decider) ([]store.Taken, error) {
		for _, part := range parts {
			if part.limiter.remote.Load() == nil {
				return nil, errConnecting
			}
		}
		return decider.TakeAll(ctx, asks)
	})
	if err != nil {
		return nil, err
	}
	out, allowed := make([]taken, len(parts)), true
	for _, got := range all {
		allowed = allowed && got.Allowed
	}
	for i, got := range all {
		part := &parts[i]
		e := exact{part.limiter, byRedis}
		if part.limiter.slots == nil {
			out[i] = e.answer(&part.ask, got)
			out[i].by, out[i].receipt = e, &all[i]
			continue
		}
		flight, ask := inFlight{e}, part.ask
		if !allowed {
			// No units entered.
			ask.n = 0
		}
		if out[i], err = flight.entered(&ask, got, requests[i]); err != nil {
			leaveSlots(parts, out)
			return nil, err
		}
		out[i].by = flight
	}
	return out, nil
}

// leaveSlots forgets the slots that some of the parts took. Their units leave Redis within a term.
func leaveSlots(parts []part, all []taken) {
	for i := range all {
		if slot, ok := all[i].receipt.(*slots.Slot); ok {
			parts[i].limiter.slots.leave(slot)
			all[i].receipt = nil
		}
	}
}

// withoutTogether takes all parts or none. If a limiter was closed meanwhile, all units come back, and
// the error is engine.ErrClosed.
func withoutTogether(parts []part, why noAnswer) ([]taken, error) {
	out, allowed := make([]taken, len(parts)), true
	var claims []share.Claim
	// indices are the indexes of their parts.
	var indices []int
	for i, part := range parts {
		last := part.limiter.chain[len(part.limiter.chain)-1]
		part.why, part.blocked = why, part.limiter.known.Left(part.key, last.trusts())
		if part.terms.local != nil {
			claims, indices = append(claims, share.Claim{Local: part.terms.local, Key: part.key, N: part.units()}), append(indices, i)
		} else {
			// The call waits for nothing.
			out[i], _ = last.take(context.Background(), part.ask)
			allowed = allowed && out[i].answer.Allowed
		}
		out[i].by, out[i].blocked = last, part.blocked
		allowed = allowed && part.blocked == 0
	}
	// Nothing is charged for a refused call.
	if !allowed {
		for i := range claims {
			claims[i].N = min(claims[i].N, 0)
		}
	}
	all, shared := share.TakeAll(claims...)
	if allowed = allowed && shared; !allowed {
		leaveSlots(parts, out)
	}
	for i, index := range indices {
		part, t := parts[index], &out[index]
		part.why = why
		f := fallback{part.limiter}
		t.answer, t.receipt, t.passed = f.shared(&part.ask, all[i].Decision, claims[i].N).answer, &all[i], f.passed(&all[i], claims[i].N)
	}
	for _, part := range parts {
		if part.limiter.closed.Load() {
			for i := range all {
				if allowed {
					all[i].Cancel()
				}
			}
			leaveSlots(parts, out)
			return nil, engine.ErrClosed
		}
	}
	return out, nil
}
