package storetest

import (
	"context"

	"github.com/ral-limiter/ral/fleet/internal/store"
)

// TakeTenant implements store.Store.
func (s *Store) TakeTenant(ctx context.Context, a store.TenantAsk) (t store.TenantTaken, err error) {
	asks := []store.TenantKey{a.Group, a.Own, a.Ceiling}
	for _, k := range asks {
		if err := store.CheckKey(k.Key); err != nil {
			return t, err
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
		t = a.Decide(words, s.now())
		for i, taken := range []store.Taken{t.Group, t.Own, t.Ceiling} {
			if taken.After == taken.Before {
				continue
			}
			if values[i].word = taken.After; a.Returns {
				values[i].noteTake(asks[i].Limit, taken, a.N)
			}
		}
	})
	if failed != nil {
		return store.TenantTaken{}, failed
	}
	return t, err
}
