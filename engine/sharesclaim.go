package engine

import (
	"context"
	"time"

	"github.com/ral-limiter/ral/cell"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/table"
)

// Claim names n units of a tenant, for TakeAll and AcquireAll, beside claims on engines and on other shares: see
// Engine.Claim. The claim takes from the guarantee, or else borrows, and gives back as ShareReservation.Keep does. Such a
// call allocates. Claims on several tenants of the same shares may refuse each other: AcquireAll does not wait until the group
// has room for them together.
func (s *Shares[K]) Claim(tenant K, n int64) Claim {
	hash, _ := s.own.hash(tenant)
	claim := &shareClaim[K]{shares: s, form: formOf[K]()}
	return Claim{engine: &claimer{anyEngine: claim, id: s.id, time: &s.time}, hashedKey: hashedKey{pack(claim.form, tenant), hash}, n: n}
}

// shareClaim is the anyEngine of shares. In a call each tenant has a shareClaim of its own, which holds the units. The methods
// for known keys are not called, since known finds none.
type shareClaim[K comparable] struct {
	anyEngine
	shares *Shares[K]
	form   keyForm
	call   shareCall[K]
	held   ShareReservation[K]
}

func (c *shareClaim[K]) forCall() anyEngine { return &shareClaim[K]{shares: c.shares, form: c.form} }

func (c *shareClaim[K]) tenant(key anyKey) K { return unpack[K](c.form, key) }

func (c *shareClaim[K]) begin(key anyKey, n int64) *shareCall[K] {
	c.call = shareCall[K]{shares: c.shares, tenant: c.tenant(key), n: n, now: c.shares.now(), held: &c.held.held}
	return &c.call
}

func (c *shareClaim[K]) known(anyKey, uint64, policy.Instant) (*table.Level, *table.Terms, uint64, uint64) {
	return nil, nil, 0, 0
}

func (c *shareClaim[K]) probeKey(key anyKey, n int64, decision *policy.Decision) (basis cell.Basis, atOnce int64) {
	// A look at units that were taken is not counted.
	if n != 0 {
		c.begin(key, n)
	}
	*decision = c.shares.Peek(c.tenant(key), n).Decision
	return basis, decision.Limit
}

func (c *shareClaim[K]) tryTakeKey(key anyKey, n int64, _ bool, decision *policy.Decision, _ *cell.Receipt) (basis cell.Basis, atOnce int64) {
	c.begin(key, n).decide(&c.held.ShareDecision)
	*decision = c.held.Decision
	return basis, decision.Limit
}

func (c *shareClaim[K]) await(
	ctx context.Context, key anyKey, n int64, patience time.Duration, decision *policy.Decision, _ *cell.Receipt,
) (waited time.Duration, basis cell.Basis, err error) {
	err = c.begin(key, n).acquire(ctx, patience, &c.held)
	*decision = c.held.Decision
	return c.held.Waited, basis, err
}

func (c *shareClaim[K]) keep(_ cell.Receipt, used int64) { c.held.Keep(used) }

func (c *shareClaim[K]) countOne(allowed bool, _ cell.Basis) (due cell.Due) {
	decision := c.held.ShareDecision
	decision.Allowed = allowed
	c.call.count(&decision)
	return due
}

func (c *shareClaim[K]) sameKey(a, b anyKey) bool {
	tenant := c.tenant(a)
	return c.shares.own.keeps(tenant) && tenant == c.tenant(b)
}

func (c *shareClaim[K]) hasWaiters(key anyKey) bool { return c.shares.turns.lines.Has(c.tenant(key)) }

func (c *shareClaim[K]) isClosed() bool { return c.shares.closed.Load() }

func (c *shareClaim[K]) explainKey(key anyKey, n int64) limits.Explanation {
	return c.shares.explain(c.tenant(key), n)
}
