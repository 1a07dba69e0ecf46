package policy

import "fmt"

// Describe returns a limit in plain English: "at most 10 at once, and 1 a second after that". A
// foreign policy is described by its String, and nil as "no limit".
func Describe(p Policy) string {
	switch p := p.(type) {
	case nil:
		return "no limit"
	case *funnel:
		return fmt.Sprintf("at most %d at once, and %s after that", p.capacity, paceText(p.pace))
	case *queue:
		if p.capacity == 0 {
			return fmt.Sprintf("%s, evenly spaced, and no room to wait", paceText(p.pace))
		}
		return fmt.Sprintf("%s, evenly spaced, with room for %d to wait", paceText(p.pace), p.capacity)
	case *bursty:
		return fmt.Sprintf("%s, with up to %d saved from quiet times, and larger calls on credit", paceText(p.pace), p.maxBurst)
	case *warmingUp:
		return fmt.Sprintf("%s once warm: after a pause a key is %s times slower, and warms up over %s", paceText(p.pace), factorText(p.coldFactor), timeText(p.warmup))
	case *fixedWindow:
		return fmt.Sprintf("at most %d in each window of %s, which begins with the first call", p.limit, timeText(p.per))
	case *slidingWindow:
		return fmt.Sprintf("at most %d in the last %s, estimated from the counts of two windows", p.limit, timeText(p.per))
	case *atMost:
		return fmt.Sprintf("at most %d in any %s", p.limit, timeText(p.per))
	case *aligned:
		if p.per == 0 {
			return fmt.Sprintf("at most %d in each calendar %s in %s", p.limit, calendarNames[p.unit], p.zone)
		}
		return fmt.Sprintf("at most %d in each window of %s, aligned to the clock", p.limit, timeText(p.per))
	}
	return p.String()
}

// paceText writes a pace, such as "10 a second" or "1 every 2s".
func paceText(p pace) string {
	if value, unit := largestUnit(p.per); value == 1 {
		return fmt.Sprintf("%d %s", p.count, aUnit[unit])
	}
	return fmt.Sprintf("%d every %s", p.count, timeText(p.per))
}

var aUnit = map[string]string{
	"d": "a day", "h": "an hour", "m": "a minute", "s": "a second",
	"ms": "a millisecond", "us": "a microsecond", "ns": "a nanosecond",
}
