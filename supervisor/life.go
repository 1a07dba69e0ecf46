package supervisor

import (
	"context"
	"time"

	"github.com/ral-limiter/ral/internal/core/seam"
)

// life is an incarnation of a child. Its end is recorded here and stays until the supervisor looks:
// no message can get lost with its receiver.
type life struct {
	s *Supervisor
	// index is the child's.
	index  int
	ctx    context.Context
	cancel context.CancelFunc
	// wake belongs to the run that started the life.
	wake chan<- struct{}

	// launched is set once the goroutine exists. Only the run's owner looks.
	launched bool
	// done is closed when the goroutine is over. Then err may be read.
	done chan struct{}

	// Guarded by s.mu; err also by done.
	// abandoned is set once the supervisor has turned away from the life.
	abandoned bool
	err       error
}

// launch starts the goroutine of a registered life. A fault before launch costs a life that never
// began; in the other order it would cost a goroutine unknown to the supervisor.
func (l *life) launch() {
	l.launched = true
	spawn(l.s.cfg.seam, func() error { return l.s.children[l.index].Run(l.ctx) }, l.end)
}

// end records the end, on the child's goroutine. end also reports an abandoned life, perhaps long
// after Run.
func (l *life) end(reason error) {
	// The child may have left work behind under its context.
	l.cancel()
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

// abandon gives up on a late life. abandon returns false and does nothing if the life has ended.
// The lock ensures that exactly one of abandon and end sees the other.
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

func (l *life) over() bool {
	select {
	case <-l.done:
		return true
	default:
		return false
	}
}

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

// poke wakes the goroutine at a one-slot channel. More pokes are harmless: the goroutine looks at
// the state.
func poke(wake chan<- struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}
