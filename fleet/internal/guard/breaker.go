package guard

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// breaker opens after some failures in a row, or if a watch trips it. While it is open only a probe
// passes after each pause. An answer in good time, of a probe or any other call, closes the
// breaker. After a failed probe the next pause is twice as long, up to a bound. (Nygard, Release
// It!, 2007.)
//
// Any number of goroutines may call its methods. A call that passes while the breaker is closed
// writes nothing.
type breaker struct {
	// config.OnChange is called outside mu.
	config *Config
	epoch  time.Time

	// era is odd while the breaker is open, and counts openings and closings.
	era atomic.Uint64
	// next is when the next probe may pass, in nanoseconds since epoch; never while closed. The
	// call that moves next on is the probe. A probe that hangs does not keep the next from passing.
	next atomic.Int64
	// wait is the pause after the next probe.
	wait atomic.Int64
	// row counts failures in a row, counted all failures. Both are written under mu.
	row     atomic.Int32
	counted atomic.Int64
	// probes counts the probes under way.
	probes atomic.Int32
	// cause is the error of calls while it is open: mu.failure or its explanation.
	cause atomic.Pointer[error]

	mu struct {
		sync.Mutex
		// strict means that only an answer within the budget closes the breaker.
		strict bool
		// explained reports whether explain set cause.
		explained bool
		// failure is the error that opened the breaker, or the last probe's.
		failure error
	}
}

const never = math.MaxInt64

// pass lets a call go ahead, until leave.
type pass struct {
	era uint64
	// counted is the number of failures before the call.
	counted int64
	probe   bool
}

type outcome int

const (
	good outcome = iota
	// A late answer came in good time, and after the budget.
	late
	// A stale answer came so late that the server counts as silent.
	stale
	// A bad error is one that opens the breaker.
	bad
	// unsure says nothing about the server, for example because the server was not asked.
	unsure
)

func newBreaker(config *Config) *breaker {
	b := &breaker{config: config, epoch: time.Now()}
	b.wait.Store(int64(config.Pause))
	b.next.Store(never)
	return b
}

// enter returns a pass for a call, to be given to leave, or an error.
func (b *breaker) enter() (pass, error) {
	p := pass{era: b.era.Load(), counted: b.counted.Load()}
	if p.era%2 == 0 {
		return p, nil
	}
	next, now, wait := b.next.Load(), b.now(), b.wait.Load()
	if now < next || !b.next.CompareAndSwap(next, now+wait) {
		return pass{}, *b.cause.Load()
	}
	b.wait.CompareAndSwap(wait, min(2*wait, int64(b.config.MaxPause)))
	p.probe = true
	b.probes.Add(1)
	return p, nil
}

func (b *breaker) leave(pass pass, outcome outcome, err error) {
	if pass.probe {
		b.probes.Add(-1)
	}
	if outcome <= late && !pass.probe && b.row.Load() == 0 && b.era.Load()%2 == 0 {
		return
	}
	if b.judge(pass, outcome, err) {
		b.config.OnChange()
	}
}

// trip opens the breaker. If strict, only an answer within the budget closes it.
func (b *breaker) trip(err error, strict bool) {
	b.mu.Lock()
	opens := b.era.Load()%2 == 0
	if opens {
		b.mu.strict = strict
		b.open(err)
	}
	b.mu.Unlock()
	if opens {
		b.config.OnChange()
	}
}

// judge reports whether the outcome opened or closed the breaker.
func (b *breaker) judge(pass pass, outcome outcome, err error) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	era := b.era.Load()
	open := era%2 == 1
	probe := open && pass.probe && pass.era == era
	if outcome == late {
		if outcome = good; open && b.mu.strict {
			outcome = stale
		}
	}
	switch {
	case outcome == good && open:
		b.row.Store(0)
		b.era.Add(1)
		b.next.Store(never)
		return true
	case outcome == good:
		b.row.Store(0)
	// The next call is the probe.
	case probe && outcome == unsure:
		b.next.Store(b.now())
	case probe && outcome == bad:
		b.fail(err)
	// A very late answer lets the next probe pass now.
	case open && !probe && outcome == stale:
		next := b.next.Load()
		b.next.CompareAndSwap(next, min(next, b.now()))
	case !open && outcome == bad && pass.counted == b.counted.Load():
		// Calls that fail together, as when their connection is lost, are a single failure.
		b.counted.Add(1)
		if int(b.row.Add(1)) >= b.config.Failures {
			b.mu.strict = false
			b.open(err)
			return true
		}
	}
	return false
}

// open begins an open era. The caller holds mu.
func (b *breaker) open(err error) {
	b.counted.Add(1)
	b.mu.explained = false
	b.fail(err)
	// The era changes before a probe may pass, so that the probe passes in this era.
	b.era.Add(1)
	b.wait.Store(int64(min(2*b.config.Pause, b.config.MaxPause)))
	b.next.Store(b.now() + int64(b.config.Pause))
}

// fail sets the failure, and the cause unless that is explained. The caller holds mu.
func (b *breaker) fail(err error) {
	b.mu.failure = err
	if !b.mu.explained {
		b.setCause(err)
	}
}

// failure implements Guard.Failure.
func (b *breaker) failure() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.era.Load()%2 == 0 {
		return nil
	}
	return b.mu.failure
}

// explain implements Guard.Explain.
func (b *breaker) explain(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.era.Load()%2 == 0 {
		return
	}
	if b.mu.explained = err != nil; !b.mu.explained {
		err = b.mu.failure
	}
	b.setCause(err)
}

func (b *breaker) setCause(err error) {
	err = fmt.Errorf("%w: %w", ErrOpen, err)
	b.cause.Store(&err)
}

// now is in nanoseconds since epoch.
func (b *breaker) now() int64 { return int64(time.Since(b.epoch)) }

func (b *breaker) state() (open bool, openings uint64) {
	era := b.era.Load()
	return era%2 == 1, (era + 1) / 2
}
