// Package waitline keeps the calls that wait for a key in a line: first come, first served.
//
// A call that may not start at once joins the line of its key. The first call of a line takes its units
// ahead of time, so that calls that do not wait cannot keep it from them for ever. It then has a promised
// turn, and sleeps until the turn comes. The calls behind it are queued. The first queued call is the
// head, and takes shortly before the last promised turn comes. So a call that gives up almost never delays the others.
//
//	join      a call forecasts its turn, and joins only if the turn comes in time
//	forecast  the turns of all calls ahead are computed, one after the other
//	turn      the head takes its units, its turn comes, and the next call takes
//	leave     a call gives up, and the calls behind it give back and take again
//
// A waiting call is a [Call], which takes units, forecasts and gives back. The state of a key is opaque:
// the package knows no words, policies or tables. It starts no goroutine, and runs no code of a Call in a
// map callback. Each line has a lock of its own, which is locked while methods of Calls run. A Call that
// blocks holds up its own line only. After a panic of a Call, the other calls of its line go on.
//
// Start reading at [Lines.Wait], then read line.go. forecast.go refuses a call that would be too late,
// mostly without a walk over the queue.
package waitline
