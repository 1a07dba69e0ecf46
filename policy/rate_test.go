package policy_test

import (
	"fmt"
	"math"
	"math/big"
	"testing"
	"time"

	"github.com/ral-limiter/ral/policy"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// run is a long series of calls on a limit, and the time that it must take.
type run struct {
	p policy.Policy
	// skip is the number of units before those that are timed, and units is the number of timed units.
	skip, units int64
	// unit is the nanoseconds that each unit should take.
	unit *big.Rat
	// ppm is how much longer the units may take, in parts per million.
	ppm   float64
	grace time.Duration
	// size is the units of a call.
	size int64
}

// turns lets calls come when they are told to or, with patience, all at once. It returns the
// instants at which the unit after the first skip units and the last unit may start.
func (r run) turns(t *testing.T, patience time.Duration) (begin, end policy.Instant) {
	t.Helper()
	var word uint64
	now := policy.Instant(12_345_678_901)
	for taken := int64(0); taken <= r.skip+r.units; {
		next, decision := r.p.Take(word, now, r.size, patience)
		if !decision.Allowed {
			require.NotEqual(t, policy.Never, decision.RetryAfter)
			now += policy.Instant(decision.RetryAfter)
			continue
		}
		word, end = next, now+policy.Instant(decision.Wait)
		if taken <= r.skip {
			begin = end
		}
		taken += r.size
	}
	return begin, end
}

// runs are from 1 a year to ten million a second, with the lost parts per million that are
// documented. Whole sixteenths of a nanosecond lose nothing.
func runs() (greedy, patient []run) {
	for _, r := range []struct {
		count int64
		per   time.Duration
		ppm   float64
	}{
		{1, year, 0},
		{1, 24 * time.Hour, 0},
		{7, time.Minute, 0.00001},
		{700_000, time.Second, 37.6},
		{999_999, time.Second, 61.6},
		{1_000_000, time.Second, 0},
		{10_000_000, time.Second, 0},
	} {
		unit := big.NewRat(int64(r.per), r.count)
		// The units of a slow rate are those of a few years.
		units := min(100_000/raceFactor, 4*r.count*int64(year/r.per))
		// Greedy callers of Queue and Bursty get the full rate if the time by which they are late can
		// be stored.
		greedy = append(greedy,
			run{policy.Must(policy.Funnel(2, r.count, r.per)), 1, units, unit, r.ppm, 1, 1},
			run{policy.Must(policy.Queue(1, r.count, r.per)), 1, units, unit, r.ppm, 2, 1},
			run{policy.Must(policy.Bursty(r.count, r.per, 1)), 2, units, unit, r.ppm, 2, 1},
		)
		warmup := longestWarmup(r.count, r.per, 4*r.per/time.Duration(r.count), 1.5)
		patient = append(patient,
			run{policy.Must(policy.Queue(min(200_000, int64(longestDrain/r.per)*r.count-1), r.count, r.per)), 1, units, unit, r.ppm, 2, 1},
			run{policy.Must(policy.Bursty(r.count, r.per, 0)), 1, units, unit, r.ppm, 2, 1},
			run{policy.Must(policy.Bursty(r.count, r.per, 2)), 3, units, unit, r.ppm, 2, 1},
			run{policy.Must(policy.WarmingUp(r.count, r.per, warmup, 1.5)), min(10, units), units, unit, max(r.ppm, 4), 2, 1},
		)
	}
	var windows []run
	for _, per := range []time.Duration{time.Millisecond, time.Millisecond + 1, 3*time.Millisecond + 1234, 77_777_777, time.Second, time.Minute, time.Hour + 7} {
		for _, limit := range []int64{1, 10, 1000} {
			// The first may have opened between two steps.
			windows = append(windows, run{policy.Must(policy.FixedWindow(limit, per)), 0, 200 * limit, big.NewRat(int64(per), limit), 100, 100 * time.Microsecond, max(limit/10, 1)})
		}
	}
	for _, per := range []time.Duration{1007, 2000, time.Millisecond, time.Second + 1, time.Hour} {
		for _, limit := range []int64{1, 2, 3} {
			windows = append(windows, run{policy.Must(policy.SlidingWindow(limit, per)), 10 * limit, 300 * limit, big.NewRat(int64(per), limit), 0, 0, 1})
		}
	}
	for _, per := range []time.Duration{time.Millisecond, time.Second, time.Minute + 1} {
		for _, limit := range []int64{1, 5, 50, 100, 2000} {
			parts := ringParts(limit, per, ringWord)
			// The units take a part more than the period.
			unit := mul(big.NewRat(int64(per), limit), big.NewRat(parts+1, parts))
			windows = append(windows, run{policy.Must(policy.AtMost(limit, per)), 10 * limit, 200 * limit, unit, 100, 1, max(limit/10, 1)})
		}
	}
	return append(greedy, windows...), append(patient, windows...)
}

// Promise: The long-run rate never exceeds the configured rate and falls short only as documented.
func TestLongRunRateIsKept(t *testing.T) {
	greedy, patient := runs()
	for patience, runs := range map[time.Duration][]run{0: greedy, math.MaxInt64: patient} {
		for _, r := range runs {
			t.Run(fmt.Sprint(r.p, patience), func(t *testing.T) {
				begin, end := r.turns(t, patience)
				took, ideal := whole(int64(end-begin)), mul(r.unit, whole(r.units))
				// A turn is told up to a nanosecond late.
				require.GreaterOrEqual(t, add(took, whole(1)).Cmp(ideal), 0, "%d units in %d ns is above the rate", r.units, end-begin)
				late := sub(took, add(ideal, whole(int64(r.grace))))
				below, _ := late.Quo(late, ideal).Float64()
				assert.LessOrEqual(t, below*1e6, r.ppm, "parts per million below the rate")
				assert.LessOrEqual(t, r.ppm, 100.0, "the promised parts per million")
			})
		}
	}
}
