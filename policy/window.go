package policy

import (
	"fmt"
	"time"
)

// maxWindow is the longest period of limits that count in windows: a leap year.
const maxWindow = 366 * 24 * time.Hour

// lastingTime is the least time for which these policies last: 9 years, in nanoseconds.
const lastingTime = uint64(maxPatience)

// windowFault returns a *FieldError, or nil if the limit and the period are accepted.
func windowFault(function string, limit int64, per, shortest time.Duration) error {
	switch {
	case limit < 1:
		return &FieldError{Of: function, Field: "limit", Value: limit, Want: "1 or more"}
	case per < shortest || per > maxWindow:
		return &FieldError{Of: function, Field: "per", Value: per, Want: "between " + shortest.String() + " and 366 days"}
	}
	return nil
}

// clamped returns now, limited to the instants from 0 to end.
func clamped(now, end Instant) Instant { return min(max(now, 0), end) }

// admit answers a call that could start after wait, and reports whether patience allows that.
func (d *Decision) admit(wait, patience time.Duration) bool {
	if reach := min(max(patience, 0), maxPatience); wait > reach {
		d.RetryAfter = wait - reach
		return false
	}
	d.Allowed, d.Wait = true, wait
	return true
}

// asUnits returns |n|, or most if that is less.
func asUnits(n int64, most uint64) uint64 {
	if n < 0 {
		return min(-uint64(n), most)
	}
	return min(uint64(n), most)
}

// holders names, for an error about a limit that is too high, the constructors that accept it.
func holders(limit int64, per time.Duration) string {
	text := ""
	if windowFault("FixedWindow", limit, per, shortestFixed) == nil {
		if _, _, highest := fixedLayout(limit, per); limit <= highest {
			text = "; FixedWindow holds this limit"
		}
	}
	if _, err := AlignedWindow(limit, per); err == nil {
		text += "; AlignedWindow holds this limit"
	}
	if _, err := Funnel(limit, limit, per); err == nil {
		text += fmt.Sprintf("; Funnel(%d, %[1]d, %v) is a bucket of this rate", limit, per)
	}
	return text
}
