package cell

import (
	"fmt"
	"reflect"
	"time"

	"github.com/ral-limiter/ral/internal/core/waitline"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/table"
)

// standing is a key's word under its terms. Lines compare standings.
type standing struct {
	terms *table.Terms
	state uint64
}

// waiter is a call in line for a key of a cell. It implements waitline.Call.
type waiter[K comparable] struct {
	cell *Cell[K]
	key  K
	n    int64
	// ChangeLimit replaces the choice.
	choice

	taken policy.Decision
	held  Held[K]
	// basis is the basis of taken, or of the error.
	basis Basis
}

func (w *waiter[K]) State() (standing, int64) {
	now := w.cell.now()
	terms, state := w.cell.current(w.key)
	return standing{terms, state}, int64(now)
}

func (w *waiter[K]) Forecast(s standing, instant int64) (standing, time.Duration, waitline.Verdict) {
	q := request{n: w.n, patience: forever, choice: w.choice}
	var decision policy.Decision
	next := q.decide(s.terms, s.state, policy.Instant(instant), &decision)
	verdict := waitline.NoRoom
	switch {
	case decision.Allowed:
		verdict = waitline.Fits
	case decision.RetryAfter == policy.Never:
		verdict = waitline.Never
	}
	return standing{s.terms, next}, decision.Wait, verdict
}

func (w *waiter[K]) Alike(other waitline.Call[standing]) bool {
	o, ok := other.(*waiter[K])
	if !ok || w.limit == nil || o.limit == nil {
		return ok && w.limit == o.limit
	}
	return reflect.ValueOf(w.limit).Comparable() && w.limit == o.limit
}

func (w *waiter[K]) Take(patience time.Duration, notBefore int64) waitline.Answer {
	if w.cell.isOutdated(&w.choice) {
		// The call may have joined the line while the limit changed.
		w.Renew()
	}
	q := request{
		n: w.n, patience: patience, choice: w.choice, notBefore: policy.Instant(notBefore), noRoomWait: true, inLine: true,
	}
	var decision policy.Decision
	var held Held[K]
	basis := w.cell.reserve(w.key, &q, &decision, &held)
	switch {
	case decision.Allowed:
		w.taken, w.held, w.basis = decision, held, basis
		return waitline.Answer{Taken: true, Wait: decision.Wait, Start: int64(held.starts())}
	case decision.RetryAfter == policy.Never:
		w.basis = basis
		return waitline.Answer{Err: never(w.n, decision, basis)}
	case basis.lost:
		w.basis = basis
		return waitline.Answer{Err: ErrUnavailable}
	}
	return waitline.Answer{RetryIn: decision.RetryAfter}
}

func (w *waiter[K]) GiveBack() {
	w.basis = Basis{}
	// The line wakes its head itself.
	w.held.keep(0)
}

// AwaitsRelease implements waitline.Releaser.
func (w *waiter[K]) AwaitsRelease() bool { return w.cell.occupied }

// Renew implements waitline.Renewer.
func (w *waiter[K]) Renew() {
	if w.switched != nil {
		w.choice = w.cell.choose(w.key)
	}
}

// BlockedFor implements waitline.Blocker: a blocked key gets no turn.
func (w *waiter[K]) BlockedFor() time.Duration {
	blocks := w.cell.blocks.Load()
	if blocks == nil {
		return 0
	}
	return blocks.Blocked(w.key)
}

func (w *waiter[K]) Refusal(verdict waitline.Verdict) error {
	terms, state := w.cell.current(w.key)
	if verdict == waitline.Never {
		q := request{n: w.n, patience: forever, choice: w.choice}
		var decision policy.Decision
		q.decide(terms, state, w.cell.now(), &decision)
		return never(w.n, decision, w.cell.basis(w.limit, &decision))
	}
	limit := w.limit
	if limit == nil {
		limit = terms.Policy
	}
	return fmt.Errorf("%w: %v has no room for more", ErrCrowded, limit)
}
