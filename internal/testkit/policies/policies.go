// Package policies has limits for tests.
package policies

import (
	"time"

	"github.com/ral-limiter/ral/policy"
)

// Each returns a limit of each kind, of 10 units that come back in 10 seconds.
func Each() []policy.Policy {
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
