package engine

import (
	"context"
	"slices"
	"time"

	"github.com/ral-limiter/ral/cell"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// Claim is a number of units of one key, for TakeAll and AcquireAll. An engine's Claim
// method makes it. The zero Claim is never met: it refuses with policy.Never.
type Claim struct {
	of  claimer // nil if there is no key
	key anyKey
	n   int64
}

// Claim names n units of a key, for TakeAll and AcquireAll. The claims of one call may be
// on keys of several engines, and ask for different numbers of units: one request and
// 5,000 tokens. n == 0 looks without taking; n < 0, and n above the limit, are refused
// with policy.Never.
//
// A Claim of a string, a number or a netip.Addr allocates nothing, nor does one of a struct
// of up to three words with at most one pointer. One of any other key makes a copy of it.
func (e *Engine[K]) Claim(key K, n int64) Claim { return Claim{e, pack(e.form, key), n} }

// Outcome is the answer of TakeAll or AcquireAll.
type Outcome struct {
	// Allowed reports whether all claims were met. Otherwise nothing was taken, or it
	// was given back: see TakeAll.
	Allowed bool
	// RetryAfter is 0 if Allowed. Otherwise all claims would be met after this long, if
	// no other call takes; policy.Never if one never will.
	RetryAfter time.Duration
	// Binding is the index of the claim that decided: of the refused ones the one that
	// has to wait longest, of the allowed ones the one with the least share of its limit
	// left. It is -1 if there are no claims.
	Binding int
	// Decisions has one for each claim, in their order. Those not Allowed refused. Claims
	// on the same key have the same one. Under a policy.Queue, Remaining counts the
	// places in the queue, although TakeAll refuses to wait in it.
	Decisions []policy.Decision
	// Waited is the time that AcquireAll stood in line; 0 if it did not.
	Waited time.Duration

	held []heldClaim // one for each claim; nil if there is nothing to know of any

	// known is what is held instead, if every key was known. It is not allocated.
	known [fewClaims]knownClaim
}

// Provenance returns how the decision on the claim of that index was reached, nil if there is no
// such claim. The source of one whose key could not be recorded is limits.SourceUnrecorded:
// Remaining, RetryAfter and ResetAfter of its decision are guesses, and RetryAfter of the
// Outcome is one as well if that decision refused.
func (o *Outcome) Provenance(claim int) *limits.Provenance {
	switch {
	case claim < 0 || claim >= len(o.Decisions):
		return nil
	case o.held != nil && o.held[claim].unrecorded:
		return unrecorded
	}
	return inProcess
}

// see notes how the decision on a claim was reached.
func (o *Outcome) see(claim int, b cell.Basis) {
	if b.Recorded() {
		return
	}
	if o.held == nil {
		o.held = make([]heldClaim, len(o.Decisions))
	}
	o.held[claim].unrecorded = true
}

// heldClaim is what an Outcome holds of a claim.
type heldClaim struct {
	releaser   // of the key, at its first claim; nil at the others, or if nothing is held
	n          int64
	first      int  // the first claim on the key
	unrecorded bool // the key could not be recorded
}

// releaser gives back to a key of any type.
type releaser interface{ Keep(n int64) }

// Keep ends an outcome that is Allowed, and gives back the units that were not used. used
// has one number for each claim, in their order: how many of its units were used. The
// others go back to where they came from: see Reservation.Keep. A number below 0 is 0,
// and one above the claim's n is n. A claim without a number keeps all its units, and
// numbers beyond the claims are ignored.
//
// Keep is for one goroutine, and the first call of Keep or Cancel ends the outcome.
func (o *Outcome) Keep(used ...int64) {
	for i := range slices.Backward(o.known[:]) {
		kept := o.known[i].taken.N
		if i < len(used) {
			kept = used[i]
		}
		o.known[i].Keep(kept)
	}
	o.known = [fewClaims]knownClaim{}
	for i, h := range slices.Backward(o.held) {
		if h.releaser == nil {
			continue
		}
		kept := int64(0)
		for at, c := range o.held {
			switch {
			case c.first != i || c.n <= 0:
			case at < len(used):
				kept = addSaturated(kept, min(max(used[at], 0), c.n))
			default:
				kept = addSaturated(kept, c.n)
			}
		}
		o.held[i].releaser = nil
		h.Keep(kept)
	}
}

// Cancel ends an outcome and gives all its units back: see Reservation.Cancel. It is as
// if nothing had been taken, if no other call took since. It does nothing if the outcome
// is not Allowed or has ended.
func (o *Outcome) Cancel() {
	for i := range slices.Backward(o.known[:]) {
		o.known[i].Keep(0)
	}
	o.known = [fewClaims]knownClaim{}
	for i, h := range slices.Backward(o.held) {
		if h.releaser != nil {
			o.held[i].releaser = nil
			h.Keep(0)
		}
	}
}

// TakeAll takes the units of every claim or of none: by address and by user and for the
// whole service. No limit is ever exceeded, not for a moment. It looks first, so that
// nearly always nothing is taken by a call that is refused. If another call is faster in
// between, what had been taken is given back as by Reservation.Cancel. A call that comes
// at that moment may be refused by a limit that has room the next.
//
// Limits that count in windows get everything back. So does a funnel, unless other calls
// give back to the same key in that moment. Then the key may stay charged for what could
// drain meanwhile. It may also stay charged for what others took that does not fit into
// the bucket beside the claim. It is never charged for more than the claim's units. A policy.Queue or WarmingUp
// keeps what it cannot give back to the calls behind. A limit that PolicyFor chose gives
// nothing back once others have taken, unless it counts in windows.
//
// Claims on one key are met together, by the sum of their units. Without claims the call
// is allowed. A key that cannot be recorded is answered as for Take. A policy that would
// make the call wait refuses it here. A call that is allowed is counted once for each
// key, and one that is refused once for each key that refuses. A claim for no units is
// not counted.
//
// It allocates the Outcome's Decisions and nothing else if there are up to three claims, on
// different keys that their engines know, and no engine has PolicyFor.
func TakeAll(claims ...Claim) (out Outcome) {
	if !out.takeKnown(claims) {
		out = takeAny(claims)
	}
	return out
}

// takeAny is TakeAll for any claims, by multiTake. takeKnown goes by known.go.
func takeAny(claims []Claim) Outcome {
	var room claimRoom
	c := join(claims, &room)
	return c.outcome(c.take(0))
}

// AcquireAll is TakeAll that waits up to patience for all claims to be met. Zero patience
// does not wait.
//
// It stands in the line of the key that refuses it longest or, if none does, of one for
// which calls wait already. There it waits as Acquire does: behind the calls that came
// before, and no longer than is of use. When its turn has come it takes from the other
// keys at once. If one of them has no room by then, it gives back what it has, and goes
// to that key's line. So calls that wait for one key are served in their order, and
// calls that wait for one key after the other may be overtaken on the way.
//
// Units given back on the way follow Reservation.Cancel's rules. Under PolicyFor with a
// limit that does not count in windows, none come back once others have taken, so on a
// busy key a call that is refused in the end may still be charged.
//
// If there is an error, it is one of those of Acquire, and ErrClosed if any engine is
// closed when AcquireAll is called. The Outcome, which is not Allowed then, has the state
// of all claims: the one that the call stood in line for is refused, or the first if the
// context was over already while all had room. A call is counted once, as for TakeAll. If
// no claim asks for units it never waits. It is refused then only for a zero Claim or a
// limit of another family, with ErrNever, or for a blocked key, with ErrDeadline.
func AcquireAll(ctx context.Context, patience time.Duration, claims ...Claim) (Outcome, error) {
	var room claimRoom
	c := join(claims, &room)
	began := time.Now()
	allowed := c.probe()
	ended, closed := ctx.Err() != nil, c.closed()
	at := c.lined()
	if !ended && closed == none && allowed && (!c.asks() || at == none && c.takeExcept(none)) {
		return c.outcome(true), nil
	}
	// Wait for the limit that refuses longest first, so that a call refused by its own
	// key does not block the line of a shared one.
	if last := c.last(); last != none {
		at = last
	}
	if closed != none {
		at = closed // its line returns ErrClosed
	}
	switch {
	case len(claims) == 0:
		return c.outcome(false), cell.Cancelled(ctx)
	case at == none:
		at = 0 // its line returns the context's error
	}
	for {
		k := &c.keys[at]
		left := max(patience, 0)
		if left < policy.Never {
			left = max(left-time.Since(began), 0)
		}
		d, held, basis, waited, err := k.claim.of.await(ctx, k.claim.key, k.n, left)
		k.decision, k.held, k.basis = d, held, basis
		c.waited += waited
		if err != nil {
			c.probeExcept(at)
			return c.outcome(false), err
		}
		if c.takeExcept(at) {
			return c.outcome(true), nil
		}
		at = c.last()
	}
}
