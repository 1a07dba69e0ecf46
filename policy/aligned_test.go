package policy_test

import (
	"testing"
	"time"

	"github.com/ral-limiter/ral/policy"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// begins returns the beginnings of the windows after zero, by ResetAfter.
func begins(t *testing.T, p policy.Policy, zero time.Time, count int) (all []time.Time) {
	t.Helper()
	now := policy.Instant(1)
	for range count {
		word, d := p.Take(0, now, p.Limit(), 0)
		require.True(t, d.Allowed)
		end := now + policy.Instant(d.ResetAfter)
		_, before := p.Take(word, end-1, 1, 0)
		require.Equal(t, time.Duration(1), before.RetryAfter)
		_, then := p.Take(word, end, 0, 0)
		require.Equal(t, policy.Decision{Allowed: true, Limit: p.Limit(), Remaining: p.Limit()}, then)
		all = append(all, zero.Add(time.Duration(end)))
		now = end
	}
	return all
}

// Days of 23 and 25 hours, midnights left out, shown twice or gone back over, days left out, leap
// days, and months of each length.
func TestCalendarWindowsBeginWhenClocksShowIt(t *testing.T) {
	for _, c := range []struct {
		unit  policy.Calendar
		zone  string
		after string // UTC, as are the beginnings
		want  []string
	}{
		{policy.Day, "Europe/Berlin", "2026-03-28T12:00:00Z", []string{"2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z", "2026-03-30T22:00:00Z"}},
		{policy.Day, "Europe/Berlin", "2026-10-24T12:00:00Z", []string{"2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z", "2026-10-26T23:00:00Z"}},
		// 00:00 does not exist: the clocks go from 23:59:59 to 01:00.
		{policy.Day, "America/Sao_Paulo", "2017-10-14T12:00:00Z", []string{"2017-10-15T03:00:00Z", "2017-10-16T02:00:00Z"}},
		// Instead of midnight the clocks show 23:00 again, and midnight an hour later.
		{policy.Day, "America/Sao_Paulo", "2018-02-17T12:00:00Z", []string{"2018-02-18T03:00:00Z", "2018-02-19T03:00:00Z"}},
		// From 00:59:59 they go back to 00:00, which is shown twice.
		{policy.Day, "America/Havana", "2024-11-02T12:00:00Z", []string{"2024-11-03T04:00:00Z", "2024-11-04T05:00:00Z"}},
		// From 00:01 they go back to 23:01 of the day before, a minute into the day.
		{policy.Day, "America/St_Johns", "2006-10-28T12:00:00Z", []string{"2006-10-29T02:30:00Z", "2006-10-30T03:30:00Z"}},
		// The 30th did not exist.
		{policy.Day, "Pacific/Apia", "2011-12-29T12:00:00Z", []string{"2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z"}},
		{policy.Month, "UTC", "2028-01-15T12:00:00Z", []string{"2028-02-01T00:00:00Z", "2028-03-01T00:00:00Z", "2028-04-01T00:00:00Z", "2028-05-01T00:00:00Z"}},
		{policy.Month, "UTC", "2100-02-15T12:00:00Z", []string{"2100-03-01T00:00:00Z"}}, // no leap year
		{policy.Week, "Europe/Berlin", "2026-10-20T12:00:00Z", []string{"2026-10-25T23:00:00Z", "2026-11-01T23:00:00Z"}},
		{policy.Year, "Asia/Kathmandu", "2026-10-20T12:00:00Z", []string{"2026-12-31T18:15:00Z", "2027-12-31T18:15:00Z", "2028-12-31T18:15:00Z"}},
		// Package time tells no end of such a year's last day.
		{policy.Day, "Europe/Berlin", "2040-12-30T12:00:00Z", []string{"2040-12-30T23:00:00Z", "2040-12-31T23:00:00Z", "2041-01-01T23:00:00Z"}},
	} {
		p := policy.Must(policy.CalendarWindow(5, c.unit, c.zone)).(policy.Anchored)
		zero, err := time.Parse(time.RFC3339, c.after)
		require.NoError(t, err)
		var got []string
		for _, at := range begins(t, p.Anchor(zero), zero, len(c.want)) {
			got = append(got, at.UTC().Format(time.RFC3339Nano))
		}
		assert.Equal(t, c.want, got, "%v after %s", p, c.after)
	}
}

// A day that the clocks have shown is not left again, and no turn lies in a day left out.
func TestCalendarWindowsOfStrangeDays(t *testing.T) {
	at := func(text string) time.Time {
		when, err := time.Parse(time.RFC3339, text)
		require.NoError(t, err)
		return when
	}
	// A minute after midnight the clocks went back by an hour, to the day before.
	zero := at("2006-10-29T02:30:00Z")
	p := policy.Must(policy.CalendarWindow(5, policy.Day, "America/St_Johns")).(policy.Anchored).Anchor(zero)
	word, d := p.Take(0, 1, 2, 0)
	require.Equal(t, policy.Decision{Allowed: true, Limit: 5, Remaining: 3, ResetAfter: 25*time.Hour - 1}, d)
	for _, later := range []time.Duration{59 * time.Second, time.Minute, 30 * time.Minute, 61 * time.Minute} {
		_, d = p.Take(word, policy.Instant(later), 0, 0)
		require.Equal(t, policy.Decision{Allowed: true, Limit: 5, Remaining: 3, ResetAfter: 25*time.Hour - later}, d, later)
		_, d = p.Take(0, policy.Instant(later), 5, 0)
		require.Equal(t, policy.Decision{Allowed: true, Limit: 5, ResetAfter: 25*time.Hour - later}, d, later)
	}

	zero = at("2011-12-30T08:00:00Z")
	p = policy.Must(policy.CalendarWindow(5, policy.Day, "Pacific/Apia")).(policy.Anchored).Anchor(zero)
	word, _ = p.Take(0, 1, 5, 0)
	word, d = p.Take(word, 1, 4, 24*time.Hour)
	require.Equal(t, policy.Decision{Allowed: true, Limit: 5, Wait: 2*time.Hour - 1, ResetAfter: 26*time.Hour - 1}, d)
	_, d = p.Take(word, policy.Instant(2*time.Hour), 0, 0)
	require.Equal(t, policy.Decision{Allowed: true, Limit: 5, Remaining: 1, ResetAfter: 24 * time.Hour}, d)
}

// Each window of nine years begins when the oracle says, in each zone.
// Promise: Calendar windows begin when the zone's clocks first show their first day.
func TestCalendarWindowsAgreeWithTheClocks(t *testing.T) {
	for i, zone := range zones {
		for unit := policy.Day; unit <= policy.Year; unit++ {
			zero := time.Date(2009+7*(i%5), time.Month(1+i%12), 1+2*i, i, 30, 0, 123, time.UTC)
			s := calendarOf(1, unit, zone, zero)
			model := s.oracle.(*fromTo)
			now, windows := int64(1), 0
			for now < int64(endOfAligned) {
				_, d := s.Take(0, policy.Instant(now), 1, 0)
				_, to := model.around(model.zero + now)
				if end := model.zero + now + int64(d.ResetAfter); end != to {
					require.Equal(t, time.Unix(0, to).UTC(), time.Unix(0, end).UTC(), "%v, the window of %v", s, time.Unix(0, model.zero+now).UTC())
				}
				now = to - model.zero
				windows++
			}
			if unit == policy.Day {
				assert.InDelta(t, 3336, windows, 2)
			}
		}
	}
}

// Promise: Aligned windows' words keep their meaning after a restart.
func TestAlignedWordsSurviveARestart(t *testing.T) {
	first := time.Date(2026, 11, 22, 21, 58, 0, 0, time.UTC)
	for _, limit := range []policy.Policy{
		policy.Must(policy.AlignedWindow(5, time.Hour)),
		policy.Must(policy.AlignedWindow(5, 7*time.Millisecond)),
		policy.Must(policy.CalendarWindow(5, policy.Month, "Europe/Berlin")),
		policy.Must(policy.CalendarWindow(5, policy.Day, "Pacific/Apia")),
	} {
		before := limit.(policy.Anchored).Anchor(first)
		for _, down := range []time.Duration{1, time.Minute, 90 * 24 * time.Hour, 3000 * 24 * time.Hour} {
			after := limit.(policy.Anchored).Anchor(first.Add(down))
			var word uint64
			for _, at := range []time.Duration{0, time.Millisecond, time.Hour, 40 * 24 * time.Hour} {
				now := policy.Instant(down + at)
				for range 4 {
					next, d := before.Take(word, now, 2, time.Hour)
					same, then := after.Take(word, policy.Instant(at), 2, time.Hour)
					require.Equal(t, next, same, "%v, %v later", limit, down)
					require.Equal(t, d, then, "%v, %v later", limit, down)
					word = next
				}
				require.Equal(t, before.FreshAt(word)-now, after.FreshAt(word)-policy.Instant(at))
			}
		}
	}
}

// After a restart with a stepped wall clock, the words of before remain. If the clock went back,
// a key waits no longer than the step, and the window if that was full. If it went forward,
// windows end earlier by as much.
func TestAlignedWordsAfterAStep(t *testing.T) {
	const now = policy.Instant(40 * time.Minute)
	zero := time.Date(2026, 11, 22, 21, 0, 0, 0, time.UTC)
	limit := policy.Must(policy.AlignedWindow(5, time.Hour)).(policy.Anchored)
	before := limit.Anchor(zero)
	some, _ := before.Take(0, now, 3, 0)
	full, _ := before.Take(some, now, 2, 0)
	for _, c := range []struct {
		step        time.Duration
		retry, full time.Duration // until another is admitted
	}{
		{-time.Nanosecond, 0, 20*time.Minute + 1},
		{-40 * time.Minute, 0, time.Hour},
		{-40*time.Minute - 1, 1, time.Hour + 1},
		{-5 * time.Hour, 4*time.Hour + 20*time.Minute, 5*time.Hour + 20*time.Minute},
		{19 * time.Minute, 0, time.Minute},
		{20 * time.Minute, 0, 0},
	} {
		after := limit.Anchor(zero.Add(c.step))
		_, d := after.Take(some, now, 1, 0)
		assert.Equal(t, c.retry, d.RetryAfter, c.step)
		assert.LessOrEqual(t, d.RetryAfter, max(-c.step, 0))
		_, d = after.Take(some, now+policy.Instant(c.retry), 0, 0)
		if c.step < 20*time.Minute {
			assert.Equal(t, int64(2), d.Remaining, "%v: what was taken counts", c.step)
		}
		_, d = after.Take(full, now, 1, 0)
		assert.Equal(t, c.full, d.RetryAfter, c.step)
	}
}

func TestAnchor(t *testing.T) {
	limit := policy.Must(policy.CalendarWindow(5, policy.Day, "Europe/Berlin")).(policy.Anchored)
	zero := time.Date(2026, 11, 22, 22, 0, 0, 0, time.UTC)
	anchored := limit.Anchor(zero)
	assert.Same(t, anchored, limit.Anchor(zero), "it is made once")
	assert.Same(t, anchored, anchored.(policy.Anchored).Anchor(zero))
	assert.Same(t, limit, anchored.(policy.Anchored).Anchor(time.Unix(0, 0)))
	assert.Same(t, limit, limit.Anchor(time.Unix(-5, 0)), "before 1970 is 1970")
	assert.Equal(t, "window 5/day in Europe/Berlin", anchored.String())
	assert.False(t, anchored.(policy.Relative).Reads(limit.(policy.Policy)), "their instants are not the same")
	other := policy.Must(policy.CalendarWindow(7, policy.Day, "Europe/Berlin")).(policy.Anchored).Anchor(zero)
	assert.True(t, anchored.(policy.Relative).Reads(other))
	for _, stranger := range []policy.Policy{
		policy.Must(policy.CalendarWindow(5, policy.Week, "Europe/Berlin")), policy.Must(policy.CalendarWindow(5, policy.Day, "Europe/Paris")),
		policy.Must(policy.AlignedWindow(5, 24*time.Hour)),
	} {
		assert.False(t, anchored.(policy.Relative).Reads(stranger.(policy.Anchored).Anchor(zero)), stranger)
	}

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
		word, d := last.Take(0, endOfAligned, 5, 0)
		assert.True(t, d.Allowed)
		assert.Positive(t, d.ResetAfter)
		_, d = last.Take(word, endOfAligned, 1, policy.Never)
		assert.Equal(t, policy.Never, d.RetryAfter, "time stands still before the next window")
	}
}
