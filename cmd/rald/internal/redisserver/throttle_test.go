package redisserver

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/policy"
)

// Every figure, over a connection.
//
// Promise: `CL.THROTTLE` answers as redis-cell does.
func TestConformsToRedisCell(t *testing.T) {
	var file struct {
		Sequence struct {
			Args  string
			Steps []struct {
				Millis   int64 `json:"t_ms"`
				Quantity int64
				Reply    [5]int64
			}
		}
		Fresh []struct {
			Args  string
			Reply [5]int64
		} `json:"fresh_key"`
	}
	text, err := os.ReadFile("../../../../policy/testdata/conformance/cl_throttle.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &file))
	require.NotEmpty(t, file.Sequence.Steps)
	require.NotEmpty(t, file.Fresh)
	for _, rounding := range []Rounding{RoundTrue, RoundRedisCell} {
		synctest.Test(t, func(t *testing.T) {
			c := connect(t, Config{Rounding: rounding})
			start := time.Now()
			for i, s := range file.Sequence.Steps {
				time.Sleep(time.Until(start.Add(time.Duration(s.Millis) * time.Millisecond)))
				got := c.do(fmt.Sprintf("CL.THROTTLE key %s %d", file.Sequence.Args, s.Quantity))
				assert.Equal(t, ints(s.Reply[:]...), got, "step %d, rounding %d", i, rounding)
			}
			for i, f := range file.Fresh {
				assert.Equal(t, ints(f.Reply[:]...), c.do(fmt.Sprintf("cl.throttle fresh%d %s", i, f.Args)), f.Args)
			}
		})
	}
}

// The figures are from Dragonfly's own test: times are whole seconds plus one.
func TestRoundsAsDragonflyDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := connect(t, Config{Rounding: RoundDragonfly})
		for _, want := range [][]any{
			ints(0, 5, 4, -1, 11), ints(0, 5, 3, -1, 21), ints(0, 5, 2, -1, 31),
			ints(0, 5, 1, -1, 41), ints(0, 5, 0, -1, 51), ints(1, 5, 0, 11, 51),
		} {
			assert.Equal(t, want, c.do("CL.THROTTLE foo 4 1 10"))
		}
		time.Sleep(31 * time.Second)
		assert.Equal(t, ints(0, 5, 2, -1, 30), c.do("CL.THROTTLE foo 4 1 10 1"))
		assert.Equal(t, ints(1, 5, 5, -1, 0), c.do("CL.THROTTLE bar 4 1 10 6"))
	})
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
		d := policy.Decision{ResetAfter: c.of}
		assert.Equal(t, c.exact, RoundTrue.reply(d)[4], c.of)
		assert.Equal(t, c.cell, RoundRedisCell.reply(d)[4], c.of)
		assert.Equal(t, c.dragonfly, RoundDragonfly.reply(d)[4], c.of)
	}
}

// redis-cell wraps around on them, or divides by them.
func TestThrottleRefusesBadNumbers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := connect(t, Config{})
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

// As in redis-cell.
func TestThrottleOfOtherNumbersSharesTheKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := connect(t, Config{})
		assert.Equal(t, ints(0, 10, 0, -1, 10), c.do("CL.THROTTLE k 9 1 1 10"))
		assert.Equal(t, ints(1, 5, 0, 6, 10), c.do("CL.THROTTLE k 4 1 1"))
	})
}
