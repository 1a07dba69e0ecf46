package single

import (
	"context"
	"errors"
	"time"

	"github.com/ral-limiter/ral/internal/core/decide"
	"github.com/ral-limiter/ral/internal/core/seam"
	"github.com/ral-limiter/ral/internal/core/underway"
	"github.com/ral-limiter/ral/internal/core/waitline"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

var (
	_ limits.Limiter[struct{}] = (*Limiter)(nil)
)

var inProcess = limits.NewProvenance(limits.SourceProcess, true, nil)

var ownLimit = limits.NewProvenance(limits.SourceProcess, true, errors.New(
	"ral: a single.Limiter has one limit, and takes none that comes with the call: use an engine.Engine with one key, or SetPolicy"))

// Admit is Take for adapters. Admit waits for the delay of a policy.Queue, and ErrCancelled may end
// that wait.
func (l *Limiter) Admit(ctx context.Context, _ struct{}, n int64) (limits.Answer, error) {
	if limit := l.Limit(); limit == nil || limit.Delays() {
		grant, err := l.Hold(ctx, limits.Call[struct{}]{N: n})
		return grant.Answer, err
	}
	var decision policy.Decision
	var err error
	if l.take(&request{n: n}, &decision, nil); decision.Wait > 0 {
		// The limit has become a queue. This turn cannot be given back.
		err = turn(ctx, &decision, nil)
	}
	return limits.Answer{Decision: decision, Provenance: inProcess}, err
}

// Hold is Reserve or, if the call waits, Acquire, for adapters. A call with a Limit is refused with
// policy.Never, and Err names the alternatives.
func (l *Limiter) Hold(ctx context.Context, call limits.Call[struct{}]) (grant limits.Grant, err error) {
	grant.Provenance = inProcess
	limit := l.Limit()
	var h held
	switch {
	case call.Limit != nil:
		grant.RetryAfter, grant.Provenance = policy.Never, ownLimit
		return grant, nil
	case limit == nil:
		grant.RetryAfter = policy.Never
		return grant, nil
	case call.Patience > 0 && !call.NoWait && !limit.Delays():
		err = l.acquireFor(ctx, &call, &grant.Answer, &h)
	default:
		l.reserve(&request{n: call.N, patience: max(call.Patience, 0)}, &grant.Decision, &h)
		if grant.Wait > 0 && !call.NoWait {
			err = turn(ctx, &grant.Decision, &h)
		}
	}
	if grant.Allowed {
		grant.State = h.pack()
	}
	return grant, err
}

// Look returns the answer that Hold would give now without waiting, for limits.AskAll. Only Hold can answer a call that would join the line.
func (l *Limiter) Look(call limits.Call[struct{}]) (answer limits.Answer, ok bool) {
	if call.Limit != nil || !call.NoWait && l.hasWaiters() {
		return answer, false
	}
	return limits.Answer{Decision: l.probe(call.N, max(call.Patience, 0)), Provenance: inProcess}, true
}

// acquireFor takes for a call in line. Only an ended context is an error.
func (l *Limiter) acquireFor(ctx context.Context, call *limits.Call[struct{}], answer *limits.Answer, h *held) error {
	waited, err := l.acquire(ctx, call.N, call.Patience, &answer.Decision, h)
	switch {
	case err != nil:
		answer.Decision, *h = l.refusal(call.N), held{}
	case waited > 0:
		answer.Decision = l.probe(0, noDelay)
	}
	if errors.Is(err, ErrCrowded) {
		answer.Provenance = limits.NewProvenance(limits.SourceProcess, true, err)
	}
	if answer.Wait = waited; errors.Is(err, ErrCancelled) {
		return err
	}
	return nil
}

// LimitFor is Limit, for adapters.
func (l *Limiter) LimitFor(struct{}) policy.Policy { return l.Limit() }

// turn waits for a promised turn. If the context ends first, turn refuses and gives back.
func turn(ctx context.Context, decision *policy.Decision, held *held) error {
	began := time.Now()
	_, event := seam.Receive[struct{}](seam.Seam{}, "", decision.Wait, nil, ctx, nil)
	if decision.Wait = time.Since(began); event == seam.Elapsed {
		return nil
	}
	if decision.Allowed = false; held != nil {
		held.keep(0)
	}
	return waitline.Cancelled(ctx)
}

type limiterSettler struct{ *Limiter }

func (h *held) pack() limits.GrantState {
	receipt := &h.receipt
	return limits.GrantState{
		Settler: limiterSettler{h.limiter}, Ref: receipt.terms,
		Words: [...]int64{receipt.N, int64(receipt.At), int64(receipt.Before), int64(receipt.After), int64(receipt.Returned), int64(receipt.Wait), int64(receipt.ID), 0},
	}
}

func (l limiterSettler) Settle(_ context.Context, state limits.GrantState, used int64) error {
	w := &state.Words
	if used == limits.AllUsed {
		used = w[0]
	}
	t := state.Ref.(*terms)
	if used > w[0] && (t == nil || t.inUse == nil) {
		l.Refund(-min(used-w[0], decide.MostCharge(l.Limit())))
		return nil
	}
	h := held{l.Limiter, receipt{t, underway.Taken{
		N: w[0], At: policy.Instant(w[1]), Before: uint64(w[2]), After: uint64(w[3]), Returned: uint64(w[4]), Wait: time.Duration(w[5]), ID: uint64(w[6]),
	}}}
	h.end(used)
	return nil
}
