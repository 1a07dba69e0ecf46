package policy

import (
	"fmt"
	"time"
)

// Describe returns a limit in plain English: "at most 10 at once, and 1 a second after that". A
// foreign policy is described by its String, and nil as "no limit".
func Describe(limit Policy) string {
	switch p := limit.(type) {
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
		k := Parts(p)
		return fmt.Sprintf("at most %d in any %s, where a unit counts for up to %d/%d of that", p.limit, timeText(p.per), k+1, k)
	case *inFlight:
		return fmt.Sprintf("at most %d at a time, each for no longer than %s", p.limit, timeText(p.maxTime))
	case *aligned:
		switch {
		case p.from > 28:
			return fmt.Sprintf("at most %d in each month from its day %d, or else its last day, in %s", p.limit, p.from, p.zone)
		case p.from > 1:
			return fmt.Sprintf("at most %d in each month from its day %d in %s", p.limit, p.from, p.zone)
		case p.per == 0:
			return fmt.Sprintf("at most %d in each calendar %s in %s", p.limit, calendarNames[p.unit], p.zone)
		}
		return fmt.Sprintf("at most %d in each window of %s, aligned to the clock", p.limit, timeText(p.per))
	}
	return limit.String()
}

// paceText writes a pace, such as "10 a second" or "1 every 2s".
func paceText(pace pace) string {
	if value, unit := largestUnit(pace.per); value == 1 {
		return fmt.Sprintf("%d %s", pace.count, aUnit[unit])
	}
	return fmt.Sprintf("%d every %s", pace.count, timeText(pace.per))
}

var aUnit = map[string]string{
	"d": "a day", "h": "an hour", "m": "a minute", "s": "a second",
	"ms": "a millisecond", "us": "a microsecond", "ns": "a nanosecond",
}

// Parts returns the number of parts, k, that divide the period of an [AtMost] or the longest time of
// an [InFlight], or 0 for another policy. In the long run limit*k/(k+1) units of an AtMost pass per
// period.
func Parts(limit Policy) int {
	switch p := limit.(type) {
	case *atMost:
		if p != nil {
			return p.own.counts - 1
		}
	case *inFlight:
		if p != nil {
			return p.own.counts - 1
		}
	}
	return 0
}

// MaxTimeInUse returns the longest time that a unit of an [InFlight] is in use, as its constructor
// was told, or 0 for another policy. So it also reports whether a policy is an InFlight.
func MaxTimeInUse(limit Policy) time.Duration {
	if flight, ok := limit.(*inFlight); ok && flight != nil {
		return flight.maxTime
	}
	return 0
}
