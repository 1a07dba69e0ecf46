package waitline

import (
	"container/list"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ral-limiter/ral/internal/core/seam"
)

const (
	// lookahead is the time before the last promised turn at which the next call takes. It is longer than
	// goroutines take to wake up, so that turns in fast succession have no gap. A call that gives up may
	// delay the calls behind it by this much.
	lookahead = 10 * time.Millisecond
	// pausedRetry is the time after which the head of a paused line looks again.
	pausedRetry = time.Millisecond
)

// line holds the calls that wait for a key. Its lock guards all fields below mu.
type line[K, S comparable] struct {
	lines *Lines[K, S]
	key   K
	// hidden reports whether the line is not in the map, because its key cannot be found again.
	hidden bool
	// oldest is waiter.joined of the line's first call, or 0 without one. After a call was ended by another call's
	// goroutine, oldest may still count it until its own goroutine runs.
	oldest atomic.Int64

	mu sync.Mutex
	// gone is set once the line has left the map.
	gone bool
	// queue has the calls that have not taken units, and promised the calls that have, and wait for their turn.
	// Both have *waiter[S] in order of arrival. All promised calls came before all queued calls.
	queue    *list.List
	promised *list.List
	// retry is the time at which the head tries again after a failed take, unless a promised turn wakes it.
	retry time.Time
	// fromNow is the remembered forecast of the queue from now on, and fromTurn that from the last promised turn on.
	fromNow, fromTurn outlook[S]
}

// waiter is a call in a line.
type waiter[S comparable] struct {
	call Call[S]
	// joined is the time from Lines.epoch to the call, plus a nanosecond, so that it is never 0.
	joined time.Duration
	// signal wakes the goroutine of the call. It has room for one value.
	signal chan struct{}

	// element is the waiter's place in queue, or in promised if the call has taken units.
	element *list.Element
	// took reports whether the call has taken units. turn is then its turn.
	took bool
	turn time.Time
	// start is the instant of the turn, by the Call's clock.
	start int64

	// over is set once the waiter is out of the line. err is then the error of Wait, or nil.
	over bool
	err  error
}

func newLine[K, S comparable](ls *Lines[K, S], key K) *line[K, S] {
	return &line[K, S]{lines: ls, key: key, queue: list.New(), promised: list.New()}
}

func (l *line[K, S]) lock()   { l.lines.seam.Lock("line: lock", &l.mu) }
func (l *line[K, S]) unlock() { l.mu.Unlock() }

// release unlocks the line and removes an empty line. If calls remain but none holds a turn,
// release wakes the head: a Call that panicked may have skipped the usual wake-up.
func (l *line[K, S]) release() {
	if head := l.head(); head != nil && l.promised.Len() == 0 {
		head.wake()
	}
	if l.queue.Len() == 0 && l.promised.Len() == 0 {
		l.lines.remove(l)
	}
	l.publish()
	l.unlock()
}

// publish sets oldest. All promised calls came before the queued ones.
func (l *line[K, S]) publish() {
	first := valueOf[S](l.promised.Front())
	if first == nil {
		first = l.head()
	}
	joined := time.Duration(0)
	if first != nil {
		joined = first.joined
	}
	l.oldest.Store(int64(joined))
}

func (l *line[K, S]) head() *waiter[S] { return valueOf[S](l.queue.Front()) }

func (l *line[K, S]) last() *waiter[S] { return valueOf[S](l.promised.Back()) }

func valueOf[S comparable](element *list.Element) *waiter[S] {
	if element == nil {
		return nil
	}
	return element.Value.(*waiter[S])
}

// advance lets the head take, and then each next call, as long as a take is possible or fails with an error.
func (l *line[K, S]) advance() {
	for !seam.IsClosed(l.lines.Done) {
		waiter := l.head()
		if waiter == nil {
			return
		}
		if l.lines.paused.Load() > 0 {
			l.retryIn(waiter, pausedRetry)
			return
		}
		patience, notBefore, last := Forever, int64(0), l.last()
		if last != nil {
			// First come, first served, whatever is given back meanwhile.
			if time.Until(last.turn) > lookahead && !neverAdmitted(waiter.call) {
				return
			}
			patience = lookahead
			// There will be room at that instant, too.
			notBefore = last.start
		}
		answer := waiter.call.Take(patience, notBefore)
		switch {
		case answer.Taken:
			waiter.turn, waiter.start = time.Now().Add(answer.Wait), answer.Start
			if last != nil && waiter.turn.Before(last.turn) {
				// This goroutine was held up, or the clock has jumped.
				waiter.turn = last.turn
			}
			l.queue.Remove(waiter.element)
			waiter.element, waiter.took = l.promised.PushBack(waiter), true
			waiter.wake()
			l.headTook(waiter.call)
		case answer.Err != nil:
			l.fail(waiter, answer.Err)
		default:
			l.retryIn(waiter, answer.RetryIn)
			return
		}
	}
}

// neverAdmitted reports whether the key's limit, which may have changed, can never admit the call.
func neverAdmitted[S comparable](call Call[S]) bool {
	state, now := call.State()
	_, _, verdict := call.Forecast(state, now)
	return verdict == Never
}

// retryIn lets the head try again after pause. If there is a promised turn, that turn will wake the head instead.
func (l *line[K, S]) retryIn(waiter *waiter[S], pause time.Duration) {
	if l.promised.Len() == 0 {
		l.retry = time.Now().Add(pause)
		waiter.wake()
	}
}

func (l *line[K, S]) fail(waiter *waiter[S], err error) {
	l.forget()
	l.queue.Remove(waiter.element)
	waiter.over, waiter.err = true, err
	waiter.wake()
}

// poll reports whether a call is done. If it is not, pause is the time for which its goroutine may sleep, unless it is
// woken.
func (l *line[K, S]) poll(w *waiter[S]) (pause time.Duration, done bool) {
	if l.leads(w) && !time.Now().Before(l.retry) {
		l.advance()
	}
	switch {
	case w.over:
		return 0, true
	case w.took:
		if pause = time.Until(w.turn); pause > 0 {
			return pause, false
		}
		if blocker, ok := w.call.(Blocker); ok {
			if pause = blocker.BlockedFor(); pause > 0 {
				// When the block ends, the units of this turn will have drained. A turn that was kept would
				// let other calls take as much again.
				l.revoke(func(*waiter[S]) bool { return true })
				l.retryIn(l.head(), pause)
				return l.pauseOf(w), false
			}
		}
		w.over = true
		l.promised.Remove(w.element)
		l.advance()
		return 0, true
	}
	return l.pauseOf(w), false
}

func (l *line[K, S]) pauseOf(w *waiter[S]) time.Duration {
	if l.leads(w) {
		return max(time.Until(l.retry), time.Nanosecond)
	}
	return Forever
}

// leads reports whether a call is the head of a line without promised turns. Only its goroutine then retries.
func (l *line[K, S]) leads(w *waiter[S]) bool {
	return !w.over && !w.took && l.promised.Len() == 0 && l.queue.Front() == w.element
}

// leave takes a call that was not served out of the line.
func (l *line[K, S]) leave(waiter *waiter[S]) {
	if waiter.over {
		return
	}
	l.forget()
	if waiter.took {
		// The turn leaves the list even if a Call panics.
		defer l.promised.Remove(waiter.element)
		l.revokeTurns(waiter)
		l.promised.Remove(waiter.element)
		waiter.call.GiveBack()
	} else {
		l.queue.Remove(waiter.element)
	}
	waiter.over = true
	l.advance()
}

// revokeTurns returns the promised calls behind w to the queue, or all promised calls if w is nil. Calls
// whose turn has come stay. The calls give back in reverse order, so that each finds the key as it left it.
func (l *line[K, S]) revokeTurns(w *waiter[S]) {
	now := time.Now()
	l.revoke(func(last *waiter[S]) bool { return last != w && last.turn.After(now) })
}

// revoke returns the last promised calls to the queue, as long as chosen reports true.
func (l *line[K, S]) revoke(chosen func(*waiter[S]) bool) {
	for last := l.last(); last != nil && chosen(last); last = l.last() {
		l.forget()
		last.call.GiveBack()
		l.promised.Remove(last.element)
		last.element, last.took = l.queue.PushFront(last), false
	}
}

// pause revokes all turns. While Lines is paused, advance takes nothing, and lets the head look again later.
func (l *line[K, S]) pause() {
	l.lock()
	defer l.unlock()
	l.forget()
	l.revokeTurns(nil)
	l.advance()
}

func (w *waiter[S]) wake() {
	select {
	case w.signal <- struct{}{}:
	default:
	}
}
