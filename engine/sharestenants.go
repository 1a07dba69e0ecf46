package engine

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ral-limiter/ral/internal/core/frequent"
	"github.com/ral-limiter/ral/policy"
)

// TenantUse is a tenant of Shares with its use.
type TenantUse[K comparable] struct {
	Tenant K
	// Used is the number of units in the tenant's guarantee, rounded up, of Guarantee units. Both are 0 for a
	// tenant without a guarantee.
	Used, Guarantee int64
	// Borrowed and Refused count the tenant's calls in the current minute and the one before. As in
	// Engine.MostRefused they are exact up to a thousand calls of all tenants in a minute. Beyond, a random sample is
	// counted, and they are estimates.
	Borrowed, Refused uint64
}

// maxTenantUses bounds the tenants that Tenants returns, and the tenants whose calls are counted.
const maxTenantUses = 1000

// Tenants returns n tenants, at most 1,000: first those that were refused most, then those that borrowed
// most, and then others that have a guarantee. With more tenants than n, which of the others is not
// promised. Its cost does not grow with the number of tenants beyond 1,000.
func (s *Shares[K]) Tenants(n int) []TenantUse[K] {
	now := s.now()
	found := map[K]TenantUse[K]{}
	s.lentBy.each(now, func(tenant K, count uint64) {
		use := found[tenant]
		use.Borrowed += count
		found[tenant] = use
	})
	s.refusedBy.each(now, func(tenant K, count uint64) {
		use := found[tenant]
		use.Refused += count
		found[tenant] = use
	})
	looked := 0
	s.own.all.Range(func(tenant K, _ *tenantAccount[K]) bool {
		found[tenant] = found[tenant]
		looked++
		return looked < maxTenantUses
	})
	all := make([]TenantUse[K], 0, len(found))
	for tenant, use := range found {
		use.Tenant = tenant
		if own := s.own.load(tenant); own != nil {
			d := accountWord{own.limit, min(own.word.Load(), policy.MaxWord), now}.look(0)
			use.Used, use.Guarantee = d.Limit-d.Remaining, d.Limit
		}
		all = append(all, use)
	}
	slices.SortFunc(all, func(a, b TenantUse[K]) int {
		return cmp.Or(cmp.Compare(b.Refused, a.Refused), cmp.Compare(b.Borrowed, a.Borrowed), cmp.Compare(b.Used, a.Used))
	})
	return all[:min(max(n, 0), maxTenantUses, len(all))]
}

// tenantCalls counts calls by tenant, in the current minute and the one before. A call that is counted
// weighs the inverse of its chance to be counted.
type tenantCalls[K comparable] struct {
	weight atomic.Uint64 // 0 is 1

	mu          sync.Mutex
	from        policy.Instant // of the current minute
	samples     int
	now, before *frequent.Keys[K]
}

const (
	// tenantSamples halve the chance that a call is counted, down to 1 in maxTenantWeight.
	tenantSamples   = 1024
	maxTenantWeight = 2048
)

func (t *tenantCalls[K]) add(c *shareCall[K]) {
	weight := max(t.weight.Load(), 1)
	if weight > 1 && rand.Uint64N(weight) != 0 {
		return
	}
	tenant := c.tenant
	if c.own != nil {
		tenant = c.own.key // the caller's text may be a part of a long one
	}
	hash, ok := c.shares.own.hash(tenant)
	if !ok {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.turn(c.now)
	t.now.Add(hash, tenant, weight, int64(c.now))
	if t.samples++; t.samples%tenantSamples == 0 && weight < maxTenantWeight {
		t.weight.Store(2 * weight)
	}
}

// turn begins another minute if it is time.
func (t *tenantCalls[K]) turn(now policy.Instant) {
	past := now - t.from
	switch {
	case t.now == nil:
		t.now, t.before = frequent.New[K](maxTenantUses), frequent.New[K](maxTenantUses)
	case past < policy.Instant(time.Minute):
		return
	case past >= 2*policy.Instant(time.Minute):
		t.now.Clear()
	}
	t.now, t.before, t.from, t.samples = t.before, t.now, now, 0
	t.now.Clear()
	t.weight.Store(1)
}

// each calls use for each counter of both minutes.
func (t *tenantCalls[K]) each(now policy.Instant, use func(tenant K, count uint64)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.turn(now)
	for _, counted := range []*frequent.Keys[K]{t.now, t.before} {
		for _, k := range counted.All() {
			use(k.Key, k.Count-k.Over)
		}
	}
}
