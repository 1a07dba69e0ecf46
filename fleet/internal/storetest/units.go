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
func (u *units) enter(takeAsk store.TakeAsk, instant policy.Instant) store.Taken {
	_, term, longest, _ := takeAsk.Limit.InFlight()
	now, limit := int64(instant), takeAsk.Limit.Policy().Limit()
	var ends []int64
	last := now
	for _, end := range u.ends {
		if end > now {
			ends, last = append(ends, end), max(last, end)
		}
	}
	slices.Sort(ends)
	used := int64(len(ends))
	taken := store.Taken{At: instant, Decision: policy.Decision{Limit: limit}, Emptied: u.mark.from > now}
	switch {
	case takeAsk.N < 0 || takeAsk.N > limit:
		taken.RetryAfter = policy.Never
	case takeAsk.N == 0:
		taken.Allowed = true
	case taken.Emptied:
		taken.RetryAfter = time.Duration(u.mark.from - now)
	case used+takeAsk.N > limit:
		taken.RetryAfter = time.Duration(ends[used+takeAsk.N-limit-1] - now)
	default:
		taken.Allowed = true
		end := now + int64(min(term, longest))
		if u.ends == nil {
			u.ends = map[string]int64{}
		}
		for i := range takeAsk.N {
			u.ends[unitName(takeAsk.ID, i)] = end
		}
		used, last = used+takeAsk.N, max(last, end)
	}
	if taken.Emptied {
		last = max(last, u.mark.from)
	} else {
		taken.Remaining = max(limit-used, 0)
	}
	taken.ResetAfter = time.Duration(last - now)
	return taken
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
