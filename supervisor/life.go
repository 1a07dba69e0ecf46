package supervisor

import (
	"context"
	"time"

	"github.com/ral-limiter/ral/internal/core/seam"
)

// life is one incarnation of a child: from a start to the end of its goroutine.
// It is where the end is recorded, and it stays there until the supervisor looks:
// no message can get lost with a goroutine that was to receive it.
type life struct {
	s      *Supervisor
	index  int // of the child
	ctx    context.Context
	cancel context.CancelFunc
	wake   chan<- struct{} // of the run that started it

	launched bool          // the goroutine exists; only the run's owner looks
	done     chan struct{} // closed when the goroutine is over; err may be read then

	// Guarded by s.mu, and err also by done.
	abandoned bool // the supervisor has turned away from it
	err       error
}

// launch starts the goroutine. Call it after the life has been registered in its
// slot. A fault in between then costs a life that never began; in the other order it
// would cost a goroutine that the supervisor does not know.
func (l *life) launch() {
	l.launched = true
	spawn(l.s.cfg.seam, func() error { return l.s.children[l.index].Run(l.ctx) }, l.end)
}

// end records the end, on the child's goroutine. An abandoned life has no one
// else to report it, possibly long after the Run that it belonged to.
func (l *life) end(reason error) {
	l.cancel() // for the sake of what the child has left behind under its context
	l.s.mu.Lock()
	l.err = reason
	close(l.done)
	if l.abandoned {
		l.s.mu.abandoned--
		l.s.post(AbandonedEnded, l.s.children[l.index].Name, reason)
	}
	l.s.mu.Unlock()
	poke(l.wake)
}

// abandon gives up on a life that is late. If the life has ended by now, it returns
// false and does nothing. The lock makes sure that exactly one of abandon and end
// sees the other.
func (l *life) abandon() bool {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	if l.over() {
		return false
	}
	l.abandoned = true
	l.s.mu.abandoned++
	l.s.post(ChildAbandoned, l.s.children[l.index].Name, nil)
	return true
}

// over reports whether the goroutine has ended.
func (l *life) over() bool {
	select {
	case <-l.done:
		return true
	default:
		return false
	}
}

// wait waits for the end until the deadline.
func (l *life) wait(deadline time.Time) {
	seam.Receive[struct{}](l.s.cfg.seam, "supervisor: last resort", patience(deadline), nil, nil, l.done)
}

// patience returns the time until t, or forever if t is zero.
func patience(t time.Time) time.Duration {
	if t.IsZero() {
		return seam.Forever
	}
	return time.Until(t)
}

// poke wakes the goroutine that waits on a one-slot channel. An extra poke is
// harmless, since the goroutine looks at the state and not at the number of pokes.
func poke(wake chan<- struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}
