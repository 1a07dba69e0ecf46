package policy_test

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/ral-limiter/ral/policy"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type relative interface {
	policy.Policy
	policy.Refunder
	policy.Relative
}

func funnel(capacity, count int64, per time.Duration) relative {
	return policy.Must(policy.Funnel(capacity, count, per)).(relative)
}

// Each call brings its own limit, with a bucket filled to match the time until the key drains.
// Promise: Alternating funnels on a key share time.
func TestFunnelsTakeTurnsOnOneWord(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	for range 500 {
		var limits []subject
		for range 3 {
			limits = append(limits, funnels.read(&script{rng: rng}))
		}
		var word uint64
		now, empty := policy.Instant(1), new(big.Rat)
		for range 30 {
			l := limits[rng.IntN(len(limits))]
			now += policy.Instant(rng.Int64N(int64(l.period)) >> rng.UintN(30))
			n := 1 + rng.Int64N(l.limit)>>rng.UintN(40)
			patience := time.Duration(rng.Int64N(int64(l.period)) * rng.Int64N(2))
			model := l.oracle.(*bucket)
			model.empty = empty
			next, got := l.Take(word, now, n, patience)
			require.Equal(t, model.take(now, n, patience), got, "%v: Take(%d, %d, %d, %d)", l, word, now, n, patience)
			word, empty = next, model.empty
		}
	}
}

func TestFunnelCarryStories(t *testing.T) {
	const s, ms = time.Second, time.Millisecond
	type carried struct {
		remaining int64
		reset     time.Duration
	}
	for _, c := range []struct {
		name     string
		from, to relative
		take     []int64 // at 10 s, with all the patience there is
		at       time.Duration
		want     carried
	}{
		{"never used", funnel(3, 1, s), funnel(5, 1, s), nil, 10 * s, carried{5, 0}},
		{"drained since", funnel(3, 1, s), funnel(5, 1, s), []int64{2}, 12 * s, carried{5, 0}},
		{"the same limit", funnel(3, 1, s), funnel(3, 1, s), []int64{2}, 10 * s, carried{1, 2 * s}},
		{"more room", funnel(3, 1, s), funnel(10, 1, s), []int64{3}, 10 * s, carried{7, 3 * s}},
		{"faster", funnel(3, 1, s), funnel(3, 10, s), []int64{2}, 10 * s, carried{1, 200 * ms}},
		{"slower", funnel(3, 1, s), funnel(3, 1, time.Minute), []int64{2}, 10 * s, carried{1, 2 * time.Minute}},
		{"part of a unit has drained", funnel(3, 1, s), funnel(3, 1, time.Minute), []int64{2}, 10*s + 500*ms, carried{1, 90 * s}},
		{"less room than was used", funnel(10, 1, s), funnel(2, 1, s), []int64{7}, 10 * s, carried{0, 2 * s}},
		{"all of it, and there is more room", funnel(10, 1, s), funnel(12, 2, s), []int64{10}, 10 * s, carried{2, 5 * s}},
		// 1 in the bucket and turns at 11 s and 12 s. The bucket is full at the last.
		{"turns, and faster", funnel(1, 1, s), funnel(1, 10, s), []int64{1, 1, 1}, 10 * s, carried{0, 2100 * ms}},
		{"turns, and more room", funnel(1, 1, s), funnel(4, 1, s), []int64{1, 1, 1}, 10 * s, carried{0, 6 * s}},
		{"turns, and slower", funnel(1, 1, s), funnel(1, 1, time.Minute), []int64{1, 1, 1}, 10 * s, carried{0, 62 * s}},
		{"turns, slower and more room", funnel(1, 1, s), funnel(10, 10, time.Minute), []int64{1, 1, 1}, 10 * s, carried{0, 62 * s}},
		{"an interval that is no whole nanosecond", funnel(3, 3, s), funnel(3, 7, s), []int64{1}, 10 * s, carried{2, 142_857_143}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var word uint64
			for _, n := range c.take {
				next, d := c.from.Take(word, policy.Instant(10*s), n, time.Hour)
				require.True(t, d.Allowed)
				word = next
			}
			now := policy.Instant(c.at)
			word, ok := c.to.Carry(c.from, word, now)
			require.True(t, ok)
			_, d := c.to.Take(word, now, 0, 0)
			assert.Equal(t, c.want, carried{d.Remaining, d.ResetAfter})
		})
	}
}

// A new funnel gets the same takes in full detail: the old bucket's content at the change, and
// the waiting calls at their turns. It overflows no further than full, because waiting calls
// start in any case. The translated word must hold no less than that, and exactly that if no call
// waits.
// Promise: A changed limit forgives nothing and keeps promised turns.
func TestCarryForgivesNothing(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	pick := func() (capacity, count int64, per time.Duration) {
		return 1 + rng.Int64N(6), 1 << rng.IntN(3), time.Duration(1 + rng.Int64N(40))
	}
	waited, carriedOver := 0, 0
	for range 10_000 / raceFactor {
		oldCapacity, oldCount, oldPer := pick()
		capacity, count, per := pick()
		from, to := funnel(oldCapacity, oldCount, oldPer), funnel(capacity, count, per)
		oldUnit, unit := unitTime(oldCount, oldPer), unitTime(count, per)

		m := newBucket(oldCapacity, oldCount, oldPer)
		var word uint64
		now := policy.Instant(1)
		type pour struct {
			start *big.Rat
			units int64
		}
		var pours []pour
		for range 1 + rng.IntN(6) {
			now += policy.Instant(rng.IntN(10))
			n := 1 + rng.Int64N(oldCapacity)
			next, d := from.Take(word, now, n, time.Hour)
			require.Equal(t, d, m.take(now, n, time.Hour))
			word = next
			pours = append(pours, pour{m.turn(), n})
		}
		now += policy.Instant(rng.IntN(5))
		at := whole(int64(now))

		// The contents of the old bucket now, without the calls that have yet to start.
		begun, last := new(big.Rat), at
		for _, p := range pours {
			if p.start.Cmp(at) <= 0 {
				begun = add(greatest(begun, p.start), mul(whole(p.units), oldUnit))
			} else {
				last = p.start
			}
		}
		level := positive(sub(begun, at))
		level.Quo(level, oldUnit)

		// Those and the waiting calls, in the new bucket.
		full := mul(whole(capacity), unit)
		empty := add(at, least(full, mul(level, unit)))
		for _, p := range pours {
			if p.start.Cmp(at) > 0 {
				empty = add(greatest(empty, p.start), mul(whole(p.units), unit))
				empty = least(empty, add(p.start, full))
			}
		}

		carried, ok := to.Carry(from, word, now)
		require.True(t, ok)
		got := greatest(at, new(big.Rat).SetFrac(new(big.Int).SetUint64(carried), big.NewInt(16)))
		what := fmt.Sprintf("%v to %v at %d, %+v: word %d becomes %d", from, to, now, pours, word, carried)
		require.GreaterOrEqual(t, got.Cmp(empty), 0, what+", too early")
		require.LessOrEqual(t, got.Cmp(add(last, full)), 0, what+", later than a full bucket after the last turn")
		if last == at {
			require.Less(t, sub(got, empty).Cmp(big.NewRat(1, 16)), 0, what+", rounded by a sixteenth or more")
		} else {
			waited++
		}
		if carried != word {
			carriedOver++
		}
	}
	assert.Greater(t, waited, 2000/raceFactor)
	assert.Greater(t, carriedOver, 5000/raceFactor)
}

// Any carried word is a word, at most a full bucket after the last turn.
func TestFunnelCarryExtremes(t *testing.T) {
	limits := []relative{
		funnel(1, 1, 1), funnel(20, 1, 1), funnel(1, 16, 1), funnel(1, 1, time.Second), funnel(1, 1, longestDrain), funnel(17, 1, year),
		funnel(16*int64(longestDrain), 16, 1), funnel(1, math.MaxInt64, math.MaxInt64), funnel(540431955, 1, time.Second),
	}
	for _, from := range limits {
		for _, to := range limits {
			_, full := to.Take(0, 0, 0, 0)
			filled, _ := to.Take(0, 0, full.Limit, 0)
			_, old := from.Take(0, 0, 0, 0)
			oldFilled, _ := from.Take(0, 0, old.Limit, 0)
			for _, word := range []uint64{0, 1, 15, 16, 17, 1 << 40, oldFilled, oldFilled + 1, 1 << 60, 1 << 62, policy.MaxWord - 1, policy.MaxWord} {
				for _, now := range []policy.Instant{math.MinInt64, -1, 0, 1, 1 << 36, 1 << 54, 1 << 58, 1<<59 - 2, math.MaxInt64} {
					next, ok := to.Carry(from, word, now)
					require.True(t, ok)
					require.LessOrEqual(t, next, uint64(policy.MaxWord))
					if now >= 1<<55-2 {
						continue // for some of them time stands still
					}
					_, was := from.Take(word, now, 0, 0)
					_, is := to.Take(next, now, 0, 0)
					what := fmt.Sprintf("%v to %v: Carry(%d, %d) = %d", from, to, word, now, next)
					begun, turns := uint64(max(now, 0))*16, was.ResetAfter-time.Duration(oldFilled/16)
					require.LessOrEqual(t, is.ResetAfter, max(turns, 0)+time.Duration(filled/16)+2, what)
					if word > begun+oldFilled {
						require.GreaterOrEqual(t, next, word-oldFilled, what)
					}
					if word > begun {
						require.Greater(t, next, begun, what)
						require.LessOrEqual(t, is.Remaining, full.Limit-min(old.Limit-was.Remaining, full.Limit), what)
					} else {
						require.Zero(t, is.ResetAfter, what)
					}
				}
			}
		}
	}
}
