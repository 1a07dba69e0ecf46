package policy_test

import (
	"math"
	"testing"
	"time"

	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/policy"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Each figure of a shape is read off words and decisions.
func TestShape(t *testing.T) {
	const now = policy.Instant(1_000_000_007)
	for _, c := range []struct {
		p        policy.Policy
		kind     shape.Kind
		capacity int64
		count    int64
		per      time.Duration
	}{
		{policy.Must(policy.Funnel(7, 3, time.Second)), shape.Funnel, 7, 3, time.Second},
		{policy.Must(policy.Funnel(1, 1_000_000, time.Second)), shape.Funnel, 1, 1_000_000, time.Second},
		{policy.Must(policy.Queue(0, 7, time.Minute)), shape.Queue, 0, 7, time.Minute},
		{policy.Must(policy.Queue(20, 10, time.Second)), shape.Queue, 20, 10, time.Second},
		{policy.Must(policy.Bursty(5, time.Second, 3)), shape.Bursty, 3, 5, time.Second},
		{policy.Must(policy.Bursty(1, 24*365*time.Hour, 0)), shape.Bursty, 0, 1, 24 * 365 * time.Hour},
	} {
		t.Run(c.p.String(), func(t *testing.T) {
			s := c.p.(shape.Shaped).Shape()
			checkShape(t, c.p, s, c.kind)
			assert.Equal(t, c.capacity, s.Capacity)
			assert.Equal(t, c.count, s.Count)
			assert.Equal(t, c.per, s.Per)
			one, _ := c.p.Take(0, now, 1, 0)
			two, d := c.p.Take(one, now, 1, math.MaxInt64)
			require.True(t, d.Allowed || s.Limit == 1)
			if d.Allowed {
				assert.Equal(t, s.Interval, two-one)
			}
			assert.Equal(t, s.Interval*uint64(s.Capacity), s.Depth)
		})
	}
	for _, c := range []struct {
		p    policy.Policy
		kind shape.Kind
		per  time.Duration
	}{
		{policy.Must(policy.FixedWindow(10, time.Minute)), shape.FixedWindow, time.Minute},
		{policy.Must(policy.FixedWindow(1_000_000, 3333333*time.Nanosecond)), shape.FixedWindow, 3333333},
		{policy.Must(policy.SlidingWindow(100, time.Second)), shape.SlidingWindow, time.Second},
		{policy.Must(policy.SlidingWindow(3, 7*time.Nanosecond)), shape.SlidingWindow, 7},
	} {
		t.Run(c.p.String(), func(t *testing.T) {
			s := c.p.(shape.Shaped).Shape()
			checkShape(t, c.p, s, c.kind)
			assert.Equal(t, c.per, s.Per)
			word, d := c.p.Take(0, now, 2, 0)
			require.True(t, d.Allowed)
			full := uint64(1)<<s.Bits - 1
			assert.Equal(t, uint64(2), word&full, "the count is lowest")
			charged := c.p.(policy.Refunder).Refund(word, now, math.MinInt64+1)
			assert.Equal(t, full, charged&full, "a count goes as far as its bits")
			if c.kind == shape.FixedWindow {
				assert.GreaterOrEqual(t, s.Length*s.Step, uint64(s.Per))
				assert.Less(t, (s.Length-1)*s.Step, uint64(s.Per))
				start := (uint64(now) - 1 + s.Step - 1) / s.Step
				assert.Equal(t, start+s.Length, word>>(s.Bits+1))
				assert.Equal(t, uint64(s.End), 1+(s.Last-s.Length)*s.Step)
			} else {
				assert.Equal(t, uint64(now)/uint64(s.Per), word>>(2*s.Bits))
				assert.Equal(t, uint64(s.End), (s.Last+1)*uint64(s.Per)-1)
			}
			// A word above the last window is taken for it.
			shift := 2 * s.Bits
			if c.kind == shape.FixedWindow {
				shift = s.Bits + 1
			}
			assert.Less(t, c.p.FreshAt((s.Last-1)<<shift|1), c.p.FreshAt(s.Last<<shift|1))
			assert.Equal(t, c.p.FreshAt(s.Last<<shift|1), c.p.FreshAt((s.Last+1)<<shift|1))
		})
	}
}

func checkShape(t *testing.T, p policy.Policy, s shape.Shape, kind shape.Kind) {
	t.Helper()
	assert.Equal(t, kind, s.Kind)
	_, d := p.Take(0, 1, 0, 0)
	assert.Equal(t, d.Limit, s.Limit)
	reset := func(at policy.Instant) time.Duration {
		_, d := p.Take(policy.MaxWord, at, 0, 0)
		return d.ResetAfter
	}
	end := policy.Instant(s.End)
	assert.Equal(t, reset(end), reset(math.MaxInt64), "time stands still at End")
	assert.Equal(t, reset(end)+1, reset(end-1), "and not before")
}

// AtOnce is the Remaining of a key unused for 20 years, with every store full: so many calls of
// one unit pass.
func TestAtOnce(t *testing.T) {
	const late = policy.Instant(20 * 365 * 24 * time.Hour)
	for _, p := range []policy.Policy{
		policy.Must(policy.Funnel(7, 3, time.Second)),
		policy.Must(policy.Queue(7, 3, time.Second)),
		policy.Must(policy.FixedWindow(7, time.Minute)),
		policy.Must(policy.SlidingWindow(7, time.Minute)),
		policy.Must(policy.AtMost(7, time.Minute)),
		policy.Must(policy.Bursty(3, time.Second, 7)),
		policy.Must(policy.Bursty(3, time.Second, 0)),
		policy.Must(policy.Bursty(1, time.Hour, 100_000)), // its Limit is 1
		policy.Must(policy.WarmingUp(3, time.Second, time.Minute, 3)),
		policy.Must(policy.WarmingUp(1, time.Hour, time.Hour, 3)),
	} {
		t.Run(p.String(), func(t *testing.T) {
			_, d := p.Take(0, late, 0, 0)
			require.Equal(t, d.Remaining, shape.AtOnce(p))
			if p.Delays() || d.Limit == 1 {
				return // a queue's calls wait, and the store of that Bursty is larger than its Limit
			}
			word, passed := uint64(0), int64(0)
			for ; passed <= d.Remaining; passed++ {
				next, d := p.Take(word, late, 1, 0)
				if !d.Allowed {
					break
				}
				word = next
			}
			require.Equal(t, d.Remaining, passed)
		})
	}
}
