package policy

import (
	"time"

	"github.com/ral-limiter/ral/internal/core/whole"
)

// RedisCell returns the decision as the five integers of redis-cell's reply to CL.THROTTLE
// (https://github.com/brandur/redis-cell#usage):
//
//  1. 1 if the call was limited, 0 if it was allowed;
//  2. the limit;
//  3. the remaining units;
//  4. the seconds until the call can be made again, or -1 if it was allowed or never can be;
//  5. the seconds until the key is as good as new.
//
// Seconds are rounded up to whole seconds, so that no caller comes too early. The seconds until the
// key is as good as new leave out up to 100µs above a whole second, because a limit's own rounding adds
// as much. The reply has no place for Wait: a caller that gives patience must pass Wait on separately.
func (d Decision) RedisCell() [5]int64 {
	limited, retry := int64(1), int64(-1)
	if d.Allowed {
		limited = 0
	} else if d.RetryAfter != Never {
		retry = whole.Up(d.RetryAfter, time.Second)
	}
	return [5]int64{limited, d.Limit, d.Remaining, retry, whole.UntilReset(d.ResetAfter, time.Second)}
}
