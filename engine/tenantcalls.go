package engine

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ral-limiter/ral/internal/core/frequent"
	"github.com/ral-limiter/ral/policy"
)

// maxTenantUses bounds the tenants that Tenants returns, and the tenants whose calls are counted.
const maxTenantUses = 1000

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

// add counts a call of a tenant, with the hash of its accounts.
func (t *tenantCalls[K]) add(accounts *accounts[K], tenant K, now policy.Instant) {
	weight := max(t.weight.Load(), 1)
	if weight > 1 && rand.Uint64N(weight) != 0 {
		return
	}
	hash, ok := accounts.hash(tenant)
	if !ok {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.turn(now)
	t.now.Add(hash, tenant, weight, int64(now))
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
