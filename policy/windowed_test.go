package policy_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/ral-limiter/ral/policy"
)

func TestWindow(t *testing.T) {
	for _, c := range []struct {
		policy policy.Policy
		want   time.Duration
	}{
		{policy.Must(policy.Funnel(100, 10, time.Second)), 10 * time.Second},
		{policy.Must(policy.Funnel(3, 7, time.Second)), 428571429},       // 3/7 of a second, up
		{policy.Must(policy.Funnel(9, 3, time.Second)), 3 * time.Second}, // though each unit is kept a 24th of a nanosecond longer
		{policy.Must(policy.Funnel(100_000_000, 700_000, time.Second)), 142857142858},
		{policy.Must(policy.FixedWindow(1000, time.Hour)), time.Hour},
		{policy.Must(policy.SlidingWindow(10, time.Minute)), time.Minute},
		{policy.Must(policy.AtMost(10, time.Minute)), time.Minute},
		{policy.Must(policy.AlignedWindow(10, time.Minute)), time.Minute},
		{policy.Must(policy.CalendarWindow(10, policy.Day, "Europe/Berlin")), 24 * time.Hour},
		{policy.Must(policy.CalendarWindow(10, policy.Week, "Europe/Berlin")), 7 * 24 * time.Hour},
		{policy.Must(policy.CalendarWindow(10, policy.Month, "Europe/Berlin")), 146097 * 86400 / 4800 * time.Second}, // the months of 400 years
		{policy.Must(policy.CalendarWindow(10, policy.Year, "Europe/Berlin")), 146097 * 86400 / 400 * time.Second},
		{policy.Must(policy.Queue(9, 10, time.Second)), time.Second},
		{policy.Must(policy.Queue(0, 4, time.Second)), time.Second / 4},
		{policy.Must(policy.Bursty(1, time.Millisecond, 5)), 2147483647 * time.Millisecond},
		{policy.Must(policy.WarmingUp(1000, time.Second, time.Second, 3)), 2147483647 * time.Millisecond},
		// A unit in 17 years: a queue's limit is two.
		{policy.Must(policy.Queue(0, 1, 17*365*24*time.Hour)), 17 * 365 * 24 * time.Hour},
	} {
		windowed, ok := c.policy.(policy.Windowed)
		if assert.True(t, ok, "%v", c.policy) {
			assert.Equal(t, c.want, windowed.Window(), "%v", c.policy)
		}
	}
}

// So many in so long.
func ExampleWindowed() {
	limit := policy.Must(policy.Funnel(100, 10, time.Second))
	_, d := limit.Take(0, 1, 0, 0)
	fmt.Println(d.Limit, "in", limit.(policy.Windowed).Window())
	// Output: 100 in 10s
}
