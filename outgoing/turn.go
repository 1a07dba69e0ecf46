package outgoing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ral-limiter/ral/cell"
	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/outgoing/internal/answer"
	"github.com/ral-limiter/ral/policy"
)

// Wait blocks until a call for the key may be sent, and takes its turn. A key's calls are served in
// order of arrival. A call whose context ends takes nothing.
//
// cost has the units that the call takes of the key's limit, 1 if it is absent or less, and of each
// of Config.Units, 0 if it is absent or less. Estimate units known only afterwards, and correct them
// by [Turn.Settle]. All limits are met together. If a cost exceeds what Config.Policy allows at once,
// or what a server with Config.Debts tells, the excess is owed until an answer tells what is left, if
// the limit keeps debts. Costs are cut to a billion.
//
// The error wraps an error of package engine: ErrCancelled with the context's error, ErrDeadline at
// once if the turn comes after the context's deadline or Config.Patience, or behind a time longer than
// Config.MaxBackoff (a *[TurnError]), ErrNever if the cost exceeds the limit that the server told,
// ErrCrowded or ErrClosed. With Units or InFlight a call behind others may learn later that its turn is too
// late. Without waiting, a call of a known key allocates nothing, unless there are Units.
func (l *Line[K]) Wait(ctx context.Context, key K, cost ...int64) (Turn[K], error) {
	calls := int64(1)
	if len(cost) > 0 {
		calls = max(cost[0], 1)
	}
	turn := Turn[K]{part: l.part(key, calls)}
	for i, unit := range l.units {
		if i+1 < len(cost) && cost[i+1] > 0 {
			p := unit.part(key, cost[i+1])
			p.index = i + 1
			turn.units = append(turn.units, p)
		}
	}
	defer turn.leave()
	if err := turn.acquire(ctx); err != nil {
		return Turn[K]{}, err
	}
	l.turns.Add(1)
	return turn, nil
}

// Send waits for a turn and calls send, and again in a new turn as long as send reports that the call may be
// repeated, up to retries times. send must tell the turn the answer. The error is that of [Line.Wait] for the
// first turn. If there is no turn for a repetition, Send returns nil as if send had reported false. A turn
// that send leaves open, also by a panic, is abandoned.
func (l *Line[K]) Send(ctx context.Context, key K, retries int, send func(turn *Turn[K]) (again bool)) error {
	turn, err := l.Wait(ctx, key)
	if err != nil {
		return err
	}
	defer func() { turn.Abandon() }()
	for ; send(&turn) && retries > 0; retries-- {
		turn.Abandon() // so that a call is in flight once
		next, err := l.Wait(ctx, key)
		if err != nil {
			return nil //nolint:nilerr // the answer of the last attempt is the call's
		}
		turn = next
		l.retries.Add(1)
	}
	return nil
}

// leave ends the wait of a call.
func (t *Turn[K]) leave() {
	for i := range 1 + len(t.units) {
		p := t.nth(i)
		p.state.waiting.Add(-p.n)
	}
}

// acquire waits for the units of all limits, and begins the call. Under several limits a key's calls pass a gate
// one at a time. So only one call has units of some limits and waits for others, and none is passed for ever by
// calls that take less. A call is in flight before it takes its turn under the others, which would be lost if it
// was sent later.
func (t *Turn[K]) acquire(ctx context.Context) error {
	patience := t.line.config.Patience
	if !t.line.hasGates() {
		if err := t.part.acquire(ctx, patience); err != nil {
			return t.late(ctx, err)
		}
		t.Waited = t.grant.Waited
		t.begin(ctx, t.Waited)
		return nil
	}
	began := time.Now()
	if err := t.enter(ctx, patience); err != nil {
		return err
	}
	defer func() { <-t.state.gate }()
	if err := t.enterFlight(ctx, patience-time.Since(began)); err != nil {
		return err
	}
	for i := range 1 + len(t.units) {
		p := t.nth(i)
		if err := p.acquire(ctx, patience-time.Since(began)); err != nil {
			return t.undo(i, p.late(ctx, err))
		}
	}
	for i := range 1 + len(t.units) {
		part := t.nth(i)
		// The call has waited for other parts.
		if err := part.admit(false); err != nil {
			return t.undo(1+len(t.units), part.late(ctx, err))
		}
	}
	if err := t.stayInFlight(ctx, patience-time.Since(began)); err != nil {
		return t.undo(1+len(t.units), err)
	}
	t.Waited = time.Since(began)
	for i := range 1 + len(t.units) {
		t.nth(i).begin(ctx, t.Waited)
	}
	return nil
}

// undo gives back the units of the first parts, and returns the error.
func (t *Turn[K]) undo(parts int, err error) error {
	for i := range parts {
		p := t.nth(i)
		p.giveBack(p.fits)
	}
	t.Release()
	return err
}

// enter waits for the key's gate. A turn that is too late already is an error at once.
func (t *Turn[K]) enter(ctx context.Context, patience time.Duration) error {
	line, state, late := t.line, t.state, engine.ErrDeadline
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < patience {
		patience, late = time.Until(deadline), fmt.Errorf("%w: %w", late, context.DeadlineExceeded)
	}
	for i := range 1 + len(t.units) {
		p := t.nth(i)
		if err := p.admit(false); err != nil {
			return p.late(ctx, err)
		}
	}
	if p, in := t.last(); in > patience {
		return p.late(ctx, late)
	}
	select {
	case state.gate <- struct{}{}:
		return nil
	default:
	}
	maxWaiting := int64(cmp.Or(line.config.MaxWaiting, defaultMaxWaiting))
	began := time.Now()
	defer func() {
		state.gated.Add(-1)
		line.gated.Add(-1)
		line.gateTime.Add(int64(time.Since(began)))
	}()
	if line.gated.Add(1); state.gated.Add(1) > maxWaiting {
		return fmt.Errorf("outgoing: %w: %d calls wait for the key", engine.ErrCrowded, maxWaiting)
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case state.gate <- struct{}{}:
		return nil
	case <-timer.C:
		p, _ := t.last()
		return p.late(ctx, late)
	case <-ctx.Done():
		return fmt.Errorf("outgoing: %w", cell.Cancelled(ctx))
	}
}

// last returns the part whose turn comes last, and the time until then.
func (t *Turn[K]) last() (last *part[K], in time.Duration) {
	last = &t.part
	for i := range 1 + len(t.units) {
		p := t.nth(i)
		if d := p.line.engine.Peek(p.state.key, p.fits); d.RetryAfter > in && d.RetryAfter != policy.Never {
			last, in = p, d.RetryAfter
		}
	}
	return last, in
}

// Turn allows a call to be sent. The caller must call Obey with the answer, Cancel if the call was not
// sent, or Abandon if no answer will come. A Turn without any of them counts as sent, and the windows
// after it have a call less. With Config.InFlight, Release must also be called once the answer is read.
// The methods must not be called at the same time, and a copy must not be used as well. The zero Turn
// does nothing.
type Turn[K comparable] struct {
	// Waited is how long the call waited for its turn.
	Waited time.Duration

	part[K]
	units    []part[K]             // of Config.Units, if the call takes units of them
	inFlight engine.Reservation[K] // by Config.InFlight
}

// nth returns the part at an index: first the calls' part, and then a part for each of Config.Units. It is no
// iterator, as a Turn would then be allocated.
func (t *Turn[K]) nth(index int) *part[K] {
	if index == 0 {
		return &t.part
	}
	return &t.units[index-1]
}

// Cancel returns the turn of a call that was not sent. After Obey it is Release.
func (t *Turn[K]) Cancel() { t.finish(true) }

// Abandon ends the turn of a call without an answer, such as a failed connection. The call counts as
// sent; a first call no longer delays those behind it. After Obey it is Release.
func (t *Turn[K]) Abandon() { t.finish(false) }

func (t *Turn[K]) finish(unsent bool) {
	t.Release()
	if t.line != nil && !t.obeyed {
		for i := range 1 + len(t.units) {
			part := t.nth(i)
			if unsent {
				part.giveBack(part.cost)
			}
			part.lost()
		}
	}
	t.line = nil
}

// Obey tells the line the answer. A refusal holds the key before Obey returns. Answers may come in
// any order: an answer does not set the pace after a call sent later was answered. No answer
// shortens a back-off.
//
// A call answered in parts, such as a stream, may call Obey again: only refusals are then used.
func (t *Turn[K]) Obey(a Answer) {
	if t.line == nil {
		return
	}
	refused, isFirst, isFinal := t.refusedBy(&a), !t.obeyed, answer.IsFinal(&a)
	for i := range 1 + len(t.units) {
		part := t.nth(i)
		told := answer.Part(&a, part.index)
		if told.Refused = a.Refused && i == refused; told.Refused {
			told.RetryAfter = a.RetryAfter
			if capacity := answer.CapacityOf(&told); capacity > 0 && part.n > capacity && !t.line.config.Debts {
				told.RetryAfter, isFinal = policy.Never, true
			}
		}
		part.obey(told, !a.Refused || i == refused)
	}
	// The server counts the call at most, and none of its units.
	if isFinal && isFirst {
		used := [1 + maxUnits]int64{1}
		t.Settle(used[:]...)
	}
}

// refusedBy returns the index, for nth, of the part whose limit has refused the call: of Config.Units one with less left
// than the call's units.
func (t *Turn[K]) refusedBy(a *Answer) int {
	if a.Refused && !(a.HasRemaining && a.Remaining <= 0) {
		for i := range t.units {
			p := &t.units[i]
			if told := answer.Part(a, p.index); told.HasRemaining && told.Remaining < p.n {
				return i + 1
			}
		}
	}
	return 0
}

// Settle corrects the units that Wait took, in the order of its costs, once they are known. It may
// be called before Obey and after it, and again. A number below 0, or absent, leaves a cost as it
// is, and a cost of 0 stays 0. An excess is charged. The rest comes back, unless calls spend the
// units that the server says are left: then its answers correct the cost.
func (t *Turn[K]) Settle(used ...int64) {
	if t.line == nil {
		return
	}
	for i := range 1 + len(t.units) {
		if p := t.nth(i); p.index < len(used) && used[p.index] >= 0 {
			p.settle(used[p.index])
		}
	}
}

// enterFlight waits until fewer calls of the key are in flight than may be, and counts the call.
func (t *Turn[K]) enterFlight(ctx context.Context, patience time.Duration) (err error) {
	line := t.line
	if line.inFlight == nil {
		return nil
	}
	if t.inFlight, err = line.inFlight.Acquire(ctx, t.state.key, 1, max(patience, 0)); err == nil {
		return nil
	}
	if d := t.inFlight.Decision; line.config.OnTurn != nil && errors.Is(err, engine.ErrDeadline) {
		d.Wait = t.inFlight.Waited
		line.config.OnTurn(ctx, line.config.Name+" in flight", d)
	}
	t.inFlight = engine.Reservation[K]{}
	return fmt.Errorf("outgoing: %w", err)
}

// stayInFlight begins the call's longest time in flight with its turn. A call that waited for its turn for longer
// than that enters again.
func (t *Turn[K]) stayInFlight(ctx context.Context, patience time.Duration) error {
	if t.line.inFlight == nil || t.inFlight.Extend() {
		return nil
	}
	return t.enterFlight(ctx, patience)
}

// Release ends a call in flight by Config.InFlight, so that the next one may be sent. Call it once the answer is
// read to its end. The second time it does nothing. Obey does not release: a stream's first answer is not its end.
func (t *Turn[K]) Release() {
	t.inFlight.Release()
	t.inFlight = engine.Reservation[K]{}
}
