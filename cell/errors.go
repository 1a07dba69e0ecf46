package cell

import (
	"errors"

	"github.com/ral-limiter/ral/internal/core/waitline"
)

// Errors of Wait, Acquire and AcquireAll wrap these, for errors.Is.
var (
	// ErrNever: the call asks for more than the limit ever allows at once, or for less than
	// nothing, or the limit is of another family than the engine's.
	ErrNever = waitline.ErrNever
	// ErrDeadline: the call's turn comes after the context's deadline (then
	// context.DeadlineExceeded is wrapped too) or not within Acquire's patience. Nothing was taken.
	ErrDeadline = waitline.ErrDeadline
	// ErrCrowded: too many calls wait: for the key, by MaxWaiting or the policy, or in all, by
	// MaxWaitingTotal. The text says which. Nothing was taken.
	ErrCrowded = waitline.ErrCrowded
	// ErrCancelled: the context ended before the call's turn came. Its cause is wrapped too.
	ErrCancelled = waitline.ErrCancelled
)

// Errors of these verbs and of SetPolicy.
var (
	// ErrClosed: the engine is closed, or was while the call waited.
	ErrClosed = waitline.ErrClosed
	// ErrUnavailable: nothing can be recorded, now or later, because the writer was given up, or
	// the key cannot be found again.
	ErrUnavailable = errors.New("ral: the table is unavailable")
	// ErrFull: there is no room for another blocked key.
	ErrFull = errors.New("ral: no room for another blocked key")
)
