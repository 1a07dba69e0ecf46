package policy_test

import (
	"math"
	"testing"
	"time"

	"github.com/ral-limiter/ral/policy"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// At the end of time nothing drains: each key gets the rest of its bucket, whatever the clock
// says.
// Promise: At the end of time nothing is minted; refusals say `Never`.
func TestFunnelAtTheEndOfTime(t *testing.T) {
	p := policy.Must(policy.Funnel(3, 1, time.Second))
	end := endOfTime(3, 1, time.Second)
	var word uint64
	admitted := 0
	for _, now := range []policy.Instant{end, end + 1, math.MaxInt64, end, math.MaxInt64} {
		for range 3 {
			next, d := p.Take(word, now, 1, 0)
			if d.Allowed {
				admitted++
			}
			word = next
		}
	}
	assert.Equal(t, 3, admitted)

	// A word has room for another bucketful, however patient a caller is.
	slow := policy.Must(policy.Funnel(1, 1, year))
	word, d := slow.Take(0, math.MaxInt64, 1, math.MaxInt64)
	assert.True(t, d.Allowed)
	assert.Zero(t, d.Wait)
	_, d = slow.Take(word, math.MaxInt64, 1, math.MaxInt64)
	assert.Equal(t, policy.Never, d.RetryAfter)
}

// MaxWord itself can be reached, and not a tick more.
func TestFunnelLastWord(t *testing.T) {
	p := policy.Must(policy.Funnel(17, 1, year))
	const unit = uint64(year) * 16 // in the sixteenths of a nanosecond that a word counts
	end := endOfTime(17, 1, year)
	next, d := p.Take(policy.MaxWord-unit, end, 1, math.MaxInt64)
	assert.True(t, d.Allowed)
	assert.Equal(t, uint64(policy.MaxWord), next)

	next, d = p.Take(policy.MaxWord-unit+1, end, 1, math.MaxInt64)
	assert.Equal(t, policy.Never, d.RetryAfter)
	assert.Equal(t, policy.MaxWord-unit+1, next)
}

// Units that do not fit a word are not charged, and charged units can be given back.
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

// If the limits of other calls are unknown, only units counted in windows can be given back.
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
