// Package limits is what an adapter needs of a rate limiter, wherever the limit is kept: in
// process, as by package engine or package single, or over many servers, as by module
// fleet. Middleware, interceptors and services take a [Limiter], and import this package
// and package policy alone.
//
//	answer, err := limiter.Ask(ctx, user, 1)
//	switch {
//	case err != nil: // the context ended, or the limiter is closed
//	case !answer.Allowed: // too many requests
//	}
//
// [Limiter.Ask] takes units for good. [Limiter.Hold] takes units that may be given back, or
// that may turn out to be too few, and waits for them. An [Answer] says how it was reached,
// and whether its figures are a promise. [AskAll] asks several limiters of any kind, all or nothing, and
// [ForAnyKey] makes a limit without keys one for any key.
//
// The package does not know how a limiter works. Start reading at [Limiter].
package limits
