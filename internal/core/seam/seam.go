// Package seam lets a simulation run between the steps of Ral's goroutines.
//
// Under a [Scheduler] one goroutine runs at a time. It hands over only in the scheduler's methods,
// which are called between operations on shared memory, at fault points, and in place of blocking.
// So a run follows from the scheduler's choices alone, and can be repeated.
//
// Each part of an engine waits through its [Seam] alone. Only module torture implements Scheduler.
// Elsewhere the Seam is zero and really waits, at the cost of a nil check, which no hot path makes.
// Start reading at [Receive].
package seam

import (
	"context"
	"hash/maphash"
	"io"
	"math"
	"runtime"
	"sync"
	"time"
)

// Forever is the patience of a wait without an end.
const Forever = time.Duration(math.MaxInt64)

// Scheduler decides which goroutine goes on. Only the running goroutine calls its methods.
type Scheduler interface {
	Step(point string)
	// Fault is Step at a point where a goroutine may die, by a panic or by Goexit.
	Fault(point string)
	// Await lets others go on until ready returns true or patience has passed by package time, and
	// reports whether ready did. A nil ready never does. ready must change nothing, and any
	// goroutine may call it.
	Await(point string, patience time.Duration, ready func() bool) bool
	// Go starts a goroutine. It runs when the scheduler picks it.
	Go(f func())
	// Refuse reports whether a queue is to claim that it is full.
	Refuse(point string) bool
	// Seed returns the seed of key hashes.
	Seed() maphash.Seed
	// Built receives the table and the queue of an engine.
	Built(table, queue any)
	// Last returns the writer for an engine's state at Close, nil to keep none.
	Last() io.Writer
}

// Seam waits for a part of an engine. The zero Seam has no scheduler and really waits.
type Seam struct{ Scheduler Scheduler }

// Step lets a scheduler run other goroutines.
func (s Seam) Step(point string) {
	if s.Scheduler != nil {
		s.Scheduler.Step(point)
	}
}

// Refuse reports whether a scheduler wants a queue to claim that it is full.
func (s Seam) Refuse(point string) bool {
	return s.Scheduler != nil && s.Scheduler.Refuse(point)
}

func (s Seam) Lock(point string, mu *sync.Mutex) {
	if s.Scheduler != nil {
		s.Scheduler.Await(point, Forever, Free(mu.TryLock, mu.Unlock))
	}
	mu.Lock()
}

// TryLock locks by tryLock, which returns false while another goroutine has the lock. It gives up, and
// returns false, if the lock is not free soon: a policy that calls the limiter may hold it. On a busy
// machine a holder may be off its processor for tens of milliseconds, so the tries take longer than that.
func (s Seam) TryLock(point string, tryLock func() bool, unlock func()) bool {
	const tries = 1_000_000
	isFree := Free(tryLock, unlock)
	for range tries {
		if tryLock() {
			return true
		}
		s.Yield(point, isFree)
	}
	return false
}

// Free returns a function that reports whether a lock is free.
func Free(tryLock func() bool, unlock func()) func() bool {
	return func() bool {
		free := tryLock()
		if free {
			unlock()
		}
		return free
	}
}

// Yield lets other goroutines run once; under a scheduler until ready, if not nil, returns true.
func (s Seam) Yield(point string, ready func() bool) {
	switch {
	case s.Scheduler == nil:
		runtime.Gosched()
	case ready == nil:
		s.Scheduler.Await(point, 0, nil)
	default:
		s.Scheduler.Await(point, Forever, ready)
	}
}

func (s Seam) Sleep(point string, pause time.Duration) {
	if s.Scheduler != nil {
		s.Scheduler.Await(point, pause, nil)
		return
	}
	time.Sleep(pause)
}

// Event is the reason for which a wait ended.
type Event int

const (
	// The patience is over.
	Elapsed Event = iota
	// A value came.
	Received
	// A value was taken.
	Sent
	// The context ended.
	Ended
	// The channel done was closed.
	Closed
)

// Receive waits for a value from c, for the end of ctx, or until done is closed, for at most
// patience. A nil c, ctx or done is never ready. If several are ready, any of them ends the wait.
// No other goroutine may receive from c meanwhile, and c must not be closed.
func Receive[T any](
	seam Seam, point string, patience time.Duration, c <-chan T, ctx context.Context, done <-chan struct{},
) (value T, event Event) {
	if seam.Scheduler != nil {
		return receiveUnder(seam.Scheduler, point, patience, c, ctx, done)
	}
	late, stop := alarm(patience)
	defer stop()
	var ended <-chan struct{}
	if ctx != nil {
		ended = ctx.Done()
	}
	select {
	case value = <-c:
		return value, Received
	case <-ended:
		return value, Ended
	case <-done:
		return value, Closed
	case <-late:
		return value, Elapsed
	}
}

// receiveUnder asks ctx.Err rather than ctx.Done, as a simulated context has no channel.
func receiveUnder[T any](
	scheduler Scheduler, point string, patience time.Duration, c <-chan T, ctx context.Context, done <-chan struct{},
) (value T, event Event) {
	ended := func() bool { return ctx != nil && ctx.Err() != nil }
	scheduler.Await(point, patience, func() bool { return len(c) > 0 || ended() || IsClosed(done) })
	switch {
	case ended():
		return value, Ended
	case IsClosed(done):
		return value, Closed
	case len(c) > 0:
		return <-c, Received
	}
	return value, Elapsed
}

// Send waits until c takes the value, or until done is closed, for at most patience. c is buffered.
func Send[T any](points Seam, point string, patience time.Duration, c chan<- T, value T, done <-chan struct{}) Event {
	if points.Scheduler != nil {
		points.Scheduler.Await(point, patience, func() bool { return len(c) < cap(c) || IsClosed(done) })
		switch {
		case IsClosed(done):
			return Closed
		case len(c) < cap(c):
			c <- value
			return Sent
		}
		return Elapsed
	}
	late, stop := alarm(patience)
	defer stop()
	select {
	case c <- value:
		return Sent
	case <-done:
		return Closed
	case <-late:
		return Elapsed
	}
}

func alarm(patience time.Duration) (late <-chan time.Time, stop func() bool) {
	if patience == Forever {
		return nil, func() bool { return true }
	}
	timer := time.NewTimer(patience)
	return timer.C, timer.Stop
}

// IsClosed reports whether done, which carries no values, is closed.
func IsClosed(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// setters give a Seam to parts with an unexported Seam.
var setters []func(part any, points Seam) bool

// Accept registers set to give a Seam to parts of type P, or that implement it, from init
// functions. An interface with an unexported method stands for all instances of a generic type.
func Accept[P any](set func(part P, points Seam)) {
	setters = append(setters, func(part any, seam Seam) bool {
		p, ok := part.(P)
		if ok {
			set(p, seam)
		}
		return ok
	})
}

// Give gives a Seam with the scheduler s to a part, or to the configuration that part points to,
// before its first use. It reports whether part accepts it.
func Give(part any, s Scheduler) bool {
	for _, set := range setters {
		if set(part, Seam{s}) {
			return true
		}
	}
	return false
}
