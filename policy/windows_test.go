package policy_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/ral-limiter/ral/policy"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The model's step is as documented: 100µs at most, a 4000th of the period up to a million units a
// second, and no more than a 10000th of the period is rounded off. Whole milliseconds are on steps.
func TestFixedWindowStepsAreShort(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for range 20_000 {
		per := time.Millisecond + time.Duration(rng.Int64N(int64(maxWindow-time.Millisecond))>>rng.UintN(35))
		m := newCounter(1+rng.Int64N(1_000_000)>>rng.UintN(20), per)
		require.LessOrEqual(t, m.step, int64(100*time.Microsecond), "%d per %v", m.limit, per)
		require.LessOrEqual(t, m.length-int64(per), int64(per)/10_000, "%d per %v", m.limit, per)
		if m.limit <= int64(per/time.Microsecond) {
			require.LessOrEqual(t, m.step, int64(per)/4000, "%d per %v", m.limit, per)
		}
		ms := per.Truncate(time.Millisecond)
		require.Equal(t, int64(ms), newCounter(m.limit, ms).length, "%d per %v", m.limit, ms)
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

// Promise: `SlidingWindow` departs from a log no further than documented.
func TestSlidingWindowDepartsNoFurther(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	var lessThanLog, moreThanLog, lessThanRing, moreThanRing bool
	for range 3000 / raceFactor {
		limit, per := 1+rng.Int64N(12), 1000*(1+rng.Int64N(100)>>rng.UintN(5))
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
			next, decision := p.Take(word, policy.Instant(now), n, 0)
			if !decision.Allowed {
				require.Greater(t, h.log(now, 2*per)+n, limit, "a log over two periods admits %d at %d: %v", n, now, h)
			} else {
				h = append(h, struct{ at, units int64 }{now, n})
			}
			word = next
			used := limit - decision.Remaining
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
	assert.True(t, lessThanLog && moreThanLog && lessThanRing && moreThanRing, "the random calls show each kind of difference")
}

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
		_, bits := ringFigures(parts, per, ringWord)
		limits = append(limits, 1<<bits-1)
		if parts > 1 {
			limits = append(limits, 1<<bits)
		}
	}
	return limits
}

// Promise: `Parts` is the number of an `AtMost`'s parts.
func TestPartsOfAnAtMostAreTold(t *testing.T) {
	for per, highest := range map[time.Duration][]int64{time.Second: {7, 63, 1023, 65535}, time.Hour: {15, 255, 16383, 4194303}} {
		for i, limit := range highest {
			p := policy.Must(policy.AtMost(limit, per))
			assert.Equal(t, 8>>i, policy.Parts(p), "%v", p)
			assert.EqualValues(t, 8>>i, ringParts(limit, per, ringWord), "%v", p)
			assert.EqualValues(t, 8>>i>>1, ringParts(limit+1, per, ringWord), "%v", p)
		}
	}
	assert.Zero(t, policy.Parts(policy.Must(policy.FixedWindow(1, time.Second))))
	assert.Zero(t, policy.Parts(nil))
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
				next, decision := p.Take(word, now, n, patience)
				if !decision.Allowed {
					require.Equal(t, word, next)
					_, early := p.Take(word, now+policy.Instant(decision.RetryAfter)-1, n, patience)
					_, then := p.Take(word, now+policy.Instant(decision.RetryAfter), n, patience)
					require.True(t, then.Allowed && !early.Allowed, "%v at %d of %d: %d, retry after %d", p, now, word, n, decision.RetryAfter)
					if rng.IntN(4) == 0 {
						now += policy.Instant(decision.RetryAfter)
					}
					continue
				}
				if word != 0 && p.FreshAt(word) > now && next&3 != word&3 {
					repacks++
				}
				require.Greater(t, p.FreshAt(next), now+policy.Instant(decision.Wait))
				require.GreaterOrEqual(t, p.FreshAt(next), p.FreshAt(word))
				start := now + policy.Instant(decision.Wait)
				require.GreaterOrEqual(t, start, latest, "%v: a call is overtaken", p)
				if decision.Wait > 0 {
					latest = start
				}
				units := n
				for _, s := range starts {
					// Both ends are included.
					if policy.Instant(s.at) >= start-policy.Instant(per) {
						units += s.n
					}
				}
				require.LessOrEqual(t, units, limit, "%v takes %d at %d after %v", p, n, start, starts)
				starts = append(starts, struct{ at, n int64 }{int64(start), n})
				word = next
			}
		}
	}
	require.Greater(t, repacks, 1000/raceFactor, "the random calls repack words")
}

// A limit that takes over for good uses its own layout, even if it could keep the word.
func TestAtMostTakingOverUsesItsOwnLayout(t *testing.T) {
	const ms = time.Millisecond
	coarse, fine := policy.Must(policy.AtMost(2000, 1200*ms)), policy.Must(policy.AtMost(60, 1200*ms))
	word, _ := coarse.Take(0, policy.Instant(9600*ms), 30, 0)
	_, d := fine.Take(word, policy.Instant(9700*ms), 1, 0)
	assert.Equal(t, policy.Decision{Allowed: true, Limit: 60, Remaining: 29, ResetAfter: 2300 * ms}, d)
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
	_, decision := coarse.Take(charged, 1, 0, 0)
	assert.Zero(t, decision.Remaining)

	// The other way round there is room.
	word, _ = fine.Take(0, 1, 3, 0)
	charged = coarse.(policy.Refunder).Refund(word, 1, -1000)
	_, decision = coarse.Take(charged, 1, 0, 0)
	assert.Equal(t, int64(65535-1003), decision.Remaining)
}
