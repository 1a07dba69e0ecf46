package bench

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

const ms = time.Millisecond

func TestMost(t *testing.T) {
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
		{Limit{10, 3, 7 * time.Nanosecond}, 9, 13}, // 27/7 is 3.86
		{Limit{1, math.MaxInt64, 1}, time.Second, math.MaxInt64},
		{Limit{math.MaxInt64, 1, time.Second}, time.Hour, math.MaxInt64},
		{Limit{1 << 40, 1_000_000, time.Second}, math.MaxInt64, 1<<40 + 9_223_372_036_854_775},
	} {
		assert.Equal(t, c.want, c.limit.Most(c.d), "%+v in %v", c.limit, c.d)
	}
}

func TestMostDuring(t *testing.T) {
	limit := Limit{Capacity: 100, Count: 1000, Per: time.Second} // refills in 100 ms
	assert.EqualValues(t, 0, limit.MostDuring())
	assert.EqualValues(t, 300, limit.MostDuring(Window{0, 200 * ms}))
	assert.EqualValues(t, 300, limit.MostDuring(Window{900 * ms, 1100 * ms}), "when it begins does not matter")
	assert.EqualValues(t, 100+200+50+300, limit.MostDuring(Window{0, 200 * ms}, Window{250 * ms, 550 * ms}),
		"a short rest wins back what drains in it")
	assert.EqualValues(t, 100+200+100+300, limit.MostDuring(Window{0, 200 * ms}, Window{5 * time.Second, 5300 * ms}),
		"a long one no more than the capacity")
}
