// Package cmdqueue is a part of package engine that may change in any release: a bounded mailbox.
// Many goroutines send commands; a single goroutine receives them in order and carries them out.
//
// Unlike a channel the queue keeps the command of a receiver that dies: the next receiver gets it
// again, ahead of the rest. Start reading at [Queue].
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

// Queue is a bounded mailbox of commands of type C. Call New to make a Queue; the zero Queue is not
// usable. Any number of goroutines may send. The receiving methods are for one goroutine at a time;
// a new receiver may begin only when the last has ended.
type Queue[C any] struct {
	commands chan C
	// Close closes closed and not commands, since a send would panic.
	closed chan struct{}
	once   sync.Once
	seam   seam.Seam

	// hand is the receiver's unfinished command.
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

func init() {
	seam.Accept(func(q interface{ under(seam.Seam) }, points seam.Seam) { q.under(points) })
}

func (q *Queue[C]) under(points seam.Seam) { q.seam = points }

// TrySend queues the command without waiting. TrySend returns false if the queue is full or closed.
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

// Send queues the command, waiting for a place for at most patience. The error is nil, ErrFull or
// ErrClosed; the command is queued only if it is nil.
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

// Receive waits for the next command. The receiver calls Done when the command has been carried
// out. If the receiver dies before, the next Receive or TryReceive returns the command again, ahead
// of all others. attempt counts its receipts, from 1. ok is false when the context has ended or the
// queue is closed; nothing is taken then.
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

// TryReceive is Receive without waiting: ok is also false if there is no command.
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

// Done marks the last received command, if any, as carried out or given up.
func (q *Queue[C]) Done() {
	var none C
	q.hand.held = false
	// The garbage collector may then have what the command refers to.
	q.hand.command = none
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

// Len returns the number of waiting commands, without the received command.
func (q *Queue[C]) Len() int { return len(q.commands) }

// Close wakes all goroutines that wait on the queue; later commands are refused. Queued commands
// may be left behind. Close may be called more than once.
func (q *Queue[C]) Close() { q.once.Do(func() { close(q.closed) }) }

func (q *Queue[C]) isClosed() bool {
	select {
	case <-q.closed:
		return true
	default:
		return false
	}
}
