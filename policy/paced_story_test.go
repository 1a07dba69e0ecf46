package policy_test

import (
	"math"
	"testing"
	"time"

	"github.com/ral-limiter/ral/policy"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A WarmingUp of 2 a second stores 8. The upper 4 cost 1.375, 1.125, 0.875 and 0.625 s, all
// others half a second, in which another is stored. Debts are rounded up to 128 ns, so delays are
// compared to the microsecond.
func TestWarmingUpStories(t *testing.T) {
	const s, ms = time.Second, time.Millisecond
	const limit = 576460748 // what is paid in 2^58 ns, 2 s of it for being cold
	p := policy.Must(policy.WarmingUp(2, s, 4*s, 3))
	for _, story := range []struct {
		name  string
		steps []step
	}{
		{"from cold to warm", []step{
			{at: 1 * s, take: 0, allowed: passes},
			{at: 1 * s, take: 1, allowed: passes},
			{at: 1 * s, take: 1, allowed: refused, retry: 1375 * ms},
			{at: 1 * s, take: 1, patience: 2 * s, allowed: passes, wait: 1375 * ms},
			{at: 1 * s, take: 1, patience: 2 * s, allowed: refused, retry: 500 * ms},
			{at: 1 * s, take: 1, patience: 3 * s, allowed: passes, wait: 2500 * ms},
			{at: 1 * s, take: 1, patience: s, allowed: refused, retry: 2375 * ms},
			{at: 3 * s, take: 1, patience: 2 * s, allowed: passes, wait: 1375 * ms},
			{at: 3 * s, take: 1, patience: 3 * s, allowed: passes, wait: 2 * s},
			{at: 5 * s, take: 4, patience: s, allowed: passes, wait: 500 * ms},
			{at: 5 * s, take: 1, patience: 9 * s, allowed: passes, wait: 2500 * ms},
			{at: 5 * s, take: 1, patience: 9 * s, allowed: passes, wait: 3 * s},
		}},
		{"a large one warms up at once, and the next one pays", []step{
			{at: 1 * s, take: 20, allowed: passes}, // 4 s for the upper 4, 8 for the rest
			{at: 2 * s, take: 1, allowed: refused, retry: 11 * s},
			{at: 2 * s, take: 1, patience: time.Hour, allowed: passes, wait: 11 * s},
			{at: 2 * s, take: 1, patience: time.Hour, allowed: passes, wait: 11500 * ms},
		}},
		{"it is cold again after as long as it takes to warm up", []step{
			{at: 1 * s, take: 20, allowed: passes},
			// Paid at 13 s; four of the eight are stored at 15 s, six at 16.
			{at: 15 * s, take: 2, allowed: passes},
			{at: 15 * s, take: 1, allowed: refused, retry: 1 * s},
			{at: 18 * s, take: 2, allowed: passes}, // 2 and 4 are stored
			{at: 18 * s, take: 1, allowed: refused, retry: 1500 * ms},
			{at: 30 * s, take: 1, allowed: passes},
			{at: 30 * s, take: 1, allowed: refused, retry: 1375 * ms},
		}},
		{"what can never be had", []step{
			{at: 1 * s, take: -1, allowed: refused, retry: policy.Never},
			{at: 1 * s, take: limit + 1, patience: time.Hour, allowed: refused, retry: policy.Never},
			{at: 1 * s, take: limit, allowed: passes},
			{at: 1 * s, take: 1, patience: math.MaxInt64, allowed: passes, wait: (limit/2 + 2) * s},
		}},
		{"a clock that goes back mints nothing", []step{
			{at: 60 * s, take: 1, allowed: passes},
			{at: 50 * s, take: 1, allowed: refused, retry: 11375 * ms},
			{at: -7 * s, take: 1, allowed: refused, retry: 61375 * ms},
		}},
	} {
		t.Run(story.name, func(t *testing.T) {
			var word uint64
			for i, s := range story.steps {
				next, d := p.Take(word, policy.Instant(s.at), s.take, s.patience)
				if d.RetryAfter != policy.Never {
					d.RetryAfter = d.RetryAfter.Round(time.Microsecond)
				}
				require.Equal(t, s.allowed, d.Allowed, "step %d", i)
				require.Equal(t, s.wait, d.Wait.Round(time.Microsecond), "step %d", i)
				require.Equal(t, s.retry, d.RetryAfter, "step %d", i)
				require.EqualValues(t, limit, d.Limit)
				word = next
			}
		})
	}

	// Cold again: paid after 1.375 s, and all but a level of 1/128 grown back.
	_, d := p.Take(0, policy.Instant(s), 1, 0)
	assert.Equal(t, 1375*ms+64+127*(500*ms/128)+1, d.ResetAfter)
}

// At the end of time every call gets the rest, and no more.
func TestPacedAtTheEndOfTime(t *testing.T) {
	for _, c := range []struct {
		p    policy.Policy
		most int
	}{
		{policy.Must(policy.Queue(3, 1, time.Second)), 4},
		{policy.Must(policy.Bursty(1, time.Second, 3)), 4},
		{policy.Must(policy.WarmingUp(1, time.Second, time.Minute, 3)), 1},
	} {
		var word uint64
		admitted := 0
		for range 20 {
			next, d := c.p.Take(word, math.MaxInt64, 1, 0)
			if d.Allowed {
				admitted++
			} else {
				assert.Equal(t, policy.Never, d.RetryAfter, "%v: time does not get there", c.p)
			}
			word = next
		}
		assert.Equal(t, c.most, admitted, "%v", c.p)
	}
}
