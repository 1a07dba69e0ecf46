package policy_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/policy"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Each window of nine years begins and ends when the oracle says, in each zone, among them days of
// 23 and 25 hours, midnights that are left out, shown twice or gone back over, and days left out. A
// day that the clocks have shown is not left again, and no turn lies in a day left out.
// Promise: Calendar windows begin when the zone's clocks first show their first day.
func TestCalendarWindowsAgreeWithTheClocks(t *testing.T) {
	// In these years the clocks of the zones do so.
	years := [...]int{2009, 2037, 2004, 2016, 2030}
	for i, zone := range zones {
		for unit := policy.Day; unit <= policy.Year; unit++ {
			zero := time.Date(years[i%5], time.Month(1+i%12), 1+2*i, i, 30, 0, 123, time.UTC)
			limit := calendarOf(1, unit, zone, zero)
			model := limit.oracle.(*fromTo)
			now, windows := int64(1), 0
			for now < int64(endOfAligned) {
				_, to := model.around(model.zero + now)
				end := to - model.zero
				for _, instant := range []int64{now, now + int64(time.Minute), now + int64(30*time.Minute), end - 1} {
					if instant >= end || instant > int64(endOfAligned) {
						continue
					}
					word, decision := limit.Take(0, policy.Instant(instant), 1, 0)
					next, turn := limit.Take(word, policy.Instant(instant), 1, longestPatience)
					_, then := limit.Take(next, policy.Instant(end), 0, 0)
					if left := time.Duration(end - instant); decision.ResetAfter != left ||
						end <= int64(endOfAligned) && (turn.Wait != left || then.Remaining > 0) {
						require.Fail(t, "the window is not the calendar's", "%v at %v: the window ends in %v, the next turn is in %v, and %d units are left then; want an end in %v",
							limit, time.Unix(0, model.zero+instant).UTC(), decision.ResetAfter, turn.Wait, then.Remaining, left)
					}
				}
				now = end
				windows++
			}
			if unit == policy.Day {
				assert.InDelta(t, 3336, windows, 2)
			}
		}
	}
}

// A month ends by the calendar's rules for leap years.
func TestCalendarMonthsFollowLeapYears(t *testing.T) {
	p := policy.Must(policy.CalendarWindow(5, policy.Month, "UTC")).(policy.Anchored)
	for _, year := range []int{2027, 2028, 2100} {
		for month := time.January; month <= time.December; month++ {
			zero := time.Date(year, month, 1, 0, 0, 0, 0, time.UTC)
			_, d := p.Anchor(zero).Take(0, 0, 1, 0)
			assert.Equal(t, zero.AddDate(0, 1, 0), zero.Add(d.ResetAfter), zero)
		}
	}
}

// In 40 years of each zone, a month from any day begins when the clocks first show that day, or the last
// day of a shorter month. It ends when the next begins.
// Promise: A month's window begins on any day, or on the last day of a shorter month.
func TestMonthsFromEveryDayAgreeWithTheClocks(t *testing.T) {
	const anchorYears = 8
	for i, zone := range zones {
		if i%raceFactor > 0 || testing.Short() && i%4 > 0 {
			continue
		}
		begins := showsAt(must.Get(time.LoadLocation(zone)))
		for from := 1; from <= 31; from++ {
			limit := policy.Must(policy.CalendarWindow(1, policy.Month, zone, from)).(policy.Anchored)
			var zero time.Time
			var anchored policy.Policy
			windows, start := 0, int64(0)
			for day := time.Date(1998, time.January, 1, 0, 0, 0, 0, time.UTC); day.Year() < 2038; day = day.AddDate(0, 0, 1) {
				isLast := day.AddDate(0, 0, 1).Day() == 1
				if day.Day() != from && !(isLast && day.Day() < from) {
					continue
				}
				end := begins(day)
				if start > 0 {
					if anchored == nil || time.Unix(end, 0).Sub(zero) > anchorYears*year {
						zero = time.Unix(start, 0).Add(-time.Hour)
						anchored = limit.Anchor(zero)
					}
					first, last := policy.Instant(time.Unix(start, 0).Sub(zero)), policy.Instant(time.Unix(end, 0).Sub(zero))
					for _, now := range []policy.Instant{first, last - 1} {
						word, d := anchored.Take(0, now, 1, 0)
						require.Equal(t, time.Duration(last-now), d.ResetAfter, "%v at %v: the time until %v",
							limit, zero.Add(time.Duration(now)).UTC(), time.Unix(end, 0).UTC())
						require.Equal(t, last, anchored.FreshAt(word), "%v: the end of the word of %v", limit, day)
					}
					windows++
				}
				start = end
			}
			require.Equal(t, 40*12-1, windows, "%v: windows of 40 years", limit)
		}
	}
}

// Calls of a key whose day changes with each call are answered as by a window that ends when it was to
// end, and is followed by a window that ends on the day of the call that opens or promises it.
// Promise: A key's month ends when it was to end, whatever its day becomes.
func TestMonthsFromOtherDaysShareAWord(t *testing.T) {
	rng := rand.New(rand.NewPCG(20, 31))
	shorter := 0
	for range 3000 / raceFactor {
		zone := zones[rng.IntN(len(zones))]
		zero := time.Unix(rng.Int64N(2_000_000_000), 0)
		var days []subject
		for range 3 {
			days = append(days, calendarOf(1+rng.Int64N(9), policy.Month, zone, zero, 1+rng.IntN(31)))
		}
		key := days[0].oracle.(*fromTo)
		var word uint64
		now := policy.Instant(1)
		about := ""
		for range 16 {
			l := days[rng.IntN(len(days))]
			refunder := l.Policy.(policy.Refunder)
			model := l.oracle.(*fromTo)
			model.from, model.to, model.count = key.from, key.to, key.count
			now += policy.Instant(rng.Int64N(int64(40*24*time.Hour)) >> rng.UintN(8))
			if rng.IntN(8) == 0 {
				now -= policy.Instant(rng.Int64N(int64(now)))
			}
			n, patience := 1+rng.Int64N(l.limit), time.Duration(rng.Int64N(int64(100*24*time.Hour))*rng.Int64N(2))
			about += fmt.Sprintf("%v: %d at %d for %v\n", l, n, now, patience)
			next, decision := l.Take(word, now, n, patience)
			require.Equal(t, model.take(now, n, patience), decision, about)
			l.chokes(t, word, now)
			before := word
			word = next
			require.Equal(t, policy.Instant(max(model.fresh()-model.zero, 0)), l.FreshAt(word), about)
			if model.count > 0 && model.to-model.from < int64(27*24*time.Hour) {
				shorter++
			}
			if decision.Allowed && rng.IntN(3) == 0 {
				// Another day's policy may give back.
				mark, taken := model.mark(), word
				if rng.IntN(2) == 0 {
					about += fmt.Sprintf("refund %d\n", n)
					word = refunder.Refund(word, now, n)
					model.refund(now, n)
				} else {
					about += fmt.Sprintf("cancel %d\n", n)
					word = refunder.Cancel(word, taken, now, now, n, 0)
					model.cancel(now, mark, n)
				}
				_, is := l.Take(word, now, 0, 0)
				require.Equal(t, model.take(now, 0, 0), is, about)
				_, was := l.Take(before, now, 0, 0)
				require.LessOrEqual(t, is.Remaining, was.Remaining, about)
			}
			key = model
		}
	}
	assert.Greater(t, shorter, 1000/raceFactor)
}

// A word counts by the wall time, whatever zero the instants are counted from: after a restart or
// a step of the clock, forwards or back, a key is answered as that time was answered before.
// Promise: Aligned windows' words keep their meaning after a restart.
func TestAlignedWordsKeepTheirMeaning(t *testing.T) {
	rng := rand.New(rand.NewPCG(13, 14))
	for range 3000 / raceFactor {
		limit := alignedToAnything(rng, 1).(policy.Anchored)
		first := time.Unix(rng.Int64N(2_000_000_000), 7)
		step := rng.Int64N(int64(3000*24*time.Hour)) >> rng.UintN(50)
		before, after := limit.Anchor(first), limit.Anchor(first.Add(time.Duration(step)))
		period := int64(limit.(policy.Windowed).Window())
		var word uint64
		for range 8 {
			// The instants are not in order.
			instant := policy.Instant(rng.Int64N(4*period) >> rng.UintN(20))
			n, patience := 1+rng.Int64N(before.Limit()), time.Duration(rng.Int64N(2*period))
			next, want := before.Take(word, instant+policy.Instant(step), n, patience)
			same, got := after.Take(word, instant, n, patience)
			require.Equal(t, []any{next, want}, []any{same, got}, "%v, %v later: word %d at %d", limit, time.Duration(step), word, instant)
			word = next
			require.Equal(t, max(before.FreshAt(word)-policy.Instant(step), 0), after.FreshAt(word), "%v, %v later", limit, time.Duration(step))
		}
	}
}

func TestAnchoredCopiesAreMadeOnce(t *testing.T) {
	limit := policy.Must(policy.CalendarWindow(5, policy.Day, "Europe/Berlin")).(policy.Anchored)
	zero := time.Date(2026, 11, 22, 22, 0, 0, 0, time.UTC)
	anchored := limit.Anchor(zero)
	assert.Same(t, anchored, limit.Anchor(zero), "a limit is anchored to the same zero twice")
	assert.Same(t, anchored, anchored.(policy.Anchored).Anchor(zero))
	assert.Same(t, limit, anchored.(policy.Anchored).Anchor(time.Unix(0, 0)))
	assert.Same(t, limit, limit.Anchor(time.Unix(-5, 0)), "a zero before 1970 counts as 1970")
	assert.Equal(t, "window 5/day in Europe/Berlin", anchored.String())
	assert.False(t, anchored.(policy.Relative).Reads(limit.(policy.Policy)), "the two limits count from other zeros")
	other := policy.Must(policy.CalendarWindow(7, policy.Day, "Europe/Berlin")).(policy.Anchored).Anchor(zero)
	assert.True(t, anchored.(policy.Relative).Reads(other))

	// Some engines that share a limit cost nothing either.
	for name, engines := range map[string]int{"one": 1, "four": 4} {
		i := 0
		assert.Zero(t, testing.AllocsPerRun(100, func() {
			i++
			limit.Anchor(zero.Add(time.Duration(i % engines)))
		}), name)
	}

	// The last zero leaves room for all windows.
	for unit := policy.Day; unit <= policy.Year; unit++ {
		p := policy.Must(policy.CalendarWindow(5, unit, "UTC")).(policy.Anchored)
		last := p.Anchor(time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC))
		assert.Same(t, last, p.Anchor(time.Date(2260, 1, 1, 0, 0, 0, 0, time.UTC)))
		word, decision := last.Take(0, endOfAligned, 5, 0)
		assert.True(t, decision.Allowed)
		assert.Positive(t, decision.ResetAfter)
		_, decision = last.Take(word, endOfAligned, 1, policy.Never)
		assert.Equal(t, policy.Never, decision.RetryAfter, "time stands still before the next window")
	}
}
