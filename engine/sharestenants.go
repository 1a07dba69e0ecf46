package engine

import (
	"cmp"
	"slices"

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

// Tenants returns n tenants, at most 1,000: first those that were refused most, then those that borrowed
// most, and then others that have a guarantee. With more tenants than n, which of the others is not
// promised. Its cost does not grow with the number of tenants beyond 1,000.
func (s *Shares[K]) Tenants(n int) []TenantUse[K] {
	now := s.now()
	found := map[K]TenantUse[K]{}
	count := func(sample *frequent.Sample[K], add func(use *TenantUse[K], calls uint64)) {
		sample.Turn(int64(now))
		all, _, _ := sample.All()
		for _, counter := range all {
			use := found[counter.Key]
			add(&use, counter.Count-counter.Over)
			found[counter.Key] = use
		}
	}
	count(&s.lentBy, func(use *TenantUse[K], calls uint64) { use.Borrowed = calls })
	count(&s.refusedBy, func(use *TenantUse[K], calls uint64) { use.Refused = calls })
	looked := 0
	s.own.all.Range(func(tenant K, _ *account) bool {
		found[tenant] = found[tenant]
		looked++
		return looked < maxTenantUses
	})
	all := make([]TenantUse[K], 0, len(found))
	for tenant, use := range found {
		use.Tenant = tenant
		if own := s.own.load(tenant); own != nil {
			decision := accountWord{own.limit, min(own.word.Load(), policy.MaxWord), now}.look(0)
			use.Used, use.Guarantee = decision.Limit-decision.Remaining, decision.Limit
		}
		all = append(all, use)
	}
	slices.SortFunc(all, func(a, b TenantUse[K]) int {
		return cmp.Or(cmp.Compare(b.Refused, a.Refused), cmp.Compare(b.Borrowed, a.Borrowed), cmp.Compare(b.Used, a.Used))
	})
	return all[:min(max(n, 0), maxTenantUses, len(all))]
}
