package storetest

import (
	"context"

	"github.com/ral-limiter/ral/fleet/internal/store"
)

// TakeTenant implements store.Store.
func (s *Store) TakeTenant(ctx context.Context, tenantAsk store.TenantAsk) (tenantTaken store.TenantTaken, err error) {
	asks := []store.TenantKey{tenantAsk.Group, tenantAsk.Own, tenantAsk.Ceiling}
	for _, k := range asks {
		if err := store.CheckKey(k.Key); err != nil {
			return tenantTaken, err
		}
	}
	failed := s.redis.call(ctx, func() {
		var values [3]*value
		var words [3]uint64
		for i, k := range asks {
			if k.Limit == nil {
				continue
			}
			values[i] = s.redis.value(k.Limit, store.Tail(k.Key))
			if err = values[i].fault(k.Key); err != nil {
				return
			}
			words[i] = values[i].word
		}
		tenantTaken = tenantAsk.Decide(words, s.now())
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
