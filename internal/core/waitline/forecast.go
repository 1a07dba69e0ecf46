package waitline

import (
	"context"
	"fmt"
	"time"
)

// outlook remembers a forecast of the queue: what comes of it if all its calls take at
// the instant from, one after the other, beginning with the state base.
//
// A forecast of a long queue takes a step for each call in it. Most calls that ask for
// one are refused, as the queue has grown to what they would wait for. So a call is
// judged by the remembered forecast first, with one step for itself, and only if that
// does not refuse it, by a new one. The remembered forecast may be too early but never
// too late, as long as it holds:
//
//   - The state is base, or what the calls that left the queue by taking were expected
//     to leave. Units that are taken or given back otherwise change the state; so does
//     another policy.
//   - The queue is the same, except for calls that took or joined at the end.
//   - All its calls, and the one to be judged, go by the same limit.
//   - Time has not gone back to before from. A later beginning never brings a turn
//     forward: what would be refused at from and allowed later delays the calls behind it.
//
// So it refuses no call that a new forecast would let join, and lets none join.
type outlook[S comparable] struct {
	base S
	from int64
	// steps has one for each call of the queue, or the outlook is of no use.
	steps []step[S]
}

// step is what a call leaves in a forecast.
type step[S comparable] struct {
	state S
	// wait is the time from outlook.from to the latest turn of the calls so far.
	wait time.Duration
}

// add appends a step and returns the latest wait.
func (o *outlook[S]) add(state S, wait time.Duration) time.Duration {
	if n := len(o.steps); n > 0 {
		wait = max(wait, o.steps[n-1].wait)
	}
	o.steps = append(o.steps, step[S]{state, wait})
	return wait
}

// forget drops the remembered forecasts, states included. It precedes each change of the queue except by a take at
// its head and a join at its end.
func (l *line[K, S]) forget() { l.ahead, l.later = outlook[S]{}, outlook[S]{} }

// headTook follows the queue after its head has taken. If the key's state is what the
// forecast said, the rest of that still holds.
func (l *line[K, S]) headTook(call Call[S]) {
	ahead := l.ahead
	l.forget()
	if len(ahead.steps) != l.queue.Len()+1 {
		return
	}
	if state, _ := call.State(); state == ahead.steps[0].state {
		ahead.base, ahead.steps = state, ahead.steps[1:]
		l.ahead = ahead
	}
}

// canJoin returns the reason for which a call may not join. If there is none, its turn
// comes before its deadline and within patience, and it is counted as waiting.
func (l *line[K, S]) canJoin(ctx context.Context, w *waiter[S], patience time.Duration) error {
	if n := l.queue.Len() + l.promised.Len(); n >= l.lines.MaxPerKey {
		return fmt.Errorf("%w: %d for this key, of at most %d", ErrCrowded, n, l.lines.MaxPerKey)
	}
	if l.lines.waiting.Load() >= int64(l.lines.MaxTotal) {
		return l.lines.full()
	}
	inTime := func(wait time.Duration, verdict Verdict) error {
		if verdict != Fits {
			return w.call.Refusal(verdict)
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
	if wait, verdict, ok := l.forecast(w, true); ok {
		if err := inTime(wait, verdict); err != nil {
			return err
		}
	}
	wait, verdict, _ := l.forecast(w, false)
	err := inTime(wait, verdict)
	if err == nil && !l.lines.enter() {
		err = l.lines.full()
	}
	if err != nil {
		l.trim()
	}
	return err
}

// forecast returns how long a call that comes now waits for its turn, by what is
// remembered of the queue or by a walk along it. ok is false if what is remembered does
// not hold.
func (l *line[K, S]) forecast(w *waiter[S], remembered bool) (wait time.Duration, verdict Verdict, ok bool) {
	run := l.walk
	if remembered {
		run = l.recall
	}
	last := l.last()
	left := untilTurn(last)
	state, now := w.call.State()
	if !remembered {
		// The clocks are read in this order, and above in the other, so that now+left of
		// a forecast that is remembered is not after that of a call that recalls it.
		left = untilTurn(last)
	}
	if wait, verdict, ok = run(&l.ahead, w, state, now); !ok || verdict != Fits || last == nil {
		return wait, verdict, ok
	}
	// Units that were given back may have made room before the last promised turn. No
	// call in line may use it, so the queue takes from that turn on, when there is more
	// room, or the room is gone.
	head := w
	if first := l.head(); first != nil {
		head = first
	}
	if _, soon, _ := head.call.Forecast(state, now); now+int64(soon) < last.start {
		if wait, verdict, ok = run(&l.later, w, state, now+int64(left)); !ok {
			return 0, verdict, false
		}
		wait += left
	}
	return max(wait, left), verdict, true // no call overtakes those ahead of it
}

// untilTurn returns the time until a call's turn, or 0 if there is no call.
func untilTurn[S comparable](w *waiter[S]) time.Duration {
	if w == nil {
		return 0
	}
	return max(time.Until(w.turn), 0)
}

// walk forecasts the queue and then w, step by step, and remembers it.
func (l *line[K, S]) walk(o *outlook[S], w *waiter[S], state S, from int64) (time.Duration, Verdict, bool) {
	o.base, o.from, o.steps = state, from, o.steps[:0]
	alike := true
	for at := l.queue.Front(); at != nil; at = at.Next() {
		call := valueOf[S](at).call
		next, wait, _ := call.Forecast(state, from)
		o.add(next, wait)
		state, alike = next, alike && call.Alike(w.call)
	}
	next, wait, verdict := w.call.Forecast(state, from)
	wait = o.add(next, wait)
	if !alike {
		o.steps = nil
	}
	return wait, verdict, true
}

// recall forecasts w behind what is remembered of the queue, in one step. ok is false if
// that does not hold any more.
func (l *line[K, S]) recall(o *outlook[S], w *waiter[S], state S, from int64) (wait time.Duration, verdict Verdict, ok bool) {
	n := len(o.steps)
	if n == 0 || n != l.queue.Len() || o.base != state || from < o.from || !w.call.Alike(l.head().call) {
		return 0, Fits, false
	}
	behind := o.steps[n-1]
	_, wait, verdict = w.call.Forecast(behind.state, from)
	return max(wait, behind.wait-time.Duration(from-o.from)), verdict, true
}

// trim takes the step of a call that does not join off the forecasts.
func (l *line[K, S]) trim() {
	for _, o := range []*outlook[S]{&l.ahead, &l.later} {
		o.steps = o.steps[:min(len(o.steps), l.queue.Len())]
	}
}
