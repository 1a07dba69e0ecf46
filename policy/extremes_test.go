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

// extremeLimits are the corners of what Funnel accepts.
var extremeLimits = []struct {
	capacity, count int64
	per             time.Duration
}{
	{1, 1, 1},
	{1, 16, 1},
	{1, 1, time.Second},
	{1, 1, longestDrain},
	{18, 1, year},
	{math.MaxInt64, 16, 1},
	{1, math.MaxInt64, math.MaxInt64},
	{576460752, 1, time.Second},
}

// TestFunnelExtremes asks everything of every funnel at every time, of words
// that no sequence of calls would have left as well. All that can be expected of
// those is that nothing breaks and that nothing is given away.
func TestFunnelExtremes(t *testing.T) {
	words := []uint64{0, 1, 15, 16, 17, 1 << 32, 1<<63 - 33, 1<<63 - 32, 1<<63 - 1, 1 << 63, 1<<63 + 1,
		math.MaxUint64 - 32, policy.MaxWord - 16, policy.MaxWord - 1, policy.MaxWord}
	instants := []policy.Instant{math.MinInt64, -1, 0, 1, 2, 1 << 32, endOfTime - 1, endOfTime, endOfTime + 1,
		math.MaxInt64 - 1, math.MaxInt64}
	patiences := []time.Duration{math.MinInt64, -1, 0, 1, time.Second, longestPatience - 1, longestPatience,
		longestPatience + 1, math.MaxInt64}
	for _, l := range extremeLimits {
		p := policy.Must(policy.Funnel(l.capacity, l.count, l.per))
		amounts := []int64{math.MinInt64, -1, 0, 1, 2, l.capacity - 1, l.capacity, math.MaxInt64}
		if l.capacity < math.MaxInt64 {
			amounts = append(amounts, l.capacity+1)
		}
		t.Run(p.String(), func(t *testing.T) {
			for _, word := range words {
				fresh := p.FreshAt(word)
				if fresh < 0 || word > 0 && fresh == 0 || uint64(fresh) > 1<<60 {
					t.Fatalf("FreshAt(%d) = %d", word, fresh)
				}
				for _, now := range instants {
					for _, n := range amounts {
						for _, patience := range patiences {
							checkExtreme(t, p, word, call{now, n, patience})
						}
					}
				}
			}
		})
	}
}

func checkExtreme(t *testing.T, p policy.Policy, word uint64, c call) {
	next, d := p.Take(word, c.now, c.n, c.patience)
	chokeNext, choked := p.(policy.Choker).Choke(word, c.now)
	takeNext, took := p.Take(word, c.now, 1, 0)
	before := p.FreshAt(word)
	var fault string
	switch {
	case next > policy.MaxWord:
		fault = "the word is above MaxWord"
	case d.Remaining < 0 || d.Remaining > d.Limit:
		fault = "what remains is out of range"
	case d.Wait < 0 || d.RetryAfter < 0 || d.ResetAfter < 0:
		fault = "a delay is below 0"
	case d.Wait > max(c.patience, 0) || d.Wait > longestPatience:
		fault = "the wait is longer than patience"
	case d.Allowed != (d.RetryAfter == 0):
		fault = "RetryAfter belongs to refused calls, and to all of them"
	case (c.n < 0 || c.n > d.Limit) && d.RetryAfter != policy.Never:
		fault = "it can never succeed"
	case c.n == 0 && !d.Allowed:
		fault = "looking is always allowed"
	case (c.n == 0 || !d.Allowed) && next != word:
		fault = "nothing was taken, but the word changed"
	case c.n > 0 && d.Allowed && (next <= word || p.FreshAt(next) < before || p.FreshAt(next) <= held(c.now)):
		fault = "units were minted"
	case choked != took.Allowed || chokeNext != takeNext:
		fault = "Choke and Take differ"
	default:
		return
	}
	t.Fatalf("Take(%d, %d, %d, %d) = %d, %+v: %s", word, c.now, c.n, c.patience, next, d, fault)
}

// At the end of time nothing drains any more: each key gets what its bucket
// still holds, and then no more, whatever the clock says.
func TestFunnelAtTheEndOfTime(t *testing.T) {
	p := policy.Must(policy.Funnel(3, 1, time.Second))
	var word uint64
	admitted := 0
	for _, now := range []policy.Instant{endOfTime, endOfTime + 1, math.MaxInt64, endOfTime, math.MaxInt64} {
		for range 3 {
			next, d := p.Take(word, now, 1, 0)
			if d.Allowed {
				admitted++
			}
			word = next
		}
	}
	assert.Equal(t, 3, admitted)

	// The patient may still queue, until a turn is nine years ahead.
	slow := policy.Must(policy.Funnel(1, 1, year))
	word, admitted = 0, 0
	for range 30 {
		next, d := slow.Take(word, math.MaxInt64, 1, math.MaxInt64)
		if d.Allowed {
			admitted++
		}
		word = next
		require.LessOrEqual(t, d.Wait, longestPatience)
	}
	assert.Equal(t, 1+9, admitted)
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
	p := policy.Must(policy.Funnel(18, 1, year))
	word, d := p.Take(0, policy.Instant(5*year), 18, 0)
	require.True(t, d.Allowed)
	word, d = p.Take(word, policy.Instant(5*year), 9, math.MaxInt64)
	require.True(t, d.Allowed)
	require.Equal(t, 9*year, d.Wait)

	// 32 years are spoken for, and a word ends half a year after the 36th.
	for n, want := range map[int64]time.Duration{4: 4*year - (longestPatience - 9*year), 5: policy.Never, 18: policy.Never} {
		next, d := p.Take(word, policy.Instant(5*year), n, math.MaxInt64)
		assert.False(t, d.Allowed)
		assert.Equal(t, want, d.RetryAfter, "take %d", n)
		assert.Equal(t, word, next)
	}
}

// MaxWord itself can be reached, and not a tick more.
func TestFunnelLastWord(t *testing.T) {
	p := policy.Must(policy.Funnel(18, 1, year))
	const unit = uint64(year) * 16 // in the sixteenths of a nanosecond that a word counts
	next, d := p.Take(policy.MaxWord-unit, endOfTime, 1, math.MaxInt64)
	assert.True(t, d.Allowed)
	assert.Equal(t, uint64(policy.MaxWord), next)

	next, d = p.Take(policy.MaxWord-unit+1, endOfTime, 1, math.MaxInt64)
	assert.Equal(t, policy.Never, d.RetryAfter)
	assert.Equal(t, policy.MaxWord-unit+1, next)
}
