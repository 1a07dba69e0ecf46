package policy_test

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/ral-limiter/ral/policy"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A take is not undone in a word of another layout: parts of 300ms and of 1200ms differ.
func TestAtMostUndoesNothingOfAnotherLayout(t *testing.T) {
	const s = policy.Instant(time.Second)
	p, coarse := policy.Must(policy.AtMost(60, 1200*time.Millisecond)), policy.Must(policy.AtMost(2000, 1200*time.Millisecond))
	taken, _ := p.Take(0, 3*s, 5, 0)
	word, _ := coarse.Take(0, 12*s, 5, 0)
	assert.Equal(t, word, p.(policy.Refunder).Cancel(word, taken, 0, 12*s, 5, 0))
}

// cutLimits returns the highest limit for each number of parts, and the lowest for all except
// one.
func cutLimits(per time.Duration) (limits []int64) {
	for _, parts := range []int64{8, 4, 2, 1} {
		_, bits := ringFigures(parts, per)
		limits = append(limits, 1<<bits-1)
		if parts > 1 {
			limits = append(limits, 1<<bits)
		}
	}
	return limits
}

// The numbers of parts and the highest limits are as documented.
func TestAtMostParts(t *testing.T) {
	for _, c := range []struct {
		limit int64
		per   time.Duration
		parts int
	}{
		{1, time.Second, 8},
		{7, time.Second, 8},
		{8, time.Second, 4},
		{63, time.Second, 4},
		{64, time.Second, 2},
		{127, time.Second, 2},
		{128, time.Second, 2},
		{1023, time.Second, 2},
		{1024, time.Second, 1},
		{65535, time.Second, 1},
		{1, time.Hour, 8},
		{15, time.Hour, 8},
		{16, time.Hour, 4},
		{255, time.Hour, 4},
		{256, time.Hour, 2},
		{16383, time.Hour, 2},
		{16384, time.Hour, 1},
		{4194303, time.Hour, 1},
	} {
		p := policy.Must(policy.AtMost(c.limit, c.per))
		assert.Equal(t, c.parts, policy.Parts(p), p.String())
	}
	assert.Zero(t, policy.Parts(policy.Must(policy.FixedWindow(1, time.Second))))
	assert.Zero(t, policy.Parts(nil))
	for per, most := range map[time.Duration]int64{time.Millisecond: 2047, time.Second: 65535, time.Minute: 524287, time.Hour: 4194303} {
		_, err := policy.AtMost(most, per)
		assert.NoError(t, err)
		_, err = policy.AtMost(most+1, per)
		assert.ErrorContains(t, err, fmt.Sprintf("ral: AtMost: limit is %d, want at most %d: ", most+1, most))
	}
}

// The greedy get k/(k+1) of the rate, to 100 parts per million.
func TestAtMostRate(t *testing.T) {
	for _, per := range []time.Duration{time.Millisecond, time.Second, time.Minute + 1} {
		for _, limit := range []int64{1, 5, 50, 100, 2000} {
			parts := ringParts(limit, per)
			for _, patient := range []bool{false, true} {
				p := policy.Must(policy.AtMost(limit, per))
				took := rateOf(t, p, limit, 210, patient) - rateOf(t, p, limit, 10, patient)
				share := big.NewRat(200*int64(per), int64(took))
				want := big.NewRat(parts, parts+1)
				require.LessOrEqual(t, share.Cmp(want), 0, "%v takes %v", p, took)
				require.Positive(t, share.Cmp(mul(want, big.NewRat(999_900, 1_000_000))), "%v takes %v", p, took)
			}
		}
	}
}

// Callers that come evenly get nearly the same, except under small limits.
func TestAtMostRateOfEvenCalls(t *testing.T) {
	for _, per := range []time.Duration{time.Second, time.Hour} {
		for _, limit := range []int64{1, 2, 3, 6, 7, 8, 10, 11, 15, 16, 64, 100} {
			for _, tenths := range []int64{10, 15, 30} { // of limit every per
				p := policy.Must(policy.AtMost(limit, per))
				var word uint64
				var passed int64
				const periods = 300
				for i := range periods * limit * tenths / 10 {
					next, d := p.Take(word, policy.Instant(1+i*int64(per)*10/(limit*tenths)), 1, 0)
					if word = next; d.Allowed {
						passed++
					}
				}
				parts := float64(ringParts(limit, per))
				share := float64(passed) / float64(periods*limit) / (parts / (parts + 1))
				switch few := float64(limit) / float64(limit+1) / (parts / (parts + 1)); {
				case limit >= 8:
					assert.InDelta(t, 0.985, share, 0.02, "%v, asked for %d tenths", p, tenths)
				case tenths == 10:
					assert.InDelta(t, few, share, 0.005, "%v", p)
				default:
					assert.Less(t, share, 1.005, "%v", p)
				}
			}
		}
	}
}

// Limits of a period come with the calls. By a list of all calls, none admits more than its own
// limit, with the others' calls counted. RetryAfter is exact as well.
// Promise: `AtMost`: no window of length per exceeds limit.
func TestAtMostKeepsItsPromise(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	repacks := 0
	for _, per := range []time.Duration{time.Millisecond, time.Second, time.Second + 13, time.Hour} {
		limits := append(cutLimits(per), 1, 2, 5, 8, 31, 100, 127, 500, 2000)
		var policies []policy.Policy
		for _, limit := range limits {
			policies = append(policies, policy.Must(policy.AtMost(limit, per)))
		}
		for range 2500 / raceFactor {
			which := []int{rng.IntN(len(limits)), rng.IntN(len(limits)), rng.IntN(len(limits))}
			var starts []struct{ at, n int64 }
			var word uint64
			now, latest := policy.Instant(1+rng.Int64N(int64(per))), policy.Instant(0)
			for range 30 {
				now += policy.Instant(rng.Int64N(int64(per)) >> rng.UintN(8))
				i := which[rng.IntN(len(which))]
				p, limit := policies[i], limits[i]
				n := 1 + rng.Int64N(limit)>>rng.UintN(8)
				patience := max(time.Duration(rng.Int64N(2*int64(per))-int64(per)), 0)
				next, d := p.Take(word, now, n, patience)
				if !d.Allowed {
					require.Equal(t, word, next)
					_, early := p.Take(word, now+policy.Instant(d.RetryAfter)-1, n, patience)
					_, then := p.Take(word, now+policy.Instant(d.RetryAfter), n, patience)
					require.True(t, then.Allowed && !early.Allowed, "%v at %d of %d: %d, retry after %d", p, now, word, n, d.RetryAfter)
					if rng.IntN(4) == 0 {
						now += policy.Instant(d.RetryAfter)
					}
					continue
				}
				if word != 0 && p.FreshAt(word) > now && next&3 != word&3 {
					repacks++
				}
				require.Greater(t, p.FreshAt(next), now+policy.Instant(d.Wait))
				require.GreaterOrEqual(t, p.FreshAt(next), p.FreshAt(word))
				start := now + policy.Instant(d.Wait)
				require.GreaterOrEqual(t, start, latest, "%v: a call is overtaken", p)
				if d.Wait > 0 {
					latest = start
				}
				units := n
				for _, s := range starts {
					if policy.Instant(s.at) >= start-policy.Instant(per) { // both ends included
						units += s.n
					}
				}
				require.LessOrEqual(t, units, limit, "%v takes %d at %d after %v", p, n, start, starts)
				starts = append(starts, struct{ at, n int64 }{int64(start), n})
				word = next
			}
		}
	}
	require.Greater(t, repacks, 1000/raceFactor, "this looked at nothing")
}

// A limit that takes over for good uses its own layout, even if it could keep the word.
func TestAtMostTakingOverUsesItsOwnLayout(t *testing.T) {
	const ms = time.Millisecond
	coarse, fine := policy.Must(policy.AtMost(2000, 1200*ms)), policy.Must(policy.AtMost(60, 1200*ms))
	word, _ := coarse.Take(0, policy.Instant(9600*ms), 30, 0)
	follow(t, fine, 60, word, []step{{at: 9700 * ms, take: 1, allowed: passes, remaining: 29, reset: 2300 * ms}})
	carried, ok := fine.(policy.Relative).Carry(coarse, word, policy.Instant(9700*ms))
	assert.True(t, ok)
	assert.Equal(t, word, carried, "another limit does not date what was taken anew")
}

// A word with a layout too coarse for a small limit is not repacked for a charge that would not
// fit, which would forgive.
func TestAtMostForgivesNoCharge(t *testing.T) {
	coarse, fine := policy.Must(policy.AtMost(65535, time.Second)), policy.Must(policy.AtMost(3, time.Second))
	word, _ := coarse.Take(0, 1, 65535, 0)
	charged := fine.(policy.Refunder).Refund(word, 1, -100)
	_, d := coarse.Take(charged, 1, 0, 0)
	assert.Zero(t, d.Remaining)

	// The other way round there is room.
	word, _ = fine.Take(0, 1, 3, 0)
	charged = coarse.(policy.Refunder).Refund(word, 1, -1000)
	_, d = coarse.Take(charged, 1, 0, 0)
	assert.Equal(t, int64(65535-1003), d.Remaining)
}

// A funnel that leaves room for its burst keeps the same promise and sustains more.
func TestFunnelThatKeepsThePromise(t *testing.T) {
	const limit, burst = 100, 20
	funnel := policy.Must(policy.Funnel(burst, limit-burst, time.Second))
	within := func(now policy.Instant, word uint64) (units int) {
		for start := now; now <= start+policy.Instant(time.Second); {
			next, d := funnel.Take(word, now, 1, 0)
			if d.Allowed {
				word = next
				units++
			}
			now += policy.Instant(d.RetryAfter)
		}
		return units
	}
	assert.Equal(t, limit, within(1, 0))
}

// Units repacked into a coarser part leave no earlier than before, and as early as such a part
// allows, also if rounded parts of a layout end within parts of another.
func TestRepackedAtMostLeavesInTime(t *testing.T) {
	rng := rand.New(rand.NewPCG(31, 0))
	for _, per := range []int64{1_000_000, 1_000_001, 1_000_003, 1_000_007, 8_000_000} {
		small, large := policy.Must(policy.AtMost(1, time.Duration(per))), policy.Must(policy.AtMost(2047, time.Duration(per)))
		require.Equal(t, 8, policy.Parts(small))
		require.Equal(t, 1, policy.Parts(large))
		length := (per + 7) / 8
		numbers := []int64{8*(length+1) - 10} // of 1000007, ends a nanosecond into a part of the other layout
		for range 1000 {
			numbers = append(numbers, rng.Int64N(10_000_000))
		}
		for number := range int64(100) {
			numbers = append(numbers, number)
		}
		for _, number := range numbers {
			now := policy.Instant(number*length + rng.Int64N(length))
			word, d := small.Take(0, now, 1, 0)
			require.True(t, d.Allowed)
			leaves := (number + 9) * length
			require.EqualValues(t, leaves, small.FreshAt(word))
			word, d = large.Take(word, now, 10, 0)
			require.True(t, d.Allowed)
			require.EqualValues(t, (leaves+per-1)/per*per, large.FreshAt(word), "part %d of %d", number, per)
		}
	}
}

func ExampleAtMost() {
	// An upstream service bans callers that exceed 100 calls in any second.
	limit := policy.Must(policy.AtMost(100, time.Second))
	fmt.Println(limit)

	now := policy.Instant(1)
	word, d := limit.Take(0, now, 100, 0)
	fmt.Println(d.Allowed)

	// They count until their part, of half a second, is over for good.
	_, d = limit.Take(word, now, 1, 0)
	fmt.Println(d.Allowed, "retry after", d.RetryAfter.Round(time.Millisecond))
	// Output:
	// at most 100/s
	// true
	// false retry after 1.5s
}
