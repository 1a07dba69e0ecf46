package policy_test

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/ral-limiter/ral/policy"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Promise: Limits that cannot be kept as asked are refused.
func TestFunnelRefuses(t *testing.T) {
	const most = math.MaxInt64
	for _, c := range []struct {
		name            string
		capacity, count int64
		per             time.Duration
		field           string
		value           any
		want            string // a part of what the error asks for
	}{
		{"no capacity", 0, 1, time.Second, "capacity", int64(0), "1 or more"},
		{"capacity below nothing", -3, 1, time.Second, "capacity", int64(-3), "1 or more"},
		{"least capacity", math.MinInt64, 1, time.Second, "capacity", int64(math.MinInt64), "1 or more"},
		{"no count", 1, 0, time.Second, "count", int64(0), "1 or more"},
		{"count below nothing", 1, -7, time.Second, "count", int64(-7), "1 or more"},
		{"least count", 1, math.MinInt64, time.Second, "count", int64(math.MinInt64), "1 or more"},
		{"no period", 1, 1, 0, "per", time.Duration(0), "1ns or more"},
		{"period below nothing", 1, 1, -time.Minute, "per", -time.Minute, "1ns or more"},
		{"least period", 1, 1, math.MinInt64, "per", time.Duration(math.MinInt64), "1ns or more"},

		{"the first of several is named", 0, 0, 0, "capacity", int64(0), "1 or more"},

		// A unit that takes more than 17 years fits no bucket: the period is at fault.
		{"one in 18 years", 1, 1, 18 * year, "per", 18 * year, "17 years"},
		{"a tick more than a unit may take", 1, 1, longestDrain + 1, "per", longestDrain + 1, "at most 150119h59m15.28445952s at a count of 1: a unit must not take more than 17 years"},
		{"longest period", 1, 1, most, "per", time.Duration(most), "17 years"},
		{"longest period, 17 units", 1, 17, most, "per", time.Duration(most), "at most 2552039h47m19.83581184s at a count of 17"},

		{"one a year, 18 deep", 18, 1, year, "capacity", int64(18), "at most 17: a full bucket must drain within 17 years"},
		{"one a second, a unit too deep", 540431956, 1, time.Second, "capacity", int64(540431956), "at most 540431955"},
		{"deepest", most, 1, time.Second, "capacity", int64(most), "at most 540431955"},
		{"deepest, longest, most", most, most, most, "capacity", int64(most), "at most 540431955284459520"},
		{"so deep that its ticks wrap round", 1 << 60, 1, 1, "capacity", int64(1 << 60), "at most 540431955284459520"},

		// 1.67 ns would be kept as 1.6875: more than a percent too slow.
		{"600,000,001 a second", 1, 600_000_001, time.Second, "count", int64(600_000_001), "1.6875ns"},
		{"17 a nanosecond", 1, 17, 1, "count", int64(17), "16 million"},
		{"so many that their excess wraps round", 1, 18_446_744_073_709_553, 17_293_822_569_102_706,
			"count", int64(18_446_744_073_709_553), "unit every 1ns"},
		{"most in a nanosecond", 1, most, 1, "count", int64(most), "16 million"},
		{"most in a year", 1, most, year, "count", int64(most), "0.0625ns"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := policy.Funnel(c.capacity, c.count, c.per)
			refuses(t, p, err, "Funnel", c.field, c.value, c.want)
		})
	}
}

func TestFunnelAccepts(t *testing.T) {
	const most = math.MaxInt64
	for _, c := range []struct {
		name            string
		capacity, count int64
		per             time.Duration
		reset           time.Duration // what a full bucket takes to drain
	}{
		{"one a year, 17 deep", 17, 1, year, 17 * year},
		{"one a second, as deep as can be", 540431955, 1, time.Second, 540431955 * time.Second},
		{"as slow as can be", 1, 1, longestDrain, longestDrain},
		{"longest period", 1, 18, most, most/18 + 1}, // a fraction of a nanosecond less
		{"a billion a second is exact", 1000, 1_000_000_000, time.Second, 1000},
		{"as fast as can be", 16, 16, 1, 1},
		{"as deep and fast as can be", 16 * int64(longestDrain), 16, 1, longestDrain},
		{"most in longest is one a nanosecond", 1, most, most, 1},
		{"16 million a second is always near enough", 1, 15_999_999, time.Second, 63},
		{"so long that its ticks wrap round", 1, 1<<50 + 1, 1 << 60, 1024},
		// Fractions that a sixteenth of a nanosecond cannot hold, rounded up.
		{"three a second", 3, 3, time.Second, time.Second + 1},
		{"700,000 a second", 16, 700_000, time.Second, 22858},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := policy.Funnel(c.capacity, c.count, c.per)
			require.NoError(t, err)
			word, d := p.Take(0, 0, c.capacity, 0)
			assert.Equal(t, policy.Decision{Allowed: true, Limit: c.capacity, ResetAfter: c.reset}, d)
			assert.Equal(t, policy.Instant(c.reset), p.FreshAt(word))
			assert.Zero(t, p.FreshAt(0))
			parsed, err := policy.Parse(p.String())
			require.NoError(t, err)
			assert.Equal(t, p, parsed)
		})
	}
}

func TestMust(t *testing.T) {
	assert.NotPanics(t, func() {
		assert.NotNil(t, policy.Must(policy.Funnel(1, 1, time.Second)))
	})
	_, err := policy.Funnel(0, 1, time.Second)
	require.Error(t, err)
	assert.PanicsWithValue(t, err, func() { policy.Must(nil, err) })
}

func TestFieldErrorText(t *testing.T) {
	err := &policy.FieldError{Of: "engine.Config", Field: "Idle", Value: -time.Second, Want: "0 or more"}
	assert.EqualError(t, err, "ral: engine.Config: Idle is -1s, want 0 or more")
	var field *policy.FieldError
	assert.True(t, errors.As(fmt.Errorf("limits.yaml: %w", err), &field), "it can be wrapped")
	assert.Same(t, err, field)
}
