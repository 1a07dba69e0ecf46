package storetest

import (
	"context"
	"fmt"

	"github.com/ral-limiter/ral/fleet/internal/store"
	"github.com/ral-limiter/ral/policy"
)

// grant returns the grant of the ask's tenant, or nil, and the sum of all grants.
func (s *Store) grant(tenantAsk *store.TenantAsk) (granted *grant, given store.Grant) {
	reserve := tenantAsk.Reserve
	if reserve == nil {
		return nil, given
	}
	_, name := tenantAsk.Group.Limit.Names(store.Tail(reserve.Key))
	all := s.redis.reserves[name]
	if all == nil {
		all = map[string]*grant{}
		s.redis.reserves[name] = all
	}
	for _, grant := range all {
		given = given.Plus(grant.Grant, 1)
	}
	tenant := fmt.Sprint(tenantAsk.Own.Key, reserve.Grant)
	if granted = all[tenant]; granted != nil {
		return granted, given
	}
	given = given.Plus(reserve.Grant, 1)
	for !given.Within(reserve.Rest) {
		first := ""
		for tenant, grant := range all {
			if first == "" || grant.until < all[first].until {
				first = tenant
			}
		}
		if first == "" || all[first].until+policy.Instant(store.ReserveIdle) > s.now() {
			return nil, given.Plus(reserve.Grant, -1)
		}
		given = given.Plus(all[first].Grant, -1)
		delete(all, first)
	}
	granted = &grant{Grant: reserve.Grant, until: s.now()}
	switch {
	case reserve.Grant.Rate == nil:
	case tenantAsk.Looks:
		given = given.Plus(reserve.Grant, -1)
	default:
		all[tenant] = granted
	}
	return granted, given
}

// owesUntil returns the instant from which the ask's tenant owes nothing.
func (s *Store) owesUntil(tenantAsk *store.TenantAsk, word uint64) (until policy.Instant) {
	if limit := tenantAsk.Own.Limit; limit != nil {
		until = limit.Policy().FreshAt(word)
	}
	if more := tenantAsk.Reserve.More; more > 0 {
		until = max(until, s.now()) + policy.Instant(more)
	}
	return until
}

// TakeTenant implements store.Store.
func (s *Store) TakeTenant(ctx context.Context, tenantAsk store.TenantAsk) (tenantTaken store.TenantTaken, err error) {
	asks := []store.TenantKey{tenantAsk.Group, tenantAsk.Own, tenantAsk.Ceiling}
	for _, tenantKey := range asks {
		if err := store.CheckKey(tenantKey.Key); err != nil {
			return tenantTaken, err
		}
	}
	failed := s.redis.call(ctx, func() {
		var values [3]*value
		var words [3]uint64
		for i, tenantKey := range asks {
			if tenantKey.Limit == nil {
				continue
			}
			values[i] = s.redis.value(tenantKey.Limit, store.Tail(tenantKey.Key))
			if err = values[i].fault(tenantKey.Key); err != nil {
				return
			}
			words[i] = values[i].word
		}
		granted, given := s.grant(&tenantAsk)
		tenantTaken = tenantAsk.Decide(words, s.now(), granted != nil)
		if tenantTaken.Given = given; granted != nil && !tenantAsk.Looks {
			granted.until = max(granted.until, s.owesUntil(&tenantAsk, tenantTaken.Own.After))
		}
		for i, taken := range []store.Taken{tenantTaken.Group, tenantTaken.Own, tenantTaken.Ceiling} {
			if taken.After == taken.Before {
				continue
			}
			if values[i].word = taken.After; tenantAsk.Returns {
				values[i].noteTake(asks[i].Limit, taken, tenantAsk.N)
			}
		}
	})
	if failed != nil {
		return store.TenantTaken{}, failed
	}
	return tenantTaken, err
}
