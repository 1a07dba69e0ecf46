package storetest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ral-limiter/ral/fleet/internal/store"
)

// Restart has the Redis be another process, which has lost everything if emptied.
func (r *Redis) Restart(emptied bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.run++
	if emptied {
		clear(r.keys)
		clear(r.reserves)
		clear(r.blocks)
		clear(r.rolls)
		clear(r.marks)
	}
}

// InFlight returns how many units of a key are in use.
func (r *Redis) InFlight(s *Store, limit *store.Limit, key string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, end := range r.value(limit, store.Tail(key)).units.ends {
		if end > int64(s.now()) {
			n++
		}
	}
	return n
}

// LoseUnits forgets the units in use of a key, as a Redis does that comes back with older data.
func (r *Redis) LoseUnits(limit *store.Limit, key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.value(limit, store.Tail(key)).units.ends = nil
}

// Confirm implements store.Store.
func (s *Store) Confirm(ctx context.Context, limit *store.Limit, slots []store.Confirm) (confirmed store.Confirmed, err error) {
	slots = slices.Clone(slots)
	failed := s.redis.call(ctx, func() {
		now := int64(s.now())
		name, term, _, _ := limit.InFlight()
		mark := s.redis.markFor(limit, true, now)
		mark.till = now + 2*int64(term)
		s.redis.marks[name] = mark
		confirmed.Run = fmt.Sprint("run ", s.redis.run)
		for _, slot := range slots {
			value := s.redis.value(limit, store.Tail(slot.Key))
			if fault := value.fault(slot.Key); fault != nil {
				err = fault
				return
			}
			there := slot.Run == "" || slot.Run != confirmed.Run || value.units.counting(slot.ID, slot.N, now) == slot.N
			confirmed.There = append(confirmed.There, there)
			if there && value.units.ends == nil {
				value.units.ends = map[string]int64{}
			}
			for i := range slot.N {
				if there {
					value.units.ends[unitName(slot.ID, i)] = now + int64(min(term, max(slot.Left.Truncate(time.Microsecond), time.Microsecond)))
				}
			}
		}
	})
	if failed != nil || err != nil {
		return store.Confirmed{}, errorOf(failed, err)
	}
	return confirmed, nil
}

// Release implements store.Store.
func (s *Store) Release(ctx context.Context, limit *store.Limit, key, id string, n int64) (left int64, err error) {
	failed := s.redis.call(ctx, func() {
		value := s.redis.value(limit, store.Tail(key))
		if err = value.fault(key); err != nil {
			return
		}
		left = value.units.counting(id, n, int64(s.now()))
		for i := range n {
			delete(value.units.ends, unitName(id, i))
		}
	})
	return left, errorOf(failed, err)
}

func errorOf(failed, err error) error {
	if failed != nil {
		return failed
	}
	return err
}
