package policy_test

import (
	"math"
	"math/big"
	"testing"
	"time"

	"github.com/ral-limiter/ral/policy"
)

func funnelOf(capacity, count int64, per time.Duration) subject {
	room, parts := big.NewInt(capacity), big.NewInt(count)
	length := new(big.Int).Lsh(big.NewInt(int64(per)), 4)
	return subject{
		Policy:   policy.Must(policy.Funnel(capacity, count, per)),
		oracle:   newBucket(capacity, count, per),
		limit:    capacity,
		end:      endOfTime(capacity, count, per),
		patience: longestPatience,
		period:   per,
		// units <= capacity + count*window/per, multiplied out
		within: func(units, window *big.Int) bool {
			var over, drained big.Int
			over.Mul(over.Sub(units, room), length)
			return over.Cmp(drained.Mul(window, parts)) <= 0
		},
	}
}

// funnels have a rate between 1 a year and ten million a second, and any accepted depth.
var funnels = kind{
	name: "Funnel",
	read: func(s *script) subject {
		const fastest = 100 // nanoseconds a unit
		per := time.Duration(s.between(fastest, int64(year)))
		count := s.between(1, int64(per)/fastest)
		capacity := s.between(1, int64(longestDrain)/(int64(per)/count+1))
		return funnelOf(capacity, count, per)
	},
	seeds: funnelSeeds(),
}

// funnelScript writes the parameters in the order in which they are read.
func funnelScript(capacity, count int64, per time.Duration, rest ...any) []byte {
	return writeScript(per, count, capacity, rest)
}

func funnelSeeds() [][]byte {
	const s, ms = time.Second, time.Millisecond
	burst := []any{op(jumpN | one), 1, op(stay | one), op(stay | one), op(stay | one)}
	lateEnd := endOfTime(2, 1, s)
	return [][]byte{
		funnelScript(3, 1, s, burst),
		// Refused, again a nanosecond too early, and in time.
		funnelScript(3, 7, time.Minute, burst, op(beforeRetry|one), op(toRetry|one), op(stay|one)),
		// Intervals of no whole sixteenth of a nanosecond.
		funnelScript(2, 700_000, s, burst, op(toRetry|one), op(toRetry|one), op(toRetry|one)),
		funnelScript(1, 999_999, s, burst, op(toRetry|all|patientN), 1<<20, op(toRetry|one)),
		funnelScript(10, 10_000_000, s, burst, op(toRetry|rest), op(forwardN|rest), 50, op(stay|one)),
		// One a year, and the deepest bucket that Funnel takes of it.
		funnelScript(17, 1, year, burst, op(stay|rest), op(stay|one), op(toRetry|one)),
		// Patience: a queue of turns, a turn too far away, and a turn just in time.
		funnelScript(1, 16, 1601, op(jumpN|one), 1, op(stay|one|patient), op(stay|one|patientN), 100,
			op(toRetry|one|patientN), 100, op(stay|all|patient), op(stay|one|patientN), policy.Instant(-5)),
		// A sixteenth of a nanosecond too early.
		funnelScript(1, 16, 1601, op(jumpN|one), 1, op(forwardN|one), 100, op(stay|one|patientN), 1, op(forwardN|one), 100, op(toRetry|one)),
		funnelScript(5, 2, s, op(jumpN|all), 1, op(stay|someN|patientN), 3, s, op(stay|someN|patientN), 3, 2*s,
			op(toRetry|someN|patientN), 3, s, op(toReset|all)),
		// A clock that goes back, a little and before the epoch.
		funnelScript(4, 100, s, op(jumpN|all), 5*s, op(backN|one), ms, op(toRetry|one), op(backN|one), 10*s,
			op(forwardN|rest), 11*s, op(backN|all), 4*s, op(toReset|all)),
		// Looking, and asking for what cannot be.
		funnelScript(6, 3, ms, op(jumpN|look), 0, op(stay|tooMany|patient), op(stay|most|patient), op(stay|negative|patient), 0,
			op(stay|negative), policy.Instant(math.MaxInt64), op(stay|someN), 4, op(stay|look), op(stay|tooMany), op(beforeReset|all), op(toReset|all)),
		// The last instants that a funnel can count, and beyond.
		funnelScript(2, 1, s, op(jumpN|all|patient), lateEnd-1, op(forwardN|one|patient), 1, op(forwardN|one|patient), 1,
			op(jumpN|all|patient), policy.Instant(math.MaxInt64), op(stay|one), op(jumpN|one|patient), 1),
		// So deep, so late and so patient that no word has room.
		funnelScript(10, 1, year, op(jumpN|all), 5*year, op(stay|someN|patient), 3, op(stay|someN|patient), 1,
			op(jumpN|all|patient), lateEnd, op(stay|one|patient), op(stay|all|patient)),
		// Giving back: the take, more than that, and after it has drained.
		funnelScript(3, 1, s, burst, op(stay|giveLast), op(stay|giveSomeN), 2, op(stay|rest), op(toReset|giveOne),
			op(stay|all), op(forwardN|giveAll), s, op(stay|all), op(stay|giveMost), op(stay|all)),
		// A debt, and all the debt that there can be.
		funnelScript(3, 1, s, op(jumpN|one), s, op(stay|chargeN), 7, op(stay|one), op(toRetry|one), op(toReset|all),
			op(stay|chargeN), policy.Instant(math.MaxInt64), op(stay|one|patient), op(forwardN|giveMost), s, op(stay|all)),
		// Undoing takes, in any order, with others waiting and without.
		funnelScript(3, 1, s, op(jumpN|all), s, op(stay|someN|patient), 2, op(stay|cancelN), 1, op(stay|one|patient),
			op(stay|cancelLast), op(stay|one), op(toReset|one), op(stay|one), op(stay|cancelN), 1, op(stay|rest)),
	}
}

func FuzzFunnel(f *testing.F) { funnels.fuzz(f) }

// Promise: `Funnel`: at most capacity + count·t/per in any time t.
// Promise: A call succeeds at `RetryAfter`, not a nanosecond sooner.
// Promise: Exactly from `FreshAt` on, a word means an unused key.
// Promise: Exactly `Remaining` can be taken; `ResetAfter` ends the debt.
func TestFunnelRandomly(t *testing.T) { funnels.random(t, 0, 5000/raceFactor) }

func TestFunnelExtremes(t *testing.T) {
	for _, l := range []struct {
		capacity, count int64
		per             time.Duration
	}{
		{1, 1, 1},
		{1, 16, 1},
		{1, 1, time.Second},
		{1, 1, longestDrain},
		{17, 1, year},
		{16 * int64(longestDrain), 16, 1},
		{1, math.MaxInt64, math.MaxInt64},
		{540431955, 1, time.Second},
	} {
		funnelOf(l.capacity, l.count, l.per).extremes(t)
	}
}
