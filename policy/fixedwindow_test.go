package policy_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/ral-limiter/ral/policy"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A window lasts its period, and up to a step more; whole milliseconds are on steps. The
// documented step is 100µs at most, and a 4000th of the period up to a million a second.
func TestFixedWindowSteps(t *testing.T) {
	for _, c := range []struct {
		limit     int64
		per, step time.Duration
	}{
		{1, time.Millisecond, 64}, {1000, time.Millisecond, 64}, {1024, time.Millisecond, 100_000},
		{1, time.Millisecond + 1, 64}, {1, 10 * time.Millisecond, 1250}, {1, 100 * time.Millisecond, 10_000},
		{100_000, 100 * time.Millisecond, 10_000}, {1_000_000, 100 * time.Millisecond, 100_000}, {1, 500 * time.Millisecond, 40_000},
		{1, 999 * time.Millisecond, 100_000}, {1_000_000, time.Second, 100_000}, {1, time.Minute, 100_000}, {1, longestWindow, 100_000},
	} {
		t.Run(fmt.Sprint(c.limit, c.per), func(t *testing.T) {
			p := policy.Must(policy.FixedWindow(c.limit, c.per))
			step, _ := fixedFigures(c.limit, c.per)
			assert.Equal(t, c.step, time.Duration(step))
			_, onStep := p.Take(0, 1, 1, 0)
			_, after := p.Take(0, 2, 1, 0)
			assert.Equal(t, onStep.ResetAfter+c.step-1, after.ResetAfter)
			assert.GreaterOrEqual(t, onStep.ResetAfter, c.per)
			if c.per%time.Millisecond == 0 {
				assert.Equal(t, c.per, onStep.ResetAfter)
			}
		})
	}
	rng := rand.New(rand.NewPCG(7, 8))
	for range 20_000 {
		per := time.Millisecond + time.Duration(rng.Int64N(int64(longestWindow-time.Millisecond))>>rng.UintN(35))
		limit := 1 + rng.Int64N(1_000_000)>>rng.UintN(20)
		p := policy.Must(policy.FixedWindow(limit, per))
		_, first := p.Take(0, 1, 1, 0)
		_, worst := p.Take(0, 2, 1, 0)
		about := fmt.Sprint(p, " lasts ", first.ResetAfter, ", at worst ", worst.ResetAfter)
		require.GreaterOrEqual(t, first.ResetAfter, per, about)
		require.LessOrEqual(t, first.ResetAfter-per, per/10_000, about)
		require.LessOrEqual(t, worst.ResetAfter-first.ResetAfter, 100*time.Microsecond, about)
		step, _ := fixedFigures(limit, per)
		require.Less(t, worst.ResetAfter-per, 2*time.Duration(step), about)
		if limit <= int64(per/time.Microsecond) {
			require.LessOrEqual(t, worst.ResetAfter-first.ResetAfter, per/4000, about)
		}
		if ms := per.Truncate(time.Millisecond); per > ms {
			p := policy.Must(policy.FixedWindow(limit, ms))
			word, _ := p.Take(0, 1, 1, 0)
			require.Equal(t, policy.Instant(ms+1), p.FreshAt(word), "%v", p)
			_, worst := p.Take(0, 2, 1, 0)
			step, _ := fixedFigures(limit, ms)
			require.Equal(t, ms+time.Duration(step)-1, worst.ResetAfter, "%v", p)
		}
	}
}

// The long-run rate is exact, or lower by up to 100 parts per million.
func TestFixedWindowRate(t *testing.T) {
	for _, per := range []time.Duration{time.Millisecond, time.Millisecond + 1, 3*time.Millisecond + 1234, 77_777_777, time.Second, time.Minute, time.Hour + 7} {
		for _, limit := range []int64{1, 10, 1000} {
			for _, patient := range []bool{false, true} {
				const windows = 200
				p := policy.Must(policy.FixedWindow(limit, per))
				took := rateOf(t, p, limit, windows, patient)
				assert.GreaterOrEqual(t, took, windows*per, "%v", p)
				// The first may have opened between two steps.
				assert.LessOrEqual(t, took, windows*(per+per/10_000)+100*time.Microsecond, "%v", p)
			}
		}
	}
}

// Above a million units a second steps are coarser, and words differ. A window of the same length
// is carried over with its end.
func TestFixedWindowFamilies(t *testing.T) {
	const ms = time.Millisecond
	fine, coarse := policy.Must(policy.FixedWindow(1000, ms)), policy.Must(policy.FixedWindow(2000, ms))
	assert.False(t, fine.(policy.Relative).Reads(coarse))
	assert.True(t, fine.(policy.Relative).Reads(policy.Must(policy.FixedWindow(1023, ms))))
	for _, per := range []time.Duration{524288*time.Microsecond - 1, 524288 * time.Microsecond} {
		many := policy.Must(policy.FixedWindow(1_000_000, per)).(policy.Relative)
		assert.Equal(t, per >= 524288*time.Microsecond, many.Reads(policy.Must(policy.FixedWindow(1, per))), "%v", many)
	}

	// The finer count ends with the bits of the period in microseconds. From 2^19 microseconds on
	// it has 20.
	for per, most := range map[time.Duration]int64{300 * ms: 1<<19 - 1, 524_287_999: 1<<19 - 1, 524_288_000: 1_000_000, 525 * ms: 1_000_000} {
		least := policy.Must(policy.FixedWindow(1, per)).(policy.Relative)
		assert.True(t, least.Reads(policy.Must(policy.FixedWindow(most, per))), per)
		assert.Equal(t, most == 1_000_000, least.Reads(policy.Must(policy.FixedWindow(min(most+1, 1_000_000), per))), per)
	}

	now := policy.Instant(1 + 5*ms)
	word, _ := coarse.Take(0, now, 1500, 0)
	carried, ok := fine.(policy.Relative).Carry(coarse, word, now+policy.Instant(ms/2))
	require.True(t, ok)
	follow(t, fine, 1000, carried, []step{{at: 5*ms + ms/2 + 1, take: 1, allowed: refused, retry: ms / 2, reset: ms / 2}})

	word, _ = fine.Take(0, now, 300, 0)
	carried, ok = coarse.(policy.Relative).Carry(fine, word, now+policy.Instant(ms/2))
	require.True(t, ok)
	follow(t, coarse, 2000, carried, []step{{at: 5*ms + ms/2 + 1, take: 0, allowed: passes, remaining: 1700, reset: ms / 2}})
	few := policy.Must(policy.FixedWindow(30, time.Second))
	carried, _ = few.(policy.Relative).Carry(fine, word, now)
	carried = few.(policy.Refunder).Refund(carried, now, 270)
	follow(t, few, 30, carried, []step{{at: 5*ms + 1, take: 0, allowed: passes, reset: time.Second}}) // all 300 count
	// Nothing else is known of a full window after the promised window is given back.
	full, _ := fine.Take(word, now, 700, 0)
	promised, _ := fine.Take(full, now, 1, ms)
	more := policy.Must(policy.FixedWindow(1020, time.Second))
	carried, _ = more.(policy.Relative).Carry(fine, full, now)
	follow(t, more, 1020, carried, []step{{at: 5*ms + 1, take: 0, allowed: passes, remaining: 20, reset: time.Second}})
	carried, _ = more.(policy.Relative).Carry(fine, fine.(policy.Refunder).Refund(promised, now, 1), now)
	follow(t, more, 1020, carried, []step{{at: 5*ms + 1, take: 0, allowed: passes, reset: time.Second}})
	empty := fine.(policy.Refunder).Refund(word, now, 300)
	carried, _ = coarse.(policy.Relative).Carry(fine, empty, 1)
	assert.Zero(t, carried, "nothing was taken")
}

func ExampleFixedWindow() {
	limit := policy.Must(policy.FixedWindow(100, time.Hour))
	fmt.Println(limit)

	now := policy.Instant(1)
	word, d := limit.Take(0, now, 98, 0)
	fmt.Println(d.Allowed, d.Remaining, "remain, and start anew in", d.ResetAfter)

	now += policy.Instant(59 * time.Minute)
	_, d = limit.Take(word, now, 3, 0)
	fmt.Println(d.Allowed, "retry after", d.RetryAfter)
	// Output:
	// window 100/h
	// true 2 remain, and start anew in 1h0m0s
	// false retry after 1m0s
}
