package store

import (
	"time"

	"github.com/ral-limiter/ral/policy"
)

// logParams are the parameters of a SlidingLog and of a call.
var logParams = newAlgorithm(logLua, "n, limit, per, patience")

// logReply is a script's reply about a SlidingLog. It has the number of units that counted, the time, whether
// the call took units, and when the call may start. Then it has the time of the newest unit before the call,
// or -1, and the number of the first unit taken. Scripts that read the key's block append it.
const logReply = "{used, us, taken, start, at, first, b}"

// endLog is the end of time for a log, in microseconds: 9 years after the epoch.
const endLog = int64(maxPatience / time.Microsecond)

func (s *Store) logTakeScript() *script {
	return s.newScript(
		"local key, blockKey = KEYS[1], KEYS[2]\n", timeLua, logParams.unpack(), s.rule.local(),
		"local b = redis.call('GET', blockKey)\n", blockLua, "if blocked or level < 0 then patience = -1 end\n",
		logLua,
		"if first < 0 then return {newest[1], us, -1} end\n",
		"if taken == 1 and n > 0 then\n", recordLua, "end\n",
		"local refusals = 0\nif taken == 0 and n > 0 then refusals = 1 end\n", punishLua,
		"return "+logReply+"\n")
}

// logFigures returns the parameters of a SlidingLog and a call. A log counts time in whole microseconds, so
// rounding its period up and the patience down changes nothing.
func (l *Limit) logFigures(n int64, patience time.Duration) []float64 {
	return []float64{float64(n), float64(l.log.Limit()), float64(l.logPer()), float64(bounded(patience) / time.Microsecond)}
}

func (l *Limit) logPer() int64 {
	return int64((l.log.Per + time.Microsecond - 1) / time.Microsecond)
}

func (l *Limit) decideLog(found foundSet, n int64, patience time.Duration) Taken {
	taken := Taken{At: instant(found.us), Decision: policy.Decision{Limit: l.limit}}
	now := logTime(found.us)
	switch wait := time.Duration(found.start-now) * time.Microsecond; {
	case n < 0 || n > l.limit:
		taken.RetryAfter = policy.Never
	case n == 0:
		taken.Allowed = true
	case found.taken:
		taken.Allowed, taken.Wait, taken.After = true, wait, uint64(found.first)
		found.used, found.newest = found.used+n, found.start
	default:
		taken.RetryAfter = wait - bounded(patience)
	}
	if found.newest <= now {
		taken.Remaining = max(l.limit-found.used, 0)
	}
	if found.newest >= 0 {
		taken.ResetAfter = time.Duration(max(found.newest+l.logPer()-now, 0)) * time.Microsecond
	}
	return taken
}

func logTime(us int64) int64 { return min(max(us, 0), endLog) }

// turn returns the time that a SlidingLog has recorded for the units, in microseconds.
func (t Taken) turn() int64 {
	return logTime(int64(t.At/1000)) + int64(t.Wait/time.Microsecond)
}
