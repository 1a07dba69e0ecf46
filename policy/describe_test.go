package policy

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestDescribe(t *testing.T) {
	day := 24 * time.Hour
	for want, p := range map[string]Policy{
		"no limit": nil,
		"at most 10 at once, and 1 a second after that":                                     Must(Funnel(10, 1, time.Second)),
		"at most 1 at once, and 5 an hour after that":                                       Must(Funnel(1, 5, time.Hour)),
		"at most 1 at once, and 1 every 2h after that":                                      Must(Funnel(1, 1, 2*time.Hour)),
		"at most 2 at once, and 3 a day after that":                                         Must(Funnel(2, 3, day)),
		"at most 2 at once, and 3 a minute after that":                                      Must(Funnel(2, 3, time.Minute)),
		"at most 2 at once, and 3 a millisecond after that":                                 Must(Funnel(2, 3, time.Millisecond)),
		"at most 2 at once, and 3 a microsecond after that":                                 Must(Funnel(2, 3, time.Microsecond)),
		"at most 2 at once, and 1 a nanosecond after that":                                  Must(Funnel(2, 1, time.Nanosecond)),
		"1 a second, evenly spaced, with room for 5 to wait":                                Must(Queue(5, 1, time.Second)),
		"2 every 3s, evenly spaced, and no room to wait":                                    Must(Queue(0, 2, 3*time.Second)),
		"1 a second, with up to 10 saved from quiet times, and larger calls on credit":      Must(Bursty(1, time.Second, 10)),
		"5 a second once warm: after a pause a key is 3 times slower, and warms up over 1m": Must(WarmingUp(5, time.Second, time.Minute, 3)),
		"at most 3 in each window of 1h, which begins with the first call":                  Must(FixedWindow(3, time.Hour)),
		"at most 100 in the last 1m, estimated from the counts of two windows":              Must(SlidingWindow(100, time.Minute)),
		"at most 100 in any 1m":                                                             Must(AtMost(100, time.Minute)),
		"at most 5 in each window of 1h, aligned to the clock":                              Must(AlignedWindow(5, time.Hour)),
		"at most 5 in each calendar month in UTC":                                           Must(CalendarWindow(5, Month, "UTC")),
	} {
		assert.Equal(t, want, Describe(p))
	}
}
