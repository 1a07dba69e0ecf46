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

func TestSlidingWindowHighest(t *testing.T) {
	for per, most := range map[time.Duration]int64{
		time.Nanosecond: 3, time.Millisecond: 4095, time.Second: 131071, time.Minute: 1048575, time.Hour: 8388607,
	} {
		_, err := policy.SlidingWindow(most, per)
		assert.NoError(t, err)
		_, err = policy.SlidingWindow(most+1, per)
		assert.ErrorContains(t, err, fmt.Sprintf("ral: SlidingWindow: limit is %d, want at most %d: ", most+1, most))
	}
}

// The long-run rate is exact. Greedy callers have their last unit of each window in its last
// nanosecond.
func TestSlidingWindowRate(t *testing.T) {
	for _, per := range []time.Duration{7, 1000, time.Millisecond, time.Second + 1, time.Hour} {
		for _, limit := range []int64{1, 2, 3} {
			for _, patient := range []bool{false, true} {
				p := policy.Must(policy.SlidingWindow(limit, per))
				short, long := rateOf(t, p, limit, 10, patient), rateOf(t, p, limit, 310, patient)
				assert.Equal(t, 300*per, long-short, "%v", p)
			}
		}
	}
}

// pastTakes records takes for other models.
type pastTakes []struct{ at, units int64 }

func (h pastTakes) since(from, to int64) (units int64) {
	for _, b := range h {
		if b.at >= from && b.at <= to {
			units += b.units
		}
	}
	return units
}

// log counts all timestamps of the period that ends now.
func (h pastTakes) log(now, per int64) int64 { return h.since(now-per+1, now) }

// ring counts the current tenth of a period and the nine before it.
func (h pastTakes) ring(now, per int64) int64 { return h.since((now/(per/10)-9)*(per/10), now) }

// These takes attain the documented difference from a log, and from a ring of ten.
func TestSlidingWindowDepartsSoFar(t *testing.T) {
	const limit, per = 10, 1000
	p := policy.Must(policy.SlidingWindow(limit, per))
	greedy := func(word uint64, from, to int64) (h pastTakes) {
		for now := from; now <= to; now++ {
			for {
				next, d := p.Take(word, policy.Instant(now), 1, 0)
				if !d.Allowed {
					break
				}
				word = next
				h = append(h, struct{ at, units int64 }{now, 1})
			}
		}
		return h
	}
	used := func(word uint64, now int64) int64 {
		_, d := p.Take(word, policy.Instant(now), 0, 0)
		return limit - d.Remaining
	}

	late, _ := p.Take(0, 1999, limit, 0)
	assert.Len(t, greedy(0, 1999, 1999+per-1), 2*limit-1, "in a period, where a log admits limit")
	assert.Equal(t, int64(1), used(late, 2998), "a log counts all of them, limit-1 more")
	assert.Equal(t, int64(1), used(late, 2899), "a ring counts all of them, nine tenths more")
	assert.Equal(t, int64(1+9*limit/10), greedy(0, 1999, 2899).ring(2899, per)-limit+1, "and admits none")

	early, _ := p.Take(0, 1000, limit, 0)
	assert.Equal(t, int64(limit), used(early, 2000), "neither counts any")
	_, d := p.Take(early, 2000, limit, 0)
	assert.Equal(t, time.Duration(per-1), d.RetryAfter, "when a log would admit all")
}

// Promise: `SlidingWindow` departs from a log no further than documented.
func TestSlidingWindowDepartsNoFurther(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	var lessThanLog, moreThanLog, lessThanRing, moreThanRing bool
	for range 3000 / raceFactor {
		limit, per := 1+rng.Int64N(12), 10*(1+rng.Int64N(100)>>rng.UintN(5))
		if limit >= 1<<slidingFigures(time.Duration(per)) {
			continue
		}
		p := policy.Must(policy.SlidingWindow(limit, time.Duration(per)))
		var h pastTakes
		var word uint64
		now := int64(1)
		for range 40 {
			now += rng.Int64N(per) >> rng.UintN(8)
			n := 1 + rng.Int64N(limit)
			next, d := p.Take(word, policy.Instant(now), n, 0)
			if !d.Allowed {
				require.Greater(t, h.log(now, 2*per)+n, limit, "a log over two periods admits %d at %d: %v", n, now, h)
			} else {
				h = append(h, struct{ at, units int64 }{now, n})
			}
			word = next
			used := limit - d.Remaining
			log, ring := h.log(now, per), h.ring(now, per)
			require.LessOrEqual(t, log-used, limit-1, "%v at %d: %v", p, now, h)
			require.LessOrEqual(t, used-log, limit, "%v at %d: %v", p, now, h)
			require.LessOrEqual(t, ring-used, 9*limit/10, "%v at %d: %v", p, now, h)
			require.LessOrEqual(t, used-ring, limit, "%v at %d: %v", p, now, h)
			require.Less(t, log, 2*limit, "%v at %d: %v", p, now, h)
			lessThanLog = lessThanLog || log > used
			moreThanLog = moreThanLog || log < used
			lessThanRing = lessThanRing || ring > used
			moreThanRing = moreThanRing || ring < used
		}
	}
	assert.True(t, lessThanLog && moreThanLog && lessThanRing && moreThanRing, "this looked at nothing")
}

func ExampleSlidingWindow() {
	limit := policy.Must(policy.SlidingWindow(100, time.Minute))
	fmt.Println(limit)

	// All of the limit in the first minute. Half a minute into the second, half of it still
	// counts.
	word, _ := limit.Take(0, policy.Instant(10*time.Second), 100, 0)
	_, d := limit.Take(word, policy.Instant(90*time.Second), 0, 0)
	fmt.Println(d.Remaining, "remain")
	// Output:
	// sliding 100/m
	// 50 remain
}
