package policy

import (
	"fmt"
	"math"
	"math/big"
	"math/bits"
	"time"
)

// warmingUp keeps two things in a key's word: the instant due at which all takes
// will be paid, and how cold the key is then, which is how much it has stored.
//
// Coldness is counted in levels that were used up: at level 0 the key is as cold
// as can be, and each unit taken uses up perUnit levels, until at levels there is
// nothing left. What is stored is (levels of the whole store - level)/perUnit.
//
// A word with the bit drained set is one of a key that has nothing stored; the
// rest is due, in ticks or, for slow rates, nanoseconds. So a busy key loses
// nothing to rounding. All others are due/unit*levels + level, with due rounded
// up to a unit. The two have 62 bits, so unit must be as large as levels for due
// to reach as far as it does in the other.
type warmingUp struct {
	pace
	warmup     time.Duration
	coldFactor float64
	cold       uint64 // ticks that a unit costs when the key is coldest

	perUnit  uint64 // levels that one unit uses up, a power of two
	levels   uint64 // that the store has, rounded up
	unit     uint64 // ticks
	lastUnit uint64
	shift    uint // what due is shifted by in a drained word

	latest uint64 // due that a word can hold
	limit  int64
	end    Instant // where its time stands still

	warm uint64 // warmup in ticks
	// A level grows back in so many ticks, times 2^levelShift: rounded down, so
	// that keys are rather too cold, and up.
	levelDown, levelUp uint64
	levelShift         uint

	// What the units cost besides the interval: slope * (a*a - b*b) for going from
	// a levels above the threshold to b. The threshold is counted in levels times
	// 2^finer, the slope times some power of two; see surcharge.
	threshold    uint64
	finer        uint
	slope        uint64
	toPrice      uint // what slope * (a + b) is shifted by
	priceShift   uint // what is left to shift then
	mostOnTop    uint64
	longestOwing uint64 // what limit units cost a cold key
}

const (
	drained = 1 << 62 // bit of the word

	// Levels are a fraction of a unit, and the ticks that due is rounded to one of
	// the interval; what a word has room for limits the product of both. As long
	// as there are at least 2^fineLevels levels a unit, due is kept to 200ns, as what
	// is coarser would show in the waits. Where that cannot be had, both
	// fractions are about the same, and one in 2^coarsestLevels at worst.
	finestLevels   = 20
	fineLevels     = 6
	coarsestLevels = 4
	fineUnit       = 200 << tickBits

	// A rate of 4000 a second or less has its instants rounded up to whole
	// nanoseconds, which costs at most 4 parts per million.
	slowInterval = 250_000 << tickBits
)

// WarmingUp returns the limit of Guava's RateLimiter with a warm-up period: like
// that of [Bursty], but for how it treats a key that was not used for a while.
// What such a key has stored is not given away at once but costs more than usual,
// up to coldFactor times as much for the first unit, until the key is warm.
// Choose it in front of something that must warm up, such as caches and
// connection pools, and would be overrun by the full rate. Guava's own coldFactor
// is 3.
//
// In the words of Guava's source: let stable = per/count and cold = stable *
// coldFactor. A key stores up to threshold + 2*warmup/(stable+cold) units, where
// threshold = warmup/stable/2, and one that was never used has stored them all. A
// unit from above the threshold costs between stable and cold, falling evenly;
// one from below it, or not stored at all, costs stable. So a busy key is warm
// after warmup, and one that nobody uses is cold again after warmup. A take is
// granted as soon as the one before it is paid, and it is the next caller who
// waits until this one is.
//
// # The most that it admits
//
// In any window of length t, all takes but the last ask together for at most
// count*t/per units, counting each when it may start. The last comes on top,
// whatever it asks for. That can be up to Decision.Limit units: 2147483647 as in
// Guava, but no more than would be paid within 9 years. Decision.Remaining is 1
// if nothing is owed, as the next call waits after a take of any size, and 0 otherwise.
//
// # What is rounded, and what is refused
//
// The interval per/count is kept in sixteenths of a nanosecond, rounded up (whole
// nanoseconds for 4000 a second or less), so the rate of a busy key is never
// above the one asked for, and below it by at most 63 parts per million for rates
// up to a million a second, and besides by what its callers come too late. As
// long as a key has units stored its memory is coarser: a take is paid for up to 1/16 of an
// interval too late, and who comes after that finds the key up to 1/16 of a unit
// too cold. For most limits both are far less, about the square root of what is
// stored, in units, by the interval, in sixteenths of a nanosecond: at 100 a
// second and a warmup of 10s, 1/312 and 1/256. Where not more than a dozen units
// or so are stored, the former is at most 200ns and the latter 1/64. Apart from
// this rounding, which goes the strict way, the waits are Guava's; Guava cuts each
// down to a whole microsecond. That is so from one call to the next. Over many, waits
// may be shorter than Guava's as well, since who pays a little more finds the key a
// little warmer next time, and Guava's slope enlarges the difference: at 2 a second, a
// warmup of 4s and a coldFactor of 3 it stays below a tenth of an interval, and with a
// coldFactor of 10 and a warmup of few intervals it comes to several.
//
// Refused are a count or period below 1, a rate that rounding would slow by more
// than one part in a thousand, a warmup below 1ns (Guava takes 0 and does not
// limit at all then), one of more than 9 years, and one in which so much is
// stored that it cannot be kept to 1/16; a coldFactor that is less than 1 or no
// number, and one by which a unit costs more than 9 years. The error is a
// *[FieldError].
//
// # Turns and time
//
// A clock that goes backwards mints nothing: who comes while something is owed
// waits. Time stands still 9 years after the epoch for rates of more than 4000 a
// second, and 18 years after it less what Limit units cost, which is never more
// than 9, for others. Patience beyond 9 years counts as 9.
//
// # Giving back
//
// A refund takes a take back, with its price: the key is as cold again as before,
// and owes as much less, but for being rounded up twice, as above. Of a key that
// has nothing stored it cannot be known what its units were paid for, so they are
// given back at the usual price, and the surcharge stays paid. Where nothing is
// owed, nothing is given back. What was charged to those who took later depends
// on what was taken before, so Cancel gives nothing back once somebody did.
//
// # One limit after another
//
// Two of these are of one family whatever their parameters, when one takes over
// for good (SetPolicy): the key is as cold as it was, in proportion, and what is
// owed stays as long as it was, or as long as so many units take if that is
// longer. A limit that comes with a call (TakeWith) must have the same rate,
// warmup and coldFactor.
func WarmingUp(count int64, per, warmup time.Duration, coldFactor float64) (Policy, error) {
	const of = "WarmingUp"
	bad := func(field string, value any, want string) (Policy, error) {
		return nil, &FieldError{Of: of, Field: field, Value: value, Want: want}
	}
	pace, err := newPace(of, count, per, maxOwed)
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
	w.price()
	w.limit = w.mostAtOnce()
	w.longestOwing = w.cost(0, w.limit)
	w.end = Instant((w.latest - w.longestOwing) >> tickBits)
	return w, nil
}

// layOut decides how a word is divided. If no division is fine enough, it returns
// the ticks of the longest warm-up for which there is one.
func (w *warmingUp) layOut() (most *big.Int) {
	// A unit grows back in warmup/max, which is 2*stable*(stable+cold)/(5*stable+cold).
	stable, cold := ratio(w.interval, 1), ratio(w.cold, 1)
	both := new(big.Rat).Add(stable, cold)
	growth := new(big.Rat).Mul(ratio(2, 1), new(big.Rat).Mul(stable, both))
	growth.Quo(growth, new(big.Rat).Add(new(big.Rat).Mul(ratio(5, 1), stable), cold))
	stored := new(big.Rat).Quo(ratio(w.warm, 1), growth)

	reach, last := uint64(1), uint64(drained-17) // for due in a drained word
	if w.interval >= slowInterval {
		w.shift = tickBits
		reach, last = 2, MaxWord>>tickBits<<tickBits
	}
	// A unit is a whole number of nanoseconds, so that who comes when he was told
	// finds that no time has passed.
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
	return nil
}

// price works out what coldness costs.
func (w *warmingUp) price() {
	stable, cold, warm := ratio(w.interval, 1), ratio(w.cold, 1), ratio(w.warm, 1)
	both, gap := new(big.Rat).Add(stable, cold), new(big.Rat).Sub(cold, stable)

	// All the levels above the threshold cost warm*gap/both more than usual.
	onTop := new(big.Rat).Quo(new(big.Rat).Mul(warm, gap), both)
	w.mostOnTop = up(onTop).Uint64()

	above := new(big.Rat).Mul(ratio(2*w.perUnit, 1), new(big.Rat).Quo(warm, both))
	w.finer = uint(min(53-up(above).BitLen(), 30))
	w.threshold = up(new(big.Rat).Mul(above, ratio(1<<w.finer, 1))).Uint64()
	if gap.Sign() == 0 || above.Cmp(ratio(1, 1)) < 0 {
		return // there is nothing between no surcharge and the whole of it
	}

	// slope*above^2 = onTop. The price of a level at the top is 2*slope*above, or
	// gap/perUnit, and it is to fill some 61 bits, as the slope is.
	slope := new(big.Rat).Quo(onTop, new(big.Rat).Mul(above, above))
	slopeShift := 62 - (slope.Num().BitLen() - slope.Denom().BitLen())
	w.slope = up(scale(slope, slopeShift)).Uint64()
	top := new(big.Rat).Quo(gap, ratio(w.perUnit, 1))
	priceShift := 61 - down(top).BitLen()
	w.toPrice = uint(slopeShift + int(w.finer) - priceShift)
	w.priceShift = uint(priceShift) + w.finer
}

// mostAtOnce returns the largest take that is paid within maxOwed.
func (w *warmingUp) mostAtOnce() int64 {
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

// cost returns the ticks that n units cost from that level on, or the most there
// is. n must not be negative.
func (w *warmingUp) cost(level uint64, n int64) uint64 {
	usual := timesUp(n, w.interval, math.MaxInt64)
	return min(usual+w.surcharge(level, n), math.MaxInt64)
}

// surcharge returns by how much they cost more than usual, rounded up.
func (w *warmingUp) surcharge(level uint64, n int64) uint64 {
	if level >= w.threshold>>w.finer+1 {
		return 0 // also because the shift below would overflow
	}
	from := w.threshold - min(level<<w.finer, w.threshold)
	if from == 0 {
		return 0
	}
	if w.slope == 0 {
		return w.mostOnTop
	}
	to := from - timesUp(n, w.perUnit<<w.finer, from)
	price := shiftedUp(w.slope, from+to, w.toPrice)
	return min(shiftedUp(price, from-to, w.priceShift), w.mostOnTop)
}

// shiftedUp returns a*b divided by 2^shift, rounded up. It must fit.
func shiftedUp(a, b uint64, shift uint) uint64 {
	hi, lo := bits.Mul64(a, b)
	q, rest := hi<<(64-shift)|lo>>shift, lo<<(64-shift)
	if shift >= 64 {
		q, rest = hi>>(shift-64), hi<<(128-shift)|lo
	}
	if rest != 0 {
		q++
	}
	return q
}

// state is what a word says: when all will be paid, and how much has been used up
// of what was stored. A level of levels or more says that nothing is stored.
func (w *warmingUp) state(word uint64) (due, level uint64) {
	if word&drained == 0 {
		return min(min(word/w.levels, w.lastUnit)*w.unit, w.latest), word % w.levels
	}
	due = word &^ drained
	if due > w.latest>>w.shift {
		return w.latest, w.levels
	}
	return due << w.shift, w.levels
}

// word is the other direction. due is at most latest.
func (w *warmingUp) word(due, level uint64) uint64 {
	if level >= w.levels {
		return drained | (due+1<<w.shift-1)>>w.shift
	}
	return (due+w.unit-1)/w.unit*w.levels + level
}

// paid is the word of a key that owes nothing at the tick t, a whole nanosecond.
// Nobody is to wait for what is rounded up, so it is rounded down; the key will be
// found a level too cold instead.
func (w *warmingUp) paid(t, level uint64) uint64 {
	if level < w.levels {
		t -= t % w.unit
	}
	return w.word(t, level)
}

// at is the state at the tick t: where all is paid, the key cools down.
func (w *warmingUp) at(word, t uint64) (due, level uint64) {
	due, level = w.state(word)
	if t <= due {
		return due, level
	}
	idle := t - due
	if level < w.levels {
		grown := w.grown(idle)
		return t, level - min(grown, level)
	}
	// The whole store takes exactly warm to fill, and need not be whole levels.
	if idle >= w.warm {
		return t, 0
	}
	level, _ = w.times(w.warm-idle, w.levelUp)
	return t, level
}

// grown returns the levels that grow back in so many ticks, rounded up.
func (w *warmingUp) grown(idle uint64) uint64 {
	q, rest := w.times(idle, w.levelDown)
	if rest > 0 {
		q++
	}
	return q
}

// times divides ticks by those of a level.
func (w *warmingUp) times(ticks, level uint64) (q, rest uint64) {
	return bits.Div64(ticks>>(64-w.levelShift), ticks<<w.levelShift, level)
}

// FreshAt implements [Policy]. A take leaves the key warmer than it was, and owing
// something, so FreshAt is later than the instant of the take.
func (w *warmingUp) FreshAt(word uint64) Instant {
	due, level := w.state(word)
	switch {
	case level == 0:
	case level < w.levels:
		// The first tick after due at which that many levels have grown, if the
		// last of them only begins to.
		hi, lo := bits.Mul64(level-1, w.levelDown)
		due += hi<<(64-w.levelShift) | lo>>w.levelShift + 1
	default:
		// That at which less than a level is left to grow.
		rest := (w.levelUp-1)>>w.levelShift + 1
		due += max(w.warm, rest) - rest + 1
	}
	return Instant(nanosUp(due))
}

// Take implements [Policy].
func (w *warmingUp) Take(word uint64, now Instant, n int64, patience time.Duration) (uint64, Decision) {
	t := ticks(now, w.end)
	if n < 0 || n > w.limit {
		return word, w.describe(word, t, Decision{RetryAfter: Never})
	}
	if n == 0 {
		return word, w.describe(word, t, Decision{Allowed: true})
	}
	due, level := w.at(word, t)
	cost, reach := w.cost(level, n), patienceTicks(patience)
	if due > w.latest-cost {
		// No word can say it, now or later: time stands still before due.
		return word, w.describe(word, t, Decision{RetryAfter: Never})
	}
	if due-t > reach {
		return word, w.describe(word, t, Decision{RetryAfter: retryAt(due-reach, t, w.end)})
	}
	next := w.word(due+cost, level+uint64(n)*w.perUnit)
	return next, w.describe(next, t, Decision{Allowed: true, Wait: nanosUp(due - t)})
}

// describe fills in what follows from the word after the call.
func (w *warmingUp) describe(word, t uint64, d Decision) Decision {
	d.Limit = w.limit
	if due, _ := w.state(word); due <= t {
		d.Remaining = 1 // whatever a take asks for, the next has to wait
	}
	d.ResetAfter = time.Duration(max(w.FreshAt(word), Instant(t>>tickBits)) - Instant(t>>tickBits))
	return d
}

// Refund implements [Refunder].
func (w *warmingUp) Refund(word uint64, now Instant, n int64) uint64 {
	t := ticks(now, w.end)
	due, level := w.at(word, t)
	if n < 0 {
		n = -max(n, -math.MaxInt64)
		due += min(w.cost(level, n), w.latest-due)
		return w.word(due, level+timesUp(n, w.perUnit, w.levels))
	}
	if due <= t || n == 0 {
		return word
	}
	if level < w.levels {
		level -= timesUp(n, w.perUnit, level)
	}
	paid := w.cost(level, n)
	if paid >= due-t {
		return w.paid(t, level)
	}
	return w.word(due-paid, level)
}

// Cancel implements [Refunder].
//
// Those who took later paid what they did because the key was as cold as the take
// left it, and started when all of that was paid. Without the take they would have
// found it colder, and what they would have paid then is more than a word can tell.
// So it is undone only while the word is what it left, and nobody gave anything back.
func (w *warmingUp) Cancel(word, taken uint64, _, now Instant, n, undone int64) uint64 {
	if word != taken || n <= 0 || undone > 0 {
		return word
	}
	return w.Refund(word, now, n)
}

// Reads implements [Relative]. How a word is divided follows from these three.
func (w *warmingUp) Reads(other Policy) bool {
	o, ok := other.(*warmingUp)
	return ok && w.interval == o.interval && w.cold == o.cold && w.warm == o.warm
}

// Carry implements [Relative].
func (w *warmingUp) Carry(from Policy, word uint64, now Instant) (uint64, bool) {
	old, ok := from.(*warmingUp)
	switch {
	case !ok:
		return 0, false
	case word == 0 || w.Reads(from):
		return word, true
	}
	t := ticks(now, w.end)
	due, level := old.at(word, t)
	if level >= old.levels {
		level = w.levels
	} else {
		// What is left to grow back of warm is left of the new one.
		hi, lo := bits.Mul64(level, old.levelDown)
		left := hi<<(64-old.levelShift) | lo>>old.levelShift
		hi, lo = bits.Mul64(min(left, old.warm), w.warm)
		left, _ = bits.Div64(hi, lo, old.warm)
		level, _ = w.times(left, w.levelUp)
		level = min(level, w.levels-1)
	}
	if owed := due - t; owed > 0 {
		owed = max(owed, w.rescale(old.pace, owed, w.longestOwing))
		return w.word(t+min(owed, w.latest-t), level), true
	}
	return w.paid(t, level), true
}

// String implements [Policy].
func (w *warmingUp) String() string {
	return fmt.Sprintf("%d per %v, warming up in %v from %g times slower", w.count, w.per, w.warmup, w.coldFactor)
}

// Small helpers for the constructor, which may take its time.

func ratio(a, b uint64) *big.Rat {
	return new(big.Rat).SetFrac(new(big.Int).SetUint64(a), new(big.Int).SetUint64(b))
}

func down(r *big.Rat) *big.Int { return new(big.Int).Div(r.Num(), r.Denom()) }

func up(r *big.Rat) *big.Int {
	q, rest := new(big.Int).DivMod(r.Num(), r.Denom(), new(big.Int))
	if rest.Sign() != 0 {
		q.Add(q, big.NewInt(1))
	}
	return q
}

// floatDown returns the largest float64 that is not above r.
func floatDown(r *big.Rat) float64 {
	f, _ := r.Float64()
	if new(big.Rat).SetFloat64(f).Cmp(r) > 0 {
		f = math.Nextafter(f, 0)
	}
	return f
}

// scale returns r * 2^shift.
func scale(r *big.Rat, shift int) *big.Rat {
	if shift < 0 {
		return new(big.Rat).SetFrac(r.Num(), new(big.Int).Lsh(r.Denom(), uint(-shift)))
	}
	return new(big.Rat).SetFrac(new(big.Int).Lsh(r.Num(), uint(shift)), r.Denom())
}
