package bench

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestWindowCountsItsOwnCalls(t *testing.T) {
	c := &caller{stream: newStream([]uint32{0, 2, 0, 1})}
	callers := []*caller{c, {}}
	count := func(w askedWindow) []int64 {
		times := make([]int64, 3)
		w.count(times)
		return times
	}
	first := beginWindow(callers)
	c.asked = 10 // two loops, and the first two
	first = first.end(Window{})
	assert.Equal(t, []int64{5, 2, 3}, count(first))

	second := beginWindow(callers)
	c.asked = 13 // the last two, and the first
	assert.Equal(t, []int64{2, 1, 0}, count(second.end(Window{})))
	assert.Equal(t, []int64{5, 2, 3}, count(first), "the first is what it was")
	assert.Equal(t, []int64{0, 0, 0}, count(beginWindow(callers).end(Window{})))
}
