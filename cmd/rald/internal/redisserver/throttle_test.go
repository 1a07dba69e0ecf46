package redisserver

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/ral-limiter/ral/policy"
)

// Every kind of answer of redis-cell's vectors, over a connection: package policy tries all.
//
// Promise: `CL.THROTTLE` answers as redis-cell does.
func TestConformsToRedisCell(t *testing.T) {
	for _, rounding := range []Rounding{RoundTrue, RoundRedisCell} {
		inBubble(t, Config{Rounding: rounding}, func(t *testing.T, c *client) {
			start := time.Now()
			for _, s := range []struct {
				at      time.Duration
				command string
				reply   []any
			}{
				{0, "CL.THROTTLE key 4 1 1 6", ints(1, 5, 5, -1, 0)},
				{0, "CL.THROTTLE key 4 1 1", ints(0, 5, 4, -1, 1)},
				{0, "CL.THROTTLE key 4 1 1 4", ints(0, 5, 0, -1, 5)},
				{0, "cl.throttle key 4 1 1 1", ints(1, 5, 0, 1, 5)},
				{3000 * time.Millisecond, "CL.THROTTLE key 4 1 1 1", ints(0, 5, 2, -1, 3)},
				{3100 * time.Millisecond, "CL.THROTTLE key 4 1 1 0", ints(0, 5, 2, -1, 3)},
				{3100 * time.Millisecond, "CL.THROTTLE key 4 1 1 5", ints(1, 5, 2, 3, 3)},
				{3100 * time.Millisecond, "CL.THROTTLE other 2 7 60 1", ints(0, 3, 2, -1, 9)},
				{3100 * time.Millisecond, "CL.THROTTLE another 0 1000 1", ints(0, 1, 0, -1, 1)},
				{4000 * time.Millisecond, "CL.THROTTLE shared 9 1 1 10", ints(0, 10, 0, -1, 10)},
				{4000 * time.Millisecond, "CL.THROTTLE shared 4 1 1", ints(1, 5, 0, 6, 10)}, // of another limit
				{6000 * time.Millisecond, "CL.THROTTLE shared 4 1 1 0", ints(1, 5, 0, 3, 8)},
			} {
				time.Sleep(time.Until(start.Add(s.at)))
				assert.Equal(t, s.reply, c.do(s.command), "%s at %v, rounding %d", s.command, s.at, rounding)
			}
		})
	}
}

func TestRoundsToSeconds(t *testing.T) {
	for _, c := range []struct {
		of                     time.Duration
		exact, cell, dragonfly int64
	}{
		{0, 0, 0, 0},
		{1, 1, 0, 0},
		{time.Millisecond - 1, 1, 0, 0},
		{time.Millisecond, 1, 1, 1},
		{time.Second, 1, 1, 2},
		{time.Second + 1, 1, 1, 2}, // the nanosecond is the limit's own rounding
		{time.Second + time.Millisecond, 2, 2, 2},
		{1<<63 - 1, 9223372037, 9223372037, 9223372037},
	} {
		d := policy.Decision{ResetAfter: c.of, RetryAfter: c.of}
		for rounding, want := range map[Rounding]int64{RoundTrue: c.exact, RoundRedisCell: c.cell, RoundDragonfly: c.dragonfly} {
			assert.Equal(t, want, rounding.reply(d)[4], "%v, %d", c.of, rounding)
			if rounding != RoundTrue && c.of < time.Hour { // otherwise it is package policy's
				assert.Equal(t, want, rounding.reply(d)[3], "%v, %d", c.of, rounding)
			}
		}
	}
}

// redis-cell wraps around on them, or divides by them.
func TestThrottleRefusesBadNumbers(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, c *client) {
		const usage = "Cell error: Usage: cl.throttle <key> <max_burst> <count per period> <period> [<quantity>]"
		for command, want := range map[string]string{
			"CL.THROTTLE":                  usage,
			"CL.THROTTLE k 1 1":            usage,
			"CL.THROTTLE k 1 1 1 1 1":      usage,
			"CL.THROTTLE k x 1 1":          "Cell error: Couldn't parse as integer: x",
			"CL.THROTTLE k 1 1.5 1":        "Cell error: Couldn't parse as integer: 1.5",
			"CL.THROTTLE k 1 1 1 1_0":      "Cell error: Couldn't parse as integer: 1_0",
			"CL.THROTTLE k -1 1 1":         "Cell error: max_burst is -1: 0 to 9223372036854775806 is accepted",
			"CL.THROTTLE k 1 0 1":          "Cell error: count is 0: 1 or more is accepted",
			"CL.THROTTLE k 1 1 0":          "Cell error: period is 0: 1 to 9223372036 seconds are accepted",
			"CL.THROTTLE k 1 1 1 -1":       "Cell error: quantity is -1: 0 or more is accepted",
			"CL.THROTTLE k 1 1 9223372037": "Cell error: period is 9223372037: 1 to 9223372036 seconds are accepted",
		} {
			assert.Equal(t, replyError(want), c.do(command), command)
		}
		for _, command := range []string{
			"CL.THROTTLE k 9223372036854775807 1 1",
			"CL.THROTTLE k 9223372036854775806 1 1",
			"CL.THROTTLE k 1000000 1 9223372036",
			"CL.THROTTLE k 99999999999999999999 1 1",
			"CL.THROTTLE k 1 9223372036854775807 1",
		} {
			assert.IsType(t, replyError(""), c.do(command), command)
		}
		assert.Equal(t, ints(0, 2, 1, -1, 1), c.do("CL.THROTTLE k +1 01 1"), "nothing was taken before")
	})
}
