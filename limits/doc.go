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
// and waits for them. [AskAll] asks several limiters, all or nothing. [Func] answers by a function, in tests.
package limits
