package engine

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"math"
	"slices"
	"time"

	"github.com/ral-limiter/ral/cell"
	"github.com/ral-limiter/ral/internal/adapter/binding"
	"github.com/ral-limiter/ral/internal/core/escape"
	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// Claim is a number of units of a key, for TakeAll and AcquireAll. The zero Claim is refused with
// policy.Never.
type Claim struct {
	// engine is nil if there is no key.
	engine *claimer
	hashedKey
	n     int64
	brief bool
}

type hashedKey struct {
	key  anyKey
	hash uint64
}

func (c *Claim) claimer() *claimer {
	if c.engine == nil {
		return noClaimer
	}
	return c.engine
}

// Claim names n units of a key, for TakeAll and AcquireAll. The claims of a call may be on keys of
// several engines, for different numbers of units: a request and 5,000 tokens. n == 0 looks without
// taking; n < 0, and n above the limit, are refused with policy.Never. A Claim of a string, a
// number, a netip.Addr, or a struct of up to three words with at most one pointer allocates
// nothing. Any other key is copied.
func (e *Engine[K]) Claim(key K, n int64) Claim {
	// This is inlined, so that the Claim is built where the caller keeps it.
	return Claim{engine: &e.claimer, hashedKey: e.packed(key), n: n}
}

func (e *Engine[K]) packed(key K) hashedKey {
	hash, _ := e.cell.Hash(key)
	return hashedKey{pack(e.form, key), hash}
}

// Brief returns the claim for a call whose Outcome is settled at once or never, as if a request is
// never charged afterwards. Its take is then not remembered, which saves about half of the time of a
// TakeAll under a policy.Funnel or policy.Bursty. Units that are settled later come back less the part
// that drained meanwhile.
func (c Claim) Brief() Claim {
	// A copy of the whole would wait for the stores of its fields.
	return Claim{engine: c.engine, hashedKey: hashedKey{anyKey{c.key.pointer, c.key.a, c.key.b}, c.hash}, n: c.n, brief: true}
}

// Outcome is the answer of TakeAll or AcquireAll.
type Outcome struct {
	// Allowed reports whether all claims were met. Otherwise nothing was taken, or the units were
	// given back: see TakeAll.
	Allowed bool
	// RetryAfter is 0 if Allowed, and otherwise the time until all claims would be met, if no other
	// call takes; policy.Never if a claim never will be.
	RetryAfter time.Duration
	// Binding is the index of the deciding claim: the refused claim with the longest wait, or the
	// allowed claim with the least share left. Binding is -1 without claims.
	Binding int
	// Decisions has a decision for each claim, in order. Claims on the same key share theirs. Under
	// a policy.Queue, Remaining counts the places in the queue, although TakeAll refuses to wait in
	// it.
	Decisions []policy.Decision
	// Waited is the time that AcquireAll stood in line; 0 if it did not.
	Waited time.Duration

	// held has an element for each claim. held is nil if there is nothing to know of any claim.
	held []heldClaim

	// known is used instead if every key was known. known is not allocated.
	known [maxKnown]knownClaim
}

// String says, for example, "refused for 3s by claim 1". Claims are counted from 0.
func (o Outcome) String() string { return binding.Text(o.Allowed, o.Binding, o.RetryAfter, o.Waited) }

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

func (o *Outcome) see(claim int, basis cell.Basis) {
	if basis.Recorded() {
		return
	}
	if o.held == nil {
		o.held = make([]heldClaim, len(o.Decisions))
	}
	o.held[claim].unrecorded = true
}

type heldClaim struct {
	// engine is nil except at the first claim on the key, if units are held.
	engine  *claimer
	receipt cell.Receipt
	n       int64
	// first is the first claim on the key.
	first int
	// unrecorded means that the key could not be recorded.
	unrecorded bool
}

// Keep ends an outcome that is Allowed, and gives back the unused units: see Reservation.Keep. used
// has the units used of each claim, in order, cut to 0 to n. A claim without a number keeps all its
// units, and numbers beyond the claims are ignored. Keep is for one goroutine; the first Keep or
// Cancel ends the outcome.
func (o *Outcome) Keep(used ...int64) { o.keep(used, math.MaxInt64) }

// Cancel ends an outcome and gives all its units back: see Reservation.Cancel. If no other call
// took since, it is as if nothing had been taken. Cancel does nothing after a refusal or another
// Cancel or Keep. A copy must not be ended as well: that would give the units back again.
func (o *Outcome) Cancel() { o.keep(nil, 0) }

// Release ends an outcome and gives back its units in use, those of a policy.InFlight. Units of other limits
// stay spent: see Reservation.Release.
func (o *Outcome) Release() { o.Keep() }

// keep ends an outcome. A claim without a number in used keeps at most rest units.
func (o *Outcome) keep(used []int64, rest int64) {
	for i := range slices.Backward(o.known[:]) {
		if o.known[i].engine != nil {
			o.keepOne(i, unitsUsed(used, i, rest))
		}
	}
	for i := range slices.Backward(o.held) {
		kept := int64(0)
		for j, claim := range o.held {
			if claim.first == i && claim.n > 0 {
				kept = binding.Sum(kept, min(max(unitsUsed(used, j, rest), 0), claim.n))
			}
		}
		o.keepOne(i, kept)
	}
}

// keepOne ends the take of a claim's key with so many units used. The second call does nothing.
func (o *Outcome) keepOne(claim int, used int64) {
	if claim < len(o.known) && o.known[claim].engine != nil {
		k := o.known[claim]
		o.known[claim] = knownClaim{}
		k.engine.keep(k.offer.Receipt(k.taken, k.n), used)
	}
	if claim < len(o.held) && o.held[claim].engine != nil {
		heldClaim := o.held[claim]
		o.held[claim].engine = nil
		heldClaim.engine.keep(heldClaim.receipt, used)
	}
}

func unitsUsed(used []int64, claim int, rest int64) int64 {
	if claim < len(used) {
		return used[claim]
	}
	return rest
}

// TakeAll takes the units of all claims or of none, for example by address, by user and for the
// whole service. No limit is ever exceeded, not for a moment. TakeAll looks at all keys before it
// takes, so nearly always a refused call takes nothing. If another call takes in between, units
// already taken are given back as by Reservation.Cancel. A call that comes at that moment may be
// refused although there is room right after.
//
// Claims on a key are met together, by the sum of their units. Without claims the call is allowed.
// A key that cannot be recorded is answered as for Take. A policy that would make the call wait
// refuses it. An allowed call is counted once for each key, a refused call once for each key that
// refuses. A claim for no units is not counted. If there are up to three claims, on different keys
// that their engines know, and no engine has PolicyFor, TakeAll allocates only the Decisions, and
// only for a caller that keeps the Outcome.
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
	call := join(claims, &room)
	return call.outcome(call.take(0))
}

// AcquireAll is TakeAll that waits up to patience for all claims to be met. Zero patience does not
// wait. AcquireAll waits, as Acquire does, in the line of the key that refuses longest or, if none
// does, of a key for which calls wait already. At its turn it takes from the other keys at once. If
// one of them has no room, the call gives back all units and goes to that key's line. So calls that
// wait for a key are served in order; calls that wait for several in turn may be overtaken.
//
// Units are given back on the way as by Reservation.Cancel. Under PolicyFor with a limit that does
// not count in windows, none come back once others have taken. A call that is refused in the end
// may then still be charged.
//
// The error is as for Acquire, and ErrClosed if any engine is closed when AcquireAll is called. The
// Outcome is then not Allowed, and has the state of all claims. The claim that the call stood in
// line for is refused, or the first if the context was over already while all had room. A call is
// counted once, as for TakeAll. If no claim asks for units the call never waits. It is then refused
// only for a zero Claim or a limit of another family (ErrNever), or for a blocked key
// (ErrDeadline).
func AcquireAll(ctx context.Context, patience time.Duration, claims ...Claim) (Outcome, error) {
	var room claimRoom
	claimsCall := join(claims, &room)
	began := time.Now()
	allowed := claimsCall.probe()
	ended, closed := ctx.Err() != nil, claimsCall.first((*keyRequest).isClosed)
	next := claimsCall.first((*keyRequest).isLined)
	if !ended && closed == none && allowed && (claimsCall.first((*keyRequest).asks) == none || next == none && claimsCall.takeExcept(none)) {
		return claimsCall.outcome(true), nil
	}
	// First the longest refusal, so that a call refused by its own key does not block a shared
	// line.
	if last := claimsCall.last(); last != none {
		next = last
	}
	if closed != none {
		// The line of the closed engine returns ErrClosed.
		next = closed
	}
	switch {
	case len(claims) == 0:
		return claimsCall.outcome(false), cell.Cancelled(ctx)
	case next == none:
		// The line returns the context's error.
		next = 0
	}
	for futile := 0; ; futile++ {
		request := &claimsCall.keys[next]
		left := max(patience, 0)
		if left < policy.Never {
			left = max(left-time.Since(began), 0)
		}
		waited, basis, err := request.engine.await(ctx, request.key, request.n, left, escape.Hide(&request.decision), escape.Hide(&request.receipt))
		request.basis = basis
		claimsCall.waited += waited
		if err != nil {
			claimsCall.probeExcept(next)
			return claimsCall.outcome(false), err
		}
		if claimsCall.takeExcept(next) {
			return claimsCall.outcome(true), nil
		}
		if waited > 0 {
			futile = 0
		}
		if next = claimsCall.last(); futile == maxFutile {
			return claimsCall.outcome(false), fmt.Errorf("%w: the claims refuse each other", ErrDeadline)
		}
	}
}

// maxFutile bounds the consecutive attempts at which a call need not wait for a key and another refuses it. Tenants
// of the same shares may refuse each other for ever.
const maxFutile = 16

// Tiered holds several limits on each key at once, such as 10 a second and 1,000 an hour. A call
// passes if all of them let it pass, and then counts for all. A refused call counts for none, as
// with TakeAll. Call NewTiered to make a Tiered; the zero Tiered has no limits, and lets everything
// pass. Its methods are safe for concurrent use. Each limit has its own engine and keys.
//
// Choke, Take, Wait and Acquire do as those of an Engine. Claims adds the limits to a TakeAll.
// Engines returns the engine of each limit, for the other verbs.
type Tiered[K comparable] struct{ engines []*Engine[K] }

// maxTiers bounds the limits of a Tiered, so that a call on them needs no allocation.
const maxTiers = 8

// NewTiered starts an engine for Config.Policy and one for each further policy, at most 8 in all,
// each with this Config otherwise. Without a further policy the Tiered has one limit. The error, if any,
// is a *policy.FieldError that names the field.
func NewTiered[K comparable](config Config, further ...policy.Policy) (*Tiered[K], error) {
	if len(further) >= maxTiers {
		return nil, &policy.FieldError{Of: "engine.NewTiered", Field: "further", Value: len(further), Want: "7 policies at the most"}
	}
	tiered := &Tiered[K]{}
	path := config.State.Path
	// The engines share a seed, so that a call hashes its key once.
	config.seed = maphash.MakeSeed()
	for i := -1; i < len(further); i++ {
		if i >= 0 {
			if path != "" {
				config.State.Path = tierName(path, i+1)
			}
			if config.Policy = further[i]; shape.IsNil(config.Policy) {
				tiered.abandon()
				return nil, &policy.FieldError{
					Of: "engine.NewTiered", Field: fmt.Sprintf("further[%d]", i), Value: "nil", Want: "a policy, such as policy.Funnel returns",
				}
			}
		}
		engine, err := New[K](config)
		if err != nil {
			tiered.abandon()
			return nil, err
		}
		tiered.engines = append(tiered.engines, engine)
	}
	return tiered, nil
}

func tierName(first string, index int) string {
	if index == 0 {
		return first
	}
	return fmt.Sprintf("%s.%d", first, index+1)
}

// abandon closes unused engines without saving under limits that may be mistaken.
func (t *Tiered[K]) abandon() {
	for _, limiter := range t.engines {
		if limiter.keeper != nil {
			_ = limiter.keeper.abandon()
		}
	}
	_ = t.Close()
}

// Choke reports whether the key may act now under every limit, and takes a unit if so.
func (t *Tiered[K]) Choke(key K) bool {
	call := tieredCall[K]{tiers: t, key: key, n: 1}
	if allowed, decided := call.take(nil); decided {
		return allowed
	}
	decision, _ := call.takeRest(nil)
	return decision.Allowed
}

// Take asks every limit for n units, and records them if all allow it. Limit and Remaining are the
// smallest of all limits, RetryAfter and ResetAfter the longest. n == 0 looks without taking. For a
// known key Take never waits and never allocates.
func (t *Tiered[K]) Take(key K, n int64) (all policy.Decision) {
	all, _ = t.take(key, n)
	return all
}

// Wait blocks until n units can be used under every limit, takes them and returns nil. Errors are
// as for Engine.Wait; nothing was then taken. Wait waits as AcquireAll does.
func (t *Tiered[K]) Wait(ctx context.Context, key K, n int64) error {
	_, err := t.Acquire(ctx, key, n, policy.Never)
	return err
}

// Acquire is Wait with bounded patience, for units to be given back by Keep or Cancel: see
// AcquireAll. The outcome has a claim for each limit, in the order of Engines.
func (t *Tiered[K]) Acquire(ctx context.Context, key K, n int64, patience time.Duration) (Outcome, error) {
	return AcquireAll(ctx, patience, t.Claims(key, n)...)
}

// Refund gives n units back to the key, under every limit: see Engine.Refund. The decision is
// Allowed if all recorded it.
func (t *Tiered[K]) Refund(key K, n int64) policy.Decision {
	all := true
	for _, limiter := range t.engines {
		all = limiter.Refund(key, n).Allowed && all
	}
	decision := t.Take(key, 0)
	decision.Allowed = all
	return decision
}

// Reset is Engine.Reset under every limit. Reset reports whether there was anything to forget.
func (t *Tiered[K]) Reset(key K) bool {
	used := false
	for _, limiter := range t.engines {
		used = limiter.Reset(key) || used
	}
	return used
}

// Block refuses the key for d, under every limit; a d of 0 lifts its blocks: see Engine.Block. The
// first engine keeps the block. Config.Penalty counts the refusals of each limit apart.
func (t *Tiered[K]) Block(key K, d time.Duration) error {
	if len(t.engines) == 0 {
		return ErrUnavailable
	}
	err := t.engines[0].Block(key, d)
	for i := 1; i < len(t.engines) && err == nil && d == 0; i++ {
		err = t.engines[i].Block(key, 0)
	}
	return err
}

// Claims names n units of the key under every limit, for TakeAll.
func (t *Tiered[K]) Claims(key K, n int64) []Claim {
	claims := make([]Claim, len(t.engines))
	for i, limiter := range t.engines {
		claims[i] = limiter.Claim(key, n)
	}
	return claims
}

// Epoch returns the epoch of the engines, which share a clock: see Engine.Epoch. The epoch is zero
// without engines.
func (t *Tiered[K]) Epoch() (epoch time.Time) {
	for _, limiter := range t.engines {
		return limiter.Epoch()
	}
	return epoch
}

// Engines returns the engines, Config.Policy's first, for use of a single limit: Stats, SetPolicy,
// ChangeLimit, All.
func (t *Tiered[K]) Engines() []*Engine[K] { return append([]*Engine[K](nil), t.engines...) }

// Health returns nil if all engines work, and otherwise their errors: see Engine.Health.
func (t *Tiered[K]) Health() error {
	var all []error
	for _, limiter := range t.engines {
		all = append(all, limiter.Health())
	}
	return errors.Join(all...)
}

// Close closes all engines: see Engine.Close.
func (t *Tiered[K]) Close() error {
	var all []error
	for _, limiter := range t.engines {
		all = append(all, limiter.Close())
	}
	return errors.Join(all...)
}
