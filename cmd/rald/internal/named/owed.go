package named

import (
	"strings"
	"time"

	"github.com/ral-limiter/ral/internal/shape"
	"github.com/ral-limiter/ral/policy"
)

// mostOwed bounds the units of a debt.
const mostOwed = 1 << 40

// owed returns how many units to charge a new key under a limit, for what a key has used under
// another one. d is that key's state.
//
// It is the units that still count, rounded up, as far as the new limit has so many. A bucket
// may hold a debt beyond that: it lasts as long under a bucket of another kind. In windows it
// ends with them.
func owed(from, to policy.Policy, d policy.Decision) int64 {
	n := min(max(shape.AtOnce(from)-d.Remaining, 0), shape.AtOnce(to))
	if !isBucket(from) || !isBucket(to) {
		return n
	}
	debt := d.ResetAfter - resetOf(from, shape.AtOnce(from))
	if debt <= 0 {
		return n
	}
	// The least number of units that lasts longer than those by the debt.
	reset := func(units int64) int64 { return int64(resetOf(to, units)) }
	lasts := reset(n) + int64(debt)
	for more := int64(1); more < mostOwed; more *= 2 {
		if units, ok := shape.Earliest(reset, lasts, n+more/2, n+more); ok {
			return units
		}
	}
	return n
}

// resetOf returns the time after which a key is as good as new that was charged so many units.
func resetOf(limit policy.Policy, units int64) time.Duration {
	refunder, ok := limit.(policy.Refunder)
	if !ok || units == 0 {
		return 0
	}
	_, d := limit.Take(refunder.Refund(0, 1, -units), 1, 0, 0)
	return d.ResetAfter
}

// isBucket reports whether a limit is one of which debts are paid off with time.
func isBucket(limit policy.Policy) bool {
	switch kind, _, _ := strings.Cut(limit.String(), " "); kind {
	case "funnel", "queue", "bursty", "warming":
		return true
	}
	return false
}
