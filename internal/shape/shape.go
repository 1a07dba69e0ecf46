// Package shape is what a limit of package policy is made of, for those who have to
// work it out elsewhere: module fleet has Redis do so, by scripts, on the same words.
// Nobody but they asks for it, and no user of a policy needs it.
package shape

import (
	"reflect"
	"time"
)

// Kind is the algorithm of a limit.
type Kind uint8

// The kinds of limits that have a shape.
const (
	Funnel Kind = iota + 1
	Queue
	Bursty
	FixedWindow
	SlidingWindow
)

// Shape is what a limit is made of. Which of its fields are used, each tells; the
// others are 0. The zero Shape is that of no limit.
type Shape struct {
	Kind Kind
	// Limit is the most that can be taken at once, as Decision.Limit.
	Limit int64
	// End is the instant at which time stands still, in nanoseconds.
	End int64
	// Per is the period: of the windows, or in which Count units drain.
	Per time.Duration

	// Of Funnel, Queue and Bursty: the parameters that they were made with (Capacity
	// is the maxBurst of a Bursty), and what follows from them in ticks, which are
	// sixteenths of a nanosecond.
	Capacity, Count int64
	Interval        uint64 // from one unit to the next
	Depth           uint64 // Capacity * Interval

	// Of FixedWindow and SlidingWindow: the bits of a count in a word, and the highest
	// end or number of a window that a word can hold.
	Bits uint
	Last uint64
	// Of FixedWindow: the nanoseconds of a step, and the steps of a window.
	Step, Length uint64
}

// Shaped is what those policies offer that have a shape.
type Shaped interface{ Shape() Shape }

// IsNil reports whether a policy is nil, or a nil pointer.
func IsNil(policy any) bool {
	v := reflect.ValueOf(policy)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}
