package policy_test

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/ral-limiter/ral/policy"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestCancelInTheWorstCase replays all short histories without a cancelled take: later calls take
// again at the instants at which they started. Cancel must give back
//
//  1. safely: in no history more than the replay has left over;
//  2. all: as much as is left over in the worst history with the same two words, but at most one
//     unit of a Bursty with a waiting call.
func TestCancelInTheWorstCase(t *testing.T) {
	const unit = 2 // nanoseconds
	for _, stored := range []int64{0, 1, 2, 4} {
		late := policy.Instant(1000)
		for _, begin := range []policy.Instant{1, 7, late} {
			p := policy.Must(policy.Bursty(1, unit, stored))
			full := (1 + stored*unit) * 16 // the word of a store filled from the start
			t.Run(fmt.Sprintf("%v/%d", p, begin), func(t *testing.T) { worstCase(t, p, begin, unit, uint64(full), stored*unit*16) })
		}
	}
	for _, capacity := range []int64{1, 4, 9} {
		p := policy.Must(policy.Queue(capacity, 1, unit))
		t.Run(p.String(), func(t *testing.T) { worstCase(t, p, 100, unit, 0, math.MaxInt64) })
	}
}

func worstCase(t *testing.T, p policy.Policy, begin policy.Instant, unit int64, never uint64, store int64) {
	type ending struct {
		word, taken uint64
		now         policy.Instant
		n           int64
	}
	type later struct {
		start policy.Instant
		n     int64
	}
	least := map[ending]uint64{}
	pauses := []policy.Instant{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}
	replay := func(word uint64, row []later) uint64 {
		for _, l := range row {
			word = max(word, uint64(l.start)*16, never) + uint64(l.n*unit)*16
		}
		return word
	}
	see := func(before, word, taken uint64, n int64, now policy.Instant, row []later) {
		for _, pause := range pauses {
			e := ending{word, taken, now + pause, n}
			fresh := max(never, uint64(e.now)*16)
			// The key's lack, compared with the replay's.
			left := max(word, fresh) - max(replay(before, row), fresh)
			if so, ok := least[e]; !ok || left < so {
				least[e] = left
			}
		}
	}
	var extend func(before, word, taken uint64, n int64, now policy.Instant, row []later)
	extend = func(before, word, taken uint64, n int64, now policy.Instant, row []later) {
		see(before, word, taken, n, now, row)
		if len(row) == 2 {
			return
		}
		for _, pause := range pauses {
			for _, m := range []int64{1, 2, 3, 5} {
				if next, d := p.Take(word, now+pause, m, math.MaxInt64); d.Allowed {
					extend(before, next, taken, n, now+pause, append(row[:len(row):len(row)], later{now + pause + policy.Instant(d.Wait), m}))
				}
			}
		}
	}
	for _, used := range []int64{0, 2} {
		word, _ := p.Take(0, begin, used, math.MaxInt64)
		for _, pause := range []policy.Instant{0, 1, 5} {
			now := begin + pause
			for _, n := range []int64{1, 3} {
				taken, d := p.Take(word, now, n, math.MaxInt64)
				if !d.Allowed {
					continue
				}
				// Instants are whole units of ticks, so the word can be read.
				before := max(word, uint64(now)*16, never)
				require.Equal(t, before+uint64(n*unit)*16, taken)
				extend(before, taken, taken, n, now, nil)
			}
		}
	}
	gave := 0
	for e, left := range least {
		next := p.(policy.Refunder).Cancel(e.word, e.taken, 0, e.now, e.n, 0)
		fresh := max(never, uint64(e.now)*16)
		back := max(e.word, fresh) - max(next, fresh)
		if e.word != e.taken && back > 0 {
			gave++
		}
		if e.word != e.taken && int64(e.word)-int64(e.now)*16 > store {
			left = min(left, uint64(unit)*16)
		}
		if back > left {
			t.Fatalf("unsafe: %+v gave back %d, but %d is left", e, back, left)
		}
		if back < left {
			t.Fatalf("not all: %+v gave back %d of %d", e, back, left)
		}
	}
	t.Logf("%d endings, %d with something to give back after others took", len(least), gave)
}

// Units that came back since hide later takes.
func TestPacedCancelAfterRefund(t *testing.T) {
	for _, p := range []policy.Policy{
		policy.Must(policy.Queue(10, 1, time.Second)),
		policy.Must(policy.Bursty(1, time.Second, 5)),
		policy.Must(policy.WarmingUp(2, time.Second, 4*time.Second, 3)),
	} {
		r := p.(policy.Refunder)
		now := policy.Instant(time.Minute)
		taken, _ := p.Take(0, now, 7, 0)
		word := r.Refund(taken, now, 2)
		require.Less(t, word, taken)
		assert.Equal(t, word, r.Cancel(word, taken, 0, now, 5, 0), "%v", p)
		assert.Equal(t, taken, r.Cancel(taken, taken, 0, now, 0, 0), "%v", p)
		assert.Equal(t, taken, r.Cancel(taken, taken, 0, now, -5, 0), "%v", p)
		assert.Equal(t, taken, r.Cancel(taken, taken, 0, now+policy.Instant(time.Hour), 7, 0), "%v: all passed", p)
	}
}

// Another call may have taken after units came back, and left the take's word. In a queue it is
// behind the take. In a warm key it paid its price because the key was warm.
func TestCancelWhenTheWordIsTheSameAgain(t *testing.T) {
	for _, p := range []policy.Policy{
		policy.Must(policy.Queue(20, 1, time.Second)),
		policy.Must(policy.WarmingUp(2, time.Second, 4*time.Second, 3)),
	} {
		r := p.(policy.Refunder)
		now := policy.Instant(time.Minute)
		word, _ := p.Take(0, now, 8, 0) // all that was stored
		taken, _ := p.Take(word, now, 7, math.MaxInt64)
		again, d := p.Take(r.Refund(taken, now, 2), now, 2, math.MaxInt64)
		require.True(t, d.Allowed && d.Wait > 0)
		require.Equal(t, taken, again)
		assert.Equal(t, again, r.Cancel(again, taken, now, now, 7, 2), "%v", p)
	}
}

// Which limits read whose words unchanged, and which translate them.
func TestPacedFamilies(t *testing.T) {
	s := time.Second
	of := map[string][]policy.Policy{
		"funnel": {policy.Must(policy.Funnel(10, 1, s))},
		"queue":  {policy.Must(policy.Queue(10, 1, s)), policy.Must(policy.Queue(0, 700, s))},
		"bursty": {policy.Must(policy.Bursty(1, s, 10)), policy.Must(policy.Bursty(700, s, 0))},
		"warming up": {
			policy.Must(policy.WarmingUp(2, s, 4*s, 3)), policy.Must(policy.WarmingUp(4, 2*s, 4*s, 3)),
		},
		"warming up longer":    {policy.Must(policy.WarmingUp(2, s, 5*s, 3))},
		"warming up colder":    {policy.Must(policy.WarmingUp(2, s, 4*s, 4))},
		"warming up faster":    {policy.Must(policy.WarmingUp(3, s, 4*s, 3))},
		"warming up as cold":   {policy.Must(policy.WarmingUp(4, s, 4*s, 6))},
		"warming up hardly":    {policy.Must(policy.WarmingUp(2, s, 4*s, 1))},
		"warming up otherwise": {policy.Must(policy.WarmingUp(100, s, 10*s, 2))},
	}
	for a, as := range of {
		for b, bs := range of {
			for _, p := range as {
				for _, q := range bs {
					r := p.(policy.Relative)
					assert.Equal(t, a == b, r.Reads(q), "%v reads %v", p, q)
					never, ok := r.Carry(q, 0, policy.Instant(time.Hour+1))
					assert.Zero(t, never, "%v carries a key over that was never used", p)
					assert.Equal(t, a == b || a[:4] == b[:4], ok, "%v carries over from %v", p, q)
					if a != b {
						continue
					}
					// Every limit finds a word fresh at the same instant.
					for _, word := range []uint64{0, 1, 17, 1 << 40, 1<<62 + 5, policy.MaxWord} {
						assert.Equal(t, p.FreshAt(word), q.FreshAt(word), "%v, %v", p, q)
					}
				}
			}
		}
	}
}

func TestQueueCarries(t *testing.T) {
	const s = time.Second
	now := policy.Instant(time.Hour)
	for _, c := range []struct {
		name      string
		from, to  policy.Policy
		used      int64
		after     time.Duration
		wait      time.Duration
		remaining int64
	}{
		{"as it is", policy.Must(policy.Queue(9, 1, s)), policy.Must(policy.Queue(9, 1, s)), 4, 0, 4 * s, 6},
		{"a longer queue", policy.Must(policy.Queue(9, 1, s)), policy.Must(policy.Queue(19, 1, s)), 4, s / 2, 7 * s / 2, 16},
		{"a shorter queue", policy.Must(policy.Queue(9, 1, s)), policy.Must(policy.Queue(2, 1, s)), 4, s, 3 * s, 0},
		// The fourth leaves in 3 s, and the next may a tenth of a second later.
		{"faster", policy.Must(policy.Queue(9, 1, s)), policy.Must(policy.Queue(99, 10, s)), 4, 0, 3100 * time.Millisecond, 69},
		{"faster, and the last has left", policy.Must(policy.Queue(9, 1, s)), policy.Must(policy.Queue(99, 10, s)), 4, 3500 * time.Millisecond, 50 * time.Millisecond, 99},
		{"slower", policy.Must(policy.Queue(9, 1, s)), policy.Must(policy.Queue(9, 1, 10*s)), 4, s, 30 * s, 7},
		// The new queue holds two and the unit that leaves.
		{"slower and shorter", policy.Must(policy.Queue(9, 1, s)), policy.Must(policy.Queue(2, 1, 10*s)), 8, 0, 30 * s, 0},
		{"all have left", policy.Must(policy.Queue(9, 1, s)), policy.Must(policy.Queue(9, 1, 10*s)), 4, 4 * s, 0, 10},
	} {
		t.Run(c.name, func(t *testing.T) {
			word, _ := c.from.Take(0, now, c.used, 0)
			then := now + policy.Instant(c.after)
			word, ok := c.to.(policy.Relative).Carry(c.from, word, then)
			require.True(t, ok)
			_, d := c.to.Take(word, then, 0, 0)
			assert.Equal(t, c.remaining, d.Remaining)
			assert.Equal(t, c.wait, d.ResetAfter) // the next may leave then
		})
	}
}

func TestBurstyCarries(t *testing.T) {
	const s = time.Second
	late := policy.Instant(time.Hour)
	for _, c := range []struct {
		name     string
		from, to policy.Policy
		now      policy.Instant
		used     int64
		after    time.Duration
		wait     time.Duration // of the next
		reset    time.Duration
	}{
		{"as it is", policy.Must(policy.Bursty(1, s, 9)), policy.Must(policy.Bursty(1, s, 9)), late, 4, 0, 0, 4 * s},
		{"as it is, owing", policy.Must(policy.Bursty(1, s, 9)), policy.Must(policy.Bursty(1, s, 9)), late, 14, 0, 5 * s, 14 * s},
		{"what is missing is missing in a larger store", policy.Must(policy.Bursty(1, s, 9)), policy.Must(policy.Bursty(1, s, 19)), late, 4, s, 0, 3 * s},
		{"and in a smaller one", policy.Must(policy.Bursty(1, s, 9)), policy.Must(policy.Bursty(1, s, 3)), late, 4, s, 0, 3 * s},
		{"as far as it goes", policy.Must(policy.Bursty(1, s, 9)), policy.Must(policy.Bursty(1, s, 3)), late, 8, s, 0, 3 * s},
		{"faster", policy.Must(policy.Bursty(1, s, 9)), policy.Must(policy.Bursty(10, s, 9)), late, 4, 0, 0, 400 * time.Millisecond},
		// No call overtakes the calls that may be waiting.
		{"faster, owing", policy.Must(policy.Bursty(1, s, 9)), policy.Must(policy.Bursty(10, s, 99)), late, 14, 0, 5 * s, 5*s + 9900*time.Millisecond},
		{"slower, owing", policy.Must(policy.Bursty(10, s, 9)), policy.Must(policy.Bursty(1, s, 9)), late, 14, 0, 5 * s, 14 * s},
		{"paid", policy.Must(policy.Bursty(1, s, 9)), policy.Must(policy.Bursty(1, s, 3)), late, 4, 4 * s, 0, 0},
		// The store is still filling up for the first time.
		{"early, not used", policy.Must(policy.Bursty(1, s, 9)), policy.Must(policy.Bursty(1, s, 99)), 1, 0, 3 * s, 0, 0},
		{"early", policy.Must(policy.Bursty(1, s, 9)), policy.Must(policy.Bursty(1, s, 99)), 1, 2, 3 * s, 0, 98 * s},
		{"early, owing", policy.Must(policy.Bursty(1, s, 9)), policy.Must(policy.Bursty(1, s, 2)), 1, 5, 3 * s, 2 * s, 4 * s},
	} {
		t.Run(c.name, func(t *testing.T) {
			word, _ := c.from.Take(0, c.now, c.used, 0)
			then := c.now + policy.Instant(c.after)
			word, ok := c.to.(policy.Relative).Carry(c.from, word, then)
			require.True(t, ok)
			_, d := c.to.Take(word, then, 0, 0)
			assert.Equal(t, c.reset, d.ResetAfter)
			_, d = c.to.Take(word, then, 1, math.MaxInt64)
			assert.Equal(t, c.wait, d.Wait)
		})
	}
}

// A word of another limit, which came with a call, counts as nothing once it does not exceed a
// fresh key's lack.
func TestBurstyCarriesNothingOfNothing(t *testing.T) {
	word, _ := policy.Must(policy.Bursty(1, time.Second, 2)).Take(0, 1, 1, 0)
	from, to := policy.Must(policy.Bursty(1, time.Second, 9)), policy.Must(policy.Bursty(1, time.Second, 2))
	carried, ok := to.(policy.Relative).Carry(from, word, 1)
	require.True(t, ok)
	_, d := to.Take(carried, 1, 1, 0)
	assert.True(t, d.Allowed)
	// But the clock may still go back: the instant until which time was counted stays.
	word, _ = from.Take(0, policy.Instant(time.Minute), 1, 0)
	carried, _ = to.(policy.Relative).Carry(from, word, policy.Instant(time.Hour))
	assert.Equal(t, word, carried)
}

// TestWarmingUpCarries replaces limits of all sorts for each other. The debt is never less, in
// time or in units, and more by rounding only. The key is as cold, in proportion, and at most
// three levels colder.
func TestWarmingUpCarries(t *testing.T) {
	for i, from := range warmingUpLimits {
		p := policy.Must(policy.WarmingUp(from.count, from.per, from.warmup, from.coldFactor))
		for j, to := range warmingUpLimits {
			q := policy.Must(policy.WarmingUp(to.count, to.per, to.warmup, to.coldFactor))
			rng := rand.New(rand.NewPCG(uint64(i), uint64(j)))
			word, now := uint64(0), policy.Instant(1)
			for range 30 {
				next, d := p.Take(word, now, 1+rng.Int64N(3), math.MaxInt64)
				if !d.Allowed {
					break
				}
				word = next
				now += policy.Instant(rng.ExpFloat64() * float64(d.ResetAfter) / 4)
				end := min(policy.ReadWarmingUp(p, 0).End, policy.ReadWarmingUp(q, 0).End)
				if due := policy.ReadWarmingUp(p, word).Due; now > end || due > uint64(end)*16 {
					break // there is no word for it
				}
				carried, ok := q.(policy.Relative).Carry(p, word, now)
				require.True(t, ok)
				if i == j {
					require.Equal(t, word, carried)
					continue
				}
				checkCarried(t, p, q, word, carried, now, unitTime(from.count, from.per), unitTime(to.count, to.per),
					from.warmup, to.warmup)
			}
		}
	}
}

func checkCarried(t *testing.T, p, q policy.Policy, word, carried uint64, now policy.Instant, unit, newUnit *big.Rat, warmup, newWarmup time.Duration) {
	t.Helper()
	wait := func(p policy.Policy, word uint64) *big.Rat {
		due := policy.ReadWarmingUp(p, word).Due
		return positive(sub(new(big.Rat).SetFrac(new(big.Int).SetUint64(due), big.NewInt(16)), whole(int64(now))))
	}
	before, after := wait(p, word), wait(q, carried)
	grid := policy.ReadWarmingUp(q, 0)
	round := new(big.Rat).SetFrac64(int64(grid.Unit)+16, 16)
	inUnits := mul(before, new(big.Rat).Quo(newUnit, unit))
	// No key is refused longer than for all that may be taken at once.
	_, d := q.Take(0, now, 0, 0)
	all, _ := q.Take(0, now, d.Limit, 0)
	owed := greatest(before, least(inUnits, wait(q, all)))
	inUnits = least(inUnits, sub(wait(q, all), round))
	require.GreaterOrEqual(t, after.Cmp(before), 0, "%v: %v overtakes calls that wait at %v", q, after, p)
	require.GreaterOrEqual(t, add(after, round).Cmp(inUnits), 0, "%v forgives: %v: %s instead of %s", q, p, after.FloatString(2), inUnits.FloatString(2))
	require.LessOrEqual(t, after.Cmp(add(owed, round)), 0, "%v: more is owed than %v", q, owed)

	// The part of the warm-up left to grow back: ResetAfter less the debt.
	left := func(p policy.Policy, word uint64) *big.Rat {
		_, d := p.Take(word, now, 0, 0)
		return sub(whole(int64(d.ResetAfter)), wait(p, word))
	}
	part := new(big.Rat).Quo(left(p, word), whole(int64(warmup)))
	newPart := new(big.Rat).Quo(left(q, carried), whole(int64(newWarmup)))
	old := policy.ReadWarmingUp(p, 0)
	// ResetAfter is up to a level and a nanosecond too low.
	grains := add(new(big.Rat).SetFrac64(4, int64(grid.Levels)), new(big.Rat).SetFrac64(2, int64(old.Levels)))
	grains = add(grains, add(new(big.Rat).SetFrac64(2, int64(warmup)), new(big.Rat).SetFrac64(2, int64(newWarmup))))
	require.LessOrEqual(t, sub(newPart, part).Cmp(grains), 0, "%v is warmer than %v: %v, %v", q, p, newPart, part)
	require.LessOrEqual(t, sub(part, newPart).Cmp(grains), 0, "%v is colder than %v: %v, %v", q, p, newPart, part)
}

// Every call waits in line. They pass at no higher rate than requested, and hardly a lower.
func TestPacedLongRunRate(t *testing.T) {
	for _, r := range rates {
		warmup := longestWarmup(r.count, r.per, 4*r.per, 1.5)
		for _, p := range []policy.Policy{
			policy.Must(policy.Queue(min(200_000, int64(longestDrain/r.per)*r.count-1), r.count, r.per)),
			policy.Must(policy.Bursty(r.count, r.per, 0)),
			policy.Must(policy.Bursty(r.count, r.per, 2)),
			policy.Must(policy.WarmingUp(r.count, r.per, warmup, 1.5)),
		} {
			t.Run(p.String(), func(t *testing.T) {
				var word uint64
				var first, last time.Duration
				turns := int64(-1)
				for turns < 100_000/raceFactor {
					next, d := p.Take(word, 1, 1, math.MaxInt64)
					if !d.Allowed {
						break
					}
					word = next
					if last = d.Wait; turns < 0 {
						first = last
					}
					if word > 1<<62 || !strings.HasPrefix(p.String(), "warming up") { // a key that is warming up is slower
						turns++
					}
				}
				require.GreaterOrEqual(t, turns, int64(3))
				// The first may have been told up to a nanosecond late.
				assertRate(t, turns, r.count, r.per, last-first+1, 2, max(r.ppm, 4))
			})
		}
	}
}

// Greedy callers, which come at the first nanosecond, get the full rate as well if the time by
// which they are late can be stored.
func TestPacedLongRunRateOfGreedyCallers(t *testing.T) {
	for _, r := range rates {
		for _, p := range []policy.Policy{
			policy.Must(policy.Queue(1, r.count, r.per)),
			policy.Must(policy.Bursty(r.count, r.per, 1)),
		} {
			t.Run(p.String(), func(t *testing.T) {
				var word uint64
				now, units := policy.Instant(3*r.per), int64(-1)
				var begin policy.Instant
				for units < 100_000 && now < policy.Instant(8*year) {
					next, d := p.Take(word, now, 1, 0)
					if !d.Allowed {
						if units < 0 { // what was stored is gone
							units, begin = 0, now+policy.Instant(d.RetryAfter)
						}
						now += policy.Instant(d.RetryAfter)
						next, d = p.Take(word, now, 1, 0)
						require.True(t, d.Allowed, "not when told")
						if now > begin {
							units++
						}
					}
					word = next
				}
				require.GreaterOrEqual(t, units, int64(3))
				assertRate(t, units, r.count, r.per, time.Duration(now-begin)+1, 2, r.ppm)
			})
		}
	}
}

// Promise: `Queue`: calls leave evenly spaced.
func TestQueueSpacesEvenly(t *testing.T) {
	p := policy.Must(policy.Queue(5, 3, time.Second))
	rng := rand.New(rand.NewPCG(1, 2))
	var word uint64
	now, last := policy.Instant(1), policy.Instant(math.MinInt32)
	admitted := 0
	for range 10_000 {
		now += policy.Instant(rng.ExpFloat64() * float64(time.Second) / 4)
		next, d := p.Take(word, now, 1, 0)
		if !d.Allowed {
			continue
		}
		start := now + policy.Instant(d.Wait)
		require.GreaterOrEqual(t, int64(start-last), int64(333_333_333))
		word, last = next, start
		admitted++
	}
	assert.Greater(t, admitted, 5000)
}

// A word that is as good as never used under a limit, with a store that is still filling, is a
// debt under a smaller store: giving back under the first forgives nothing under the second.
func TestBurstyGivesBackNothingOfOthers(t *testing.T) {
	const s = time.Second
	large, small := policy.Must(policy.Bursty(1, s, 10)), policy.Must(policy.Bursty(1, s, 0))
	now := policy.Instant(1)
	owing, _ := small.Take(0, now, 3, 0)
	word, _ := large.Take(owing, now, 2, 0)
	word = large.(policy.Refunder).Refund(word, now, math.MaxInt64)

	_, d := large.Take(word, now, 0, 0)
	_, never := large.Take(0, now, 0, 0)
	assert.Equal(t, never, d)
	_, before := small.Take(owing, now, 1, 0)
	_, after := small.Take(word, now, 1, 0)
	require.False(t, before.Allowed)
	assert.GreaterOrEqual(t, after.RetryAfter, before.RetryAfter)
	assert.Equal(t, now+policy.Instant(10*s), small.FreshAt(word))
}
