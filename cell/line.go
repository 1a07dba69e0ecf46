package cell

import (
	"container/list"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/table"
)

// lines are the keys that calls of Wait wait for. A key has a line while somebody
// waits for it.
type lines[K comparable] struct {
	waiting atomic.Int64 // lines there are: nobody looks for one while it is 0
	paused  atomic.Int64 // how many want nobody to take
	shards  [lineShards]lineShard[K]
}

const lineShards = 16

type lineShard[K comparable] struct {
	mu    sync.Mutex
	lines map[K]*line[K] // guarded by mu, as is what is in them
	_     [64 - 16]byte
}

// line is those who wait for one key. All of it is guarded by its shard's mutex.
type line[K comparable] struct {
	cell  *Cell[K]
	shard *lineShard[K]
	key   K

	// line has those who have not taken yet, as *waiting[K], and promised those
	// who have, and wait for their turn.
	line     *list.List
	promised *list.List
	// retry is when the first tries again, if he could not take although nobody
	// else is before him.
	retry time.Time
}

// waiting is one call in a line.
type waiting[K comparable] struct {
	n      int64
	limit  policy.Policy
	signal chan struct{} // has one place: something has changed for this call

	at    *list.Element // its place in the line, or among the promised if took
	took  bool
	taken Reservation[K]
	turn  time.Time
	basis Basis

	over bool // it is out of the line
	err  error
}

// shard is where a key's line is.
func (ls *lines[K]) shard(c *Cell[K], key K) *lineShard[K] {
	hash, _ := c.hash(key)
	return &ls.shards[hash%lineShards]
}

// has tells whether anybody waits for the key.
func (ls *lines[K]) has(c *Cell[K], key K) bool {
	if ls.waiting.Load() == 0 {
		return false
	}
	if _, ok := c.hash(key); !ok {
		return false
	}
	s := ls.shard(c, key)
	c.lock(&s.mu)
	defer s.mu.Unlock()
	return s.lines[key] != nil
}

// join returns the key's line, locked, and makes one if there is none.
func (ls *lines[K]) join(c *Cell[K], key K) *line[K] {
	s := ls.shard(c, key)
	c.lock(&s.mu)
	l := s.lines[key]
	if l == nil {
		l = &line[K]{cell: c, shard: s, key: key, line: list.New(), promised: list.New()}
		if s.lines == nil {
			s.lines = map[K]*line[K]{}
		}
		s.lines[key] = l
		ls.waiting.Add(1)
	}
	return l
}

func (l *line[K]) lock()   { l.cell.lock(&l.shard.mu) }
func (l *line[K]) unlock() { l.shard.mu.Unlock() }

// release unlocks the line, and ends it if nobody is left. If somebody is, and nobody has
// taken, the first looks again: a policy that panicked may have kept him from being told.
func (l *line[K]) release() {
	if first := l.line.Front(); first != nil && l.promised.Len() == 0 {
		first.Value.(*waiting[K]).wake()
	}
	if l.line.Len() == 0 && l.promised.Len() == 0 && l.shard.lines[l.key] == l {
		delete(l.shard.lines, l.key)
		l.cell.lines.waiting.Add(-1)
	}
	l.unlock()
}

// admit tells whether a call may join: whether there is room for it, and its turn
// will come before its deadline and within patience. It lets all who are before it take,
// one after the other, in thought.
func (l *line[K]) admit(ctx context.Context, w *waiting[K], patience time.Duration) error {
	if waiting := l.line.Len() + l.promised.Len(); waiting >= l.cell.maxWaiting {
		return fmt.Errorf("%w: %d", ErrCrowded, waiting)
	}
	now := l.cell.now()
	terms, state := l.cell.current(l.key)
	wait, d := l.foresee(w, terms, state, now)
	if last := l.last(); last != nil && d.Allowed {
		// Where something was given back there is room before that one's turn, in which
		// nobody takes. There is more of it then, or it is gone.
		first := w
		if at := l.line.Front(); at != nil {
			first = at.Value.(*waiting[K])
		}
		left := max(time.Until(last.turn), 0)
		if _, soon := first.foresee(terms, state, now); now+policy.Instant(soon.Wait) < last.taken.starts() {
			wait, d = l.foresee(w, terms, state, now+policy.Instant(left))
			wait += left
		}
		wait = max(wait, left) // nobody overtakes those before him
	}
	if !d.Allowed {
		if d.RetryAfter == policy.Never {
			return Never(w.n, d)
		}
		p := w.limit
		if p == nil {
			p = terms.Policy
		}
		return fmt.Errorf("%w: %v has no room for more", ErrCrowded, p)
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

// foresee is how long a call would wait if all in line took now, one after the other, and
// then it; and what it would be told.
func (l *line[K]) foresee(
	w *waiting[K], terms *table.Terms, state uint64, now policy.Instant,
) (wait time.Duration, d policy.Decision) {
	for at := l.line.Front(); at != nil; at = at.Next() {
		state, d = at.Value.(*waiting[K]).foresee(terms, state, now)
		wait = max(wait, d.Wait)
	}
	_, d = w.foresee(terms, state, now)
	return max(wait, d.Wait), d
}

// foresee is what the key's word would say if the call took now, and what it would be told.
func (w *waiting[K]) foresee(terms *table.Terms, state uint64, now policy.Instant) (uint64, policy.Decision) {
	return (&request{n: w.n, patience: forever, limit: w.limit}).decide(terms, state, now)
}

// last is who came last of those who have taken, or nil.
func (l *line[K]) last() *waiting[K] {
	if at := l.promised.Back(); at != nil {
		return at.Value.(*waiting[K])
	}
	return nil
}

// advance lets those who are about to be the first take.
func (l *line[K]) advance() {
	for !l.cell.closed.Load() && l.line.Len() > 0 {
		w := l.line.Front().Value.(*waiting[K])
		if l.cell.lines.paused.Load() > 0 {
			l.again(w, changePause)
			return
		}
		patience, last := forever, l.last()
		if last != nil {
			// Who came first is served first, whatever others give back meanwhile.
			if time.Until(last.turn) > lookahead && !l.hopeless(w) {
				return
			}
			patience = lookahead
		}
		q := request{n: w.n, patience: patience, limit: w.limit, noRoomWait: true}
		if last != nil {
			q.notBefore = last.taken.starts() // there will be room then, too
		}
		r, basis := l.cell.reserve(l.key, &q)
		switch {
		case r.Allowed:
			w.turn = time.Now().Add(r.Wait)
			if last != nil && w.turn.Before(last.turn) {
				w.turn = last.turn // this goroutine was held up then, or the clock jumps
			}
			l.line.Remove(w.at)
			w.taken, w.basis = r, basis
			w.at, w.took = l.promised.PushBack(w), true
			w.wake()
		case r.RetryAfter == policy.Never:
			l.fail(w, Never(w.n, r.Decision))
		case basis.lost:
			w.basis = basis
			l.fail(w, ErrUnavailable)
		default:
			l.again(w, r.RetryAfter)
			return
		}
	}
}

// hopeless tells whether the limit was changed under a call, and never lets it pass now.
func (l *line[K]) hopeless(w *waiting[K]) bool {
	terms, state := l.cell.current(l.key)
	_, d := w.foresee(terms, state, l.cell.now())
	return d.RetryAfter == policy.Never
}

// again has the first try again later, if nobody else's turn will make him.
func (l *line[K]) again(w *waiting[K], after time.Duration) {
	if l.promised.Len() == 0 {
		l.retry = time.Now().Add(after)
		w.wake()
	}
}

// fail puts a call out of the line.
func (l *line[K]) fail(w *waiting[K], err error) {
	l.line.Remove(w.at)
	w.over, w.err = true, err
	w.wake()
}

// progress tells whether a call is done, and otherwise how long it may sleep unless
// it is woken.
func (l *line[K]) progress(w *waiting[K]) (pause time.Duration, done bool) {
	if l.first(w) && !time.Now().Before(l.retry) {
		l.advance()
	}
	switch {
	case w.over:
		return 0, true
	case w.took:
		if pause = time.Until(w.turn); pause > 0 {
			return pause, false
		}
		w.over = true
		l.promised.Remove(w.at)
		l.advance()
		return 0, true
	case l.first(w):
		return max(time.Until(l.retry), time.Nanosecond), false
	}
	return forever, false
}

// first tells whether a call is the first of a line in which nobody has taken.
func (l *line[K]) first(w *waiting[K]) bool {
	return !w.over && !w.took && l.promised.Len() == 0 && l.line.Front() == w.at
}

// leave takes a call out of the line that was not served.
func (l *line[K]) leave(w *waiting[K]) {
	switch {
	case w.over:
		return
	case w.took:
		defer l.promised.Remove(w.at) // also if a policy panics
		// Those behind move up, and stay behind each other.
		l.takeBack(w)
		l.promised.Remove(w.at)
		w.taken.Cancel()
	default:
		l.line.Remove(w.at)
	}
	w.over = true
	l.advance()
}

// takeBack has those behind a call, or all if it is nil, give back what they have
// taken, but for those whose turn has come. The last is the first to do it, so that
// each finds the word as he left it.
func (l *line[K]) takeBack(behind *waiting[K]) {
	now := time.Now()
	for at := l.promised.Back(); at != nil; at = l.promised.Back() {
		w := at.Value.(*waiting[K])
		if w == behind || !w.turn.After(now) {
			return
		}
		w.taken.Cancel()
		l.promised.Remove(at)
		w.at, w.took = l.line.PushFront(w), false
	}
}

// pause has everybody in line give back what he has taken ahead of his turn, and
// take nothing until resume is called, once.
func (ls *lines[K]) pause(c *Cell[K]) (resume func()) {
	ls.paused.Add(1)
	done := false
	defer func() {
		if !done { // a policy panics
			ls.paused.Add(-1)
		}
	}()
	for i := range ls.shards {
		if ls.waiting.Load() > 0 {
			ls.shards[i].pause(c)
		}
	}
	done = true
	return func() { ls.paused.Add(-1) }
}

func (s *lineShard[K]) pause(c *Cell[K]) {
	c.lock(&s.mu)
	defer s.mu.Unlock()
	for _, l := range s.lines {
		l.takeBack(nil)
		l.advance() // which has the first ask again
	}
}

// wake tells a call to look again.
func (w *waiting[K]) wake() {
	select {
	case w.signal <- struct{}{}:
	default:
	}
}
