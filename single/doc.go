// Package single is a limit without keys: for a program, a connection or a client library. It has
// the calls of package engine without the key, and decides like an engine with one key. A [Limiter]
// starts no goroutine, needs no Close, and is garbage when unused. An engine forgets an idle key
// after Config.Idle, a Limiter never. They differ only if the clock goes back.
//
//	var limiter = single.MustNew(policy.Funnel(20, 10, time.Second)) // a burst of 20, and 10 a second
//
//	if !limiter.Allow() {
//		// too many requests
//	}
//
// For users of golang.org/x/time/rate, docs/choosing.md has the replacement of each line. To limit
// each client, user or address, use package engine: a map of Limiters grows with its keys.
//
// A Limiter's usage is one 64-bit word advanced by compare-and-swap, as package cell does for a
// key. Only calls that wait or give units back take a lock. The package must not know keys, tables
// or goroutines.
//
// Start reading at [Limiter.Choke] in limiter.go. take.go raises the word, giveback.go lowers it,
// release.go ends the use of units, setpolicy.go changes the limit, standing.go reads the word, and
// wait.go has the calls in line.
package single
