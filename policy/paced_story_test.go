package policy_test

import (
	"math"
	"testing"
	"time"

	"github.com/ral-limiter/ral/policy"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestQueueStories(t *testing.T) {
	const s, ms = time.Second, time.Millisecond
	for _, story := range []story{
		{"one leaves, two wait, and the fourth is refused", 2, 1, s, []step{
			{at: 10 * s, take: 1, allowed: passes, remaining: 2, reset: 1 * s},
			{at: 10 * s, take: 1, allowed: passes, remaining: 1, wait: 1 * s, reset: 2 * s},
			{at: 10 * s, take: 1, allowed: passes, remaining: 0, wait: 2 * s, reset: 3 * s},
			{at: 10 * s, take: 1, allowed: refused, retry: 1 * s, reset: 3 * s},
			{at: 11*s - 1, take: 1, allowed: refused, retry: 1, reset: 2*s + 1},
			{at: 11 * s, take: 1, allowed: passes, wait: 2 * s, reset: 3 * s},
			{at: 14*s - 1, take: 0, allowed: passes, remaining: 2, reset: 1},
			{at: 14 * s, take: 0, allowed: passes, remaining: 3},
		}},
		{"no queue: evenly spaced, and no call waits", 0, 4, s, []step{
			{at: 1 * s, take: 1, allowed: passes, reset: 250 * ms},
			{at: 1 * s, take: 1, allowed: refused, retry: 250 * ms, reset: 250 * ms},
			{at: 1 * s, take: 1, patience: s, allowed: refused, retry: 250 * ms, reset: 250 * ms},
			{at: 1250*ms - 1, take: 1, allowed: refused, retry: 1, reset: 1},
			{at: 1250 * ms, take: 1, allowed: passes, reset: 250 * ms},
			{at: 1500 * ms, take: 2, allowed: refused, remaining: 1, retry: policy.Never},
		}},
		{"several leave with the first of them and take their time", 5, 1, s, []step{
			{at: 0, take: 3, allowed: passes, remaining: 3, reset: 3 * s},
			{at: 0, take: 4, allowed: refused, remaining: 3, retry: 1 * s, reset: 3 * s},
			{at: 0, take: 2, allowed: passes, remaining: 1, wait: 3 * s, reset: 5 * s},
			{at: 0, take: 1, allowed: passes, remaining: 0, wait: 5 * s, reset: 6 * s},
			{at: 500 * ms, take: 1, allowed: refused, retry: 500 * ms, reset: 5500 * ms},
			{at: 6 * s, take: 6, allowed: passes, reset: 6 * s},
		}},
		{"the impatient do not queue so long", 5, 1, s, []step{
			{at: 0, take: 1, patience: 1, allowed: passes, remaining: 5, reset: 1 * s},
			{at: 0, take: 1, patience: s - 1, allowed: refused, remaining: 5, retry: 1, reset: 1 * s},
			{at: 0, take: 1, patience: s, allowed: passes, remaining: 4, wait: 1 * s, reset: 2 * s},
			{at: 0, take: 1, patience: s, allowed: refused, remaining: 4, retry: 1 * s, reset: 2 * s},
			{at: 0, take: 1, patience: -s, allowed: passes, remaining: 3, wait: 2 * s, reset: 3 * s},
			// Both reasons: the turn is in 3 s, and only room for 5 before the last.
			{at: 0, take: 4, patience: 2500 * ms, allowed: refused, remaining: 3, retry: 1 * s, reset: 3 * s},
			{at: 0, take: 4, patience: 500 * ms, allowed: refused, remaining: 3, retry: 2500 * ms, reset: 3 * s},
			{at: 0, take: 3, patience: math.MaxInt64, allowed: passes, wait: 3 * s, reset: 6 * s},
			{at: 0, take: 1, patience: math.MaxInt64, allowed: refused, retry: 1 * s, reset: 6 * s},
		}},
		{"a turn between two nanoseconds is told as the next", 2, 16, 1601, []step{
			// A unit takes 100 1/16 ns.
			{at: 1, take: 1, allowed: passes, remaining: 2, reset: 101},
			{at: 1, take: 1, allowed: passes, remaining: 1, wait: 101, reset: 201},
			{at: 1, take: 1, allowed: passes, remaining: 0, wait: 201, reset: 301},
			{at: 101, take: 1, allowed: refused, retry: 1, reset: 201},
			{at: 102, take: 1, allowed: passes, wait: 200, reset: 300},
		}},
		{"a clock that goes back mints nothing", 1, 1, s, []step{
			{at: 60 * s, take: 1, allowed: passes, remaining: 1, reset: 1 * s},
			{at: 50 * s, take: 1, allowed: refused, retry: 10 * s, reset: 11 * s},
			{at: 60 * s, take: 1, allowed: passes, wait: 1 * s, reset: 2 * s},
			{at: -5 * s, take: 1, allowed: refused, retry: 61 * s, reset: 62 * s},
		}},
	} {
		t.Run(story.name, func(t *testing.T) {
			p := policy.Must(policy.Queue(story.capacity, story.count, story.per))
			follow(t, p, story.capacity+1, 0, story.steps)
		})
	}
}

func TestBurstyStories(t *testing.T) {
	const s, ms = time.Second, time.Millisecond
	const limit = 288230371 // as many as are paid in 2^58 ns, less the 5 or so stored
	for _, story := range []struct {
		name     string
		count    int64
		per      time.Duration
		maxBurst int64
		limit    int64
		steps    []step
	}{
		{"the next one pays", 1, s, 5, limit, []step{
			{at: 100 * s, take: 5, allowed: passes, remaining: 1, reset: 5 * s},
			{at: 100 * s, take: 10, allowed: passes, reset: 15 * s},
			{at: 100 * s, take: 1, allowed: refused, retry: 10 * s, reset: 15 * s},
			{at: 104 * s, take: 1, patience: 5 * s, allowed: refused, retry: 1 * s, reset: 11 * s},
			{at: 105 * s, take: 3, patience: 5 * s, allowed: passes, wait: 5 * s, reset: 13 * s},
			{at: 113*s - 1, take: 1, allowed: refused, retry: 1, reset: 5*s + 1},
			{at: 113 * s, take: 1, allowed: passes, reset: 6 * s},
			// One stored, and one of the two that are taken is owed.
			{at: 115 * s, take: 2, allowed: passes, reset: 6 * s},
			{at: 115 * s, take: 1, allowed: refused, retry: 1 * s, reset: 6 * s},
			{at: 121 * s, take: 0, allowed: passes, remaining: 6},
			{at: 121 * s, take: limit + 1, allowed: refused, remaining: 6, retry: policy.Never},
			{at: 121 * s, take: -1, allowed: refused, remaining: 6, retry: policy.Never},
		}},
		{"the store is empty when the engine starts", 1, s, 5, limit, []step{
			{at: 0, take: 1, allowed: refused, retry: 1},
			{at: 1, take: 0, allowed: passes, remaining: 1},
			{at: 1, take: 2, allowed: passes, reset: 7 * s},
			{at: 1, take: 1, allowed: refused, retry: 2 * s, reset: 7 * s},
			{at: 4*s + 1, take: 2, allowed: passes, remaining: 1, reset: 5 * s},
			{at: 4*s + 1, take: 1, allowed: passes, reset: 6 * s},
		}},
		{"nothing is stored", 2, s, 0, 2*288230376 + 0, []step{
			{at: 100 * s, take: 1, allowed: passes, reset: 500 * ms},
			{at: 100 * s, take: 1, allowed: refused, retry: 500 * ms, reset: 500 * ms},
			{at: 100500 * ms, take: 4, allowed: passes, reset: 2 * s},
			{at: 100500 * ms, take: 1, patience: 2 * s, allowed: passes, wait: 2 * s, reset: 2500 * ms},
			{at: 103 * s, take: 0, allowed: passes, remaining: 1},
		}},
		{"a clock that goes back mints nothing", 1, s, 5, limit, []step{
			{at: 60 * s, take: 7, allowed: passes, reset: 7 * s},
			{at: 50 * s, take: 1, allowed: refused, retry: 12 * s, reset: 17 * s},
			{at: 63 * s, take: 1, allowed: passes, remaining: 1, reset: 5 * s},
			// It has one in store less for each second that it is asked too early.
			{at: 63 * s, take: 0, allowed: passes, remaining: 1, reset: 5 * s},
			{at: 66 * s, take: 0, allowed: passes, remaining: 4, reset: 2 * s},
			{at: 62 * s, take: 1, allowed: refused, retry: 1 * s, reset: 6 * s},
		}},
	} {
		t.Run(story.name, func(t *testing.T) {
			p := policy.Must(policy.Bursty(story.count, story.per, story.maxBurst))
			follow(t, p, story.limit, 0, story.steps)
		})
	}
}

// A WarmingUp of 2 a second stores 8, of which the upper 4 cost 1.375, 1.125, 0.875
// and 0.625 s, and all others half a second. Another is stored every half second.
// What is paid is rounded up to 128 ns, so delays are compared to the microsecond.
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

// At the end of time every call gets what there still is, and no more.
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

// Patience beyond that of a queue counts as its own, however long it is.
func TestQueueLongestPatience(t *testing.T) {
	p := policy.Must(policy.Queue(3, 1, time.Second))
	word, _ := p.Take(0, 1, 3, 0)
	_, want := p.Take(word, 1, 1, 0)
	require.True(t, want.Allowed)
	for bit := range 63 {
		patience := time.Duration(1) << bit
		_, d := p.Take(word, 1, 1, patience)
		if patience >= want.Wait {
			assert.Equal(t, want, d, "%v", patience)
		} else {
			assert.False(t, d.Allowed, "%v", patience)
		}
	}
}
