package bench

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

const ms = time.Millisecond

func TestMostIsBurstPlusElapsedUnits(t *testing.T) {
	for _, c := range []struct {
		limit Limit
		d     time.Duration
		want  int64
	}{
		{Limit{5, 1, time.Second}, 0, 5},
		{Limit{5, 1, time.Second}, time.Second - 1, 5},
		{Limit{5, 1, time.Second}, time.Second, 6},
		{Limit{5, 1, time.Second}, -time.Second, 5},
		{Limit{1000, 1000, time.Second}, 1500 * ms, 2500},
		// 27/7 is 3.86.
		{Limit{10, 3, 7 * time.Nanosecond}, 9, 13},
		{Limit{1, math.MaxInt64, 1}, time.Second, math.MaxInt64},
		{Limit{math.MaxInt64, 1, time.Second}, time.Hour, math.MaxInt64},
		{Limit{1 << 40, 1_000_000, time.Second}, math.MaxInt64, 1<<40 + 9_223_372_036_854_775},
	} {
		assert.Equal(t, c.want, c.limit.Most(c.d), "%+v in %v", c.limit, c.d)
	}
}
