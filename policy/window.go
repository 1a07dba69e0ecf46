package policy

import "time"

// longestWindow is the longest period of the policies that count in windows: a
// leap year.
const longestWindow = 366 * 24 * time.Hour

// lastingTime is how long time must at least go on for them: 9 years.
const lastingTime = uint64(maxPatience)

// windowFault returns what is wrong with a limit or period that no policy of that
// name takes, or nil.
func windowFault(of string, limit int64, per, shortest time.Duration) error {
	switch {
	case limit < 1:
		return &FieldError{Of: of, Field: "limit", Value: limit, Want: "1 or more"}
	case per < shortest || per > longestWindow:
		return &FieldError{Of: of, Field: "per", Value: per, Want: "between " + shortest.String() + " and 366 days"}
	}
	return nil
}

// clamped holds an instant to those that are told apart.
func clamped(now, end Instant) Instant { return min(max(now, 0), end) }

// decide turns the instant at which a call could start into the answer: whether
// its caller is that patient, and how long there is to wait, or to come back.
func decide(now, start Instant, patience time.Duration) Decision {
	wait := time.Duration(start - now)
	if reach := min(max(patience, 0), maxPatience); wait > reach {
		return Decision{RetryAfter: wait - reach}
	}
	return Decision{Allowed: true, Wait: wait}
}

// asUnits is n as a count of units given back or charged: its distance from 0,
// held to most.
func asUnits(n int64, most uint64) uint64 {
	if n < 0 {
		return min(-uint64(n), most)
	}
	return min(uint64(n), most)
}
