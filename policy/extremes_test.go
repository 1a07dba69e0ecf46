package policy_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/ral-limiter/ral/policy"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// At the end of time nothing drains any more: each key gets what its bucket
// still holds, and then no more, whatever the clock says.
//
// Promise: At the end of time nothing is minted, and refusals say `Never`.
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

	// One bucketful is what a word has still room for, however patient one is.
	slow := policy.Must(policy.Funnel(1, 1, year))
	word, d := slow.Take(0, math.MaxInt64, 1, math.MaxInt64)
	assert.True(t, d.Allowed)
	assert.Zero(t, d.Wait)
	_, d = slow.Take(word, math.MaxInt64, 1, math.MaxInt64)
	assert.Equal(t, policy.Never, d.RetryAfter)
}

// Patience of more than nine years is nine years.
func TestFunnelLongestPatience(t *testing.T) {
	p := policy.Must(policy.Funnel(1, 1, year))
	for _, patience := range []time.Duration{longestPatience, longestPatience + 1, math.MaxInt64} {
		t.Run(fmt.Sprint(int64(patience)), func(t *testing.T) {
			var word uint64
			for turn := range 10 {
				next, d := p.Take(word, 1, 1, patience)
				require.True(t, d.Allowed)
				require.Equal(t, time.Duration(turn)*year, d.Wait)
				word = next
			}
			_, d := p.Take(word, 1, 1, patience)
			assert.False(t, d.Allowed)
			assert.Equal(t, 10*year-longestPatience, d.RetryAfter)
		})
	}
}

// A word that has no room for one more take can have none later either, so the
// answer is Never and not an instant at which it would be Never.
func TestFunnelNoWordForIt(t *testing.T) {
	p := policy.Must(policy.Funnel(6, 1, year))
	var word uint64
	for _, c := range []struct {
		n    int64
		wait time.Duration
	}{{6, 0}, {6, 6 * year}, {3, 9 * year}} {
		next, d := p.Take(word, 1, c.n, math.MaxInt64)
		require.True(t, d.Allowed)
		require.Equal(t, c.wait, d.Wait)
		word = next
	}

	// 15 years are spoken for, and a word ends a quarter of a year after the 18th.
	for n, want := range map[int64]time.Duration{
		1: 10*year - longestPatience, 3: 12*year - longestPatience, 4: policy.Never, 6: policy.Never,
	} {
		next, d := p.Take(word, 1, n, math.MaxInt64)
		assert.False(t, d.Allowed)
		assert.Equal(t, want, d.RetryAfter, "take %d", n)
		assert.Equal(t, word, next)
	}
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
