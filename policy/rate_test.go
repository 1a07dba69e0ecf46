package policy_test

import (
	"fmt"
	"math/big"
	"testing"
	"time"

	"github.com/ral-limiter/ral/policy"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// rates are from 1 a year to ten million a second, with the lost parts per million that a
// funnel may have. Whole sixteenths of a nanosecond lose nothing.
var rates = []struct {
	count int64
	per   time.Duration
	ppm   float64
}{
	{1, year, 0},
	{1, 24 * time.Hour, 0},
	{7, time.Minute, 0.00001},
	{700_000, time.Second, 37.6},
	{999_999, time.Second, 61.6},
	{1_000_000, time.Second, 0},
	{10_000_000, time.Second, 0},
}

// Each funnel is consumed greedily: a bucketful, and then each unit at its first nanosecond.
// Promise: The long-run rate never exceeds the configured rate and falls short only as documented.
func TestLongRunRate(t *testing.T) {
	const capacity = 2
	for _, r := range rates {
		t.Run(fmt.Sprintf("%d per %v", r.count, r.per), func(t *testing.T) {
			p := policy.Must(policy.Funnel(capacity, r.count, r.per))
			word, d := p.Take(0, 0, capacity, 0)
			require.True(t, d.Allowed)
			now, units := policy.Instant(0), int64(0)
			// Until a hundred thousand units, or for sixteen years.
			for units < 100_000 && time.Duration(now) <= 16*year-r.per {
				_, d := p.Take(word, now, 1, 0)
				require.False(t, d.Allowed, "more than the rate")
				now += policy.Instant(d.RetryAfter)
				word, d = p.Take(word, now, 1, 0)
				require.True(t, d.Allowed, "not when told")
				units++
			}
			require.GreaterOrEqual(t, units, int64(15))
			// Meeting the clock's nanosecond may cost up to one, once.
			assertRate(t, units, r.count, r.per, time.Duration(now), 1, r.ppm)
		})
	}
}

// assertRate fails if units in elapsed exceed the rate, or fall short by more than ppm after a
// grace in nanoseconds.
func assertRate(t *testing.T, units, count int64, per, elapsed, grace time.Duration, ppm float64) {
	t.Helper()
	ideal := new(big.Rat).Mul(whole(units), big.NewRat(int64(per), count))
	assert.GreaterOrEqual(t, whole(int64(elapsed)).Cmp(ideal), 0, "%d units in %d ns is above the rate", units, elapsed)

	if whole(int64(elapsed)).Cmp(ideal) == 0 {
		return
	}
	late := sub(whole(int64(elapsed-grace)), ideal)
	below, _ := late.Quo(late, ideal).Float64()
	assert.LessOrEqual(t, below*1e6, ppm, "parts per million below the rate")
	assert.LessOrEqual(t, ppm, 100.0, "what is promised")
}

// If each take empties the limit, as of one unit, each loses up to a nanosecond: a clock of whole
// nanoseconds cannot use the rest. Anything beside the take carries it over.
func TestTakingAllLosesTheClocksFraction(t *testing.T) {
	for _, c := range []struct {
		limit, n int64
		want     policy.Instant // for a thousand units
	}{
		{1, 1, 1001 * 1000}, {2, 1, 1_000_063}, {2, 2, 2001 * 500}, {3, 2, 1_000_063},
	} {
		for _, p := range []policy.Policy{
			policy.Must(policy.Funnel(c.limit, 999_999, time.Second)),
			policy.Must(policy.Queue(c.limit-1, 999_999, time.Second)),
		} {
			word, _ := p.Take(0, 0, c.limit, 0)
			now := policy.Instant(0)
			for range 1000 / c.n {
				_, d := p.Take(word, now, c.n, 0)
				now += policy.Instant(d.RetryAfter)
				word, _ = p.Take(word, now, c.n, 0)
			}
			assert.Equal(t, c.want, now, "1000 units of %v, %d at a time", p, c.n)
		}
	}
}
