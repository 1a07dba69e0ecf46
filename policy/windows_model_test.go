package policy_test

import (
	"math"
	"math/big"
	"time"

	"github.com/ral-limiter/ral/policy"
)

// twoWindows is the model of a sliding window: a list of units by window, counted anew each time,
// in fractions.
type twoWindows struct {
	limit, full int64
	per         int64
	// last is the highest number of a window.
	last int64

	taken batches
	// number is the number of the latest window in which anything was recorded.
	number int64
	// start is the instant of the last admitted call.
	start int64
}

// slidingFigures returns the documented bits of a count: half of those beside the number of a
// window.
func slidingFigures(per time.Duration) (bits int) {
	number := 0
	for windows := ceilInt(big.NewRat(1<<58, int64(per))).Int64(); windows > 0; windows >>= 1 {
		number++
	}
	return (63 - number) / 2
}

func newTwoWindows(limit int64, per time.Duration) *twoWindows {
	bits := slidingFigures(per)
	return &twoWindows{limit: limit, full: 1<<bits - 1, per: int64(per), last: 1<<(63-2*bits) - 2}
}

func (m *twoWindows) end() policy.Instant { return policy.Instant((m.last+1)*m.per - 1) }

// window returns the number of the window of a call at an instant, and how much of it has passed.
func (m *twoWindows) window(instant int64) (number, passed int64) {
	number = instant / m.per
	if number < m.number {
		return m.number, 0
	}
	return number, instant % m.per
}

func (m *twoWindows) used(at int64) int64 {
	number, passed := m.window(at)
	before := mul(whole(m.taken.in(number-1)), big.NewRat(m.per-1-passed, m.per))
	return m.taken.in(number) + int64(ceil(before))
}

// first is the first instant from at on with the latest window begun and at most units in it.
func (m *twoWindows) first(instant, units int64) int64 {
	instant = max(instant, m.number*m.per)
	number, _ := m.window(instant)
	// Nothing counts at late.
	for late := (number+2)*m.per - 1; instant < late; {
		if middle := instant + (late-instant)/2; m.used(middle) <= units {
			late = middle
		} else {
			instant = middle + 1
		}
	}
	return instant
}

func (m *twoWindows) take(now policy.Instant, n int64, patience time.Duration) policy.Decision {
	instant := int64(held(now, m.end()))
	decision := policy.Decision{Limit: m.limit}
	if asked(&decision, instant, n, patience, func() (int64, bool) {
		start := m.first(instant, m.limit-n)
		return start, start/m.per <= m.last
	}) {
		m.start = instant + int64(decision.Wait)
		m.record(m.start, n)
	}
	if instant >= m.number*m.per {
		decision.Remaining = max(m.limit-m.used(instant), 0)
	}
	decision.ResetAfter = time.Duration(m.first(instant, 0) - instant)
	return decision
}

// record adds units, and forgets those that count no more.
func (m *twoWindows) record(at, units int64) {
	number, _ := m.window(at)
	m.taken, m.number = m.taken.with(number, units, number-1), number
}

func (m *twoWindows) turn() *big.Rat { return whole(m.start) }

func (m *twoWindows) mark() any { return m.number }

func (m *twoWindows) refund(now policy.Instant, n int64) *big.Rat {
	instant := int64(held(now, m.end()))
	number, _ := m.window(instant)
	if n < 0 {
		m.record(instant, charged(n, m.full-m.taken.in(number)))
		return new(big.Rat)
	}
	back := min(n, m.taken.in(number))
	if back > 0 {
		m.record(instant, -back)
	}
	return whole(back)
}

func (m *twoWindows) cancel(now policy.Instant, taken any, n int64) *big.Rat {
	at := int64(held(now, m.end()))
	number := taken.(int64)
	if m.first(at, 0) <= at || number < m.number-1 {
		return new(big.Rat)
	}
	back := min(n, m.taken.in(number))
	m.taken = append(m.taken, batch{in: number, units: -back})
	return whole(back)
}

func slidingWindowOf(limit int64, per time.Duration) subject {
	model := newTwoWindows(limit, per)
	return subject{
		Policy:   policy.Must(policy.SlidingWindow(limit, per)),
		oracle:   model,
		limit:    limit,
		end:      model.end(),
		patience: longestPatience,
		period:   per,
		// units <= limit + limit*window/per
		within: func(units, window *big.Int) bool {
			most := new(big.Rat).SetFrac(window, sixteenths(whole(int64(per))))
			most.Mul(most.Add(most, whole(1)), whole(limit))
			return new(big.Rat).SetInt(units).Cmp(most) <= 0
		},
		// The limit forgets the windows before the promised one.
		forgets: true,
		// Units that count nothing any more may still be in the word.
		aliases: true,
	}
}

var slidingWindows = kind{
	name: "SlidingWindow",
	read: func(s *script) subject {
		per := time.Duration(s.between(int64(time.Microsecond), int64(maxWindow)))
		return slidingWindowOf(s.between(1, 1<<slidingFigures(per)-1), per)
	},
}

// counter is the model of a fixed window: made on first use, thrown away at its end.
type counter struct {
	limit, full int64
	// step and length are in nanoseconds. length is a period, rounded up to steps.
	step, length int64
	// last is the latest end.
	last int64

	// window is the latest window that was made, if it is still of interest.
	window *fixedLife
	// start is the instant of the last admitted call.
	start int64
}

type fixedLife struct {
	from int64
	// A promised window is shut until from.
	promised bool
	count    int64
}

// fixedFigures returns the documented step of a start and the highest count, by trial. full is below limit
// if no word holds that.
func fixedFigures(limit int64, per time.Duration) (step, full int64) {
	if limit > 1_000_000 {
		return highFixedFigures(limit, per)
	}
	bits := 1
	for bits < 20 && int64(1)<<bits <= int64(per/time.Microsecond) {
		bits++
	}
	if limit >= int64(1)<<bits {
		bits = 20
	}
	shortest := int64(1) << bits / 16
	exact := func(step int64) bool {
		periods := ceil(big.NewRat(int64(per), step))
		return int64(periods)*step-int64(per) <= int64(per)/10_000
	}
	for parts := 1_000_000 / shortest; parts >= 1_000_000/(2*shortest); parts-- {
		if step := 1_000_000 / parts; parts*step == 1_000_000 && step >= shortest && step <= 2*shortest && step <= 100_000 && exact(step) {
			return step, 1<<bits - 1
		}
	}
	for step = shortest; !exact(step); {
		step++
	}
	return step, 1<<bits - 1
}

// highFixedFigures are fixedFigures of limits above a million.
func highFixedFigures(limit int64, per time.Duration) (step, full int64) {
	full = 1_000_000
	for _, high := range []struct{ full, step int64 }{{16_777_215, 1_250_000}, {268_435_455, 20_000_000}, {4_294_967_295, 500_000_000}} {
		if full >= limit || int64(per) < 100*high.step {
			break
		}
		full, step = high.full, high.step
	}
	if full < limit {
		return 0, full
	}
	if periods := ceil(big.NewRat(int64(per), step)); int64(periods)*step-int64(per) > int64(per)/10_000 {
		shortest := (int64(1) << 58) / ((int64(1) << 62) / (full + 1))
		step = int64(ceil(big.NewRat(int64(per), int64(per)/shortest)))
	}
	return step, full
}

func newCounter(limit int64, per time.Duration) *counter {
	step, full := fixedFigures(limit, per)
	return &counter{
		limit: limit, full: full, step: step,
		length: int64(ceil(big.NewRat(int64(per), step))) * step,
		last:   1 + ((int64(1)<<62)/(full+1)-2)*step,
	}
}

// end returns the instant at which time stands still: later windows would end too late.
func (c *counter) end() policy.Instant { return policy.Instant(c.last - c.length) }

func (c *counter) live(at int64) *fixedLife {
	if c.window == nil || at >= c.window.from+c.length {
		return nil
	}
	return c.window
}

// opened returns that window, or a window that opens then, on a step.
func (c *counter) opened(instant int64) fixedLife {
	if w := c.live(instant); w != nil {
		return *w
	}
	from := int64(1)
	if instant > 1 {
		from += int64(ceil(big.NewRat(instant-1, c.step))) * c.step
	}
	return fixedLife{from: from}
}

func (c *counter) take(now policy.Instant, n int64, patience time.Duration) policy.Decision {
	instant := int64(held(now, c.end()))
	decision := policy.Decision{Limit: c.limit}
	w := c.opened(instant)
	if asked(&decision, instant, n, patience, func() (int64, bool) {
		if w.count+n > c.limit {
			w = fixedLife{from: w.from + c.length, promised: true}
		}
		w.count += n
		start := instant
		if w.promised {
			start = max(instant, w.from)
		}
		return start, w.from+c.length <= c.last
	}) {
		c.window, c.start = &w, instant+int64(decision.Wait)
	}
	decision.Remaining = c.limit
	if w := c.live(instant); w != nil {
		decision.ResetAfter = time.Duration(w.from + c.length - instant)
		decision.Remaining = max(c.limit-w.count, 0)
		if w.promised && instant < w.from {
			decision.Remaining = 0
		}
	}
	return decision
}

func (c *counter) turn() *big.Rat { return whole(c.start) }

func (c *counter) refund(now policy.Instant, n int64) *big.Rat {
	instant := int64(held(now, c.end()))
	if n < 0 {
		w := c.opened(instant)
		w.count += charged(n, c.full-w.count)
		c.window = &w
		return new(big.Rat)
	}
	return c.giveBack(c.live(instant), instant, n)
}

func (c *counter) mark() any { return *c.window }

func (c *counter) cancel(now policy.Instant, taken any, n int64) *big.Rat {
	instant := int64(held(now, c.end()))
	w, took := c.live(instant), taken.(fixedLife)
	if w == nil || w.from != took.from || w.promised != took.promised {
		return new(big.Rat)
	}
	return c.giveBack(w, instant, n)
}

func (c *counter) giveBack(w *fixedLife, instant, n int64) *big.Rat {
	if w == nil || n == 0 || w.count == 0 {
		return new(big.Rat)
	}
	back := min(n, w.count)
	left := *w
	left.count -= back
	c.window = &left
	if left.count == 0 && w.promised && instant < w.from {
		// A promised window follows a full window. An open window stays where it opened.
		left = fixedLife{from: w.from - c.length, promised: true, count: c.full}
	}
	return whole(back)
}

func fixedWindowOf(limit int64, per time.Duration) subject {
	model := newCounter(limit, per)
	return subject{
		Policy:   policy.Must(policy.FixedWindow(limit, per)),
		oracle:   model,
		limit:    limit,
		end:      model.end(),
		patience: longestPatience,
		period:   per,
		within:   inWindows(limit, per),
		// The limit forgets the window before the promised one.
		forgets: true,
		// A window that is over may be any.
		aliases: true,
		// The units join the window that was open at the later instant.
		joins: true,
		// The window stays where the take opened it.
		stays: true,
	}
}

const maxWindow = 366 * 24 * time.Hour

var fixedWindows = kind{
	name: "FixedWindow",
	read: func(s *script) subject {
		per := time.Duration(s.between(int64(time.Millisecond), int64(maxWindow)))
		if s.byte()&1 == 0 {
			per = per.Truncate(time.Millisecond)
		}
		return fixedWindowOf(s.between(1, 1_000_000), per)
	},
}

// highWindows are fixed windows of more than a million units.
var highWindows = kind{
	name: "FixedWindow above a million",
	read: func(s *script) subject {
		per := time.Duration(s.between(int64(125*time.Millisecond), int64(maxWindow)))
		if s.byte()&1 == 0 {
			per = (per + time.Minute - 1).Truncate(time.Minute)
		}
		_, full := highFixedFigures(math.MaxInt64, per)
		return fixedWindowOf(s.between(1_000_001, full), per)
	},
}
