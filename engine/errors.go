package engine

import (
	"errors"
	"fmt"

	"github.com/ral-limiter/ral/cell"
)

// Errors of calls that wait: Wait, Acquire and AcquireAll. Nothing was taken, or it was
// given back as by Reservation.Cancel. Errors wrap one of these, for errors.Is.
var (
	// ErrNever reports that more units are asked for than the limit ever allows at
	// once, or less than none, or that the limit is of another family than the
	// engine's.
	ErrNever = cell.ErrNever
	// ErrDeadline reports that the call's turn does not come within its patience, or
	// comes after the context's deadline. In the second case context.DeadlineExceeded is
	// wrapped as well.
	ErrDeadline = cell.ErrDeadline
	// ErrCrowded reports that no further call may wait. Config.MaxWaiting and the policy
	// bound the calls that wait for a key, Config.MaxWaitingTotal those for all keys. The
	// text says which of these was reached.
	ErrCrowded = cell.ErrCrowded
	// ErrCancelled reports that the context ended before the call's turn came. It is
	// wrapped together with the context's cause.
	ErrCancelled = cell.ErrCancelled
)

// Errors of calls that wait, and of SetPolicy and Health.
var (
	// ErrClosed reports that Close was called, before the call or during its wait.
	ErrClosed = cell.ErrClosed
	// ErrUnavailable reports that nothing can be recorded, now or later, because the
	// writer was given up, or the key cannot be found again.
	ErrUnavailable = cell.ErrUnavailable
)

// Errors of Health and Close.
var (
	// ErrUnhealthy reports that the writer or the janitor failed more often than
	// Config.Restarts permits, and that both were given up. It is wrapped together
	// with the last failure.
	ErrUnhealthy = errors.New("ral: the engine is unhealthy: its goroutines were given up, and no new key is recorded")
	// ErrAbandoned is returned by Close if a goroutine of the engine did not end in
	// time. A goroutine cannot be killed, so it may still be there.
	ErrAbandoned = errors.New("ral: a goroutine of the engine did not end in time")
)

// named adds the engine's name to an error, if it was given one.
func (e *Engine[K]) named(err error) error { return namedBy(e.name, err) }

// namedBy adds a name to an error, unless it is the default.
func namedBy(name string, err error) error {
	if err == nil || name == defaultName {
		return err
	}
	return fmt.Errorf("engine %q: %w", name, err)
}
