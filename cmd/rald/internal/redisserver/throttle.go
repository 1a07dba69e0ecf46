package redisserver

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/ral-limiter/ral/cmd/rald/internal/resp"
	"github.com/ral-limiter/ral/policy"
)

// Rounding is how CL.THROTTLE rounds times to whole seconds.
type Rounding int

const (
	// RoundTrue rounds up: a client that comes back then is admitted.
	RoundTrue Rounding = iota
	// RoundRedisCell truncates to milliseconds and rounds the rest up, like redis-cell. A client
	// may come up to a millisecond too early.
	RoundRedisCell
	// RoundDragonfly truncates to milliseconds, and adds a second to the whole seconds, like
	// Dragonfly.
	RoundDragonfly
)

// ParseRounding returns the Rounding of a name: true, redis-cell or dragonfly.
func ParseRounding(name string) (Rounding, error) {
	i := slices.Index([]string{RoundTrue: "true", RoundRedisCell: "redis-cell", RoundDragonfly: "dragonfly"}, name)
	if i < 0 {
		return 0, fmt.Errorf("rounding is %q: true, redis-cell or dragonfly is accepted", name)
	}
	return Rounding(i), nil
}

func (r Rounding) reply(decision policy.Decision) [5]int64 {
	five := decision.RedisCell()
	if r == RoundTrue {
		return five
	}
	if five[3] >= 0 {
		five[3] = r.seconds(decision.RetryAfter)
	}
	five[4] = r.seconds(decision.ResetAfter)
	return five
}

// seconds rounds from whole milliseconds, unless RoundTrue. d is not negative.
func (r Rounding) seconds(d time.Duration) int64 {
	ms := d.Milliseconds()
	switch {
	case ms == 0:
		return 0
	case r == RoundDragonfly:
		return ms/1000 + 1
	}
	return (ms + 999) / 1000
}

// clThrottle is CL.THROTTLE key max_burst count period [quantity]: a bucket for each key, with room
// for max_burst+1 units, that drains count in period seconds.
func (c *conn) clThrottle(args [][]byte) {
	if len(args) != 5 && len(args) != 6 {
		c.out.Error("Cell error: Usage: cl.throttle <key> <max_burst> <count per period> <period> [<quantity>]")
		return
	}
	// numbers are max_burst, count, period and quantity.
	var numbers [4]int64
	numbers[3] = 1
	for i, arg := range args[2:] {
		n, ok := resp.Digits(arg)
		if !ok {
			// Like redis-cell, and unlike Redis, it takes a plus sign and leading zeros.
			var err error
			if n, err = strconv.ParseInt(string(arg), 10, 64); err != nil {
				c.out.Error("Cell error: Couldn't parse as integer: " + fmt.Sprintf("%.64s", arg))
				return
			}
		}
		numbers[i] = n
	}
	err := c.bucket([3]int64(numbers[:3]))
	if err == nil && numbers[3] < 0 {
		err = fmt.Errorf("quantity is %d: 0 or more is accepted", numbers[3])
	}
	if err != nil {
		c.out.Error("Cell error: " + err.Error())
		return
	}
	limit := c.throttle.limit
	if c.throttle.family == nil {
		c.throttle.family, err = c.server.catalog.families.Of(limit)
	}
	var decision policy.Decision
	if err == nil {
		decision, err = c.throttle.family.TakeWith(c.background(), limit, stored(args[1]), numbers[3])
	}
	if err != nil {
		c.out.Error("Cell error: " + c.told(err))
		return
	}
	if over := decision.ResetAfter - limit.(policy.Windowed).Window(); numbers[3] == 0 && over > 0 {
		// redis-cell also tells a debt beyond a lower limit so.
		decision.Allowed, decision.RetryAfter = false, over
	}
	c.out.Array(5)
	for _, n := range c.server.config.Rounding.reply(decision) {
		c.out.Int(n)
	}
}

// bucket makes c.throttle the limit of the arguments, unless it is.
func (c *conn) bucket(args [3]int64) error {
	if c.throttle.limit != nil && c.throttle.args == args {
		return nil
	}
	limit, err := c.server.catalog.bucket(args)
	if err == nil {
		c.throttle.args, c.throttle.limit, c.throttle.family = args, limit, nil
	}
	return err
}
