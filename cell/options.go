package cell

import (
	"sync/atomic"
	"time"

	"github.com/ral-limiter/ral/cmdqueue"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/table"
)

// WhenFull selects what a new key meets in a full table: package engine documents it.
type WhenFull int

// The choices, in the order of package engine's.
const (
	EvictLeastDebt WhenFull = iota
	RefuseNew
	AdmitNew
)

// Refusals counts what the refusals of keys led to.
type Refusals struct {
	Blocks    atomic.Uint64 // keys that were blocked
	Uncounted atomic.Uint64 // refusals that could not be recorded
}

// Options are what a cell is made with. The engine has checked them. All are required
// except PolicyFor, Anchor, OnMisfit, RefuseUnavailable, Refusals, RefusedKeys and Clock.
type Options[K comparable] struct {
	View      table.View[K]
	PolicyFor func(K) policy.Policy
	// Anchor, if not nil, replaces each limit that comes with a call or from PolicyFor.
	Anchor func(limit policy.Policy) policy.Policy
	// OnMisfit, if not nil, is called with the first limit of another family, on the
	// goroutine of the call that met it.
	OnMisfit        func(limit policy.Policy)
	Queue           *cmdqueue.Queue[table.Command[K]]
	WhenFull        WhenFull
	OpenTimeout     time.Duration // the longest that a call may wait for the writer
	Idle            time.Duration // the RetryAfter of a new key that a full table refuses
	MaxWaiting      int           // the most calls that may wait for one key
	MaxWaitingTotal int           // the most calls that may wait for all keys together
	// RefuseUnavailable refuses keys that cannot be recorded. Otherwise they are
	// answered as keys that were never used.
	RefuseUnavailable bool

	// RefuseClosed refuses all takes once the cell is closed, also those under way for
	// which nothing may be recorded any more, whatever RefuseUnavailable says.
	RefuseClosed bool

	// Refusals, if not nil, counts for a cell that others are blocked by, if refusals of a
	// key can block it.
	Refusals *Refusals

	// RefusedKeys keeps the list of RefusedMost.
	RefusedKeys bool

	// Epoch is when it is the instant First. It must have a monotonic reading. First is
	// at least 1.
	Epoch time.Time
	First policy.Instant
	// Clock replaces the time since Epoch, if it is not nil.
	Clock func() policy.Instant

	// Writing reports whether there is a writer, or soon will be again. If not, no key
	// is opened any more.
	Writing func() bool
}
