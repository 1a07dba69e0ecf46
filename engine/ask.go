package engine

import (
	"context"
	"errors"
	"time"

	"github.com/ral-limiter/ral/cell"
	"github.com/ral-limiter/ral/internal/core/decide"
	"github.com/ral-limiter/ral/internal/core/seam"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

var (
	_ limits.Limiter[string] = (*Engine[string])(nil)
	_ limits.Limiter[string] = (*Tiered[string])(nil)
)

var (
	inProcess  = limits.NewProvenance(limits.SourceProcess, true, nil)
	unrecorded = limits.NewProvenance(limits.SourceUnrecorded, false, nil)
)

func provenanceOf(basis cell.Basis) *limits.Provenance {
	if basis.Recorded() {
		return inProcess
	}
	return unrecorded
}

// Admit is Take for adapters: see limits.Limiter. Admit waits for the delay of a policy.Queue; the
// error is then ErrCancelled. A closed engine answers as Config.WhenUnavailable says. Admit
// allocates no more than Take does.
func (e *Engine[K]) Admit(ctx context.Context, key K, n int64) (limits.Answer, error) {
	var decision policy.Decision
	recorded, err := e.cell.Admit(key, n, &decision)
	if recorded && decision.Wait == 0 {
		return limits.Answer{Decision: decision, Provenance: inProcess}, nil
	}
	return e.admitOther(ctx, key, n, decision, recorded, err)
}

// admitOther is Admit for calls that the key's word did not decide at once.
func (e *Engine[K]) admitOther(
	ctx context.Context, key K, n int64, decision policy.Decision, recorded bool, err error,
) (limits.Answer, error) {
	switch {
	// The error is cell.ErrDelays.
	case err != nil:
		grant, err := e.Hold(ctx, limits.Call[K]{Key: key, N: n})
		return grant.Answer, err
	case !recorded:
		return limits.Answer{Decision: decision, Provenance: unrecorded}, nil
	}
	// The limit has become a queue meanwhile. This turn cannot be given back.
	err = e.turn(ctx, &decision, nil)
	return limits.Answer{Decision: decision, Provenance: inProcess}, err
}

// Hold is Reserve or, if the call waits, Acquire, for adapters: see limits.Limiter. For a known key
// Hold allocates only to wait.
func (e *Engine[K]) Hold(ctx context.Context, call limits.Call[K]) (grant limits.Grant, err error) {
	var held cell.Held[K]
	// Looked up before units are taken, as PolicyFor may panic.
	if call.Patience > 0 && !call.NoWait && !e.limitHeld(&call).Delays() {
		err = e.acquire(ctx, &call, &grant.Answer, &held)
	} else {
		basis := e.cell.ReserveWith(call.Limit, call.Key, call.N, call.Patience, &grant.Decision, &held)
		if grant.Provenance = provenanceOf(basis); grant.Wait > 0 && !call.NoWait {
			err = e.turn(ctx, &grant.Decision, &held)
		}
	}
	if grant.Allowed {
		e.pack(&grant.State, call.Key, &held)
	}
	return grant, err
}

// Look returns the answer that Hold would give now without waiting, for limits.AskAll. Look takes nothing, counts
// nothing and never waits. ok is false if only Hold can tell, which is so while calls wait for the key, and for a
// new key in a full table.
func (e *Engine[K]) Look(call limits.Call[K]) (answer limits.Answer, ok bool) {
	if !call.NoWait && e.cell.HasWaiters(call.Key) {
		return answer, false
	}
	basis, ok := e.cell.LookWith(call.Limit, call.Key, call.N, call.Patience, &answer.Decision)
	answer.Provenance = provenanceOf(basis)
	return answer, ok
}

func (e *Engine[K]) limitHeld(call *limits.Call[K]) policy.Policy {
	if call.Limit != nil {
		return call.Limit
	}
	return e.cell.LimitFor(call.Key)
}

// turn waits for a promised turn. If the context ends first, the decision becomes a refusal, and
// held units are given back.
func (e *Engine[K]) turn(ctx context.Context, decision *policy.Decision, held *cell.Held[K]) error {
	began := time.Now()
	_, event := seam.Receive[struct{}](seam.Seam{}, "", decision.Wait, nil, ctx, nil)
	if decision.Wait = time.Since(began); event == seam.Elapsed {
		return nil
	}
	if decision.Allowed = false; held != nil {
		held.Cancel()
	}
	return e.named(cell.Cancelled(ctx))
}

// acquire waits in line. Only an ended context is an error.
func (e *Engine[K]) acquire(ctx context.Context, call *limits.Call[K], answer *limits.Answer, held *cell.Held[K]) error {
	waited, basis, err := e.cell.AcquireWith(ctx, call.Limit, call.Key, call.N, call.Patience, &answer.Decision, held)
	switch answer.Provenance = provenanceOf(basis); {
	case err == nil && waited > 0:
		e.describe(call, answer, held)
	case errors.Is(err, ErrClosed):
		answer.Provenance = provenanceOf(e.cell.ReserveWith(call.Limit, call.Key, call.N, 0, &answer.Decision, held))
	case errors.Is(err, ErrUnavailable):
		answer.Provenance = limits.NewProvenance(limits.SourceUnrecorded, false, e.named(err))
	case errors.Is(err, ErrCrowded):
		answer.Provenance = limits.NewProvenance(limits.SourceProcess, true, e.named(err))
	}
	if answer.Wait = waited; errors.Is(err, ErrCancelled) {
		return e.named(err)
	}
	return nil
}

// describe puts the state of the key after a wait into the answer. Units may have been taken early,
// and the limit may have changed. If PolicyFor panics the units are given back.
func (e *Engine[K]) describe(call *limits.Call[K], answer *limits.Answer, held *cell.Held[K]) {
	described := false
	defer func() {
		if !described {
			held.Cancel()
		}
	}()
	var decision policy.Decision
	// If the limit is of another family now, the decision stays: the units are taken.
	if e.cell.Probe(call.Limit, call.Key, 0, &decision); decision.Allowed {
		answer.Decision = decision
	}
	described = true
}

// engineSettler settles held units. A pointer alone goes into an interface without allocating.
type engineSettler[K comparable] struct{ *Engine[K] }

// pack stores held units in a limits.GrantState. If nothing was recorded Ref is the key, for charges.
func (e *Engine[K]) pack(to *limits.GrantState, key K, held *cell.Held[K]) {
	to.Settler = engineSettler[K]{e}
	if to.Ref, to.Limit = held.Pack(&to.Words); to.Ref == nil {
		to.Ref = key
	}
}

func (e engineSettler[K]) Settle(_ context.Context, state limits.GrantState, used int64) error {
	held := e.cell.Unpack(state.Ref, state.Limit, &state.Words)
	n := state.Words[0]
	if used == limits.AllUsed {
		used = n
	}
	if used > n {
		key, recorded := held.Key()
		if !recorded {
			// A nil interface key is no K.
			key, _ = state.Ref.(K)
		}
		e.charge(state.Limit, key, used-n)
	}
	held.Keep(used)
	return nil
}

// joint is a call on different keys of several engines, for limits.AskAll.
type joint struct {
	claims []Claim
	out    Outcome
	// room has the claims of claims.
	room [maxKnown]Claim
}

// Join adds a call to those that limits.AskAll decides together, or begins such calls if all is
// nil. Join returns nil if the call brings a limit, or if other calls are not of engines.
func (e *Engine[K]) Join(all any, call limits.Call[K]) any {
	j, ok := all.(*joint)
	switch {
	case call.Limit != nil || all != nil && !ok:
		return nil
	case !ok:
		j = &joint{}
		j.claims = j.room[:0]
	}
	claim := e.Claim(call.Key, call.N)
	claim.brief = call.Brief
	j.claims = append(j.claims, claim)
	return j
}

// HoldAll takes the units of every call or of none, and waits up to patience. Each grant is settled by itself.
func (j *joint) HoldAll(ctx context.Context, patience time.Duration) (grants []limits.Grant, waited time.Duration, err error) {
	out, why, err := holdAll(ctx, patience, j.claims)
	grants = make([]limits.Grant, len(j.claims))
	for i := range grants {
		grants[i].Answer = limits.Answer{Decision: out.Decisions[i], Provenance: out.Provenance(i)}
		if out.Allowed {
			grants[i].State = limits.GrantState{Settler: j, Words: [8]int64{int64(i)}}
		}
	}
	if why != nil && out.Binding != none {
		grants[out.Binding].Provenance = why
	}
	j.out = out
	return grants, out.Waited, err
}

// Settle implements limits.Settler for the grant of a call.
func (j *joint) Settle(_ context.Context, state limits.GrantState, used int64) error {
	i := int(state.Words[0])
	claim := &j.claims[i]
	if used == limits.AllUsed {
		used = claim.n
	}
	if used > claim.n {
		claim.engine.chargeKey(claim.key, used-claim.n)
	}
	j.out.keepOne(i, used)
	return nil
}

// holdAll is AcquireAll for adapters, or TakeAll without patience. Only an ended context is an error. If
// why is not nil, the limits alone did not decide.
func holdAll(ctx context.Context, patience time.Duration, claims []Claim) (out Outcome, why *limits.Provenance, err error) {
	if patience <= 0 {
		return TakeAll(claims...), nil, nil
	}
	out, err = AcquireAll(ctx, patience, claims...)
	switch {
	case errors.Is(err, ErrCancelled):
		return out, nil, err
	case errors.Is(err, ErrClosed):
		waited := out.Waited
		// Config.WhenUnavailable answers the call.
		out = TakeAll(claims...)
		out.Waited = waited
	case errors.Is(err, ErrCrowded):
		why = limits.NewProvenance(limits.SourceProcess, true, err)
	case errors.Is(err, ErrUnavailable):
		why = limits.NewProvenance(limits.SourceUnrecorded, false, err)
	}
	return out, why, nil
}

// Admit is Take for adapters: see limits.Limiter. A limit that would delay the call refuses it. The
// error is nil.
func (t *Tiered[K]) Admit(_ context.Context, key K, n int64) (limits.Answer, error) {
	if len(t.engines) == 0 {
		return limits.Answer{Decision: unlimited, Provenance: inProcess}, nil
	}
	decision, recorded := t.take(key, n)
	if !recorded {
		return limits.Answer{Decision: decision, Provenance: unrecorded}, nil
	}
	return limits.Answer{Decision: decision, Provenance: inProcess}, nil
}

var manyLimits = limits.NewProvenance(limits.SourceProcess, true, errors.New(
	"ral: a Tiered has several limits, and one that comes with the call cannot replace them: ask its engines, each with a limit of its own, by limits.AskAll"))

var unlimited = policy.Decision{Allowed: true, Limit: policy.MaxWord, Remaining: policy.MaxWord}

// Hold is TakeAll of the key's claims or, if the call waits, Acquire, for adapters: see
// limits.Limiter. A Tiered promises no turns, so NoWait means no patience. A call with a Limit is
// refused with policy.Never, and the Err says how to ask instead. The error is ErrCancelled.
func (t *Tiered[K]) Hold(ctx context.Context, call limits.Call[K]) (grant limits.Grant, err error) {
	grant.Provenance = inProcess
	switch {
	// A limit cannot stand for several.
	case call.Limit != nil:
		grant.RetryAfter, grant.Provenance = policy.Never, manyLimits
		return grant, nil
	case len(t.engines) == 0:
		grant.Decision = unlimited
		return grant, nil
	}
	patience := call.Patience
	if call.NoWait {
		patience = 0
	}
	out, why, err := holdAll(ctx, patience, t.Claims(call.Key, call.N))
	if why != nil {
		grant.Provenance = why
	}
	for i := range out.Decisions {
		if grant.Provenance.Exact() && !out.Provenance(i).Exact() {
			grant.Provenance = unrecorded
		}
		combine(&grant.Decision, &out.Decisions[i], i == 0)
	}
	if grant.Allowed, grant.Wait = out.Allowed, out.Waited; grant.Allowed {
		grant.State = limits.GrantState{Settler: tieredSettler[K]{t}, Ref: &tieredHeld[K]{call.Key, call.N, out}}
	}
	return grant, err
}

// Look is for limits.AskAll, as [Engine.Look] is.
func (t *Tiered[K]) Look(call limits.Call[K]) (a limits.Answer, ok bool) {
	if call.Limit != nil || len(t.engines) == 0 {
		return a, false
	}
	allowed := true
	for i, limiter := range t.engines {
		answer, ok := limiter.Look(call)
		if !ok || answer.Wait > 0 {
			// Hold refuses if a limit would delay the call.
			return a, false
		}
		if allowed = allowed && answer.Allowed; a.Provenance.Exact() || i == 0 {
			a.Provenance = answer.Provenance
		}
		combine(&a.Decision, &answer.Decision, i == 0)
	}
	a.Allowed = allowed
	return a, true
}

// LimitFor returns the limit with the smallest Limit, nil for the zero Tiered.
func (t *Tiered[K]) LimitFor(key K) (smallest policy.Policy) {
	for _, limiter := range t.engines {
		if limit := limiter.LimitFor(key); smallest == nil || limit.Limit() < smallest.Limit() {
			smallest = limit
		}
	}
	return smallest
}

type tieredSettler[K comparable] struct{ *Tiered[K] }

type tieredHeld[K comparable] struct {
	key K
	n   int64
	out Outcome
}

// charge charges n units used beyond a take, up to the most of one call.
func (e *Engine[K]) charge(limit policy.Policy, key K, n int64) {
	charged := limit
	if charged == nil {
		charged = e.LimitFor(key)
	}
	e.RefundWith(limit, key, -min(n, decide.MostCharge(charged)))
}

func (t tieredSettler[K]) Settle(_ context.Context, state limits.GrantState, used int64) error {
	held := state.Ref.(*tieredHeld[K])
	if used == limits.AllUsed {
		used = held.n
	}
	if used > held.n {
		for _, limiter := range t.engines {
			limiter.charge(nil, held.key, used-held.n)
		}
		// This number releases units in use.
		used = held.n
	}
	var all [maxTiers]int64
	for i := range all {
		all[i] = used
	}
	held.out.Keep(all[:len(t.engines)]...)
	return nil
}
