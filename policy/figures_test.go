package policy_test

import (
	"math"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/policy"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// figures are limits by the texts that String writes.
var figures = []struct {
	text  string
	limit policy.Policy
	// window is 0 if it is not of interest.
	window time.Duration
	// says is empty if it is not of interest.
	says string
}{
	{"funnel 100, 10/s", policy.Must(policy.Funnel(100, 10, time.Second)), 10 * time.Second, "at most 100 at once, and 10 a second after that"},
	// The window is 3/7 of a second, rounded up.
	{"funnel 3, 7/s", policy.Must(policy.Funnel(3, 7, time.Second)), 428571429, ""},
	{"funnel 100000000, 700000/s", policy.Must(policy.Funnel(100_000_000, 700_000, time.Second)), 142857142858, ""},
	{"funnel 1, 5/h", policy.Must(policy.Funnel(1, 5, time.Hour)), 12 * time.Minute, "at most 1 at once, and 5 an hour after that"},
	{"funnel 1, 1/2h", policy.Must(policy.Funnel(1, 1, 2*time.Hour)), 2 * time.Hour, "at most 1 at once, and 1 every 2h after that"},
	{"funnel 2, 3/d", policy.Must(policy.Funnel(2, 3, 24*time.Hour)), 16 * time.Hour, "at most 2 at once, and 3 a day after that"},
	{"funnel 2, 3/ms", policy.Must(policy.Funnel(2, 3, time.Millisecond)), 666667, "at most 2 at once, and 3 a millisecond after that"},
	{"funnel 2, 3/us", policy.Must(policy.Funnel(2, 3, time.Microsecond)), 667, "at most 2 at once, and 3 a microsecond after that"},
	{"funnel 2000, 1000/us", policy.Must(policy.Funnel(2000, 1000, time.Microsecond)), 2000, "at most 2000 at once, and 1000 a microsecond after that"},
	{"queue 9, 10/s", policy.Must(policy.Queue(9, 10, time.Second)), time.Second, "10 a second, evenly spaced, with room for 9 to wait"},
	{"queue 0, 2/3s", policy.Must(policy.Queue(0, 2, 3*time.Second)), 3 * time.Second / 2, "2 every 3s, evenly spaced, and no room to wait"},
	{"queue 0, 1/6205d", policy.Must(policy.Queue(0, 1, 17*year)), 17 * year, ""},
	{"bursty 1/ms, 5", policy.Must(policy.Bursty(1, time.Millisecond, 5)), 2147483647 * time.Millisecond,
		"1 a millisecond, with up to 5 saved from quiet times, and larger calls on credit"},
	// The Limit of this one is 1.
	{"bursty 1/h, 100000", policy.Must(policy.Bursty(1, time.Hour, 100_000)), 0, ""},
	{"warming up 1000/s over 1s, cold 3", policy.Must(policy.WarmingUp(1000, time.Second, time.Second, 3)), 2147483647 * time.Millisecond,
		"1000 a second once warm: after a pause a key is 3 times slower, and warms up over 1s"},
	{"warming up 1/s over 1ns, cold 1e08", policy.Must(policy.WarmingUp(1, time.Second, 1, 1e8)), 0, ""},
	{"window 1000/h", policy.Must(policy.FixedWindow(1000, time.Hour)), time.Hour, "at most 1000 in each window of 1h, which begins with the first call"},
	{"window 1000/h aligned", policy.Must(policy.AlignedWindow(1000, time.Hour)), time.Hour, "at most 1000 in each window of 1h, aligned to the clock"},
	{"window 10/7d aligned", policy.Must(policy.AlignedWindow(10, 168*time.Hour)), 168 * time.Hour, ""},
	// The months of 400 years.
	{"window 10000/month in Europe/Berlin", policy.Must(policy.CalendarWindow(10000, policy.Month, "Europe/Berlin")), 146097 * 86400 / 4800 * time.Second, ""},
	{"window 5/week in Etc/GMT+3", policy.Must(policy.CalendarWindow(5, policy.Week, "Etc/GMT+3")), 7 * 24 * time.Hour, ""},
	{"window 5/year in Local", policy.Must(policy.CalendarWindow(5, policy.Year, "Local")), 146097 * 86400 / 400 * time.Second, ""},
	{"window 5/month in UTC", policy.Must(policy.CalendarWindow(5, policy.Month, "UTC")), 0, "at most 5 in each calendar month in UTC"},
	{"window 1000/month from 20 in Europe/Berlin", policy.Must(policy.CalendarWindow(1000, policy.Month, "Europe/Berlin", 20)), 146097 * 86400 / 4800 * time.Second,
		"at most 1000 in each month from its day 20 in Europe/Berlin"},
	{"window 1000/month from 31 in UTC", policy.Must(policy.CalendarWindow(1000, policy.Month, "UTC", 31)), 0,
		"at most 1000 in each month from its day 31, or else its last day, in UTC"},
	{"sliding 100/m", policy.Must(policy.SlidingWindow(100, time.Minute)), time.Minute, "at most 100 in the last 1m, estimated from the counts of two windows"},
	{"sliding 3/1007ns", policy.Must(policy.SlidingWindow(3, 1007)), 1007, ""},
	{"at most 5/10m", policy.Must(policy.AtMost(5, 10*time.Minute)), 10 * time.Minute, "at most 5 in any 10m, where a unit counts for up to 9/8 of that"},
	{"in flight 10, 1m at most", policy.Must(policy.InFlight(10, time.Minute)), 0, "at most 10 at a time, each for no longer than 1m"},
	{"in flight 10, 1500us at most", policy.Must(policy.InFlight(10, 1500*time.Microsecond)), 0, ""},
	{"at most 5/1001us", policy.Must(policy.AtMost(5, 1001*time.Microsecond)), 0, ""},
}

func TestTextsWindowsAndDescriptionsAreTheLimits(t *testing.T) {
	for _, c := range figures {
		assert.Equal(t, c.text, c.limit.String())
		parsed, err := policy.Parse(c.text)
		require.NoError(t, err)
		assert.Equal(t, c.limit, parsed, c.text)
		if c.window > 0 {
			assert.Equal(t, c.window, c.limit.(policy.Windowed).Window(), c.text)
		}
		if c.says != "" {
			assert.Equal(t, c.says, policy.Describe(c.limit), c.text)
		}
	}
	assert.Equal(t, "no limit", policy.Describe(nil))
}

// The notation needs no quoting in YAML and in a query string, nor, without spaces, in a shell.
func TestNotationNeedsNoQuoting(t *testing.T) {
	for _, c := range figures {
		assert.NotRegexp(t, `[:#"'{}\[\]&*!|>%@\\?=;$()<~]|^[-,]|[^ -~]`, c.text)
		if strings.Contains(c.text, "GMT+") {
			// The plus in the name of a zone is the only sign that a query string changes.
			continue
		}
		values, err := url.ParseQuery("limit=" + strings.ReplaceAll(c.text, " ", "+"))
		require.NoError(t, err)
		for _, text := range []string{values.Get("limit"), strings.ReplaceAll(c.text, " ", "_")} {
			limit, err := policy.Parse(text)
			require.NoError(t, err)
			assert.Equal(t, c.text, limit.String())
		}
	}
}

// AtOnce is the Remaining of a key unused for 20 years, with every store full: so many calls of
// one unit pass.
func TestAtOnceIsTheRemainingOfAnIdleKey(t *testing.T) {
	const late = policy.Instant(20 * year)
	for _, c := range figures {
		_, decision := c.limit.Take(0, late, 0, 0)
		require.Equal(t, decision.Remaining, shape.AtOnce(c.limit), c.text)
		if c.limit.Delays() || decision.Limit == 1 || decision.Remaining > 10_000 {
			// A queue's calls wait, and the store of that Bursty is larger than its Limit.
			continue
		}
		word, passed := uint64(0), int64(0)
		for ; passed <= decision.Remaining; passed++ {
			next, d := c.limit.Take(word, late, 1, 0)
			if !d.Allowed {
				break
			}
			word = next
		}
		require.Equal(t, decision.Remaining, passed, c.text)
	}
}

// Each figure of a shape is read off words and decisions.
func TestShapesAgreeWithWordsAndDecisions(t *testing.T) {
	const now = policy.Instant(1_000_000_007)
	for _, c := range []struct {
		text     string
		kind     shape.Kind
		capacity int64
		count    int64
		per      time.Duration
	}{
		{"funnel 7, 3/s", shape.Funnel, 7, 3, time.Second},
		{"funnel 1, 1000000/s", shape.Funnel, 1, 1_000_000, time.Second},
		{"queue 0, 7/m", shape.Queue, 0, 7, time.Minute},
		{"queue 20, 10/s", shape.Queue, 20, 10, time.Second},
		{"bursty 5/s, 3", shape.Bursty, 3, 5, time.Second},
		{"bursty 1/365d, 0", shape.Bursty, 0, 1, year},
		{"window 10/m", shape.FixedWindow, 0, 0, time.Minute},
		{"window 1000000/3333333ns", shape.FixedWindow, 0, 0, 3333333},
		{"window 2000000/m", shape.FixedWindow, 0, 0, time.Minute},
		{"window 10000000/1001ms", shape.FixedWindow, 0, 0, 1001 * time.Millisecond},
		{"window 500000000/30d", shape.FixedWindow, 0, 0, 30 * 24 * time.Hour},
		{"sliding 100/s", shape.SlidingWindow, 0, 0, time.Second},
		{"sliding 3/1007ns", shape.SlidingWindow, 0, 0, 1007},
	} {
		t.Run(c.text, func(t *testing.T) {
			limit := policy.Must(policy.Parse(c.text))
			s := limit.(shape.Shaped).Shape()
			assert.Equal(t, []any{c.kind, c.capacity, c.count, c.per, limit.Limit()}, []any{s.Kind, s.Capacity, s.Count, s.Per, s.Limit})
			reset := func(at policy.Instant) time.Duration {
				_, d := limit.Take(policy.MaxWord, at, 0, 0)
				return d.ResetAfter
			}
			end := policy.Instant(s.End)
			assert.Equal(t, reset(end), reset(math.MaxInt64), "ResetAfter at End, where time stands still, and at a later instant")
			assert.Equal(t, reset(end)+1, reset(end-1), "ResetAfter at End and a nanosecond before")
			if c.count > 0 {
				one, _ := limit.Take(0, now, 1, 0)
				two, d := limit.Take(one, now, 1, math.MaxInt64)
				require.True(t, d.Allowed || s.Limit == 1)
				if d.Allowed {
					assert.Equal(t, s.Interval, two-one)
				}
				assert.Equal(t, s.Interval*uint64(s.Capacity), s.Depth)
				return
			}
			word, d := limit.Take(0, now, 2, 0)
			require.True(t, d.Allowed)
			full := uint64(1)<<s.Bits - 1
			assert.Equal(t, uint64(2), word&full, "the lowest bits of the word are the count")
			charged := limit.(policy.Refunder).Refund(word, now, math.MinInt64+1)
			assert.Equal(t, full, charged&full, "a charge fills the bits of the count")
			shift, number, ends := 2*s.Bits, uint64(now)/uint64(s.Per), (s.Last+1)*uint64(s.Per)-1
			if c.kind == shape.FixedWindow {
				assert.Equal(t, (uint64(s.Per)+s.Step-1)/s.Step, s.Length)
				shift, number, ends = s.Bits+1, (uint64(now)-1+s.Step-1)/s.Step+s.Length, 1+(s.Last-s.Length)*s.Step
			}
			assert.Equal(t, number, word>>shift)
			assert.Equal(t, ends, uint64(s.End))
			// A word above the last window is taken for it.
			assert.Less(t, limit.FreshAt((s.Last-1)<<shift|1), limit.FreshAt(s.Last<<shift|1))
			assert.Equal(t, limit.FreshAt(s.Last<<shift|1), limit.FreshAt((s.Last+1)<<shift|1))
		})
	}
}
