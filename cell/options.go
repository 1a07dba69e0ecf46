package cell

import (
	"fmt"
	"time"

	"github.com/ral-limiter/ral/cmdqueue"
	"github.com/ral-limiter/ral/internal/seam"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/table"
)

// Admission says who writes a key's word.
type Admission int

const (
	// Exact: the caller advances the word in place, by compare-and-swap. What
	// passes never exceeds the limit. The default.
	Exact Admission = iota
	// Queued over-admits by what is in flight: the caller decides on what it
	// reads and sends the take to the writer, who alone writes the word. It is
	// the protocol of the design that Ral comes from, kept so that the two can
	// be measured side by side. What was let pass beyond the limit is counted.
	Queued
)

// String returns the mode's name.
func (a Admission) String() string { return name(int(a), "Exact", "Queued") }

// WhenFull says what a new key meets when the table has as many as it may.
type WhenFull int

const (
	// EvictLeastDebt gives up the key that owes least, which is what the keys
	// of a flood owe, and counts it as forgiven if it still owed. A new key may
	// wait for that, up to the open timeout. The default.
	EvictLeastDebt WhenFull = iota
	// RefuseNew refuses new keys until others have left. RetryAfter is the idle
	// time then: a guess.
	RefuseNew
	// AdmitNew lets new keys pass without a record until others have left.
	AdmitNew
)

// String returns the choice's name.
func (w WhenFull) String() string { return name(int(w), "EvictLeastDebt", "RefuseNew", "AdmitNew") }

// WhenUnavailable says how to answer for a key that cannot be recorded, because
// the writer did not make room for it in time or is gone for good.
type WhenUnavailable int

const (
	// Admit lets the call pass unrecorded if the limit would allow it to a new
	// key. The default.
	Admit WhenUnavailable = iota
	// Refuse refuses the call. RetryAfter is the open timeout then: a guess.
	Refuse
)

// String returns the choice's name.
func (w WhenUnavailable) String() string { return name(int(w), "Admit", "Refuse") }

func name(i int, names ...string) string {
	if i < 0 || i >= len(names) {
		return fmt.Sprintf("unknown (%d)", i)
	}
	return names[i]
}

// Options are what a cell is made with. The engine has checked them; all are
// required but PolicyFor, Clock and Seam.
type Options[K comparable] struct {
	View            table.View[K]
	PolicyFor       func(K) policy.Policy
	Queue           *cmdqueue.Queue[table.Command[K]]
	Admission       Admission
	WhenFull        WhenFull
	WhenUnavailable WhenUnavailable
	OpenTimeout     time.Duration // the longest that a call may wait
	Idle            time.Duration // how long until a full table may have a place again
	MaxWaiting      int           // how many calls of Wait may wait for one key

	// Epoch is the instant 1. It must have a monotonic reading.
	Epoch time.Time
	// Clock replaces the time since Epoch, if it is not nil.
	Clock func() policy.Instant

	// Writing tells whether there is a writer, or soon will be again. If not,
	// no key is opened any more.
	Writing func() bool

	// Seam is given by simulations alone.
	Seam seam.Scheduler
}
