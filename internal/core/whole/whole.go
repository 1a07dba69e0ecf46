// Package whole tells times in whole seconds or milliseconds. It is the one place in which
// times are rounded for clients.
package whole

import "time"

// own bounds by how much a limit's own rounding lengthens a time: a fixed window starts up to
// 100 µs late, and each unit of a bucket takes up to a sixteenth of a nanosecond more.
const own = 100 * time.Microsecond

// Up returns a time in whole units, rounded up, so that a caller that waits for it does not
// come too early.
func Up(d, unit time.Duration) int64 {
	whole := int64(d / unit)
	if d%unit > 0 {
		whole++
	}
	return whole
}

// UntilReset returns the time until a limit is as good as new in whole units, rounded up once:
// up to 100 µs above a whole unit are dropped, so that a fresh window of 60 s is told as 60 s. It
// is 0 only for times up to 0.
func UntilReset(d, unit time.Duration) int64 {
	if d <= own {
		return Up(min(d, 1), unit)
	}
	return Up(d-own, unit)
}
