package cell

import "errors"

// Errors of Wait, Acquire and AcquireAll. What they return wraps one of them, for
// errors.Is.
var (
	// ErrNever: more is asked for than the limit ever allows at once, or less than
	// nothing.
	ErrNever = errors.New("ral: the limit never allows so many at once")
	// ErrDeadline: the call's turn comes after the context's deadline, and then
	// context.DeadlineExceeded is wrapped as well; or it does not come within Acquire's
	// patience. Nothing was taken.
	ErrDeadline = errors.New("ral: the turn comes after the deadline")
	// ErrCrowded: as many wait for the key as may, by the configuration or by the
	// policy. Nothing was taken.
	ErrCrowded = errors.New("ral: too many wait for this key")
	// ErrCancelled: the context ended before the call's turn came. It is wrapped
	// together with the context's cause.
	ErrCancelled = errors.New("ral: the wait was cancelled")
)

// Errors of these three and of SetPolicy.
var (
	// ErrClosed: the engine is closed, or was while the call waited.
	ErrClosed = errors.New("ral: the engine is closed")
	// ErrUnavailable: nothing can be recorded, now or later, because the writer was
	// given up, or the key cannot be found again.
	ErrUnavailable = errors.New("ral: the table is unavailable")
)
