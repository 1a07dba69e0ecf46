package cell

import (
	"errors"

	"github.com/ral-limiter/ral/internal/core/waitline"
)

// Errors of Wait, Acquire and AcquireAll. What they return wraps one of them, for
// errors.Is.
var (
	// ErrNever: more is asked for than the limit ever allows at once, or less than
	// nothing, or the limit is of another family than the engine's.
	ErrNever = waitline.ErrNever
	// ErrDeadline: the call's turn comes after the context's deadline, and then
	// context.DeadlineExceeded is wrapped as well; or it does not come within Acquire's
	// patience. Nothing was taken.
	ErrDeadline = waitline.ErrDeadline
	// ErrCrowded: as many calls wait as may: for the key, by MaxWaiting or by the policy,
	// or for all keys, by MaxWaitingTotal. Its text says which. Nothing was taken.
	ErrCrowded = waitline.ErrCrowded
	// ErrCancelled: the context ended before the call's turn came. It is wrapped
	// together with the context's cause.
	ErrCancelled = waitline.ErrCancelled
)

// Errors of these three and of SetPolicy.
var (
	// ErrClosed: the engine is closed, or was while the call waited.
	ErrClosed = waitline.ErrClosed
	// ErrUnavailable: nothing can be recorded, now or later, because the writer was
	// given up, or the key cannot be found again.
	ErrUnavailable = errors.New("ral: the table is unavailable")
	// ErrFull: there is no room for a key that is to be blocked.
	ErrFull = errors.New("ral: no room for another blocked key")
)
