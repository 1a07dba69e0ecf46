package guard

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// breaker counts failures, and after some in a row it is open: it lets nothing pass but
// one call, the probe, after a pause. A probe that succeeds closes it; after one that
// fails the next pause is twice as long, up to a bound. (Nygard, Release It!, 2007.)
//
// Its methods may be called by any number of goroutines. A call that passes while it is
// closed writes nothing.
type breaker struct {
	failures       int
	pause, longest time.Duration
	epoch          time.Time
	changed        func() // told, outside mu, that it opened or closed

	// era is odd while the breaker is open, and counts how often it opened and closed:
	// what calls of an earlier era report is no news any more.
	era atomic.Uint64
	// next is when the next probe may pass, in nanoseconds since epoch; never while
	// one is under way, and while the breaker is closed. Who swaps never in is the probe.
	next atomic.Int64
	// row is how many failed in a row, written under mu.
	row atomic.Int32
	// cause is what calls are told while it is open.
	cause atomic.Pointer[error]

	mu struct {
		sync.Mutex
		pause time.Duration // after the next failure of a probe
	}
}

const never = math.MaxInt64

// pass is the leave of one call, to be given back by leave.
type pass struct {
	era   uint64
	probe bool
}

// outcome is how a call went.
type outcome int

const (
	good   outcome = iota
	bad            // one of those that open the breaker
	unsure         // it tells nothing, such as a call that was given up by its caller
)

func newBreaker(failures int, pause, longest time.Duration, changed func()) *breaker {
	b := &breaker{failures: failures, pause: pause, longest: longest, epoch: time.Now(), changed: changed}
	b.mu.pause = pause
	b.next.Store(never)
	return b
}

// enter asks for leave to call. If the error is nil, leave must be called with the pass.
func (b *breaker) enter() (pass, error) {
	if era := b.era.Load(); era%2 == 0 {
		return pass{era: era}, nil
	}
	next := b.next.Load()
	if int64(time.Since(b.epoch)) < next || !b.next.CompareAndSwap(next, never) {
		return pass{}, *b.cause.Load()
	}
	// Now only this probe can begin another era.
	return pass{era: b.era.Load(), probe: true}, nil
}

// leave reports how the call went; err is why, if it is bad.
func (b *breaker) leave(p pass, o outcome, err error) {
	if o == good && !p.probe && b.row.Load() == 0 {
		return
	}
	if b.judge(p, o, err) {
		b.changed()
	}
}

// judge tells whether the breaker opened or closed by it.
func (b *breaker) judge(p pass, o outcome, err error) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p.era != b.era.Load() {
		return false
	}
	switch {
	case p.probe && o == good:
		b.row.Store(0)
		b.mu.pause = b.pause
		b.era.Add(1)
		return true
	case p.probe && o == bad:
		b.tell(err)
		b.rest()
	case p.probe: // the next call is the probe
		b.next.Store(int64(time.Since(b.epoch)))
	case o == good:
		b.row.Store(0)
	case o == bad && int(b.row.Add(1)) >= b.failures:
		b.tell(err)
		b.era.Add(1) // before a probe may pass, so that it passes in this era
		b.rest()
		return true
	}
	return false
}

// tell sets what calls are told while it is open.
func (b *breaker) tell(err error) {
	err = fmt.Errorf("%w: %w", ErrOpen, err)
	b.cause.Store(&err)
}

// rest begins a pause. The caller holds mu.
func (b *breaker) rest() {
	b.next.Store(int64(time.Since(b.epoch) + b.mu.pause))
	b.mu.pause = min(2*b.mu.pause, b.longest)
}

// state tells whether the breaker is open, and how often it has opened.
func (b *breaker) state() (open bool, openings uint64) {
	era := b.era.Load()
	return era%2 == 1, (era + 1) / 2
}
