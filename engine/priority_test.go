package engine

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// As in docs/choosing.md: a call of low priority passes if it leaves 20 of the key's 100.
//
// Promise: A low-priority call's smaller limit leaves the rest to others.
func TestLowPriorityLeavesTheRest(t *testing.T) {
	for _, limits := range [][2]string{
		{"funnel 100, 10/s", "funnel 80, 10/s"},
		{"queue 100, 10/s", "queue 80, 10/s"},
		{"at most 100/m", "at most 80/m"},
		{"window 100/m", "window 80/m"},
		{"window 100/m aligned", "window 80/m aligned"},
		{"sliding 100/m", "sliding 80/m"},
	} {
		t.Run(limits[0], func(t *testing.T) {
			clock, dice := newHandClock(), rand.New(rand.NewPCG(80, 100))
			low := parsed(t, limits[1])
			e := open[string](t, Config{Policy: parsed(t, limits[0]), Clock: clock.Now})
			left := false
			for range 5000 {
				n, room := 1+dice.Int64N(12), e.Peek("key", 0).Remaining
				if dice.IntN(2) == 0 {
					require.Equal(t, room-n >= 20, e.TakeWith(low, "key", n).Allowed, "low: %d of %d", n, room)
				} else {
					require.Equal(t, room >= n, e.Take("key", n).Allowed, "high: %d of %d", n, room)
					left = left || n <= room && room < 20
				}
				clock.Advance(time.Duration(dice.Int64N(int64(time.Second))))
			}
			assert.True(t, left, "high priority used what low priority left")
			assert.NotZero(t, e.Stats().Refused)
		})
	}
}
