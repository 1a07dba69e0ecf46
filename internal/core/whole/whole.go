// Package whole rounds times for clients, to whole seconds or milliseconds.
package whole

import "time"

// Own bounds a limit's own rounding: a fixed window's late start, and a sixteenth of a nanosecond
// a unit.
const Own = 100 * time.Microsecond

// Up returns a time in whole units, rounded up: a caller that waits for that time is not too early.
func Up(duration, unit time.Duration) int64 {
	whole := int64(duration / unit)
	if duration%unit > 0 {
		whole++
	}
	return whole
}

// UntilReset rounds up too, but drops up to 100 µs above a whole unit. A fresh window of 60 s is
// 60. The result is 0 only for times up to 0.
func UntilReset(duration, unit time.Duration) int64 {
	if duration <= Own {
		return Up(min(duration, 1), unit)
	}
	return Up(duration-Own, unit)
}
