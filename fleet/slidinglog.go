package fleet

import (
	"time"

	"github.com/ral-limiter/ral/fleet/internal/slidinglog"
	"github.com/ral-limiter/ral/policy"
)

// SlidingLog returns the exact log: no window of length per, without its beginning, ever
// sees more than limit units, and whatever no longer lies in it counts no more. That is
// the promise of [policy.AtMost] at the full rate, and what a sorted set of timestamps in
// Redis is used for. It takes memory for each unit, some 20 bytes up to 128 of them and
// some 100 above, and time that grows with how many leave at once. Choose it where
// limits are low and dear; elsewhere a [policy.SlidingWindow] does at a word a key.
//
// A take of several units is recorded as so many. Who waits is recorded at his turn, and
// until then nobody overtakes. That holds for a clock that goes backwards as well: it
// mints nothing, and calls wait until it has caught up. Instants are whole microseconds.
// Time stands still for a log 9 years after the epoch, and patience beyond 9 years
// counts as 9.
//
// limit is between 1 and 10,000, per and limit besides as policy.AtMost has them: in
// process, for as long as Redis does not answer, a log is the AtMost of the same
// figures, which admits no more. Other values are refused with a *[policy.FieldError].
//
// Units are given back from the newest on. A take that is cancelled is taken out of the
// log, whoever came since, but for those of its units that others gave back before. A debt
// holds as much as the limit again.
func SlidingLog(limit int64, per time.Duration) (policy.Policy, error) {
	l, err := slidinglog.New(limit, per)
	if err != nil {
		return nil, err
	}
	return l, nil
}
