// Package waitline keeps the calls that wait for a key in a line: first come, first served.
//
// A call that may not start at once joins the line of its key. The head of a line takes ahead of
// its turn, so that calls that do not wait cannot keep it from its turn for ever. The head then
// holds a promised turn and sleeps until the turn comes. The calls behind it are queued, and take
// when they are about to be the head. So a call that gives up almost never costs the others.
//
//	join      a call forecasts its turn, and joins only if that comes in time
//	forecast  all calls ahead take in thought, one after the other
//	turn      the head takes, its turn comes, the next one takes
//	leave     a call gives up; calls behind it give back, and take anew
//
// A waiting call is a [Call], which takes, forecasts and gives back; states of a key are opaque.
// Words, policies and tables are unknown here. The package starts no goroutine and runs no code of
// a Call in a map callback. Each line has its own lock, held while Calls run. A Call that blocks
// holds up its own line alone; a panic leaves its line to the others.
//
// Start reading at [Lines.Wait], then line.go; forecast.go refuses late calls without a walk.
package waitline
