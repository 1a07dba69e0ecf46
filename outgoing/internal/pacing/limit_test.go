package pacing

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/policy"
)

// A limit in steps admits as a counter does that is set back at the end of each period.
func TestLimitDrainsInSteps(t *testing.T) {
	dice := rand.New(rand.NewPCG(1, 0))
	for range 300 {
		count, period := 1+dice.Int64N(20), policy.Instant(1+dice.Int64N(1e9))
		until := policy.Instant(1 + dice.Int64N(3e9))
		p := InSteps(count, time.Duration(period), time.Duration(until)-1, Known{})
		if p == nil {
			require.Less(t, int64(period), count, "a unit takes a nanosecond or more")
			continue
		}
		var word uint64
		// used has the units by the beginning of the period.
		used := map[policy.Instant]int64{}
		// latest is the period of the last turn.
		latest := until - period
		for now := policy.Instant(1); now < until+5*period; now += policy.Instant(dice.Int64N(int64(period)/3 + 2)) {
			begins := until - period
			if now >= until {
				begins = until + (now-until)/period*period
			}
			turn := max(begins, latest)
			if used[turn] == count {
				turn += period
			}
			wait := time.Duration(max(turn-now, 0))
			// A turn in the last period needs no wait, even before its beginning.
			if turn == until-period {
				wait = 0
			}
			var patience time.Duration
			if dice.IntN(2) == 0 {
				patience = time.Duration(dice.Int64N(3 * int64(period)))
			}
			next, d := p.Take(word, now, 1, patience)
			require.Equal(t, wait <= patience, d.Allowed, "%d in %d until %d, now %d: %v", count, period, until, now, d)
			if !d.Allowed {
				require.Equal(t, word, next)
				require.Equal(t, wait-patience, d.RetryAfter)
				continue
			}
			require.Equal(t, wait, d.Wait)
			require.GreaterOrEqual(t, p.FreshAt(next), turn+1)
			word, latest = next, turn
			used[turn]++
			if wait == 0 {
				require.Equal(t, count-used[turn], d.Remaining)
				if n := dice.Int64N(used[turn] + 1); n > 0 {
					word = p.Refund(word, now, n)
					used[turn] -= n
				}
			}
		}
	}
}

// A server may tell a limit whose calls are less than a microsecond apart, which no policy has as its period.
func TestFastLimitsAreEnforced(t *testing.T) {
	l := Evenly(5, 1, 500*time.Nanosecond)
	require.NotNil(t, l)
	next, d := l.Take(0, 0, 5, 0)
	require.True(t, d.Allowed)
	_, d = l.Take(next, 0, 1, 0)
	require.Equal(t, 500*time.Nanosecond, d.RetryAfter)
	l = InSteps(2_000_000, time.Second, time.Second, Known{})
	require.NotNil(t, l)
	require.Equal(t, 500*time.Nanosecond, l.each)
}
