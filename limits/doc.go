// Package limits is the interface between adapters and rate limiters. A [Limiter] limits in process
// (package engine or single) or over many servers (module fleet).
//
//	answer, err := limiter.Admit(ctx, user, 1)
//	switch {
//	case err != nil: // the context ended, or the limiter is closed
//	case !answer.Allowed: // too many requests
//	}
//
// [Limiter.Admit] takes units for good. [Limiter.Hold] takes units that can be returned or corrected,
// and waits for them. [AskAll] takes units of several limiters, or of none. A [Func] is a
// limiter for tests, which answers by a function. A [Recorder] writes the calls of a limiter to a file, a
// [Trial] tries a second limiter on the same calls, and [Explain] tells why a key is admitted or refused.
package limits
