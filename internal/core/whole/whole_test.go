package whole

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestUnitsAreRoundedUp(t *testing.T) {
	for _, c := range []struct{ d, unit, up, untilReset time.Duration }{
		{0, time.Second, 0, 0},
		{math.MinInt64, time.Second, -9223372036, -9223372036},
		{-time.Minute, time.Second, -60, -60},
		{1, time.Second, 1, 1},
		{time.Second, time.Second, 1, 1},
		{time.Second + 1, time.Second, 2, 1},
		{time.Second + Own, time.Second, 2, 1},
		{time.Second + Own + 1, time.Second, 2, 2},
		{Own, time.Millisecond, 1, 1},
		{time.Minute + 80*time.Microsecond, time.Millisecond, 60_001, 60_000},
		{math.MaxInt64, time.Second, 9223372037, 9223372037},
	} {
		assert.EqualValues(t, c.up, Up(c.d, c.unit), "%v", c.d)
		assert.EqualValues(t, c.untilReset, UntilReset(c.d, c.unit), "%v", c.d)
	}
}
