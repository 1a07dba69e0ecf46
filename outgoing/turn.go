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
// cost[0] is the number of calls that the call counts as, at least and by default 1. cost[1:] has the
// units that it takes of each of Config.Units, by default 0. Estimate units known only afterwards, and
// correct them by [Turn.Settle]. The call takes the units of all limits, or of none. If a cost exceeds
// the burst of Config.Policy, or the limit that a server with Config.Debts states, the excess is owed
// until an answer states the remaining units. Windows keep no debt. Costs above a billion count as a
// billion.
//
// The error wraps an error of package engine: ErrCancelled with the context's error, ErrDeadline in a
// *[TurnError], ErrNever if the cost exceeds the limit that the server stated, ErrCrowded or ErrClosed.
// A call gets ErrDeadline at once if its turn would come after the context's deadline or
// Config.Patience, or if the server stated a time longer than Config.MaxBackoff. With Units or InFlight
// a call behind others may learn only later that its turn is too late. A call of a known key that does
// not wait allocates nothing, unless there are Units.
func (l *Line[K]) Wait(ctx context.Context, key K, cost ...int64) (Turn[K], error) {
	calls := int64(1)
	if len(cost) > 0 {
		calls = max(cost[0], 1)
	}
	turn := Turn[K]{part: l.part(key, calls)}
	for i, unit := range l.units {
		if i+1 < len(cost) && cost[i+1] > 0 {
			part := unit.part(key, cost[i+1])
			part.index = i + 1
			turn.units = append(turn.units, part)
		}
	}
	defer turn.leave()
	if err := turn.acquire(ctx); err != nil {
		return Turn[K]{}, err
	}
	l.turns.Add(1)
	return turn, nil
}

// Send waits for a turn and calls send. While send returns true, Send waits for another turn and calls send again, up
// to retries times. send must call Turn.Obey with the answer. Send returns the error of [Line.Wait] for the first
// turn. If there is no turn for a repetition, Send returns nil, as if send had returned false. A turn that send
// does not end, for example because of a panic, is abandoned.
func (l *Line[K]) Send(ctx context.Context, key K, retries int, send func(turn *Turn[K]) (again bool)) error {
	turn, err := l.Wait(ctx, key)
	if err != nil {
		return err
	}
	defer func() { turn.Abandon() }()
	for ; send(&turn) && retries > 0; retries-- {
		turn.Abandon() // so that the call is not in flight twice
		next, err := l.Wait(ctx, key)
		if err != nil {
			return nil //nolint:nilerr // send has the answer of the last attempt
		}
		turn = next
		l.retries.Add(1)
	}
	return nil
}

// leave stops counting the call's units as waiting.
func (t *Turn[K]) leave() {
	for i := range 1 + len(t.units) {
		part := t.nth(i)
		part.state.waiting.Add(-part.n)
	}
}

// acquire waits for the units of all limits, and begins the call. Under several limits a key's calls pass a gate
// one at a time. So only one call at a time holds units of some limits while it waits for others, and no call is
// overtaken for ever by calls that cost less. A call first enters the limit in flight: if it waited for that limit
// last, the units that it took of the other limits would be used up before it is sent.
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
		part := t.nth(i)
		if err := part.acquire(ctx, patience-time.Since(began)); err != nil {
			return t.undo(i, part.late(ctx, err))
		}
	}
	for i := range 1 + len(t.units) {
		part := t.nth(i)
		// An overlong time may have begun while the call waited for other parts.
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

// undo gives back the units of the first parts, releases the call in flight, and returns err.
func (t *Turn[K]) undo(parts int, err error) error {
	for i := range parts {
		part := t.nth(i)
		part.giveBack(part.burstUnits)
	}
	t.Release()
	return err
}

// enter waits for the key's gate. If the call's turn is known to come too late, enter returns an error at once.
func (t *Turn[K]) enter(ctx context.Context, patience time.Duration) error {
	line, state, late := t.line, t.state, engine.ErrDeadline
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < patience {
		patience, late = time.Until(deadline), fmt.Errorf("%w: %w", late, context.DeadlineExceeded)
	}
	for i := range 1 + len(t.units) {
		part := t.nth(i)
		if err := part.admit(false); err != nil {
			return part.late(ctx, err)
		}
	}
	if part, in := t.last(); in > patience {
		return part.late(ctx, late)
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
		part, _ := t.last()
		return part.late(ctx, late)
	case <-ctx.Done():
		return fmt.Errorf("outgoing: %w", cell.Cancelled(ctx))
	}
}

// last returns the part whose turn would come last now, and the time until that turn.
func (t *Turn[K]) last() (last *part[K], in time.Duration) {
	last = &t.part
	for i := range 1 + len(t.units) {
		part := t.nth(i)
		if decision := part.line.engine.Peek(part.state.key, part.burstUnits); decision.RetryAfter > in && decision.RetryAfter != policy.Never {
			last, in = part, decision.RetryAfter
		}
	}
	return last, in
}

// Turn allows a call to be sent. The caller must call Obey with the answer, Cancel if the call was not
// sent, or Abandon if no answer will come. If the caller calls none of them, the call stays under way for
// ever, and each later window admits one call less. With Config.InFlight, the caller must also call Release
// once the answer is read. The methods must not be called at the same time. Only one copy of a Turn
// may be used. The methods of the zero Turn do nothing.
type Turn[K comparable] struct {
	// Waited is how long the call waited for its turn.
	Waited time.Duration

	part[K]
	// units has a part for each of Config.Units of which the call takes units.
	units []part[K]
	// inFlight holds the call's place in flight, by Config.InFlight.
	inFlight engine.Reservation[K]
}

// nth returns a part of the turn: at index 0 the part of the limit of calls, and then the parts in t.units. An iterator
// over the parts would allocate the Turn.
func (t *Turn[K]) nth(index int) *part[K] {
	if index == 0 {
		return &t.part
	}
	return &t.units[index-1]
}

// Cancel returns the turn of a call that was not sent. After Obey, Cancel only
// releases the call in flight.
func (t *Turn[K]) Cancel() { t.finish(true) }

// Abandon ends the turn of a call without an answer, such as a failed connection. The call counts as
// sent. If it was the first call of its key, the calls behind it no longer wait for its answer. After Obey,
// Abandon only releases the call in flight.
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

// Obey tells the line the answer. If the answer is a refusal, all calls of the key wait before Obey
// returns. Answers may come in any order: once a call that was sent later is answered, an earlier
// call's answer no longer sets the pace. No answer shortens a back-off.
//
// A caller whose call is answered in parts, such as a stream, may call Obey for each. Of the later
// answers only refusals are used.
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
	// A call that is refused for good counts at the server as one call at most, without its other units.
	if isFinal && isFirst {
		used := [1 + maxUnits]int64{1}
		t.Settle(used[:]...)
	}
}

// refusedBy returns the index, for nth, of the part whose limit refused the call. That is the first of Config.Units
// with less left than the call costs. It is 0, the limit of calls, if there is none, or if no calls remain.
func (t *Turn[K]) refusedBy(a *Answer) int {
	if a.Refused && !(a.HasRemaining && a.Remaining <= 0) {
		for i := range t.units {
			part := &t.units[i]
			if told := answer.Part(a, part.index); told.HasRemaining && told.Remaining < part.n {
				return i + 1
			}
		}
	}
	return 0
}

// Settle corrects the units that Wait took, in the order of its costs, once they are known. It may
// be called before Obey and after it, and again. A number below 0, or absent, leaves a cost as it
// is, and a cost of 0 stays 0. An excess over the cost is charged. Unused units come back, unless
// calls spend the units that the server says are left. In that case the server's answers correct the
// count.
func (t *Turn[K]) Settle(used ...int64) {
	if t.line == nil {
		return
	}
	for i := range 1 + len(t.units) {
		if part := t.nth(i); part.index < len(used) && used[part.index] >= 0 {
			part.settle(used[part.index])
		}
	}
}

// enterFlight waits until Config.InFlight has room for another call of the key, and counts the call as in flight.
func (t *Turn[K]) enterFlight(ctx context.Context, patience time.Duration) (err error) {
	line := t.line
	if line.inFlight == nil {
		return nil
	}
	if t.inFlight, err = line.inFlight.Acquire(ctx, t.state.key, 1, max(patience, 0)); err == nil {
		return nil
	}
	if decision := t.inFlight.Decision; line.config.OnTurn != nil && errors.Is(err, engine.ErrDeadline) {
		decision.Wait = t.inFlight.Waited
		line.config.OnTurn(ctx, line.config.Name+" in flight", decision)
	}
	t.inFlight = engine.Reservation[K]{}
	return fmt.Errorf("outgoing: %w", err)
}

// stayInFlight lets the longest time of Config.InFlight begin anew, at the call's turn. If that time ended while the
// call waited for its turn, the call enters again.
func (t *Turn[K]) stayInFlight(ctx context.Context, patience time.Duration) error {
	if t.line.inFlight == nil || t.inFlight.Extend() {
		return nil
	}
	return t.enterFlight(ctx, patience)
}

// Release ends a call in flight by Config.InFlight, so that the next one may be sent. The caller must call
// Release once the answer is read to its end. Another call of Release does nothing. Obey does not release, since the
// first answer of a stream is not its end.
func (t *Turn[K]) Release() {
	t.inFlight.Release()
	t.inFlight = engine.Reservation[K]{}
}
