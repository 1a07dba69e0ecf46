package policy_test

import (
	"math/big"
	"time"

	"github.com/ral-limiter/ral/policy"
)

// ring is the model of an AtMost: a list of the units of each part, counted anew each time.
type ring struct {
	limit, full int64
	// parts is the number of parts in a period, and part is the nanoseconds of each.
	parts, part int64

	taken batches
	// number is the number of the latest part in which anything was recorded.
	number int64
	// start is the instant of the last admitted call.
	start int64
}

const (
	endOfRing = policy.Instant(1 << 58)
	// ringWord is the number of bits for counts and numbers.
	ringWord = 61
)

// ringFigures returns the length of a part and the bits of a count, in a word with so many bits for counts
// and numbers.
func ringFigures(parts int64, per time.Duration, word int) (part int64, bits int) {
	part = int64(ceil(big.NewRat(int64(per), parts)))
	number := 0
	for int64(1)<<number <= 1<<58/part+2 {
		number++
	}
	return part, (word - number) / int(parts+1)
}

// ringParts is the number of parts for a limit, 0 for none.
func ringParts(limit int64, per time.Duration, word int) int64 {
	for _, parts := range []int64{8, 4, 2, 1} {
		if _, bits := ringFigures(parts, per, word); limit < 1<<bits {
			return parts
		}
	}
	return 0
}

func newRing(limit int64, per time.Duration, word int) *ring {
	parts := ringParts(limit, per, word)
	part, bits := ringFigures(parts, per, word)
	return &ring{limit: limit, full: 1<<bits - 1, parts: parts, part: part}
}

func (m *ring) at(now policy.Instant) (at, number int64) {
	at = int64(held(now, endOfRing))
	return at, max(at/m.part, m.number)
}

// used returns the units that count in a part: its own, and a period's parts before.
func (m *ring) used(number int64) (units int64) {
	for _, b := range m.taken {
		if b.in <= number && b.in >= number-m.parts {
			units += b.units
		}
	}
	return units
}

// first is the first part, from number on, with at most that many units.
func (m *ring) first(number, units int64) int64 {
	for m.used(number) > units {
		number++
	}
	return number
}

func (m *ring) take(now policy.Instant, n int64, patience time.Duration) policy.Decision {
	instant, number := m.at(now)
	decision := policy.Decision{Limit: m.limit}
	if asked(&decision, instant, n, patience, func() (int64, bool) {
		number = m.first(number, m.limit-n)
		start := max(instant, number*m.part)
		return start, start <= int64(endOfRing)
	}) {
		m.start = instant + int64(decision.Wait)
		m.record(number, number, n)
	}
	instant, number = m.at(now)
	if number*m.part <= instant {
		decision.Remaining = max(m.limit-m.used(number), 0)
	}
	// Nothing counts, and no call has to wait until the latest part begins.
	if m.used(number) > 0 || number*m.part > instant {
		decision.ResetAfter = time.Duration(m.first(number, 0)*m.part - instant)
	}
	return decision
}

// record adds units, and forgets those that have left.
func (m *ring) record(number, part, units int64) {
	m.taken, m.number = m.taken.with(part, units, number-m.parts), number
}

func (m *ring) turn() *big.Rat { return whole(m.start) }

func (m *ring) mark() any { return m.number }

func (m *ring) refund(now policy.Instant, n int64) *big.Rat {
	_, number := m.at(now)
	if n < 0 {
		m.record(number, number, charged(n, m.full-m.taken.in(number)))
		return new(big.Rat)
	}
	back := new(big.Rat)
	for part := number; part >= number-m.parts && n > 0; part-- {
		if units := min(n, m.taken.in(part)); units > 0 {
			m.record(number, part, -units)
			back.Add(back, whole(units))
			n -= units
		}
	}
	return back
}

func (m *ring) cancel(now policy.Instant, taken any, n int64) *big.Rat {
	_, number := m.at(now)
	part := taken.(int64)
	if part < number-m.parts || m.taken.in(part) == 0 {
		return new(big.Rat)
	}
	back := min(n, m.taken.in(part))
	m.record(number, part, -back)
	return whole(back)
}

func atMostOf(limit int64, per time.Duration) subject {
	model := newRing(limit, per, ringWord)
	return subject{
		Policy:   policy.Must(policy.AtMost(limit, per)),
		oracle:   model,
		limit:    limit,
		end:      endOfRing,
		patience: longestPatience,
		period:   per,
		// limit in each row of parts that the window reaches into
		within: func(units, window *big.Int) bool {
			parts := ceilInt(new(big.Rat).SetFrac(window, sixteenths(whole(model.part))))
			rows := ceilInt(new(big.Rat).SetFrac(parts.Add(parts, big.NewInt(1)), big.NewInt(model.parts+1)))
			return units.Cmp(rows.Mul(rows, big.NewInt(limit))) <= 0
		},
		// The limit forgets the parts that have left when the turn comes.
		forgets: true,
	}
}

var atMosts = kind{
	name: "AtMost",
	read: func(s *script) subject {
		per := time.Duration(s.between(int64(time.Millisecond), int64(maxWindow)))
		_, bits := ringFigures([]int64{1, 2, 4, 8}[s.byte()&3], per, ringWord)
		return atMostOf(s.between(1, max(int64(1)<<bits-1, 1)), per)
	},
}
