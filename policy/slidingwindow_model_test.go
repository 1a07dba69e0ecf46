package policy_test

import (
	"math/big"
	"time"

	"github.com/ral-limiter/ral/policy"
)

// twoWindows is the model of a sliding window: a list of units by window, counted anew each time,
// in fractions.
type twoWindows struct {
	limit, full int64
	per         int64
	last        int64 // the highest number of a window

	taken  batches
	number int64 // of the latest window in which anything was recorded
	start  int64 // of the last admitted call
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
func (m *twoWindows) window(at int64) (number, passed int64) {
	number = at / m.per
	if number < m.number {
		return m.number, 0
	}
	return number, at % m.per
}

func (m *twoWindows) used(at int64) int64 {
	number, passed := m.window(at)
	before := mul(whole(m.taken.in(number-1)), big.NewRat(m.per-1-passed, m.per))
	return m.taken.in(number) + int64(ceil(before))
}

// first is the first instant from at on with the latest window begun and at most units in it.
func (m *twoWindows) first(at, units int64) int64 {
	at = max(at, m.number*m.per)
	number, _ := m.window(at)
	for late := (number+2)*m.per - 1; at < late; { // nothing counts then
		if middle := at + (late-at)/2; m.used(middle) <= units {
			late = middle
		} else {
			at = middle + 1
		}
	}
	return at
}

func (m *twoWindows) take(now policy.Instant, n int64, patience time.Duration) policy.Decision {
	at := int64(held(now, m.end()))
	d := policy.Decision{Limit: m.limit}
	if asked(&d, at, n, patience, func() (int64, bool) {
		start := m.first(at, m.limit-n)
		return start, start/m.per <= m.last
	}) {
		m.start = at + int64(d.Wait)
		m.record(m.start, n)
	}
	if at >= m.number*m.per {
		d.Remaining = max(m.limit-m.used(at), 0)
	}
	d.ResetAfter = time.Duration(m.first(at, 0) - at)
	return d
}

// record adds units, and forgets those that count no more.
func (m *twoWindows) record(at, units int64) {
	number, _ := m.window(at)
	m.taken, m.number = m.taken.with(number, units, number-1), number
}

func (m *twoWindows) turn() *big.Rat { return whole(m.start) }

func (m *twoWindows) mark() any { return m.number }

func (m *twoWindows) refund(now policy.Instant, n int64) *big.Rat {
	at := int64(held(now, m.end()))
	number, _ := m.window(at)
	if n < 0 {
		m.record(at, charged(n, m.full-m.taken.in(number)))
		return new(big.Rat)
	}
	back := min(n, m.taken.in(number))
	if back > 0 {
		m.record(at, -back)
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
		forgets: true, // the windows before the promised
		aliases: true, // what counts nothing any more may still be in the word
	}
}

var slidingWindows = kind{
	name: "SlidingWindow",
	read: func(s *script) subject {
		per := time.Duration(s.between(1, int64(longestWindow)))
		return slidingWindowOf(s.between(1, 1<<slidingFigures(per)-1), per)
	},
}
