// Package waitline keeps the calls that wait for a key in a line: first come, first
// served.
//
// A call that may not start at once joins the line of its key. The head of a line takes
// what it wants ahead of its turn, so that calls which do not wait cannot keep it from
// its turn for ever. It then holds a promised turn and sleeps until that comes. The calls
// behind it wait in the queue, and take when they are about to be the head. So a call
// that gives up costs the others nothing, nearly always.
//
//	join      a call forecasts its turn, and joins only if that comes in time
//	forecast  all calls ahead take, one after the other, in thought
//	turn      the head takes, its turn comes, the next one takes
//	leave     a call gives up; calls behind it give back what they took, and take anew
//
// The package must not know what a take is: neither words nor policies nor tables. A
// waiting call is a [Call], which takes, forecasts and gives back; states of a key are
// opaque. No goroutine is started here, and no code of a Call runs inside a map callback.
//
// Each line has a lock of its own, which is held while Calls run. A Call that blocks
// holds up its own line alone; one that panics leaves its line to the others.
//
// Start reading at [Lines.Wait], then line.go from the top; forecast.go is how a call
// that comes too late is refused without walking the line.
package waitline
