package engine

import (
	"errors"

	"github.com/ral-limiter/ral/cell"
)

// Errors of Wait, Acquire and AcquireAll, wrapped, for errors.Is. Nothing was taken, or the units
// were given back as by Reservation.Cancel.
var (
	// ErrNever reports a call for more units than the limit ever allows at once, for less than 0,
	// or under a limit of another family than the engine's.
	ErrNever = cell.ErrNever
	// ErrDeadline reports that the call's turn comes too late for its patience, or for the
	// context's deadline; then it also wraps context.DeadlineExceeded.
	ErrDeadline = cell.ErrDeadline
	// ErrCrowded reports that no further call may wait for a key (Config.MaxWaiting or the policy)
	// or for all keys (Config.MaxWaitingTotal). The text names the bound.
	ErrCrowded = cell.ErrCrowded
	// ErrCancelled reports that the context ended before the call's turn. The error also wraps the
	// context's cause.
	ErrCancelled = cell.ErrCancelled
)

var (
	// ErrClosed reports that Close was called, before the call or during its wait.
	ErrClosed = cell.ErrClosed
	// ErrUnavailable reports that nothing can be recorded, now or later: the writer was given up,
	// or the key cannot be found again.
	ErrUnavailable = cell.ErrUnavailable
)

var (
	// ErrUnhealthy reports that the writer or the janitor failed more often than Config.Restarts
	// permits, and that both were given up. The last failure is wrapped too.
	ErrUnhealthy = errors.New("ral: the engine is unhealthy: its goroutines were given up, and no new key is recorded")
	// ErrAbandoned is returned by Close if a goroutine did not end in time. The goroutine may still
	// run.
	ErrAbandoned = errors.New("ral: a goroutine of the engine did not end in time")
)
