package storetest

import (
	"slices"
	"strconv"
	"time"

	"github.com/ral-limiter/ral/fleet/internal/store"
	"github.com/ral-limiter/ral/policy"
)

// units are the units in flight of a key, by name, and when they end. All times are in nanoseconds.
type units struct {
	ends map[string]int64
	// mark is the mark of the present call.
	mark mark
}

// mark says from when units may enter, and until when it counts as there.
type mark struct{ from, till int64 }

// enter takes units in flight.
func (u *units) enter(a store.TakeAsk, instant policy.Instant) store.Taken {
	_, term, longest, _ := a.Limit.InFlight()
	now, limit := int64(instant), a.Limit.Policy().Limit()
	var ends []int64
	last := now
	for _, end := range u.ends {
		if end > now {
			ends, last = append(ends, end), max(last, end)
		}
	}
	slices.Sort(ends)
	used := int64(len(ends))
	t := store.Taken{At: instant, Decision: policy.Decision{Limit: limit}, Emptied: u.mark.from > now}
	switch {
	case a.N < 0 || a.N > limit:
		t.RetryAfter = policy.Never
	case a.N == 0:
		t.Allowed = true
	case t.Emptied:
		t.RetryAfter = time.Duration(u.mark.from - now)
	case used+a.N > limit:
		t.RetryAfter = time.Duration(ends[used+a.N-limit-1] - now)
	default:
		t.Allowed = true
		end := now + int64(min(term, longest))
		if u.ends == nil {
			u.ends = map[string]int64{}
		}
		for i := range a.N {
			u.ends[unitName(a.ID, i)] = end
		}
		used, last = used+a.N, max(last, end)
	}
	if !t.Emptied {
		t.Remaining = max(limit-used, 0)
	}
	t.ResetAfter = time.Duration(last - now)
	return t
}

func unitName(id string, i int64) string { return id + ":" + strconv.FormatInt(i+1, 10) }

// counting returns how many units of a slot are in use.
func (u *units) counting(id string, n, now int64) (counting int64) {
	for i := range n {
		if u.ends[unitName(id, i)] > now {
			counting++
		}
	}
	return counting
}
