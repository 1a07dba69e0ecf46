package policy_test

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/ral-limiter/ral/policy"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// warmingModel is Guava's limiter with a warm-up, with its source's variables in exact fractions
// of nanoseconds. Only the intervals, warm and cold, are rounded up to sixteenths.
type warmingModel struct {
	stable, cold *big.Rat
	// threshold and max are in units.
	threshold, max *big.Rat
	slope          *big.Rat
	// growth is the nanoseconds in which a unit is stored.
	growth *big.Rat

	stored, free *big.Rat
}

func newWarmingModel(count int64, per, warmup time.Duration, coldFactor float64) *warmingModel {
	m := &warmingModel{free: new(big.Rat)}
	m.stable = unitTime(count, per)
	m.cold = new(big.Rat).SetFrac(sixteenths(mul(m.stable, new(big.Rat).SetFloat64(coldFactor))), big.NewInt(16))
	period := whole(int64(warmup))
	m.threshold = new(big.Rat).Quo(mul(big.NewRat(1, 2), period), m.stable)
	slanted := new(big.Rat).Quo(mul(whole(2), period), add(m.stable, m.cold))
	m.max = add(m.threshold, slanted)
	m.slope = new(big.Rat).Quo(sub(m.cold, m.stable), slanted)
	m.growth = new(big.Rat).Quo(period, m.max)
	m.stored = m.max
	return m
}

// take takes n units at an instant and returns when the caller may start.
func (m *warmingModel) take(instant *big.Rat, n int64) (start *big.Rat) {
	if idle := sub(instant, m.free); idle.Sign() > 0 {
		m.stored = least(m.max, add(m.stored, new(big.Rat).Quo(idle, m.growth)))
		m.free = instant
	}
	start = m.free
	m.free = add(m.free, m.price(n))
	m.stored = positive(sub(m.stored, whole(n)))
	return start
}

// price returns the price of n units: the trapezoid above the threshold, and the rest.
func (m *warmingModel) price(n int64) *big.Rat {
	above := positive(sub(m.stored, m.threshold))
	slanted := least(above, whole(n))
	interval := func(above *big.Rat) *big.Rat { return add(m.stable, mul(above, m.slope)) }
	mean := mul(big.NewRat(1, 2), add(interval(above), interval(sub(above, slanted))))
	return add(mul(slanted, mean), mul(sub(whole(n), slanted), m.stable))
}

// mirror is an oracle that asks the policy itself, because rounding is hard to model. Tests below
// check by warmingModel that it is small and to the strict side.
type mirror struct {
	p     policy.Policy
	end   policy.Instant
	unit  *big.Rat
	word  uint64
	start *big.Rat
	last  int64
}

func (m *mirror) due() *big.Rat {
	return new(big.Rat).SetFrac(new(big.Int).SetUint64(policy.ReadWarmingUp(m.p, m.word).Due), big.NewInt(16))
}

func (m *mirror) take(now policy.Instant, n int64, patience time.Duration) policy.Decision {
	start := greatest(m.due(), whole(int64(held(now, m.end))))
	next, decision := m.p.Take(m.word, now, n, patience)
	if decision.Allowed && n > 0 {
		m.start, m.last, m.word = start, n, next
	}
	return decision
}

func (m *mirror) turn() *big.Rat { return m.start }
func (m *mirror) mark() any      { return m.word }

func (m *mirror) refund(now policy.Instant, n int64) *big.Rat {
	return m.after(m.p.(policy.Refunder).Refund(m.word, now, n), n)
}

func (m *mirror) cancel(now policy.Instant, taken any, n int64) *big.Rat {
	return m.after(m.p.(policy.Refunder).Cancel(m.word, taken.(uint64), 0, now, n, 0), n)
}

// after returns how many units came back, each with the usual time at least.
func (m *mirror) after(next uint64, n int64) *big.Rat {
	before := m.due()
	changed := next != m.word
	m.word = next
	if n <= 0 || !changed {
		return new(big.Rat)
	}
	gained := sub(before, m.due())
	return least(whole(n), gained.Quo(gained, m.unit))
}

func warmingUpOf(count int64, per, warmup time.Duration, coldFactor float64) subject {
	limit := policy.Must(policy.WarmingUp(count, per, warmup, coldFactor))
	_, decision := limit.Take(0, 0, 0, 0)
	model := &mirror{p: limit, end: policy.ReadWarmingUp(limit, 0).End, unit: unitTime(count, per)}
	return subject{
		Policy:   limit,
		oracle:   model,
		limit:    decision.Limit,
		end:      model.end,
		patience: longestPatience,
		period:   max(warmup/4, 1),
		within:   atRate(count, per, func() int64 { return model.last }),
		// A level and an instant can be said in several ways.
		aliases: true,
		// TestWarmingUpGivesBackThePrice says why.
		costly: true,
		credit: true,
	}
}

// longestWarmup bounds a warm-up to the longest that fits.
func longestWarmup(count int64, per, warmup time.Duration, coldFactor float64) time.Duration {
	for {
		if _, err := policy.WarmingUp(count, per, warmup, coldFactor); err == nil || warmup == 1 {
			return warmup
		}
		warmup /= 2
	}
}

var warmingUps = kind{
	name: "WarmingUp",
	read: func(s *script) subject {
		count, per := s.pace()
		// A year's unit then costs 9 years at most.
		coldFactor := 1 + float64(s.between(0, 127))/16
		warmup := longestWarmup(count, per, time.Duration(s.between(1, int64(longestPatience))), coldFactor)
		return warmingUpOf(count, per, warmup, coldFactor)
	},
}

// warmingUpLimits are ordinary limits first, then the corners of the constructor.
var warmingUpLimits = []struct {
	count       int64
	per, warmup time.Duration
	coldFactor  float64
}{
	{2, time.Second, 4 * time.Second, 3},
	{5, time.Second, 4 * time.Second, 10},
	{100, time.Second, 10 * time.Second, 3},
	{7, time.Minute, time.Hour, 2.5},
	{1000, time.Second, 10 * time.Second, 3},
	{10_000, time.Second, 500 * time.Millisecond, 3},
	{999_999, time.Second, 47 * time.Microsecond, 1.5},
	{3, time.Second, 20 * time.Second, 1},

	{1, year, year, 3},
	{1, longestPatience, longestPatience, 1},
	{1000, 16_000, 1, 1},
	{62_500_000, time.Second, 10, 1},
	{1, time.Second, 1, 2},
	{1, time.Second, time.Millisecond, 1e6},
	{1, time.Second, longestPatience / (1 << 22), 1e6},
	{1, time.Hour, longestPatience, 3},
	{1, time.Hour, longestPatience, 1},
	{4001, time.Second, time.Second, math.Pi},
	{4000, time.Second, time.Second, math.Pi},
	{1, time.Second, time.Second, math.Nextafter(1, 2)},
}

// TestWarmingUpIsGuavas takes and idles at random. Each step from the model's same state owes no
// less and leaves no colder key, and more only by the rounding.
//
// Two that run side by side would drift apart, as in Guava: a caller that pays a little more
// leaves the key warmer, and pays several times as much less for the next.
func TestWarmingUpIsGuavas(t *testing.T) {
	for _, l := range warmingUpLimits {
		limit := policy.Must(policy.WarmingUp(l.count, l.per, l.warmup, l.coldFactor))
		t.Run(limit.String(), func(t *testing.T) {
			for seed := range uint64(30) {
				m := newWarmingModel(l.count, l.per, l.warmup, l.coldFactor)
				compareWithGuava(t, limit, m, rand.New(rand.NewPCG(seed, 1)))
			}
		})
	}
}

func compareWithGuava(t *testing.T, limit policy.Policy, m *warmingModel, rng *rand.Rand) {
	grid := policy.ReadWarmingUp(limit, 0)
	level := new(big.Rat).SetFrac64(1, int64(grid.PerUnit))
	// To a sixteenth or a whole nanosecond if nothing is stored, otherwise to a unit.
	late := whole(1)
	coarse := new(big.Rat).SetFrac64(int64(grid.Unit)+1, 16)
	stable, _ := m.stable.Float64()
	refill, _ := mul(m.growth, m.max).Float64()
	most, _ := m.max.Float64()

	state := func(word uint64) (stored, due *big.Rat) {
		s := policy.ReadWarmingUp(limit, word)
		stored = sub(m.max, mul(level, whole(int64(s.Level))))
		if s.Level >= s.Levels {
			stored = new(big.Rat)
		}
		return stored, new(big.Rat).SetFrac(new(big.Int).SetUint64(s.Due), big.NewInt(16))
	}
	var word uint64
	now := policy.Instant(1)
	for range 40 {
		n := int64(1)
		if rng.UintN(3) == 0 {
			n += int64(rng.Float64() * most)
		}
		m.stored, m.free = state(word)
		start := m.take(whole(int64(now)), n)
		next, decision := limit.Take(word, now, n, math.MaxInt64)
		if !decision.Allowed {
			require.Greater(t, float64(decision.RetryAfter), 1e9, "refused: %+v", decision)
			// The turn is years ahead.
			return
		}
		require.Equal(t, ceil(start), time.Duration(now)+decision.Wait)

		stored, due := state(next)
		colder, later := sub(stored, m.stored), sub(due, m.free)
		require.GreaterOrEqual(t, colder.Sign(), 0, "warmer than Guava's by %s of a unit", colder.FloatString(20))
		require.GreaterOrEqual(t, later.Sign(), 0, "paid earlier than Guava's by %s ns", later.FloatString(20))
		require.LessOrEqual(t, colder.Cmp(level), 0, "colder than Guava's by %s of a unit", colder.FloatString(20))
		// The units cost more from a level up, if time has gone by.
		dearer := mul(whole(0), whole(0))
		if policy.ReadWarmingUp(limit, word).Due < uint64(now)*16 {
			dearer = mul(level, sub(m.cold, m.stable))
		}
		rounded := late
		if stored.Sign() > 0 {
			rounded = coarse
		}
		noise := mul(m.cold, big.NewRat(1, 1<<40))
		require.LessOrEqual(t, later.Cmp(add(add(dearer, rounded), noise)), 0, "paid later than Guava's by %s ns", later.FloatString(20))

		word = next
		now += policy.Instant(decision.Wait)
		switch rng.UintN(6) {
		// The next call comes at once.
		case 0, 1:
		// The next call comes when all is paid, to the nanosecond or a little later.
		case 2:
			now = max(now, policy.Instant(ceil(due))+policy.Instant(rng.Int64N(3)))
		// The next call often comes sooner than that, and sometimes when the key is cold.
		default:
			now += policy.Instant(rng.ExpFloat64() * (stable + refill*rng.Float64()))
		}
		if now > grid.End {
			return
		}
	}
}

func TestWarmingUpGivesBackThePrice(t *testing.T) {
	drained, partly := 0, 0
	for _, l := range warmingUpLimits {
		limit := policy.Must(policy.WarmingUp(l.count, l.per, l.warmup, l.coldFactor))
		refunder := limit.(policy.Refunder)
		grid := policy.ReadWarmingUp(limit, 0)
		interval := unitTime(l.count, l.per)
		rng := rand.New(rand.NewPCG(7, 7))
		var word uint64
		now := policy.Instant(1)
		for range 500 {
			n := 1 + rng.Int64N(4)<<rng.UintN(4)
			now += policy.Instant(rng.Float64() * float64(l.warmup) / 2)
			next, decision := limit.Take(word, now, n, math.MaxInt64)
			if !decision.Allowed || now > grid.End {
				break
			}
			// due is rounded up.
			due := uint64(now+policy.Instant(decision.Wait)) * 16
			if decision.Wait > 0 {
				due = policy.ReadWarmingUp(limit, word).Due
			}
			after := policy.ReadWarmingUp(limit, next)
			again := policy.ReadWarmingUp(limit, refunder.Cancel(next, next, 0, now, n, 0))
			refunded := policy.ReadWarmingUp(limit, refunder.Refund(next, now, n))
			usual := max(after.Due-sixteenths(mul(interval, whole(n))).Uint64(), uint64(now)*16)
			left := max(refunded.Due, uint64(now)*16)
			require.GreaterOrEqual(t, left, usual, "%v: more than the usual price of %d units", limit, n)
			require.LessOrEqual(t, left, usual+grid.Unit, "%v: less than the usual price of %d units", limit, n)
			require.Equal(t, after.Level, refunded.Level, "%v: it must stay as warm", limit)
			require.GreaterOrEqual(t, again.Due, due, "%v: earlier than before", limit)
			restored := policy.ReadWarmingUp(limit, limit.(policy.Restorer).Restore(next, word, now))
			require.Equal(t, after.Level, restored.Level, "%v: it must stay as warm", limit)
			require.LessOrEqual(t, restored.Due, again.Due, "%v: more is owed than without the take", limit)
			if after.Level == after.Levels {
				// Given back at the usual price.
				drained++
				paid := sub(new(big.Rat).SetFrac64(int64(after.Due-due), 16), mul(interval, whole(n)))
				left := new(big.Rat).SetFrac64(int64(again.Due-due), 16)
				require.LessOrEqual(t, sub(left, paid).Cmp(whole(1)), 0, "%v: %d more than the surcharge", limit, again.Due-due)
			} else {
				partly++
				require.Less(t, again.Due, due+2*grid.Unit, "%v: %d later", limit, again.Due-due)
			}
			require.Equal(t, after.Level, again.Level, "%v: it must stay as warm", limit)
			// Once all is paid nothing can be given back.
			paid := policy.Instant((after.Due + 15) / 16)
			require.Equal(t, next, refunder.Refund(next, paid, n))
			// And nothing once another call took.
			other, decision := limit.Take(next, now, 1, math.MaxInt64)
			if decision.Allowed {
				require.Equal(t, other, refunder.Cancel(other, next, 0, now, n, 0))
			}
			word = next
		}
	}
	assert.Greater(t, drained, 100)
	assert.Greater(t, partly, 100)
}

// Promise: Refunds under a `WarmingUp` never admit more than was taken, also of a key that is cold again.
func TestRefundOfAColdKeyGivesBackWhatAWarmKeyPaid(t *testing.T) {
	const cold = 8
	limit := policy.Must(policy.WarmingUp(10, time.Second, 4*time.Second, cold))
	refunder := limit.(policy.Refunder)
	word, d := limit.Take(0, 1, 1000, 0)
	require.True(t, d.Allowed)
	// The key is cold again.
	now := policy.Instant(1) + policy.Instant(d.ResetAfter)
	word, _ = limit.Take(word, now, 1, 0)
	word, _ = limit.Take(word, now, 1, math.MaxInt64)
	owed := policy.ReadWarmingUp(limit, word).Due
	word = refunder.Refund(word, now, 1)
	returned := time.Duration(owed-policy.ReadWarmingUp(limit, word).Due) / 16
	assert.LessOrEqual(t, returned, 100*time.Millisecond)
	assert.Greater(t, returned, 90*time.Millisecond)
}

// A word higher than any that this limit leaves owes as much as possible.
func TestWarmingUpOwesTheMostUnderAHigherWord(t *testing.T) {
	// The limit has one level.
	p := policy.Must(policy.WarmingUp(1, time.Second, 1, 3))
	for shift := 59; shift < 62; shift++ {
		for _, word := range []uint64{1 << shift, 1<<shift + 1, 1<<(shift+1) - 1} {
			_, d := p.Take(word, 1, 1, 0)
			assert.False(t, d.Allowed, "%#x", word)
			assert.Greater(t, d.ResetAfter, 17*8766*time.Hour, "%#x", word)
		}
	}
}
