// Package shape describes a limit of package policy by its parameters, for module fleet. It also
// tells the scale of Remaining, and has checks of settings that engine and fleet share.
package shape

import (
	"reflect"
	"slices"
	"time"
)

// Kind is the algorithm of a limit.
type Kind uint8

const (
	Funnel Kind = iota + 1
	Queue
	Bursty
	FixedWindow
	SlidingWindow
	AlignedWindow
)

// Shape holds the parameters of a limit; a field of other kinds is 0. The zero Shape is no limit.
type Shape struct {
	Kind Kind
	// Limit is the most units that a call can take, as Decision.Limit.
	Limit int64
	// End is the instant at which time stands still, in nanoseconds.
	End int64
	// Per is the period: of the windows, or of Count units.
	Per time.Duration

	// Of Funnel, Queue and Bursty: the parameters (Capacity is the maxBurst of a Bursty), and
	// results in ticks, sixteenths of a nanosecond.
	Capacity, Count int64
	// Interval is the time from a unit to the next.
	Interval uint64
	// Depth is Capacity * Interval.
	Depth uint64

	// Of the windows: the bits of a count in a word, and the highest end or number of a window.
	Bits uint
	Last uint64
	// Of FixedWindow: the nanoseconds of a step, and the steps of a window.
	Step, Length uint64
	// Of AlignedWindow: the Unix time of instant 0, in nanoseconds.
	Zero int64
}

// Shaped is implemented by the policies that have a shape.
type Shaped interface{ Shape() Shape }

// OnCredit is implemented by policies with credit, which Limit counts and Remaining does not.
type OnCredit interface {
	// AtOnce returns the highest Remaining: the calls that a long unused key admits at once.
	AtOnce() int64
}

// Spaced is implemented by policies whose refused calls can be told turns.
type Spaced interface {
	// Spacing returns how calls of n units each are spaced if they are told their turns in whole units
	// of time, rounded up.
	Spacing(n int64, unit time.Duration) Spacing
}

// Spacing describes turns that a limit sustains. The zero Spacing has no time between turns.
type Spacing struct {
	// Step is the time from turn to turn.
	Step time.Duration
	// Phases is the number of parts of a unit of time whose calls do not meet: the calls of each may
	// have turns of their own. It is 1 at least, and 0 counts as 1.
	Phases int64
}

// NewSpacing returns the spacing of calls of which one passes in each fair, and at most calls within
// span. An eighth more in whole seconds, and a 25th more in milliseconds, lets calls come late: without
// it, a late call costs each later call its turn.
func NewSpacing(fair, span, unit time.Duration, calls int64) Spacing {
	more := time.Duration(25)
	if unit >= time.Second {
		more = 8
	}
	fair = max(fair, unit/time.Duration(calls))
	return Spacing{Step: fair + fair/more + 1, Phases: int64(max(1, unit/max(span, 1)))}
}

// SpacingInWindows is the Spacing of calls of n units under a limit for each window, wherever windows
// begin. Calls that were refused together come back together, once in each unit, so a window meets them
// at both its ends.
func SpacingInWindows(window time.Duration, limit, n int64, unit time.Duration) Spacing {
	calls := max(limit/n, 1)
	return NewSpacing((window/unit+1)*unit/time.Duration(calls), window, unit, calls)
}

// AtOnce returns the highest Decision.Remaining of a policy: its Limit, unless it is OnCredit.
func AtOnce(policy interface{ Limit() int64 }) int64 {
	if credit, ok := policy.(OnCredit); ok {
		return credit.AtOnce()
	}
	return policy.Limit()
}

// IsNil reports whether a policy is nil, or a nil pointer.
func IsNil(policy any) bool {
	value := reflect.ValueOf(policy)
	return !value.IsValid() || value.Kind() == reflect.Pointer && value.IsNil()
}

// SetBesides returns the first exported field of a struct that is not zero and is none of the accepted fields, or "".
func SetBesides(config any, accepted ...string) string {
	value := reflect.ValueOf(config)
	for i := range value.NumField() {
		if field := value.Type().Field(i); field.IsExported() && !value.Field(i).IsZero() && !slices.Contains(accepted, field.Name) {
			return field.Name
		}
	}
	return ""
}

// MaxName is the length of the longest name of a limit, in bytes.
const MaxName = 64

// IsName reports whether a text can name a limit: printable ASCII of at most 64 bytes.
func IsName(name string) bool {
	for _, char := range []byte(name) {
		if char < ' ' || char > '~' {
			return false
		}
	}
	return len(name) <= MaxName
}

// Same reports whether two policies have the same type and equal parameters.
func Same(a, b any) bool {
	if alike, ok := a.(Alike); ok {
		return alike.Alike(b)
	}
	return reflect.DeepEqual(a, b)
}

// Alike is implemented by policies that hold more than their parameters.
type Alike interface{ Alike(other any) bool }

// SameWindow reports whether two policies count in fixed windows of one period. Large counts take more of a word, so
// that neither may read the other's words, but engine.SetPolicy carries them.
func SameWindow(a, b any) bool {
	shaped, ok := a.(Shaped)
	y, both := b.(Shaped)
	return ok && both && shaped.Shape().Kind == FixedWindow && y.Shape().Kind == FixedWindow && shaped.Shape().Per == y.Shape().Per
}

// Followers says which limits are accepted in place of a policy, when other does not read its words.
func Followers(policy, other any) string {
	if SameWindow(policy, other) {
		return "a limit whose count takes as much of a key's word is accepted: up to 1,000,000, 16,777,215, 268,435,455 and 4,294,967,295 take more and more"
	}
	return "a limit of the same kind and period is accepted"
}

// Earliest returns the first of low+1 to high with remaining, which never falls and is less at low,
// at want or more. ok is false if there is none.
func Earliest(remaining func(at int64) int64, want, low, high int64) (at int64, ok bool) {
	if remaining(high) < want {
		return 0, false
	}
	for high-low > 1 {
		if middle := low + (high-low)/2; remaining(middle) >= want {
			high = middle
		} else {
			low = middle
		}
	}
	return high, true
}
