package fleet

import (
	"time"

	"github.com/ral-limiter/ral/fleet/internal/slidinglog"
	"github.com/ral-limiter/ral/policy"
)

// SlidingLog returns the exact log: no window of length per, without its beginning, ever
// sees more than limit units, and a unit that has left the window counts no more. That is
// the promise of [policy.AtMost] at the full rate, and the usual purpose of a sorted set of
// timestamps in Redis. Choose it where limits are low and dear; elsewhere a
// [policy.SlidingWindow] does at a word a key.
//
// A take is recorded in entries of 1, 10, 100 and 1,000 units: 7 units are 7 entries, 10,000
// units are 10, and no take is more than 36. An entry costs Redis some 20 bytes up to 128
// of them, and some 100 above. A call costs some ten commands in one script, and a hundred
// if takes of several sizes are recorded. Only a Refund may remove as many entries as it
// gives back units. Entries that no longer count are forgotten by later takes, up to 128 by
// each, or when the key expires.
//
// A call that waits is recorded at its turn, and until then no call overtakes it. That
// holds for a clock that goes backwards as well: it mints nothing, and calls wait until it
// has caught up. Instants are whole microseconds. Time stands still for a log 9 years after
// the epoch, and patience beyond 9 years counts as 9.
//
// limit is between 1 and 10,000; per and limit are further bounded as policy.AtMost bounds
// them. While Redis does not answer, a log is the AtMost of the same figures, in process,
// which admits no more. Other values are refused with a *[policy.FieldError].
//
// Units are given back from the newest on. A take that is cancelled is taken out of the
// log, whatever was taken since, except for those of its units that were given back
// before. A debt holds as much as the limit again.
func SlidingLog(limit int64, per time.Duration) (policy.Policy, error) {
	l, err := slidinglog.New(limit, per)
	if err != nil {
		return nil, err
	}
	return l, nil
}
