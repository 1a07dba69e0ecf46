// Package single is a limit without keys: one for a whole program, a connection or a
// client library. It has the verbs of package engine without the key, and decides as an
// engine with one key does. There is no table: a [Limiter] starts no goroutine, needs no
// Close, and is garbage when it is no longer used. It never forgets its word as an engine does
// after Config.Idle, which shows only if the clock goes back to before that.
//
//	var limiter = single.MustNew(policy.Funnel(20, 10, time.Second)) // a burst of 20, and 10 a second
//
//	if !limiter.Allow() {
//		// too many requests
//	}
//
// For users of golang.org/x/time/rate, docs/choosing.md has each of its lines beside the
// one to write here. For a limit of each client, user or address, use package engine: a
// map of Limiters grows with its keys.
//
// What a Limiter has admitted is one 64-bit word, which calls advance by
// compare-and-swap, as package cell does for a key. Only a call that waits, or that gives
// units back, takes a lock. The package must not know keys, tables or goroutines.
//
// Start reading at [Limiter.Choke] in limiter.go. Then take.go has the loop that raises
// the word, giveback.go what lowers it, setpolicy.go a change of the limit, and wait.go
// the calls that wait in line.
package single
