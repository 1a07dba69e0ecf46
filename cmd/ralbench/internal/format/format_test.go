package format

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestFractionsOfNanosecondsAreRoundedAsInTables(t *testing.T) {
	for x, want := range map[float64]string{32.94: "32.9ns", 45.8: "45.8ns", 3.14159: "3.14ns", 60: "60ns", 99.96: "100ns", 288.6: "289ns", 999.7: "1.00µs"} {
		assert.Equal(t, want, Nanoseconds(x))
	}
}

func TestNumbersAreGroupedAndAbbreviated(t *testing.T) {
	for x, want := range map[float64]string{0: "0.00", 7.254: "7.25", 47.32: "47.3", 812.6: "813", 1500: "1.50k", 12.34e6: "12.3M", 2e9: "2.00G"} {
		assert.Equal(t, want, Count(x))
	}
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", -1234567: "-1,234,567", 12345678: "12,345,678"} {
		assert.Equal(t, want, Thousands(n))
	}
	for d, want := range map[time.Duration]string{time.Second: "1s", time.Hour: "1h", 90 * time.Minute: "1h30m", 2 * time.Minute: "2m"} {
		assert.Equal(t, want, Short(d))
	}
}

func TestTimesAndListsAreWords(t *testing.T) {
	for d, want := range map[time.Duration]string{time.Millisecond: "1 second", 95 * time.Second: "95 seconds", 400 * time.Second: "7 minutes"} {
		assert.Equal(t, want, Minutes(d))
	}
	for _, c := range [][2]string{{"", ""}, {"one thing", "One thing."}, {"Really?", "Really?"}} {
		assert.Equal(t, c[1], Sentence(c[0]))
	}
	assert.Empty(t, And(nil))
	assert.Equal(t, "a", And([]string{"a"}))
	assert.Equal(t, "a, b and c", And([]string{"a", "b", "c"}))
}
