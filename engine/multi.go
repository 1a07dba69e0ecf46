package engine

import (
	"context"
	"slices"
	"time"

	"github.com/ral-limiter/ral/cell"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// Claim is a number of units of a key, for TakeAll and AcquireAll. The zero Claim is refused with
// policy.Never.
type Claim struct {
	of    *claimer // nil if there is no key
	key   anyKey
	n     int64
	hash  uint64
	brief bool
}

func (c *Claim) engine() *claimer {
	if c.of == nil {
		return noClaimer
	}
	return c.of
}

// before orders keys alike in every call.
func (c *Claim) before(other *Claim) bool {
	if c.of != other.of {
		return c.engine().id < other.engine().id
	}
	return c.hash < other.hash
}

// Claim names n units of a key, for TakeAll and AcquireAll. The claims of a call may be on keys of
// several engines, for different numbers of units: a request and 5,000 tokens. n == 0 looks without
// taking; n < 0, and n above the limit, are refused with policy.Never. A Claim of a string, a
// number, a netip.Addr, or a struct of up to three words with at most one pointer allocates
// nothing. Any other key is copied.
func (e *Engine[K]) Claim(key K, n int64) Claim {
	hash, _ := e.cell.Hash(key)
	return Claim{of: &e.claimer, key: pack(e.form, key), n: n, hash: hash}
}

// Brief returns the claim for a call whose Outcome is settled at once or never, as if a request is
// never charged afterwards. Its take is then not remembered, which saves about half of the time of a
// TakeAll under a policy.Funnel or policy.Bursty. Units that are settled later come back less the part
// that drained meanwhile.
func (c Claim) Brief() Claim {
	c.brief = true
	return c
}

// Outcome is the answer of TakeAll or AcquireAll.
type Outcome struct {
	// Allowed reports whether all claims were met. Otherwise nothing was taken, or it was given
	// back: see TakeAll.
	Allowed bool
	// RetryAfter is 0 if Allowed, and otherwise the time until all claims would be met, if no other
	// call takes; policy.Never if a claim never will be.
	RetryAfter time.Duration
	// Binding is the index of the deciding claim: the refused claim with the longest wait, or the
	// allowed claim with the least share left. It is -1 without claims.
	Binding int
	// Decisions has a decision for each claim, in order. Claims on the same key share theirs. Under
	// a policy.Queue, Remaining counts the places in the queue, although TakeAll refuses to wait in
	// it.
	Decisions []policy.Decision
	// Waited is the time that AcquireAll stood in line; 0 if it did not.
	Waited time.Duration

	held []heldClaim // by claim; nil if there is nothing to know of any

	// known is used instead if every key was known. It is not allocated.
	known [maxKnown]knownClaim
}

// Provenance returns how the decision on the claim of that index was reached, nil if there is no
// such claim. If the key could not be recorded the source is limits.SourceUnrecorded: the
// decision's Remaining, RetryAfter and ResetAfter are guesses, and so is a refused Outcome's
// RetryAfter.
func (o *Outcome) Provenance(claim int) *limits.Provenance {
	switch {
	case claim < 0 || claim >= len(o.Decisions):
		return nil
	case o.held != nil && o.held[claim].unrecorded:
		return unrecorded
	}
	return inProcess
}

func (o *Outcome) see(claim int, b cell.Basis) {
	if b.Recorded() {
		return
	}
	if o.held == nil {
		o.held = make([]heldClaim, len(o.Decisions))
	}
	o.held[claim].unrecorded = true
}

type heldClaim struct {
	releaser   // at the first claim on the key, if units are held
	n          int64
	first      int  // the first claim on the key
	unrecorded bool // the key could not be recorded
}

type releaser interface{ Keep(n int64) }

// Keep ends an outcome that is Allowed, and gives back the unused units: see Reservation.Keep. used
// has the units used of each claim, in order, cut to 0 to n. A claim without a number keeps all its
// units, and numbers beyond the claims are ignored. Keep is for one goroutine; the first Keep or
// Cancel ends the outcome.
func (o *Outcome) Keep(used ...int64) {
	for i := range slices.Backward(o.known[:]) {
		kept := o.known[i].n
		if i < len(used) {
			kept = used[i]
		}
		o.known[i].Keep(kept)
	}
	o.known = [maxKnown]knownClaim{}
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

// Cancel ends an outcome and gives all its units back: see Reservation.Cancel. It is as if nothing
// had been taken, if no other call took since. It does nothing after a refusal or another Cancel or
// Keep. Do not end a copy too: it would give the units back again.
func (o *Outcome) Cancel() {
	for i := range slices.Backward(o.known[:]) {
		o.known[i].Keep(0)
	}
	o.known = [maxKnown]knownClaim{}
	for i, h := range slices.Backward(o.held) {
		if h.releaser != nil {
			o.held[i].releaser = nil
			h.Keep(0)
		}
	}
}

// TakeAll takes the units of all claims or of none, for example by address, by user and for the
// whole service. No limit is ever exceeded, not for a moment. It looks at all keys before it takes,
// so nearly always a refused call takes nothing. If another call takes in between, units already
// taken are given back as by Reservation.Cancel. A call that comes at that moment may be refused
// although there is room right after.
//
// Claims on a key are met together, by the sum of their units. Without claims the call is allowed.
// A key that cannot be recorded is answered as for Take. A policy that would make the call wait
// refuses it. An allowed call is counted once for each key, a refused call once for each key that
// refuses. A claim for no units is not counted. If there are up to three claims, on different keys
// that their engines know, and no engine has PolicyFor, it allocates only the Decisions, and only
// for a caller that keeps the Outcome.
//
// Limits that count in windows get everything back. So does a funnel, unless other calls take by
// Choke or Take in that moment. Then some units may stay charged, at most the claim's: as many as
// could have drained meanwhile, and those that other calls took beyond the room that the claim left.
// A policy.Queue or WarmingUp may keep the units once other calls have taken.
func TakeAll(claims ...Claim) (out Outcome) {
	// This is inlined, so that a caller that does not keep the Decisions has them on its stack.
	out.Decisions = make([]policy.Decision, maxKnown)
	out.take(claims)
	return out
}

func (o *Outcome) take(claims []Claim) {
	if !o.takeKnown(claims) {
		*o = takeAny(claims)
	}
}

func takeAny(claims []Claim) Outcome {
	var room claimRoom
	c := join(claims, &room)
	return c.outcome(c.take(0))
}

// AcquireAll is TakeAll that waits up to patience for all claims to be met. Zero patience does not
// wait. It waits, as Acquire does, in the line of the key that refuses it longest or, if none does,
// of a key for which calls wait already. At its turn it takes from the other keys at once. If one
// of them has no room, it gives back all units and goes to that key's line. So calls that wait for
// a key are served in order; calls that wait for several in turn may be overtaken.
//
// Units are given back on the way as by Reservation.Cancel. Under PolicyFor with a limit that does
// not count in windows, none come back once others have taken. A call that is refused in the end
// may then still be charged.
//
// The error is as for Acquire, and ErrClosed if any engine is closed when AcquireAll is called. The
// Outcome is then not Allowed, and has the state of all claims. The claim that the call stood in
// line for is refused, or the first if the context was over already while all had room. A call is
// counted once, as for TakeAll. If no claim asks for units it never waits. It is then refused only
// for a zero Claim or a limit of another family (ErrNever), or for a blocked key (ErrDeadline).
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
	// First the longest refusal, so that a call refused by its own key does not block a shared
	// line.
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
