package fleet

import (
	"time"

	"github.com/ral-limiter/ral/fleet/internal/slidinglog"
	"github.com/ral-limiter/ral/policy"
)

// SlidingLog returns the exact log: no window of length per, without its beginning, ever sees more
// than limit units, and a unit that left the window no longer counts. That is the promise of
// [policy.AtMost] at the full rate, usual for a sorted set of timestamps in Redis. Use it if limits
// are low and dear; otherwise a [policy.SlidingWindow] takes a word a key.
//
// A take is recorded in entries of 1, 10, 100 and 1,000 units, at most 36: 7 units are 7 entries,
// 10,000 are 10. An entry costs Redis some 20 bytes up to 128 entries, and some 100 above. A call
// costs some ten commands in a script, and a hundred if takes of several sizes are recorded. Only a
// Refund may remove as many entries as it gives back units. Later takes forget up to 128 entries
// each that no longer count; so does the key's expiry.
//
// A call that waits is recorded at its turn, and no call overtakes it. This holds even for a clock
// that goes backwards: it grants nothing, and calls wait until it has caught up. Instants are whole
// microseconds. Time stands still 9 years after the epoch, and longer patience counts as 9 years.
//
// limit is between 1 and 10,000; policy.AtMost bounds limit and per further. Other values are
// refused with a *[policy.FieldError]. While Redis does not answer, a log is the AtMost of the same
// figures, in process, which admits no more. Units are given back from the newest on. A cancelled
// take leaves the log, except for its units given back before. A debt holds as much as the limit
// again.
func SlidingLog(limit int64, per time.Duration) (policy.Policy, error) {
	log, err := slidinglog.New(limit, per)
	if err != nil {
		return nil, err
	}
	return log, nil
}
