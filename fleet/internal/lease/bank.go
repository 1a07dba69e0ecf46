package lease

import (
	"context"

	"github.com/ral-limiter/ral/fleet/internal/lease/plan"
	"github.com/ral-limiter/ral/fleet/internal/store"
)

// A Bank keeps the words of all keys, for all servers, under the policy of a [plan.Plan]. One goroutine
// at a time calls its methods. [OnStore] implements it; package fleet bounds the wait.
type Bank interface {
	// Lease asks for leases, each by itself: for as many units as fit, up to Most, or none if fewer
	// than Need fit. The grants are in the order of asks. Lease returns soon after ctx ends; the
	// asks may have been done or not, or be done later.
	Lease(ctx context.Context, asks []Ask) []Grant

	// Return gives units back, each atomically by [plan.Plan.GiveBack]. Each is done once or not at all,
	// and must not be repeated if the answer is lost. The error is the first; its units are lost.
	Return(ctx context.Context, backs []Back) error
}

// Ask asks for a lease of a.Key: 1 <= Need <= Most. The bank sets the limit.
type Ask = store.LeaseAsk

// Grant is the answer to an [Ask]. After is the word after the lease. Block.Left is how long the bank
// refuses every call.
type Grant = store.LeaseReply

// Back gives back unused units of a lease.
type Back = plan.Back
