package waitline

import (
	"context"
	"fmt"
	"time"
)

// outlook is a remembered forecast of the queue: the result if all its calls take at the instant from, in
// order, beginning with the state base.
//
// A forecast takes a step for each queued call. Most calls that need a forecast are refused, since a queue
// grows until its wait is as long as their patience. So a call is judged by the remembered forecast first, in
// a few steps, and by a new forecast only if the remembered one does not refuse the call. The remembered
// forecast may be too early, but is never too late, as long as all of these conditions hold:
//
//   - The state is base, or the state forecast after the calls that have since taken and left the queue.
//     Units that are taken or given back otherwise change the state, and so does another policy.
//   - The queue is the same, except for calls that took or joined at the end.
//   - All its calls, and the call to be judged, go by the same limit.
//   - Time has not gone back to before from, nor passed the turn of the first call if that was to
//     come.
//   - The first call would leave the same state now as at from. Then the other calls would, too, since for
//     them the state decides. This fails, for example, under an AtMost whose units have all left, since it
//     then counts in shorter parts, which would bring turns forward.
//
// So the remembered forecast refuses no call that a new forecast would let join. It never lets a call
// join by itself.
type outlook[S comparable] struct {
	base S
	from int64
	// steps has a step for each call of the queue. Otherwise the outlook is void.
	steps []step[S]
}

// step is the forecast of a call in the queue.
type step[S comparable] struct {
	// state is the state after the call has taken.
	state S
	// wait is the time from outlook.from to the latest turn so far.
	wait time.Duration
}

// add adds a step, and returns its wait.
func (o *outlook[S]) add(state S, wait time.Duration) time.Duration {
	if n := len(o.steps); n > 0 {
		wait = max(wait, o.steps[n-1].wait)
	}
	o.steps = append(o.steps, step[S]{state, wait})
	return wait
}

// forget drops the remembered forecasts. It must be called before each change of the queue, except a take by
// its head and a join at its end.
func (l *line[K, S]) forget() { l.fromNow, l.fromTurn = outlook[S]{}, outlook[S]{} }

// headTook keeps the remembered forecast after its first call has taken, if the key's state is as
// forecast.
func (l *line[K, S]) headTook(call Call[S]) {
	outlook := l.fromNow
	l.forget()
	if len(outlook.steps) != l.queue.Len()+1 {
		return
	}
	if state, _ := call.State(); state == outlook.steps[0].state {
		outlook.base, outlook.steps = state, outlook.steps[1:]
		l.fromNow = outlook
	}
}

// canJoin returns the reason that a call may not join. If it returns nil, it has counted the call as waiting.
func (l *line[K, S]) canJoin(ctx context.Context, waiter *waiter[S], patience time.Duration) error {
	if n := l.queue.Len() + l.promised.Len(); n >= l.lines.MaxPerKey {
		return fmt.Errorf("%w: %d for this key, of at most %d", ErrCrowded, n, l.lines.MaxPerKey)
	}
	if l.lines.waiting.Load() >= int64(l.lines.MaxTotal) {
		return l.lines.full()
	}
	inTime := func(wait time.Duration, verdict Verdict) error {
		if verdict != Fits {
			return waiter.call.Refusal(verdict)
		}
		if wait > patience {
			return fmt.Errorf("%w: %v to wait, %v at the most", ErrDeadline, wait, patience)
		}
		if deadline, ok := ctx.Deadline(); ok {
			if left := time.Until(deadline); wait > left {
				return fmt.Errorf("%w (%w): %v to wait, %v left", ErrDeadline, context.DeadlineExceeded, wait, left)
			}
		}
		return nil
	}
	if awaitsRelease(waiter.call) {
		state, now := waiter.call.State()
		switch _, _, verdict := waiter.call.Forecast(state, now); {
		case verdict == Never:
			return waiter.call.Refusal(verdict)
		case !l.lines.enter():
			return l.lines.full()
		}
		return nil
	}
	if wait, verdict, ok := l.forecast(waiter, true); ok {
		if err := inTime(wait, verdict); err != nil {
			return err
		}
	}
	wait, verdict, _ := l.forecast(waiter, false)
	err := inTime(wait, verdict)
	if err == nil && !l.lines.enter() {
		err = l.lines.full()
	}
	if err != nil {
		l.trim()
	}
	return err
}

// forecast returns the wait of a call that comes now. remembered reports whether it uses the remembered
// forecast instead of a walk over the queue. ok is false if the remembered forecast does not hold.
func (l *line[K, S]) forecast(waiter *waiter[S], remembered bool) (wait time.Duration, verdict Verdict, ok bool) {
	run := l.walk
	if remembered {
		run = l.recall
	}
	last := l.last()
	left := untilTurn(last)
	state, now := waiter.call.State()
	if !remembered {
		// A walk reads left after now, and a recall reads left before now. So now+left is not later in a
		// walk, whose forecast is remembered, than in its recall.
		left = untilTurn(last)
	}
	if wait, verdict, ok = run(&l.fromNow, waiter, state, now); !ok || verdict != Fits || last == nil {
		return wait, verdict, ok
	}
	// Returned units may have made room before the last promised turn. Calls in line must not start
	// before that turn. So the queue is forecast again from that turn on, and the later result holds.
	head := waiter
	if first := l.head(); first != nil {
		head = first
	}
	if _, soon, _ := head.call.Forecast(state, now); now+int64(soon) < last.start {
		if wait, verdict, ok = run(&l.fromTurn, waiter, state, now+int64(left)); !ok {
			return 0, verdict, false
		}
		wait += left
	}
	// No call overtakes the calls ahead in line.
	return max(wait, left), verdict, true
}

// untilTurn returns the time until a promised turn, or 0 if waiter is nil.
func untilTurn[S comparable](waiter *waiter[S]) time.Duration {
	if waiter == nil {
		return 0
	}
	return max(time.Until(waiter.turn), 0)
}

// walk forecasts the queue and then waiter, step by step, and remembers the forecast.
func (l *line[K, S]) walk(outlook *outlook[S], waiter *waiter[S], state S, from int64) (time.Duration, Verdict, bool) {
	outlook.base, outlook.from, outlook.steps = state, from, outlook.steps[:0]
	alike := true
	for at := l.queue.Front(); at != nil; at = at.Next() {
		call := valueOf[S](at).call
		next, wait, _ := call.Forecast(state, from)
		outlook.add(next, wait)
		state, alike = next, alike && call.Alike(waiter.call)
	}
	next, wait, verdict := waiter.call.Forecast(state, from)
	wait = outlook.add(next, wait)
	if !alike {
		outlook.steps = nil
	}
	return wait, verdict, true
}

// recall forecasts waiter behind the remembered queue, in two steps. ok is false if that no longer holds.
func (l *line[K, S]) recall(outlook *outlook[S], waiter *waiter[S], state S, from int64) (wait time.Duration, verdict Verdict, ok bool) {
	n := len(outlook.steps)
	if n == 0 || n != l.queue.Len() || outlook.base != state || from < outlook.from || !waiter.call.Alike(l.head().call) {
		return 0, Fits, false
	}
	first := outlook.steps[0]
	if first.wait > 0 && from > outlook.from+int64(first.wait) {
		return 0, Fits, false
	}
	if next, _, _ := l.head().call.Forecast(state, from); next != first.state {
		return 0, Fits, false
	}
	behind := outlook.steps[n-1]
	_, wait, verdict = waiter.call.Forecast(behind.state, from)
	return max(wait, behind.wait-time.Duration(from-outlook.from)), verdict, true
}

// trim removes the step of a call that was forecast and did not join.
func (l *line[K, S]) trim() {
	for _, o := range []*outlook[S]{&l.fromNow, &l.fromTurn} {
		o.steps = o.steps[:min(len(o.steps), l.queue.Len())]
	}
}
