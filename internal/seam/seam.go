// Package seam is where a simulation gets between the steps of Ral's goroutines.
//
// Under a [Scheduler] only one goroutine runs at a time, and it hands over to
// another only in the scheduler's methods. Those are called between operations on
// shared memory, at the points where a fault may strike, and in place of everything
// that would block. So what the goroutines do follows from the scheduler's choices
// alone, and can be repeated.
//
// Nobody but module torture makes a scheduler. Everywhere else it is nil, and nothing
// is asked of it but that, and on no path that is in a hurry.
package seam

import (
	"hash/maphash"
	"math"
	"time"
)

// Forever is the patience of who waits until what he waits for has come.
const Forever = time.Duration(math.MaxInt64)

// Scheduler decides who goes on. All methods are called by the one goroutine that
// runs.
type Scheduler interface {
	// Step lets others go on.
	Step(point string)
	// Fault is Step where a goroutine may die, by a panic or by Goexit.
	Fault(point string)
	// Await lets others go on until ready returns true, or until so much of package
	// time has passed, and tells whether ready did. A nil ready never does. ready
	// must change nothing, and may be asked by any goroutine.
	Await(point string, patience time.Duration, ready func() bool) bool
	// Go starts a goroutine. It runs when it is its turn.
	Go(f func())
	// Refuse tells whether a queue is to say that it is full although it is not.
	Refuse(point string) bool
	// Held tells, in place of the garbage collector, whether anybody may hold
	// what he took before the point "change: over" was last passed.
	Held() bool
	// Seed is by which keys are hashed.
	Seed() maphash.Seed
	// Built is given the parts of an engine: its table and its queue.
	Built(table, queue any)
}

// setters put a scheduler into configurations that do not show the field.
var setters []func(config any, s Scheduler) bool

// Accept registers how a configuration of type C is given a scheduler. It is for
// init functions.
func Accept[C any](set func(config *C, s Scheduler)) {
	setters = append(setters, func(config any, s Scheduler) bool {
		c, ok := config.(*C)
		if ok {
			set(c, s)
		}
		return ok
	})
}

// Give gives a scheduler to the configuration that config points to. It returns
// false if that does not take one.
func Give(config any, s Scheduler) bool {
	for _, set := range setters {
		if set(config, s) {
			return true
		}
	}
	return false
}
