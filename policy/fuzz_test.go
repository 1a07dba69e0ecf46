package policy_test

import (
	"math"
	"testing"
	"time"

	"github.com/ral-limiter/ral/policy"
)

// maxCalls bounds a script, since every window of its calls is looked at.
const maxCalls = 48

// FuzzFunnel runs scripts of calls on one key; see trial for what is checked.
func FuzzFunnel(f *testing.F) {
	const s, ms = time.Second, time.Millisecond
	burst := []any{op(jumpN | one), 1, op(stay | one), op(stay | one), op(stay | one)}
	for _, seed := range [][]byte{
		nil,
		writeScript(3, 1, s, burst...),
		// Refused, again one nanosecond too early, and in time.
		writeScript(3, 7, time.Minute, append(burst, op(beforeRetry|one), op(toRetry|one), op(stay|one))...),
		// Rates whose interval is no whole sixteenth of a nanosecond.
		writeScript(2, 700_000, s, append(burst, op(toRetry|one), op(toRetry|one), op(toRetry|one))...),
		writeScript(1, 999_999, s, append(burst, op(toRetry|all|patientN), 1<<20, op(toRetry|one))...),
		writeScript(10, 10_000_000, s, append(burst, op(toRetry|rest), op(forwardN|rest), 50, op(stay|one))...),
		// One a year, and the deepest bucket that Funnel takes of it.
		writeScript(18, 1, year, append(burst, op(stay|rest), op(stay|one), op(toRetry|one))...),
		// Patience: a queue of turns, one that is too far away, one just in time.
		writeScript(1, 16, 1601, op(jumpN|one), 1, op(stay|one|patient), op(stay|one|patientN), 100,
			op(toRetry|one|patientN), 100, op(stay|all|patient), op(stay|one|worse)),
		// A sixteenth of a nanosecond too early.
		writeScript(1, 16, 1601, op(jumpN|one), 1, op(forwardN|one), 100, op(stay|one|patientN), 1, op(forwardN|one), 100, op(toRetry|one)),
		writeScript(5, 2, s, op(jumpN|all), 1, op(stay|someN|patientN), 3, s, op(stay|someN|patientN), 3, 2*s,
			op(toRetry|someN|patientN), 3, s, op(toReset|all)),
		// A clock that goes back, a little and before the epoch.
		writeScript(4, 100, s, op(jumpN|all), 5*s, op(backN|one), ms, op(toRetry|one), op(backN|one), 10*s,
			op(forwardN|rest), 11*s, op(backN|all), 4*s, op(toReset|all)),
		// Looking, and asking for what cannot be.
		writeScript(6, 3, ms, op(jumpN|look), 0, op(stay|tooMany|patient), op(stay|most|patient), op(stay|negative|patient), 0,
			op(stay|negative), policy.Instant(math.MaxInt64), op(stay|someN), 4, op(stay|look), op(stay|tooMany), op(beforeReset|all), op(toReset|all)),
		// The last instants that a funnel can count, and beyond.
		writeScript(2, 1, s, op(jumpN|all|patient), endOfTime-1, op(forwardN|one|patient), 1, op(forwardN|one|patient), 1,
			op(jumpN|all|patient), policy.Instant(math.MaxInt64), op(stay|one), op(jumpN|one|patient), 1),
		// So deep, so late and so patient that a word has no room for it.
		writeScript(18, 1, year, op(jumpN|all), 5*year, op(stay|someN|patient), 9, op(stay|someN|patient), 5,
			op(jumpN|all|patient), endOfTime, op(stay|one|patient), op(stay|all|patient)),
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		script := &script{data}
		capacity, count, per := script.limit()
		trial := newTrial(t, capacity, count, per)
		var c call
		d := policy.Decision{Limit: trial.capacity}
		for range maxCalls {
			var more bool
			if c, more = script.next(c, d); !more {
				return
			}
			d = trial.call(c)
		}
	})
}
