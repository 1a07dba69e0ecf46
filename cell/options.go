package cell

import (
	"sync/atomic"
	"time"

	"github.com/ral-limiter/ral/cmdqueue"
	"github.com/ral-limiter/ral/internal/core/warn"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/table"
)

// WhenFull selects the treatment of a new key in a full table: see package engine.
type WhenFull int

// The constants are in the order of package engine.
const (
	EvictLeastDebt WhenFull = iota
	RefuseNew
	AdmitNew
)

// Refusals counts the results of refusals.
type Refusals struct {
	// Blocks counts the keys that were blocked.
	Blocks atomic.Uint64
	// Uncounted counts the refusals that could not be recorded.
	Uncounted atomic.Uint64
}

// Options configure a cell. The engine has checked them. All are required except PolicyFor, Anchor,
// OnMisfit, RefuseUnavailable, Refusals, RefusedKeys, WarnAt, OnWarn and Clock.
type Options[K comparable] struct {
	View      table.View[K]
	PolicyFor func(K) policy.Policy
	// Anchor, if not nil, replaces each limit of a call or from PolicyFor.
	Anchor func(limit policy.Policy) policy.Policy
	// OnMisfit, if not nil, is called with the first limit of another family, by the call that met
	// it.
	OnMisfit func(limit policy.Policy)
	Queue    *cmdqueue.Queue[table.Command[K]]
	WhenFull WhenFull
	// OpenTimeout is the longest that a call may wait for the writer.
	OpenTimeout time.Duration
	// MaxKeys is the largest number of keys in the table, at least 1.
	MaxKeys int
	// Idle is the RetryAfter of a new key that a full table refuses.
	Idle time.Duration
	// MaxWaiting is the most calls that may wait for a key.
	MaxWaiting int
	// MaxWaitingTotal is the most calls that may wait for all keys together.
	MaxWaitingTotal int
	// RefuseUnavailable refuses keys that cannot be recorded, instead of answering as for unused
	// keys.
	RefuseUnavailable bool

	// RefuseClosed refuses all takes once the cell is closed, including takes under way that may
	// not be recorded, whatever RefuseUnavailable says.
	RefuseClosed bool

	// Refusals, if not nil, makes this a blocking cell that counts refusals of keys and blocks them:
	// see Cell.Punish.
	Refusals *Refusals

	// RefusedKeys turns on the sample of refusals that RefusedMost lists.
	RefusedKeys bool

	// WarnAt has the used shares of a limit at which OnWarn is called, on the goroutine of the call.
	// OnWarn must not block.
	WarnAt warn.Shares
	OnWarn func(key K, share float64, d policy.Decision)

	// OnOverstay and OnUnheld, if not nil, are called under a policy.Occupier, on the goroutine of the
	// call, and must not block: OnOverstay is called when a call releases or extends units that have
	// already ended. OnUnheld is called when a call has taken units but returns nothing with which to
	// release them.
	OnOverstay, OnUnheld func(key K)

	// Epoch is the time of the instant First, with a monotonic reading. First is at least 1.
	Epoch time.Time
	First policy.Instant
	// Clock, if not nil, replaces the time since Epoch.
	Clock func() policy.Instant

	// Writing reports whether there is, or soon will be, a writer. If not, no key is opened.
	Writing func() bool
}
