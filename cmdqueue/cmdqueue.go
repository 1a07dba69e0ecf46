// Package cmdqueue is a part of package engine that may change in any release: a bounded
// mailbox. Many goroutines send commands, one receives them in order and carries them out.
//
// Unlike a bare channel it keeps a command whose receiver dies halfway: the command
// stays in hand, and the next receiver is given it again, ahead of the rest. The
// package does not know what commands mean. Start reading at [Queue].
package cmdqueue

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/ral-limiter/ral/internal/core/seam"
)

var (
	// ErrFull is returned by Send when no place came free in time.
	ErrFull = errors.New("cmdqueue: full")
	// ErrClosed is returned by Send once the queue is closed.
	ErrClosed = errors.New("cmdqueue: closed")
)

// Queue is a bounded mailbox of commands of type C. Its zero value is of no
// use: call New. Any number of goroutines may send; the receiving methods
// belong to one goroutine at a time, and a new receiver may begin only when the
// one before it has ended.
type Queue[C any] struct {
	commands chan C
	// closed is closed by Close. The channel of commands never is, because a
	// send on a closed channel panics.
	closed chan struct{}
	once   sync.Once
	seam   seam.Seam

	// The receiver's own: what it was given and has not finished.
	hand struct {
		command C
		held    bool
		attempt int
	}
}

// New returns a queue that holds up to capacity commands; less than 1 means 1.
func New[C any](capacity int) *Queue[C] {
	return &Queue[C]{
		commands: make(chan C, max(capacity, 1)),
		closed:   make(chan struct{}),
	}
}

// A simulation has a queue of any commands wait under its scheduler.
func init() {
	seam.Accept(func(q interface{ under(seam.Seam) }, s seam.Seam) { q.under(s) })
}

func (q *Queue[C]) under(s seam.Seam) { q.seam = s }

// TrySend queues the command if there is a place for it right now. It never
// waits, and returns false when the queue is full or closed.
func (q *Queue[C]) TrySend(command C) bool {
	if q.isClosed() || q.seam.Refuse("queue: try to send") {
		return false
	}
	select {
	case q.commands <- command:
		return true
	default:
		return false
	}
}

// Send queues the command, waiting for a place for at most patience. The error
// is nil, ErrFull or ErrClosed, and the command is queued only if it is nil.
func (q *Queue[C]) Send(command C, patience time.Duration) error {
	if q.isClosed() {
		return ErrClosed
	}
	select {
	case q.commands <- command:
		return nil
	default:
	}
	switch seam.Send(q.seam, "queue: send", patience, q.commands, command, q.closed) {
	case seam.Sent:
		return nil
	case seam.Closed:
		return ErrClosed
	}
	return ErrFull
}

// Receive waits for the next command. The receiver calls Done when it has
// carried the command out; if it dies before that, the next call to Receive or
// TryReceive gives the same command again, ahead of all others. attempt counts
// how often a command was given out, from 1. ok is false when the context has
// ended or the queue is closed; nothing is taken then.
func (q *Queue[C]) Receive(ctx context.Context) (command C, attempt int, ok bool) {
	if command, attempt, ok = q.again(); ok {
		return command, attempt, true
	}
	command, event := seam.Receive(q.seam, "queue: receive", seam.Forever, q.commands, ctx, q.closed)
	if event != seam.Received {
		return command, 0, false
	}
	return q.take(command)
}

// TryReceive is Receive without waiting: ok is false as well when no command is
// there.
func (q *Queue[C]) TryReceive() (command C, attempt int, ok bool) {
	if command, attempt, ok = q.again(); ok {
		return command, attempt, true
	}
	select {
	case command = <-q.commands:
		return q.take(command)
	default:
		return command, 0, false
	}
}

// Done marks the command received last as carried out or given up. Without a command
// in hand it does nothing.
func (q *Queue[C]) Done() {
	var none C
	q.hand.held = false
	q.hand.command = none // do not keep alive what it points to
}

func (q *Queue[C]) take(command C) (C, int, bool) {
	q.hand.command, q.hand.held, q.hand.attempt = command, true, 1
	return command, 1, true
}

func (q *Queue[C]) again() (command C, attempt int, ok bool) {
	if !q.hand.held {
		return command, 0, false
	}
	q.hand.attempt++
	return q.hand.command, q.hand.attempt, true
}

// Len returns the number of commands that wait, without the one in hand.
func (q *Queue[C]) Len() int { return len(q.commands) }

// Cap returns the number of commands that the queue can hold.
func (q *Queue[C]) Cap() int { return cap(q.commands) }

// Close wakes every goroutine that waits on the queue and refuses commands that are
// sent from now on. Commands that are still queued then may be left behind. It may be
// called more than once.
func (q *Queue[C]) Close() { q.once.Do(func() { close(q.closed) }) }

func (q *Queue[C]) isClosed() bool {
	select {
	case <-q.closed:
		return true
	default:
		return false
	}
}
