package lease

import (
	"context"
	"slices"
	"time"

	"github.com/ral-limiter/ral/fleet/internal/lease/plan"
	"github.com/ral-limiter/ral/fleet/internal/store"
	"github.com/ral-limiter/ral/policy"
)

// Store is the part of a *store.Store that a bank asks.
type Store interface {
	Lease(ctx context.Context, asks []store.LeaseAsk) []store.LeaseReply
	RewriteAll(ctx context.Context, l *store.Limit, all []store.Rewrite, within time.Duration) error
}

// OnStore is a bank in Redis.
type OnStore struct {
	plan  *plan.Plan
	store Store
	limit *store.Limit
}

// NewOnStore returns the bank of a plan. The limit must be made from its policy.
func NewOnStore(store Store, plan *plan.Plan, limit *store.Limit) *OnStore {
	return &OnStore{plan, store, limit}
}

// Lease implements [Bank].
func (b *OnStore) Lease(ctx context.Context, asks []Ask) []Grant {
	// The caller may have gone on meanwhile, and reads its own asks.
	asks = slices.Clone(asks)
	for i := range asks {
		asks[i].Limit = b.limit
	}
	return b.store.Lease(ctx, asks)
}

// inTime is the longest delay of a funnel's return.
const inTime = 10 * time.Millisecond

// Return implements [Bank].
func (b *OnStore) Return(ctx context.Context, backs []Back) error {
	within := inTime
	if !b.plan.Drains() {
		// The units of a window are alike.
		within = time.Minute
	}
	all := make([]store.Rewrite, len(backs))
	for i, back := range backs {
		all[i] = store.Rewrite{Tail: store.TailOf(back.Name), Next: func(word uint64, now policy.Instant) uint64 {
			return b.plan.GiveBack(word, now, inTime, back)
		}}
	}
	return b.store.RewriteAll(ctx, b.limit, all, within)
}
