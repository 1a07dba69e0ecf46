package policy

import (
	"fmt"
	"math"
	"math/big"
	"math/bits"
	"time"
)

// warmingUp keeps in a word due, the instant at which all is paid, and the key's coldness then.
// At level 0 the key is coldest. Each unit taken uses up perUnit levels: (levels - level)/perUnit
// units are stored.
//
// A word with the bit drained has nothing stored; the rest is due, in ticks or, for slow rates,
// nanoseconds. So a busy key loses nothing to rounding. Other words are due/unit*levels + level,
// with due rounded up to a unit. Both forms have 62 bits, so unit must be as large as levels for
// due to reach equally far in both.
type warmingUp struct {
	pace
	warmup     time.Duration
	coldFactor float64
	// cold is the ticks that a unit costs when the key is coldest.
	cold uint64

	// perUnit is the levels that a unit uses up, a power of two.
	perUnit uint64
	// levels is the levels of a full store, rounded up.
	levels uint64
	// unit is in ticks.
	unit     uint64
	lastUnit uint64
	byLevels divisor
	byUnit   divisor
	// shift is the right shift of due in a drained word.
	shift uint

	// latest is the largest due that a word can hold.
	latest uint64
	limit  int64
	// end is the instant at which the limit's time stands still.
	end Instant

	// warm is the warmup in ticks.
	warm uint64
	// Ticks in which a level grows back, times 2^levelShift: rounded down, which keeps keys too
	// cold, and up. levelDown has 62 bits.
	levelDown, levelUp uint64
	// byLevelDown and byLevelUp are the levels in 2^64 ticks, rounded down.
	byLevelDown, byLevelUp uint64
	levelShift             uint

	// Going from a levels above the threshold to b costs slope * (a*a - b*b) above the interval.
	// The threshold is in levels times 2^finer, slope times a power of two.
	threshold uint64
	finer     uint
	slope     uint64
	// toPrice is the right shift of slope * (a + b).
	toPrice uint
	// priceShift is the remaining right shift.
	priceShift uint
	maxOnTop   uint64
	// maxColdCost is the ticks that limit units cost a cold key.
	maxColdCost uint64
}

const (
	// drained is a bit of the word.
	drained = 1 << 62

	// A word limits the product of two fractions: a level of a unit, and the rounding of due of
	// the interval. With at least 2^fineLevels levels a unit, due is kept to 200ns: coarser would
	// show in the waits. Otherwise both are about equal, 1 in 2^coarsestLevels at worst.
	finestLevels   = 20
	fineLevels     = 6
	coarsestLevels = 4
	fineUnit       = 200 << tickBits

	// At 4000 a second or less, instants round up to nanoseconds: at most 4 parts per million.
	slowInterval = 250_000 << tickBits
)

// WarmingUp returns the limit of Guava's RateLimiter with a warm-up period. Unlike [Bursty], it
// charges more for stored units: up to coldFactor times as much for the first, until the key is
// warm. Choose it in front of caches or connection pools that the full rate would overrun while
// cold. Guava's coldFactor is 3.
//
// In Guava's terms, let stable = per/count and cold = stable * coldFactor. A key stores up to
// threshold + 2*warmup/(stable+cold) units, where threshold = warmup/stable/2. A key that was
// never used has stored them all. Units above the threshold cost from cold down to stable,
// falling evenly; all others cost stable. So a busy key is warm after warmup, and an unused key
// is cold again after warmup. A take is granted as soon as the take before it is paid.
//
// # The most that it admits
//
// In any window of length t, all takes except the last ask together for at most count*t/per
// units, counting each when it may start. The last may take up to Decision.Limit units:
// 2147483647 as in Guava, but no more than are paid within 9 years. Decision.Remaining is 1 if
// nothing is owed, as the next call waits after a take of any size, and 0 otherwise.
//
// # Rounding and refusals
//
// The rate of a busy key is rounded as for a [Funnel], or to whole nanoseconds at 4000 a second
// or less. The time by which its callers come too late is lost as well. While a key has units
// stored, its word is coarser. A take is paid up to 1/16 of an interval too late, and the key is
// up to 1/16 of a unit too cold. For most limits both are about the square root of (the units
// stored / the interval in sixteenths of a nanosecond). At 100 a second and a warmup of 10s they
// are 1/312 and 1/256. With up to about a dozen units stored they are at most 200ns and 1/64.
//
// This rounding is in the strict direction. Each wait is otherwise Guava's, which truncates to
// microseconds. Over many calls waits may be shorter than Guava's: a caller that pays more finds
// the key warmer next time. At 2 a second, a warmup of 4s and a coldFactor of 3 that stays below
// a tenth of an interval. With a coldFactor of 10 and a warmup of few intervals it reaches
// several.
//
// WarmingUp refuses a count below 1, a period below a microsecond, and a rate that rounding would slow by
// more than 1 in 1000. It refuses a warmup below 1ns, with which Guava does not limit, above 9 years, or
// so long that too many units are stored to be kept to 1/16. It refuses a coldFactor below 1, a
// coldFactor that is not a number, and one with which a unit would cost more than 9 years. The error is a
// *[FieldError].
//
// # Turns and time
//
// If the clock goes backwards, no call gains units. Above 4000 a second, time stands still 9 years
// after the epoch. Otherwise it does 18 years after, less the time that Limit units cost, at most 9
// years. Patience beyond 9 years counts as 9.
//
// # Giving back
//
// A refund gives back the usual price, stable, of each unit, so at most what the unit cost. Refund does
// not know how warm the key was when its units were taken, and keeps the surcharge of a cold key. If
// nothing is owed, nothing comes back. Cancel gives back the price of its take, except for rounding up
// twice, and the usual price if the take left nothing stored. After either the key stays as warm as it
// was: a colder key would charge later calls more, and so refuse calls because of the give-back. From
// then on the key cools as any key that owes nothing. So a call that comes much later may find the key
// colder than if it still had to pay. A later take is priced and starts once the take before it is paid,
// so Cancel gives nothing back once another call has taken.
//
// # One limit after another
//
// Any two WarmingUp limits are a family if one takes over for good (SetPolicy). The key stays as
// cold in proportion. A debt keeps its duration, or lasts for as many units of the new limit if
// that is longer. A limit that comes with a call (TakeWith) must have the same rate, warmup and
// coldFactor.
func WarmingUp(count int64, per, warmup time.Duration, coldFactor float64) (Policy, error) {
	const function = "WarmingUp"
	bad := func(field string, value any, want string) (Policy, error) {
		return nil, &FieldError{Of: function, Field: field, Value: value, Want: want}
	}
	pace, err := newPace(function, count, per, maxOwed)
	switch {
	case err != nil:
		return nil, err
	case warmup < 1:
		return bad("warmup", warmup, "1ns or more (Bursty is without a warm-up)")
	case warmup > maxPatience:
		return bad("warmup", warmup, fmt.Sprintf("at most %v, 9 years", maxPatience))
	case !(coldFactor >= 1) || math.IsInf(coldFactor, 1):
		return bad("coldFactor", coldFactor, "a number of 1 or more")
	}
	w := &warmingUp{pace: pace, warmup: warmup, coldFactor: coldFactor, warm: uint64(warmup) << tickBits}
	interval := ratio(pace.interval, 1)
	cold := up(new(big.Rat).Mul(interval, new(big.Rat).SetFloat64(coldFactor)))
	if cold.Cmp(big.NewInt(maxOwed)) > 0 {
		return bad("coldFactor", coldFactor, fmt.Sprintf(
			"at most %g: a unit must not cost more than 9 years", floatDown(ratio(maxOwed, pace.interval))))
	}
	w.cold = cold.Uint64()
	if most := w.layOut(); most != nil {
		longest := new(big.Int).Rsh(most, tickBits)
		if longest.Sign() == 0 {
			return bad("count", count, "a rate of at most 62 million a second")
		}
		return bad("warmup", warmup, fmt.Sprintf(
			"at most %v at %d per %v and a coldFactor of %g, or a slower rate: a word has no room for more", time.Duration(longest.Int64()), count, per, coldFactor))
	}
	w.setPrice()
	w.limit = w.maxAtOnce()
	w.maxColdCost = w.cost(0, w.limit)
	w.end = Instant((w.latest - w.maxColdCost) >> tickBits)
	return w, nil
}

func (w *warmingUp) Limit() int64 { return w.limit }

func (w *warmingUp) Window() time.Duration { return w.window(w.limit) }

func (w *warmingUp) Delays() bool { return false }

// layOut divides the word, or returns the longest warm-up for which that is fine enough.
func (w *warmingUp) layOut() (most *big.Int) {
	// A unit grows back in warmup/max, which is 2*stable*(stable+cold)/(5*stable+cold).
	stable, cold := ratio(w.interval, 1), ratio(w.cold, 1)
	both := new(big.Rat).Add(stable, cold)
	growth := new(big.Rat).Mul(ratio(2, 1), new(big.Rat).Mul(stable, both))
	growth.Quo(growth, new(big.Rat).Add(new(big.Rat).Mul(ratio(5, 1), stable), cold))
	stored := new(big.Rat).Quo(ratio(w.warm, 1), growth)

	// reach and last say how far due reaches in a drained word.
	reach, last := uint64(1), uint64(drained-17)
	if w.interval >= slowInterval {
		w.shift = tickBits
		reach, last = 2, MaxWord>>tickBits<<tickBits
	}
	// With a unit of whole nanoseconds, a caller that comes when told finds no more time passed
	// than it was told.
	const whole = 1 << tickBits
	divide := func(fine int, finest uint64) bool {
		perUnit := uint64(1) << fine
		levels := up(new(big.Rat).Mul(stored, ratio(perUnit, 1)))
		if levels.BitLen() >= 60 {
			return false
		}
		w.perUnit, w.levels = perUnit, levels.Uint64()
		w.unit = (w.levels*reach + whole - 1) / whole * whole
		return w.unit <= min(w.interval/perUnit, finest)
	}
	fine := finestLevels
	for fine >= fineLevels && !divide(fine, fineUnit) {
		fine--
	}
	if fine < fineLevels {
		fine = finestLevels
		for fine >= coarsestLevels && !divide(fine, math.MaxUint64) {
			fine--
		}
	}
	if fine < coarsestLevels {
		room := w.interval >> coarsestLevels / whole * whole / reach
		return down(new(big.Rat).Mul(growth, ratio(room, 1<<coarsestLevels)))
	}
	w.lastUnit = min(drained/w.levels-1, (last+w.unit-1)/w.unit)
	w.latest = last
	if hi, lo := bits.Mul64(w.lastUnit, w.unit); hi == 0 {
		w.latest = min(last, lo)
	}

	level := new(big.Rat).Quo(growth, ratio(w.perUnit, 1))
	w.levelShift = uint(62 - down(level).BitLen())
	level.Mul(level, ratio(1<<w.levelShift, 1))
	w.levelDown, w.levelUp = down(level).Uint64(), up(level).Uint64()
	// A unit grows back in 2/3 of the interval or more, and interval/perUnit is at least unit, at
	// least 16. So a level takes more than 10 ticks, and levelShift is at most 58.
	w.byLevelDown, _ = bits.Div64(1<<w.levelShift, 0, w.levelDown)
	w.byLevelUp, _ = bits.Div64(1<<w.levelShift, 0, w.levelUp)
	w.byLevels, w.byUnit = newDivisor(w.levels), newDivisor(w.unit)
	return nil
}

// setPrice computes the surcharge of coldness.
func (w *warmingUp) setPrice() {
	stable, cold, warm := ratio(w.interval, 1), ratio(w.cold, 1), ratio(w.warm, 1)
	both, gap := new(big.Rat).Add(stable, cold), new(big.Rat).Sub(cold, stable)

	// All levels above the threshold cost warm*gap/both more than usual.
	onTop := new(big.Rat).Quo(new(big.Rat).Mul(warm, gap), both)
	w.maxOnTop = up(onTop).Uint64()

	above := new(big.Rat).Mul(ratio(2*w.perUnit, 1), new(big.Rat).Quo(warm, both))
	w.finer = uint(min(53-up(above).BitLen(), 30))
	w.threshold = up(new(big.Rat).Mul(above, ratio(1<<w.finer, 1))).Uint64()
	if gap.Sign() == 0 || above.Cmp(ratio(1, 1)) < 0 {
		// There is nothing between no surcharge and the whole surcharge.
		return
	}

	// slope*above^2 = onTop. A level at the top costs 2*slope*above, or gap/perUnit. It and slope
	// are scaled to about 61 bits.
	slope := new(big.Rat).Quo(onTop, new(big.Rat).Mul(above, above))
	slopeShift := 62 - (slope.Num().BitLen() - slope.Denom().BitLen())
	w.slope = up(scale(slope, slopeShift)).Uint64()
	top := new(big.Rat).Quo(gap, ratio(w.perUnit, 1))
	priceShift := 61 - down(top).BitLen()
	w.toPrice = uint(slopeShift + int(w.finer) - priceShift)
	w.priceShift = uint(priceShift) + w.finer
}

// maxAtOnce returns the largest take that is paid within maxOwed.
func (w *warmingUp) maxAtOnce() int64 {
	enough, tooMuch := int64(1), int64(math.MaxInt32)+1
	for tooMuch-enough > 1 {
		n := enough + (tooMuch-enough)/2
		if w.cost(0, n) <= maxOwed {
			enough = n
		} else {
			tooMuch = n
		}
	}
	return enough
}

// cost returns the ticks that n units, 0 or more, cost from a level on, at most math.MaxInt64.
func (w *warmingUp) cost(level uint64, n int64) uint64 {
	usual := timesUp(n, w.interval, math.MaxInt64)
	return min(usual+w.surcharge(level, n), math.MaxInt64)
}

// surcharge returns the ticks that n units cost from a level on, above their usual price, rounded up.
func (w *warmingUp) surcharge(level uint64, n int64) uint64 {
	if level >= w.threshold>>w.finer+1 {
		// The shift below would also overflow.
		return 0
	}
	from := w.threshold - min(level<<w.finer, w.threshold)
	if from == 0 {
		return 0
	}
	if w.slope == 0 {
		return w.maxOnTop
	}
	to := from - timesUp(n, w.perUnit<<w.finer, from)
	price := shiftedUp(w.slope, from+to, w.toPrice)
	return min(shiftedUp(price, from-to, w.priceShift), w.maxOnTop)
}

// shiftedUp returns a*b divided by 2^shift, rounded up. The result must fit a word.
func shiftedUp(a, b uint64, shift uint) uint64 {
	hi, lo := bits.Mul64(a, b)
	quotient, rest := hi<<(64-shift)|lo>>shift, lo<<(64-shift)
	if shift >= 64 {
		quotient, rest = hi>>(shift-64), hi<<(128-shift)|lo
	}
	if rest != 0 {
		quotient++
	}
	return quotient
}

// state unpacks a word. From level levels on nothing is stored.
func (w *warmingUp) state(word uint64) (due, level uint64) {
	if word&drained == 0 {
		units := w.byLevels.quotient(word)
		return min(min(units, w.lastUnit)*w.unit, w.latest), word - units*w.levels
	}
	due = word &^ drained
	if due > w.latest>>w.shift {
		return w.latest, w.levels
	}
	return due << w.shift, w.levels
}

// word packs a state. due is at most latest.
func (w *warmingUp) word(due, level uint64) uint64 {
	if level >= w.levels {
		return drained | (due+1<<w.shift-1)>>w.shift
	}
	units := w.byUnit.quotient(due)
	if units*w.unit < due {
		units++
	}
	return units*w.levels + level
}

// paid returns the word of a key that owes nothing at a tick of a whole nanosecond. The tick is rounded
// down, so no call waits for rounding, but the key is up to a level too cold.
func (w *warmingUp) paid(tick, level uint64) uint64 {
	if level < w.levels {
		tick = w.byUnit.quotient(tick) * w.unit
	}
	return w.word(tick, level)
}

// stateAt returns the state at a tick.
func (w *warmingUp) stateAt(word, tick uint64) (due, level uint64) {
	due, level = w.state(word)
	return max(due, tick), w.cooled(due, level, tick)
}

// cooled returns the level at a tick, for a level at due.
func (w *warmingUp) cooled(due, level, tick uint64) uint64 {
	if tick <= due {
		return level
	}
	idle := tick - due
	if level < w.levels {
		return level - min(w.grown(idle), level)
	}
	// A full store takes exactly warm to fill, and need not be whole levels.
	if idle >= w.warm {
		return 0
	}
	level, _ = w.times(w.warm-idle, w.levelUp, w.byLevelUp)
	return level
}

// grown returns the levels that grow back in so many ticks, rounded up.
func (w *warmingUp) grown(idle uint64) uint64 {
	quotient, rest := w.times(idle, w.levelDown, w.byLevelDown)
	if rest > 0 {
		quotient++
	}
	return quotient
}

// times divides ticks, below 2^63, by a level's. reciprocal is 2^64 divided by the same,
// rounded down. The quotient is too small by less than a half, so rounded down by at most 1.
func (w *warmingUp) times(ticks, level, reciprocal uint64) (quotient, rest uint64) {
	quotient, _ = bits.Mul64(ticks, reciprocal)
	if rest = ticks<<(w.levelShift&63) - quotient*level; rest >= level {
		return quotient + 1, rest - level
	}
	return quotient, rest
}

// FreshAt is after the last take, which leaves the key warmer and owing something.
func (w *warmingUp) FreshAt(word uint64) Instant { return w.freshAt(w.state(word)) }

func (w *warmingUp) freshAt(due, level uint64) Instant {
	switch {
	case level == 0:
	case level < w.levels:
		// The first tick after due with that many levels grown, if the last only begins to grow.
		hi, lo := bits.Mul64(level-1, w.levelDown)
		due += hi<<(64-w.levelShift) | lo>>w.levelShift + 1
	default:
		// The first tick at which less than a level is left to grow.
		rest := (w.levelUp-1)>>w.levelShift + 1
		due += max(w.warm, rest) - rest + 1
	}
	return Instant(nanosUp(due))
}

func (w *warmingUp) Choke(word uint64, now Instant) (uint64, bool) {
	tick := ticks(now, w.end)
	due, level := w.state(word)
	if due > tick {
		return word, false
	}
	// It fits a word: end leaves room for the cost of more units of a colder key.
	level = w.cooled(due, level, tick)
	return w.word(tick+w.cost(level, 1), level+w.perUnit), true
}

func (w *warmingUp) Take(word uint64, now Instant, n int64, patience time.Duration) (next uint64, decision Decision) {
	tick := ticks(now, w.end)
	due, level := w.state(word)
	next = word
	decision.Limit = w.limit
	switch {
	case n < 0 || n > w.limit:
		decision.RetryAfter = Never
	case n == 0:
		decision.Allowed = true
	default:
		start, level := max(due, tick), w.cooled(due, level, tick)
		cost, reach := w.cost(level, n), patienceTicks(patience)
		switch {
		case start > w.latest-cost:
			// No word can hold it: time stands still before.
			decision.RetryAfter = Never
		case start-tick > reach:
			decision.RetryAfter = retryAt(start-reach, tick, w.end)
		default:
			decision.Allowed, decision.Wait = true, nanosUp(start-tick)
			next = w.word(start+cost, level+uint64(n)*w.perUnit)
		}
	}
	if next != word {
		// The word may be rounded up.
		due, level = w.state(next)
	}
	if due <= tick {
		// After a take of any size the next call waits.
		decision.Remaining = 1
	}
	decision.ResetAfter = time.Duration(max(w.freshAt(due, level)-Instant(tick>>tickBits), 0))
	return next, decision
}

func (w *warmingUp) Refund(word uint64, now Instant, n int64) uint64 {
	tick := ticks(now, w.end)
	due, level := w.stateAt(word, tick)
	if n < 0 {
		n = -max(n, -math.MaxInt64)
		due += min(w.cost(level, n), w.latest-due)
		return w.word(due, level+timesUp(n, w.perUnit, w.levels))
	}
	if n == 0 {
		return word
	}
	return w.lower(word, due-min(timesUp(n, w.interval, due), due), tick)
}

// price returns the ticks that the last n units before a level cost a take that left that level, or
// their usual price if nothing is stored.
func (w *warmingUp) price(level uint64, n int64) uint64 {
	if level < w.levels {
		level -= timesUp(n, w.perUnit, level)
	}
	return w.cost(level, n)
}

// lower returns the word with all paid at due, or at the present tick if that is later. The key stays as
// warm as it is.
func (w *warmingUp) lower(word, due, tick uint64) uint64 {
	owing, level := w.state(word)
	switch {
	case owing <= max(due, tick):
		return word
	case due <= tick:
		return w.paid(tick, level)
	}
	return w.word(due, level)
}

// Cancel gives back nothing if a call has taken since, which has raised due, or if units were given back.
// Later takes started when this take was paid, and their price without it does not follow from a word.
func (w *warmingUp) Cancel(word, taken uint64, _, now Instant, n, undone int64) uint64 {
	due, _ := w.state(word)
	took, level := w.state(taken)
	if due != took || n <= 0 || undone > 0 {
		return word
	}
	return w.lower(word, due-min(w.price(level, n), due), ticks(now, w.end))
}

// Restore returns the word with the debt from before the take. The key stays as warm as it is.
func (w *warmingUp) Restore(word, before uint64, now Instant) uint64 {
	due, _ := w.state(before)
	return w.lower(word, due, ticks(now, w.end))
}

// Reads compares the three values from which the division of a word follows.
func (w *warmingUp) Reads(other Policy) bool {
	o, ok := other.(*warmingUp)
	return ok && w.interval == o.interval && w.cold == o.cold && w.warm == o.warm
}

func (w *warmingUp) Carry(from Policy, word uint64, now Instant) (uint64, bool) {
	old, ok := from.(*warmingUp)
	switch {
	case !ok:
		return 0, false
	case word == 0 || w.Reads(from):
		return word, true
	}
	tick := ticks(now, w.end)
	due, level := old.stateAt(word, tick)
	if level >= old.levels {
		level = w.levels
	} else {
		// The new store has the same share of its warm-up time left to grow back.
		hi, lo := bits.Mul64(level, old.levelDown)
		left := hi<<(64-old.levelShift) | lo>>old.levelShift
		hi, lo = bits.Mul64(min(left, old.warm), w.warm)
		left, _ = bits.Div64(hi, lo, old.warm)
		level, _ = w.times(left, w.levelUp, w.byLevelUp)
		level = min(level, w.levels-1)
	}
	if owed := due - tick; owed > 0 {
		owed = max(owed, w.rescale(old.pace, owed, w.maxColdCost))
		return w.word(tick+min(owed, w.latest-tick), level), true
	}
	return w.paid(tick, level), true
}

func (w *warmingUp) String() string {
	return fmt.Sprintf("warming up %s over %s, cold %s", rateText(w.count, w.per), timeText(w.warmup), factorText(w.coldFactor))
}

func ratio(a, b uint64) *big.Rat {
	return new(big.Rat).SetFrac(new(big.Int).SetUint64(a), new(big.Int).SetUint64(b))
}

func down(rat *big.Rat) *big.Int { return new(big.Int).Div(rat.Num(), rat.Denom()) }

func up(rat *big.Rat) *big.Int {
	quotient, rest := new(big.Int).DivMod(rat.Num(), rat.Denom(), new(big.Int))
	if rest.Sign() != 0 {
		quotient.Add(quotient, big.NewInt(1))
	}
	return quotient
}

// floatDown returns the largest float64 that is not above r.
func floatDown(r *big.Rat) float64 {
	nearest, _ := r.Float64()
	if new(big.Rat).SetFloat64(nearest).Cmp(r) > 0 {
		return math.Nextafter(nearest, 0)
	}
	return nearest
}

func scale(rat *big.Rat, shift int) *big.Rat {
	if shift < 0 {
		return new(big.Rat).SetFrac(rat.Num(), new(big.Int).Lsh(rat.Denom(), uint(-shift)))
	}
	return new(big.Rat).SetFrac(new(big.Int).Lsh(rat.Num(), uint(shift)), rat.Denom())
}
