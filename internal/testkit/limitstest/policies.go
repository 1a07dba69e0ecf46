package limitstest

import (
	"time"

	"github.com/ral-limiter/ral/policy"
)

// Policies returns a limit of each kind, of 10 units that come back in 10 seconds.
func Policies() []policy.Policy {
	return []policy.Policy{
		policy.Must(policy.Funnel(10, 1, time.Second)),
		policy.Must(policy.FixedWindow(10, 10*time.Second)),
		policy.Must(policy.SlidingWindow(10, 10*time.Second)),
		policy.Must(policy.AtMost(10, 10*time.Second)),
		policy.Must(policy.Queue(10, 1, time.Second)),
		policy.Must(policy.Bursty(1, time.Second, 10)),
		policy.Must(policy.WarmingUp(1, time.Second, 10*time.Second, 3)),
	}
}

// Families returns two or more limits of each family, which may replace each other. The first has
// 10 units that come back in a second, or in a day.
func Families() [][]policy.Policy {
	const s = time.Second
	must := policy.Must
	return [][]policy.Policy{
		{must(policy.Funnel(10, 10, s)), must(policy.Funnel(4, 3, s)), must(policy.Funnel(1, 1, s))},
		{must(policy.FixedWindow(10, s)), must(policy.FixedWindow(4, s)), must(policy.FixedWindow(20, 3*s))},
		{must(policy.SlidingWindow(10, s)), must(policy.SlidingWindow(4, s)), must(policy.SlidingWindow(20, 3*s))},
		{must(policy.AtMost(10, s)), must(policy.AtMost(4, s))},
		{must(policy.Queue(5, 10, s)), must(policy.Queue(0, 7, s)), must(policy.Queue(20, 3, s))},
		{must(policy.Bursty(10, s, 5)), must(policy.Bursty(3, s, 20))},
		{must(policy.WarmingUp(10, s, 3*s, 3)), must(policy.WarmingUp(4, s, 3*s, 3))},
		{must(policy.AlignedWindow(10, s)), must(policy.AlignedWindow(4, s))},
		{must(policy.CalendarWindow(10, policy.Day, "Europe/Berlin")), must(policy.CalendarWindow(20, policy.Day, "Europe/Berlin"))},
	}
}

// Budgets returns fixed windows of millions of units, in three layouts of a word, and one of few
// units. They may replace each other for good. For a single call only the first two may.
func Budgets() []policy.Policy {
	const s = time.Second
	must := policy.Must
	return []policy.Policy{
		must(policy.FixedWindow(10_000_000, 2*s)), must(policy.FixedWindow(4_000_000, 2*s)),
		must(policy.FixedWindow(100_000_000, 2*s)), must(policy.FixedWindow(20_000_000, 3*s)), must(policy.FixedWindow(10, 2*s)),
	}
}

// PolicyHook is a policy that calls a function in each take.
type PolicyHook struct {
	policy.Policy
	Call func()
}

// Take implements policy.Policy.
func (p PolicyHook) Take(word uint64, now policy.Instant, n int64, patience time.Duration) (uint64, policy.Decision) {
	p.Call()
	return p.Policy.Take(word, now, n, patience)
}
