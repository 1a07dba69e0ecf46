package policy

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// The notation of each limit, as errors show it.
const (
	likeFunnel  = "funnel 100, 10/s"
	likeQueue   = "queue 20, 100/s"
	likeBursty  = "bursty 10/s, 50"
	likeWarming = "warming up 100/s over 10s, cold 3"
	likeWindow  = "window 1000/h"
	likeMonth   = "window 10000/month in Europe/Berlin"
	likeSliding = "sliding 1000/h"
	likeAtMost  = "at most 5/10m"
	likeFlight  = "in flight 10, 1m at most"
)

// multiple is the name of a unit and its factor.
type multiple struct {
	name   string
	factor uint64
}

// timeUnits begin with the longest. The last two are other spellings of us.
var timeUnits = []multiple{
	{"d", uint64(24 * time.Hour)}, {"h", uint64(time.Hour)}, {"m", uint64(time.Minute)}, {"s", uint64(time.Second)},
	{"ms", uint64(time.Millisecond)}, {"us", uint64(time.Microsecond)}, {"ns", 1},
	{"µs", uint64(time.Microsecond)}, {"μs", uint64(time.Microsecond)},
}

// maxZone is the most bytes of a time zone's name, four times the longest.
const maxZone = 128

func isZone(char byte) bool {
	return char|0x20 >= 'a' && char|0x20 <= 'z' || char >= '0' && char <= '9' || strings.IndexByte("/_-+", char) >= 0
}

// isZoneName reports whether a text may be the name of a time zone.
func isZoneName(text string) bool {
	for i := range len(text) {
		if !isZone(text[i]) {
			return false
		}
	}
	return text != "" && text[0] != '_' && len(text) <= maxZone
}

func rateText(count int64, per time.Duration) string {
	value, unit := largestUnit(per)
	if value == 1 {
		return fmt.Sprintf("%d/%s", count, unit)
	}
	return fmt.Sprintf("%d/%d%s", count, value, unit)
}

func timeText(duration time.Duration) string {
	value, unit := largestUnit(duration)
	return fmt.Sprintf("%d%s", value, unit)
}

// factorText writes a coldness. It drops the plus of an exponent, a space in a query string.
func factorText(factor float64) string {
	return strings.ReplaceAll(strconv.FormatFloat(factor, 'g', -1, 64), "+", "")
}

// largestUnit returns the longest unit that divides a time, and the quotient.
func largestUnit(duration time.Duration) (value int64, unit string) {
	for _, multiple := range timeUnits {
		if factor := int64(multiple.factor); int64(duration)%factor == 0 {
			return int64(duration) / factor, multiple.name
		}
	}
	panic("a nanosecond divides every time")
}
