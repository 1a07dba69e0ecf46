package lease

import (
	"context"
	"time"

	"github.com/ral-limiter/ral/policy"
)

// A Bank keeps the words of all keys, for all servers, under the policy of a [Plan].
// Its methods are called by one goroutine at a time. [OnStore] implements it; package fleet wraps
// that in a guardedBank, which bounds how long Redis is waited for.
type Bank interface {
	// Lease asks for leases, each by itself: of as many units as fit, up to Most, or of
	// none if fewer than Need fit. The answer has as many grants, in the same order.
	// It returns soon after ctx has ended; what was asked may then have been done or not,
	// or be done later.
	Lease(ctx context.Context, asks []Ask) []Grant

	// Return gives units back, each atomically as Plan.GiveBack says. What is asked
	// for is done once or not at all: it must not be repeated when the answer is lost.
	// The error is of the first that went wrong; those units are lost.
	Return(ctx context.Context, backs []Back) error
}

// Ask asks for a lease: 1 <= Need <= Most.
type Ask struct {
	Key        string
	Need, Most int64
}

// Grant is the answer to an Ask.
type Grant struct {
	// Units is how many were granted; 0 if fewer fit than were needed.
	Units int64
	// Decision is what the policy decided about Units or, if that is 0, about Need.
	Decision policy.Decision
	// Word is the word afterwards, and At the instant at which it was so, by the bank's
	// clock.
	Word uint64
	At   policy.Instant
	// Blocked is how long the bank refuses every call for the key, 0 if it does not.
	Blocked time.Duration
	// Err is why there is no answer. Nothing else is set then.
	Err error
}

// Back gives back units of a lease that are not used any more.
type Back struct {
	Name  string // of the key: see Config.Name
	Units int64
	// Word and At are those of the grant.
	Word uint64
	At   policy.Instant
	// Age is how long ago the lease was asked for, by the server's clock: that of the
	// bank may have gone back since.
	Age time.Duration
}
