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

func TestAuditArithmetic(t *testing.T) {
	limit := Limit{Capacity: 10, Count: 10, Per: time.Second}
	second := []Window{{0, time.Second}} // most: 20 a key
	for _, c := range []struct {
		about    string
		asked    []int64
		admitted int64
		allowed  int64
		over     int64
		binds    bool
	}{
		{"nobody asks", nil, 0, 0, 0, false},
		{"asked less than allowed", []int64{20, 3}, 23, 23, 0, false},
		{"one key asked for more", []int64{21, 3}, 23, 23, 0, true},
		{"one too many", []int64{21, 3}, 24, 23, 1, true},
		{"what one key leaves the other may not have", []int64{100, 0, 1}, 30, 21, 9, true},
		{"fewer than allowed", []int64{100, 100}, 31, 40, 0, true},
	} {
		var a Audit
		a.add(limit, c.asked, c.admitted, second, nil)
		assert.Equal(t, c.allowed, a.Allowed, c.about)
		assert.Equal(t, c.over, a.Over, c.about)
		assert.Equal(t, c.over == 0, a.Clean(), c.about)
		assert.Equal(t, c.binds, a.Binds, c.about)
		assert.Equal(t, time.Second, a.Asked, c.about)
	}
}

func TestAuditDoesNotSetOneLimiterOffAgainstAnother(t *testing.T) {
	var a Audit
	limit, windows := Limit{Capacity: 10, Count: 1, Per: time.Hour}, []Window{{0, time.Second}}
	a.add(limit, []int64{100}, 13, windows, &Counts{Overadmitted: 3})
	a.add(limit, []int64{100}, 2, windows, &Counts{Overadmitted: 1, Evicted: 5})
	assert.EqualValues(t, 15, a.Admitted)
	assert.EqualValues(t, 20, a.Allowed)
	assert.EqualValues(t, 3, a.Over)
	assert.Equal(t, 2, a.Limiters)
	assert.Equal(t, &Counts{Overadmitted: 4, Evicted: 5}, a.Own)
}

func TestAskedByCountsRoundAndRest(t *testing.T) {
	c := &caller{stream: newStream([]uint32{0, 2, 0, 1}), asked: 10} // twice around, and the first two
	times := make([]int64, 3)
	askedBy([]*caller{c, {}}, times)
	assert.Equal(t, []int64{5, 2, 3}, times)
}

func TestSpread(t *testing.T) {
	assert.Equal(t, Spread{}, SpreadOf(nil))
	assert.Equal(t, Spread{Median: 4, Min: 4, Max: 4}, SpreadOf([]float64{4}))
	odd := []float64{9, 1, 5}
	assert.Equal(t, Spread{Median: 5, Min: 1, Max: 9}, SpreadOf(odd))
	assert.Equal(t, []float64{9, 1, 5}, odd, "the values stay as they were")
	assert.Equal(t, Spread{Median: 3, Min: 1, Max: 9}, SpreadOf([]float64{9, 1, 4, 2}))

	assert.InDelta(t, 0.8, Spread{Median: 5, Min: 1, Max: 7}.Relative(), 1e-9)
	assert.InDelta(t, 0.6, Spread{Median: 5, Min: 4, Max: 8}.Relative(), 1e-9)
	assert.Zero(t, Spread{}.Relative())
}

func TestOrderLetsEachBeFirstInTurn(t *testing.T) {
	assert.Equal(t, []int{0, 1, 2}, Order(0, 3))
	assert.Equal(t, []int{1, 2, 0}, Order(1, 3))
	assert.Equal(t, []int{2, 0, 1}, Order(2, 3))
	assert.Equal(t, []int{0, 1, 2}, Order(3, 3))
	assert.Empty(t, Order(4, 0))
}
