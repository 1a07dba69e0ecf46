package policy_test

import (
	"math/big"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/policy"
)

// fromTo is the model of an aligned window: a count for a stretch of Unix time.
type fromTo struct {
	limit, full int64
	// zero is the Unix time of instant 0.
	zero   int64
	around func(unix int64) (from, to int64)

	// from and to bound the latest window in which anything was recorded.
	from, to int64
	count    int64
	// start is the instant of the last admitted call.
	start int64
}

// endOfAligned is 9 years.
const endOfAligned = policy.Instant(1) << 58

func evenly(per time.Duration) func(int64) (from, to int64) {
	return func(unix int64) (from, to int64) {
		from = unix - unix%int64(per)
		return from, from + int64(per)
	}
}

// midnights remembers when the clocks of a zone first show a day.
var midnights sync.Map

type midnight struct {
	zone string
	day  time.Time
}

// showsAt returns when the clocks of a zone first show a day, or a later one, by looking at clocks. A
// day is its midnight in UTC.
func showsAt(zone *time.Location) func(day time.Time) (unix int64) {
	shown := func(second int64) time.Time {
		year, month, day := time.Unix(second, 0).In(zone).Date()
		return time.Date(year, month, day, 0, 0, 0, 0, time.UTC)
	}
	// The first minute is in the three hours before a whole hour that shows the day, since no clock was
	// put back by more than an hour.
	return func(day time.Time) int64 {
		if second, ok := midnights.Load(midnight{zone.String(), day}); ok {
			return second.(int64)
		}
		second := day.Unix() - 16*3600
		for shown(second).Before(day) {
			second += 3600
		}
		for second -= 3 * 3600; shown(second).Before(day); {
			second += 60
		}
		midnights.Store(midnight{zone.String(), day}, second)
		return second
	}
}

// onCalendar returns the calendar window that contains a Unix time. A month begins on the day from.
func onCalendar(unit policy.Calendar, zone *time.Location, from int) func(int64) (from, to int64) {
	begins := showsAt(zone)
	isFirst := func(day time.Time) bool {
		next := day.AddDate(0, 0, 1)
		return day.Day() == from || day.Day() < from && next.Day() == 1
	}
	return func(unix int64) (from, to int64) {
		second := unix / int64(time.Second)
		day := time.Unix(second, 0).UTC().Truncate(24*time.Hour).AddDate(0, 0, 2)
		for begins(day) > second {
			day = day.AddDate(0, 0, -1)
		}
		first := day
		var next time.Time
		switch unit {
		case policy.Day:
			next = day.AddDate(0, 0, 1)
		case policy.Week:
			for first.Weekday() != time.Monday {
				first = first.AddDate(0, 0, -1)
			}
			next = first.AddDate(0, 0, 7)
		case policy.Month:
			for !isFirst(first) {
				first = first.AddDate(0, 0, -1)
			}
			for next = first.AddDate(0, 0, 1); !isFirst(next); {
				next = next.AddDate(0, 0, 1)
			}
		case policy.Year:
			first = time.Date(day.Year(), 1, 1, 0, 0, 0, 0, time.UTC)
			next = time.Date(day.Year()+1, 1, 1, 0, 0, 0, 0, time.UTC)
		}
		return begins(first) * int64(time.Second), begins(next) * int64(time.Second)
	}
}

// live returns the window of a call at an instant, or the latest if that has not ended. An empty window
// counts nothing from its beginning on.
func (m *fromTo) live(at int64) (from, to, count int64) {
	if unix := m.zero + at; unix >= m.to || m.count == 0 && unix >= m.from {
		from, to = m.around(unix)
		return from, to, 0
	}
	return m.from, m.to, m.count
}

func (m *fromTo) take(now policy.Instant, n int64, patience time.Duration) policy.Decision {
	instant := int64(held(now, endOfAligned))
	from, to, count := m.live(instant)
	decision := policy.Decision{Limit: m.limit}
	turnFrom, turnTo, turnCount := from, to, count+n
	if asked(&decision, instant, n, patience, func() (int64, bool) {
		if turnCount > m.limit {
			// After a month from another day the next one is shorter.
			turnFrom, turnTo = m.around(to)
			turnFrom, turnCount = max(turnFrom, to), n
		}
		start := max(instant, turnFrom-m.zero)
		return start, start <= int64(endOfAligned)
	}) {
		from, to, count = turnFrom, turnTo, turnCount
		m.from, m.to, m.count, m.start = from, to, count, instant+int64(decision.Wait)
	}
	if from-m.zero <= instant {
		decision.Remaining = max(m.limit-count, 0)
	}
	decision.ResetAfter = time.Duration(max((&fromTo{from: from, to: to, count: count}).fresh()-m.zero-instant, 0))
	return decision
}

// fresh returns the Unix time from which the key is as if it had never been used.
func (m *fromTo) fresh() int64 {
	if m.count == 0 {
		return m.from
	}
	return m.to
}

func (m *fromTo) turn() *big.Rat { return whole(m.start) }

func (m *fromTo) mark() any { return m.from }

func (m *fromTo) refund(now policy.Instant, n int64) *big.Rat {
	from, to, count := m.live(int64(held(now, endOfAligned)))
	if n < 0 {
		m.from, m.to, m.count = from, to, count+charged(n, m.full-count)
		return new(big.Rat)
	}
	back := min(n, count)
	if back > 0 {
		m.from, m.to, m.count = from, to, count-back
	}
	return whole(back)
}

func (m *fromTo) cancel(now policy.Instant, taken any, n int64) *big.Rat {
	if from, _, _ := m.live(int64(held(now, endOfAligned))); from != taken.(int64) {
		return new(big.Rat)
	}
	return m.refund(now, n)
}

// alignedFull returns the documented highest count: the bits of a word without the number of a
// window.
func alignedFull(per time.Duration) int64 {
	count := uint(63)
	for numbers := (int64(1)<<62 - 1 + int64(1)<<62) / int64(per); numbers > 0; numbers >>= 1 {
		count--
	}
	return 1<<count - 1
}

// alignedSubject is a limit on trial with windows at least shortest long.
func alignedSubject(p policy.Policy, zero time.Time, shortest time.Duration, full int64, around func(int64) (from, to int64)) subject {
	limit := p.Limit()
	return subject{
		Policy:   p.(policy.Anchored).Anchor(zero),
		oracle:   &fromTo{limit: limit, full: full, zero: zero.UnixNano(), around: around, from: -1 << 62, to: -1 << 62},
		limit:    limit,
		end:      endOfAligned,
		patience: longestPatience,
		period:   shortest,
		within:   inWindows(limit, shortest),
		// The limit forgets the window before the promised one.
		forgets: true,
		// A window that is over may be any.
		aliases: true,
	}
}

func alignedOf(limit int64, per time.Duration) subject {
	return alignedSubject(policy.Must(policy.AlignedWindow(limit, per)), time.Unix(0, 0), per, alignedFull(per), evenly(per))
}

// zones have midnights left out, shown twice or gone back over, half hours, days left out, and
// offsets of 14 hours and -11.
var zones = []string{
	"UTC", "Europe/Berlin", "America/St_Johns", "America/Sao_Paulo", "America/Havana", "Africa/Cairo", "Africa/Casablanca",
	"Asia/Kathmandu", "Asia/Gaza", "Australia/Lord_Howe", "Pacific/Apia", "Pacific/Kiritimati", "Pacific/Pago_Pago", "America/Nuuk",
}

// shortestOf are the shortest windows: a day of 23 hours, or less if a zone has moved.
var shortestOf = map[policy.Calendar]time.Duration{
	policy.Day: 20 * time.Hour, policy.Week: 143 * time.Hour, policy.Month: 27 * 24 * time.Hour, policy.Year: 364 * 24 * time.Hour,
}

// calendarFull returns the documented highest limit of a unit.
func calendarFull(unit policy.Calendar) int64 {
	if unit == policy.Month {
		return 1<<41 - 1
	}
	return 1<<43 - 1
}

// calendarOf returns a limit of windows that begin on a day of the month, or on the first without one.
func calendarOf(limit int64, unit policy.Calendar, zone string, zero time.Time, from ...int) subject {
	around := onCalendar(unit, must.Get(time.LoadLocation(zone)), append(from, 1)[0])
	return alignedSubject(policy.Must(policy.CalendarWindow(limit, unit, zone, from...)), zero, shortestOf[unit], calendarFull(unit), around)
}

var aligneds = kind{
	name: "AlignedWindow",
	read: func(s *script) subject {
		// zero lies before the year 2030.
		zero := time.Unix(0, s.between(0, int64(60*year)))
		if s.byte()&1 == 0 {
			per := time.Duration(s.between(int64(time.Millisecond), int64(maxWindow)))
			limit := s.between(1, alignedFull(per))
			return alignedSubject(policy.Must(policy.AlignedWindow(limit, per)), zero, per, alignedFull(per), evenly(per))
		}
		unit := policy.Day + policy.Calendar(s.byte()%4)
		zone := zones[int(s.byte())%len(zones)]
		limit := s.between(1, calendarFull(unit))
		if unit == policy.Month {
			return calendarOf(limit, unit, zone, zero, 1+int(s.byte()%31))
		}
		return calendarOf(limit, unit, zone, zero)
	},
}

func alignedToAnything(rng *rand.Rand, least int64) policy.Policy {
	if rng.IntN(16) > 0 {
		return windowsOf(policy.AlignedWindow, time.Millisecond)(rng, least)
	}
	limit, unit, zone := least+rng.Int64N(9)*rng.Int64N(9), policy.Day+policy.Calendar(rng.IntN(3)), zones[rng.IntN(4)]
	if unit == policy.Month {
		return policy.Must(policy.CalendarWindow(limit, unit, zone, 1+rng.IntN(31)))
	}
	return policy.Must(policy.CalendarWindow(limit, unit, zone))
}
