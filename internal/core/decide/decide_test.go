package decide

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/ral-limiter/ral/policy"
)

// A charge above the bound changes nothing; up to it the debt lasts days at most.
func TestChargeIsBounded(t *testing.T) {
	const now, day = 7, 24 * time.Hour
	must := policy.Must
	for _, c := range []struct {
		p    policy.Policy
		most int64
		// debt is the largest debt.
		debt time.Duration
	}{
		{must(policy.Funnel(10, 10, time.Second)), 26_784_000, 31*day + time.Second},
		{must(policy.Funnel(10, 10, day)), 310, 32 * day},
		{must(policy.Funnel(5, 1, day)), 31, 32 * day},
		// The largest charge is the limit itself.
		{must(policy.Funnel(10_000, 10_000, 90*day)), 10_000, 91 * day},
		{must(policy.Queue(4, 1, time.Second)), 2_678_400, 31*day + time.Second},
		{must(policy.Bursty(10, time.Second, 5)), 26_784_000, 31*day + time.Second},
		{must(policy.WarmingUp(10, time.Second, time.Minute, 3)), 26_784_000, 32 * day},
		{must(policy.FixedWindow(10, time.Minute)), 446_400, time.Minute + time.Millisecond},
		{must(policy.SlidingWindow(10, time.Minute)), 446_400, 2 * time.Minute},
		{must(policy.AtMost(5, time.Hour)), 3720, 31 * day},
	} {
		assert.Equal(t, c.most, MostCharge(c.p), "%v", c.p)
		refunder := c.p.(policy.Refunder)
		used, _ := c.p.Take(0, now, 1, 0)
		for _, word := range []uint64{0, used} {
			var d policy.Decision
			for _, n := range []int64{-c.most - 1, -1 << 50, math.MinInt64} {
				assert.Equal(t, word, Refund(c.p, refunder, word, now, n, &d), "%v: %d", c.p, n)
				assert.Equal(t, policy.Decision{Limit: c.p.Limit(), RetryAfter: policy.Never}, d, "%v: %d", c.p, n)
			}
			Refund(c.p, refunder, word, now, -c.most, &d)
			assert.True(t, d.Allowed, "%v: %d", c.p, c.most)
			assert.LessOrEqual(t, d.ResetAfter, c.debt, "%v", c.p)
		}
	}
}

// A full queue first has room again, and then a turn at once. Only then a call that may not be
// delayed passes.
func TestFullQueueTellsWhenACallNeedNotWait(t *testing.T) {
	const now = policy.Instant(time.Minute)
	p := policy.Must(policy.Queue(2, 1, time.Second))
	word, d := p.Take(0, now, 3, 0)
	assert.True(t, d.Allowed)
	assert.Equal(t, word, Take(p, word, now, 1, NoDelay, 0, &d))
	assert.Equal(t, 3*time.Second, d.RetryAfter)
	Take(p, word, now+policy.Instant(d.RetryAfter)-1, 1, NoDelay, 0, &d)
	assert.Equal(t, policy.Decision{Limit: 3, Remaining: 2, RetryAfter: 1, ResetAfter: 1}, d)
	assert.NotEqual(t, word, Take(p, word, now+policy.Instant(3*time.Second), 1, NoDelay, 0, &d))
	assert.True(t, d.Allowed && d.Wait == 0)
}
