package storetest

import (
	"math"
	"slices"
	"time"

	"github.com/ral-limiter/ral/policy"
)

// log is a plain log: all units that may still count, in order.
type log struct {
	// per and all instants are in nanoseconds.
	limit, per int64
	units      []unit
	// made is the number of units so far.
	made uint64
}

type unit struct {
	instant int64
	id      uint64
}

// logNow is the instant within the time of logs, which ends after 9 years.
func logNow(now policy.Instant) int64 { return int64(min(max(now, 0), 1<<58/1000*1000)) }

func (m *log) newest() int64 {
	if len(m.units) == 0 {
		return -1
	}
	return m.units[len(m.units)-1].instant
}

// counting counts the units in the period that ends at the instant.
func (m *log) counting(instant int64) int64 {
	until := func(t int64) int64 {
		n, _ := slices.BinarySearchFunc(m.units, t+1, func(unit unit, t int64) int { return int(min(max(unit.instant-t, -1), 1)) })
		return int64(n)
	}
	return until(instant) - until(instant-m.per)
}

// take finds the first instant, from now and the newest unit on, at which n more fit into every
// period, and records them there if a call may wait for it.
func (m *log) take(instant policy.Instant, n int64, patience time.Duration) (decision policy.Decision, first uint64) {
	// A patience above 9 years counts as 9 years.
	now, waits := logNow(instant), int64(min(max(patience, 0), 1<<58))
	earliest := max(now, m.newest())
	start := earliest
	// n units can begin to fit only when a unit leaves.
	for _, unit := range m.units {
		if m.counting(start)+n <= m.limit {
			break
		}
		start = max(earliest, unit.instant+m.per)
	}
	switch wait := start - now; {
	case n < 0 || n > m.limit:
		decision.RetryAfter = policy.Never
	case n == 0:
		decision.Allowed = true
	case wait > waits:
		decision.RetryAfter = time.Duration(wait - waits)
	default:
		decision.Allowed, decision.Wait = true, time.Duration(wait)
		first = m.made + 1
		m.add(now, start, n)
	}
	standing := m.standing(instant)
	decision.Limit, decision.Remaining, decision.ResetAfter = standing.Limit, standing.Remaining, standing.ResetAfter
	return decision, first
}

// add forgets what has left by now, and adds n units.
func (m *log) add(now, start, n int64) {
	m.units = slices.DeleteFunc(m.units, func(unit unit) bool { return unit.instant <= now-m.per })
	for range n {
		m.made++
		m.units = append(m.units, unit{start, m.made})
	}
}

func (m *log) standing(instant policy.Instant) policy.Decision {
	now, decision := logNow(instant), policy.Decision{Allowed: true, Limit: m.limit}
	if newest := m.newest(); newest >= 0 {
		decision.ResetAfter = time.Duration(max(newest+m.per-now, 0))
	}
	if m.newest() <= now {
		decision.Remaining = max(m.limit-m.counting(now), 0)
	}
	return decision
}

// refund removes the n newest units, at most twice the limit, or charges -n for n < 0, up to twice the limit.
func (m *log) refund(instant policy.Instant, n int64) {
	if n >= 0 {
		m.units = m.units[:max(int64(len(m.units))-min(n, 2*m.limit), 0)]
		return
	}
	now := logNow(instant)
	start := max(now, m.newest())
	if charge := min(-max(n, -math.MaxInt64), 2*m.limit-m.counting(start)); charge > 0 {
		m.add(now, start, charge)
	}
}

// remove removes the units from first to last, if they are there.
func (m *log) remove(first, last uint64) {
	m.units = slices.DeleteFunc(m.units, func(unit unit) bool { return first <= unit.id && unit.id <= last })
}

func (m *log) clone() *log {
	copied := *m
	copied.units = slices.Clone(m.units)
	return &copied
}
