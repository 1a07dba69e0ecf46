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
		{"nobody asks", []int64{}, 0, 0, 0, false},
		{"asked less than allowed", []int64{20, 3}, 23, 23, 0, false},
		{"one key asked for more", []int64{21, 3}, 23, 23, 0, true},
		{"one too many", []int64{21, 3}, 24, 23, 1, true},
		{"what one key leaves the other may not have", []int64{100, 0, 1}, 30, 21, 9, true},
		{"fewer than allowed", []int64{100, 100}, 31, 40, 0, true},
	} {
		var a Audit
		a.add(accountOf(limit, second, c.asked), c.admitted, nil)
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
	a.add(accountOf(limit, windows, []int64{100}), 13, &Counts{Overadmitted: 3})
	a.add(accountOf(limit, windows, []int64{100}), 2, &Counts{Overadmitted: 1, Evicted: 5})
	assert.EqualValues(t, 15, a.Admitted)
	assert.EqualValues(t, 20, a.Allowed)
	assert.EqualValues(t, 3, a.Over)
	assert.Equal(t, 2, a.Limiters)
	assert.Equal(t, &Counts{Overadmitted: 4, Evicted: 5}, a.Own)
}

// accountOf gives each window the same calls by key.
func accountOf(limit Limit, windows []Window, asked ...[]int64) *accountant {
	keys := 0
	if len(asked) > 0 {
		keys = len(asked[0])
	}
	a := newAccountant(limit, keys)
	for i, w := range windows {
		a.window(w, asked[min(i, len(asked)-1)])
	}
	return a
}

func TestPossibleIsWhatAnIdealLimiterLetsPass(t *testing.T) {
	limit := Limit{Capacity: 10, Count: 10, Per: time.Second} // refills in a second
	s := time.Second
	for _, c := range []struct {
		about    string
		windows  []Window
		asked    [][]int64
		possible int64
		allowed  int64
	}{
		{"a hot key", []Window{{0, s}}, [][]int64{{1000}}, 20, 20},
		{"less than allowed", []Window{{0, s}}, [][]int64{{7, 20}}, 27, 27},
		{"a short rest", []Window{{0, s}, {s + s/2, 2 * s}}, [][]int64{{1000}, {1000}}, 20 + 5 + 5, 30},
		{"a long rest", []Window{{0, s}, {9 * s, 10 * s}}, [][]int64{{1000}, {1000}}, 20 + 20, 40},
		// It could not be saved up: the key was full when the second window began.
		{"asked when it is too late", []Window{{0, 2 * s}, {3 * s, 4 * s}}, [][]int64{{1}, {1000}}, 1 + 20, 50},
		{"what is left is kept", []Window{{0, 2 * s}, {2 * s, 3 * s}, {3 * s, 4 * s}}, [][]int64{{1}, {15}, {1000}}, 1 + 15 + 15, 50},
		{"parts of a call are kept", []Window{{0, s / 20}, {s / 20, s / 10}}, [][]int64{{100}, {100}}, 11, 11},
	} {
		a := accountOf(limit, c.windows, c.asked...)
		assert.Equal(t, c.possible, a.possible(), c.about)
		assert.Equal(t, c.allowed, a.allowed(), c.about)
	}
}

func TestAuditShowsWhoRefusesTooMuch(t *testing.T) {
	var a Audit
	assert.InDelta(t, 1, a.OfPossible(), 1e-9, "nothing was possible, and nothing was missed")
	a.add(accountOf(Limit{Capacity: 10, Count: 1, Per: time.Hour}, []Window{{0, time.Second}}, []int64{100, 100}), 5, nil)
	assert.EqualValues(t, 20, a.Possible)
	assert.InDelta(t, 0.25, a.OfPossible(), 1e-9)
	assert.True(t, a.Clean())
}

func TestSpellCountsWhatWasAskedInIt(t *testing.T) {
	c := &caller{stream: newStream([]uint32{0, 2, 0, 1})}
	callers := []*caller{c, {}}
	count := func(s spell) []int64 {
		times := make([]int64, 3)
		s.count(times)
		return times
	}
	first := begin(callers)
	c.asked = 10 // twice around, and the first two
	first = first.end(Window{})
	assert.Equal(t, []int64{5, 2, 3}, count(first))

	second := begin(callers)
	c.asked = 13 // the last two, and the first
	assert.Equal(t, []int64{2, 1, 0}, count(second.end(Window{})))
	assert.Equal(t, []int64{5, 2, 3}, count(first), "the first is what it was")
	assert.Equal(t, []int64{0, 0, 0}, count(begin(callers).end(Window{})))
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
