package policy_test

import (
	"math"
	"testing"
	"time"

	"github.com/ral-limiter/ral/policy"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestFunnelRefundStories(t *testing.T) {
	const s, ms = time.Second, time.Millisecond
	// Each step takes, or gives back; and then that is what is left.
	type step struct {
		at         time.Duration
		take, give int64
		remaining  int64
		reset      time.Duration
	}
	for _, story := range []struct {
		name  string
		steps []step
	}{
		{"what was taken can be taken again", []step{
			{at: 10 * s, take: 4, remaining: 1, reset: 4 * s},
			{at: 10 * s, give: 4, remaining: 5},
			{at: 10 * s, take: 5, remaining: 0, reset: 5 * s},
		}},
		{"a part of it", []step{
			{at: 10 * s, take: 4, remaining: 1, reset: 4 * s},
			{at: 10 * s, give: 1, remaining: 2, reset: 3 * s},
			{at: 10 * s, give: 2, remaining: 4, reset: 1 * s},
		}},
		{"no more than is in the bucket", []step{
			{at: 10 * s, take: 2, remaining: 3, reset: 2 * s},
			{at: 10 * s, give: 9, remaining: 5},
			{at: 10 * s, give: 9, remaining: 5},
			{at: 10 * s, take: 5, remaining: 0, reset: 5 * s},
		}},
		{"no more than has not drained yet", []step{
			{at: 10 * s, take: 2, remaining: 3, reset: 2 * s},
			{at: 11500 * ms, give: 1, remaining: 5},
			{at: 11500 * ms, take: 5, remaining: 0, reset: 5 * s},
		}},
		{"nothing once all has drained", []step{
			{at: 10 * s, take: 2, remaining: 3, reset: 2 * s},
			{at: 12 * s, give: 2, remaining: 5},
			{at: 12 * s, take: 5, remaining: 0, reset: 5 * s},
		}},
		{"nothing to a key that was never used", []step{
			{at: 10 * s, give: 3, remaining: 5},
			{at: 10 * s, take: 5, remaining: 0, reset: 5 * s},
		}},
		{"a charge is like a take", []step{
			{at: 10 * s, give: -2, remaining: 3, reset: 2 * s},
			{at: 11 * s, give: -2, remaining: 2, reset: 3 * s},
		}},
		{"a charge leaves a debt, which is paid before anything else", []step{
			{at: 10 * s, take: 5, remaining: 0, reset: 5 * s},
			{at: 10 * s, give: -3, remaining: 0, reset: 8 * s},
			{at: 13*s + 999*ms, remaining: 0, reset: 4001 * ms},
			{at: 14 * s, remaining: 1, reset: 4 * s},
			{at: 14 * s, take: 1, remaining: 0, reset: 5 * s},
		}},
		{"a debt is forgiven by as much as comes back", []step{
			{at: 10 * s, give: -9, remaining: 0, reset: 9 * s},
			{at: 10 * s, give: 4, remaining: 0, reset: 5 * s},
			{at: 10 * s, give: 1, remaining: 1, reset: 4 * s},
		}},
		{"on a clock that went back", []step{
			{at: 60 * s, take: 5, remaining: 0, reset: 5 * s},
			{at: 50 * s, give: 1, remaining: 0, reset: 14 * s},
			{at: 50 * s, give: 20, remaining: 5},
		}},
	} {
		t.Run(story.name, func(t *testing.T) {
			p := funnel(5, 1, s)
			var word uint64
			for i, step := range story.steps {
				now := policy.Instant(step.at)
				next, d := p.Take(word, now, step.take, 0)
				require.True(t, d.Allowed, "step %d", i)
				if step.give != 0 {
					next = p.Refund(next, now, step.give)
				}
				_, d = p.Take(next, now, 0, 0)
				require.Equal(t, policy.Decision{Allowed: true, Limit: 5, Remaining: step.remaining, ResetAfter: step.reset}, d, "step %d", i)
				word = next
			}
		})
	}
}

// A debt is refused until it is paid, to the nanosecond.
func TestFunnelDebt(t *testing.T) {
	p := funnel(5, 1, time.Second)
	word := p.Refund(0, 1, -12)
	for n, want := range map[int64]time.Duration{1: 8 * time.Second, 5: 12 * time.Second} {
		_, d := p.Take(word, 1, n, 0)
		assert.Equal(t, policy.Decision{Limit: 5, RetryAfter: want, ResetAfter: 12 * time.Second}, d)
		_, d = p.Take(word, 1+policy.Instant(want)-1, n, 0)
		assert.False(t, d.Allowed)
		_, d = p.Take(word, 1+policy.Instant(want), n, 0)
		assert.True(t, d.Allowed)
	}
}

// What a word cannot hold is not charged, and what is charged can be given back.
func TestFunnelRefundExtremes(t *testing.T) {
	p := funnel(5, 1, time.Second)
	for _, n := range []int64{math.MinInt64, math.MinInt64 + 1, -math.MaxInt64 / 2, -1 << 40} {
		for _, word := range []uint64{0, 1, 1 << 40, policy.MaxWord} {
			for _, now := range []policy.Instant{math.MinInt64, 0, 1 << 40, math.MaxInt64} {
				assert.Equal(t, uint64(policy.MaxWord), p.Refund(word, now, n))
			}
		}
	}
	_, d := p.Take(policy.MaxWord, 0, 1, 0)
	assert.Equal(t, policy.Never, d.RetryAfter)
	back := p.Refund(policy.MaxWord, 1, math.MaxInt64)
	_, d = p.Take(back, 1, 5, 0)
	assert.True(t, d.Allowed)

	// One unit more than the last word holds, and one less.
	const unit = uint64(time.Second) * 16
	assert.Equal(t, uint64(policy.MaxWord), p.Refund(policy.MaxWord-unit+1, 1, -1))
	assert.Equal(t, uint64(policy.MaxWord), p.Refund(policy.MaxWord-unit, 1, -1))
	assert.Equal(t, uint64(policy.MaxWord-1), p.Refund(policy.MaxWord-unit-1, 1, -1))
}

func TestFunnelCancelStories(t *testing.T) {
	const s, ms = time.Second, time.Millisecond
	type take struct {
		at time.Duration
		n  int64
	}
	for _, c := range []struct {
		name      string
		takes     []take
		cancel    int // which of them
		at        time.Duration
		remaining int64
		reset     time.Duration
	}{
		{"no take since", []take{{10 * s, 2}}, 0, 10 * s, 3, 0},
		{"no take since, and a part has drained", []take{{10 * s, 2}}, 0, 11 * s, 3, 0},
		{"after others", []take{{10 * s, 1}, {10 * s, 2}}, 1, 10 * s, 2, 1 * s},
		{"before others", []take{{10 * s, 2}, {10 * s, 1}}, 0, 10 * s, 2, 1 * s},
		{"before others, and a part has drained", []take{{10 * s, 2}, {10 * s, 1}}, 0, 11 * s, 2, 1 * s},
		{"it has drained, the other has not", []take{{10 * s, 2}, {10 * s, 1}}, 0, 12*s + 500*ms, 2, 500 * ms},
		{"all has drained", []take{{10 * s, 2}, {10 * s, 1}}, 0, 13 * s, 3, 0},
		{"another waits with a whole bucket", []take{{10 * s, 3}, {10 * s, 3}}, 0, 10 * s, 0, 6 * s},
		// The second starts at 11 s and fills the bucket with 2, so that it can hold
		// 1 more then. That one comes back; the other will have drained.
		{"another waits with less", []take{{10 * s, 2}, {10 * s, 2}}, 0, 10 * s, 0, 3 * s},
		{"no more than it took", []take{{10 * s, 2}, {10 * s, 1}, {10 * s, 1}}, 1, 10 * s, 0, 3 * s},
		{"the last that waits", []take{{10 * s, 3}, {10 * s, 3}}, 1, 10 * s, 0, 3 * s},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := funnel(3, 1, s)
			var word, taken uint64
			for i, take := range c.takes {
				next, d := p.Take(word, policy.Instant(take.at), take.n, time.Hour)
				require.True(t, d.Allowed)
				if word = next; i == c.cancel {
					taken = next
				}
			}
			now := policy.Instant(c.at)
			word = p.Cancel(word, taken, 0, now, c.takes[c.cancel].n, 0)
			_, d := p.Take(word, now, 0, 0)
			assert.Equal(t, policy.Decision{Allowed: true, Limit: 3, Remaining: c.remaining, ResetAfter: c.reset}, d)
		})
	}
}

// Even a caller that is wrong about its take gets no more than there is.
func TestFunnelCancelOfWhatNeverWas(t *testing.T) {
	p := funnel(3, 1, time.Second)
	word, _ := p.Take(0, 1, 2, 0)
	for _, n := range []int64{0, -1, math.MinInt64} {
		assert.Equal(t, word, p.Cancel(word, word, 0, 1, n, 0))
	}
	assert.Equal(t, word, p.Cancel(word, 0, 0, 1, 2, 0), "taken before now")
	assert.Equal(t, uint64(16), p.Cancel(word, word, 0, 1, math.MaxInt64, 0), "empty, and not emptier")
	assert.Equal(t, uint64(16), p.Cancel(word, policy.MaxWord, 0, 1, math.MaxInt64, 0))
}

// If the limits under which other calls took are unknown, nothing can be given back,
// except if units are counted in windows.
func TestCancelWhenNothingIsKnownOfOthers(t *testing.T) {
	const years = 16 * 365 * 24 * time.Hour
	for _, p := range []policy.Policy{
		policy.Must(policy.Funnel(10, 1, time.Second)),
		policy.Must(policy.Funnel(2, 2, years)),
		policy.Must(policy.Queue(10, 1, time.Second)),
		policy.Must(policy.Bursty(1, time.Second, 10)),
		policy.Must(policy.Bursty(2, years, 1)),
		policy.Must(policy.WarmingUp(1, time.Second, 10*time.Second, 3)),
	} {
		taken, d := p.Take(0, 1, 1, 0)
		require.True(t, d.Allowed)
		for _, word := range []uint64{taken, taken - 1, taken - taken/4, taken / 2, taken + 1, taken + taken/2} {
			assert.Equal(t, word, p.(policy.Refunder).Cancel(word, taken, 1, 1, 1, math.MaxInt64), "%v", p)
		}
	}
	for _, p := range []policy.Policy{
		policy.Must(policy.FixedWindow(10, time.Second)),
		policy.Must(policy.SlidingWindow(10, time.Second)),
		policy.Must(policy.AtMost(10, time.Second)),
	} {
		taken, _ := p.Take(0, 1, 3, 0)
		word, _ := p.Take(taken, 1, 1, 0)
		asked, _ := p.Take(0, 1, 2, 0)
		assert.Equal(t, asked, p.(policy.Refunder).Cancel(word, taken, 1, 1, 2, math.MaxInt64), "%v", p)
	}
}
