package policy

import "fmt"

// Describe returns a limit in plain English, to be shown: "at most 10 at once,
// and 1 every 2s after that". It is one clause, without a full stop. A policy that is not of
// this package is described by its String, and nil as "no limit".
func Describe(p Policy) string {
	switch p := p.(type) {
	case nil:
		return "no limit"
	case *funnel:
		return fmt.Sprintf("at most %d at once, and %s after that", p.capacity, everyText(p.pace))
	case *queue:
		return fmt.Sprintf("%s, evenly spaced, with room for %d to wait", everyText(p.pace), p.capacity)
	case *bursty:
		return fmt.Sprintf("%s, with up to %d unused ones stored and larger calls on credit", everyText(p.pace), p.maxBurst)
	case *warmingUp:
		return fmt.Sprintf("%s when warm, after warming up over %s from %s times slower", everyText(p.pace), timeText(p.warmup), factorText(p.coldFactor))
	case *fixedWindow:
		return fmt.Sprintf("at most %d in each window of %s, which begins with the first call", p.limit, timeText(p.per))
	case *slidingWindow:
		return fmt.Sprintf("at most %d in the last %s, by the counts of two windows", p.limit, timeText(p.per))
	case *atMost:
		return fmt.Sprintf("at most %d in any %s", p.limit, timeText(p.per))
	case *aligned:
		if p.per == 0 {
			return fmt.Sprintf("at most %d in each calendar %s of %s", p.limit, calendarNames[p.unit], p.zone)
		}
		return fmt.Sprintf("at most %d in each window of %s, aligned to the clock", p.limit, timeText(p.per))
	}
	return p.String()
}

// everyText writes a pace.
func everyText(p pace) string {
	if value, unit := largestUnit(p.per); value == 1 {
		return fmt.Sprintf("%d every %s", p.count, unit)
	}
	return fmt.Sprintf("%d every %s", p.count, timeText(p.per))
}
