package share

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/fleet/internal/slidinglog"
	"github.com/ral-limiter/ral/policy"
)

func log(t *testing.T) policy.Policy {
	t.Helper()
	l, err := slidinglog.New(100, time.Second)
	require.NoError(t, err)
	return l
}

func TestShareIsAPartOfTheLimit(t *testing.T) {
	must := policy.Must
	for _, c := range []struct {
		whole   policy.Policy
		servers int
		part    string
	}{
		{must(policy.Funnel(100, 10, time.Second)), 1, "funnel 100, 10/s"},
		{must(policy.Funnel(100, 10, time.Second)), 0, "funnel 100, 10/s"},
		{must(policy.Funnel(100, 10, time.Second)), 3, "funnel 33, 10/3s"},
		{must(policy.Funnel(2, 10, time.Second)), 5, "funnel 1, 10/5s"},
		{must(policy.Queue(19, 10, time.Second)), 4, must(policy.Queue(4, 10, 4*time.Second)).String()},
		{must(policy.Queue(0, 10, time.Second)), 4, must(policy.Queue(0, 10, 4*time.Second)).String()},
		{must(policy.Bursty(10, time.Second, 9)), 4, must(policy.Bursty(10, 4*time.Second, 2)).String()},
		{must(policy.FixedWindow(100, time.Minute)), 7, must(policy.FixedWindow(14, time.Minute)).String()},
		{must(policy.FixedWindow(3, time.Minute)), 7, must(policy.FixedWindow(1, 3*time.Minute)).String()},
		{must(policy.FixedWindow(1, 366*24*time.Hour)), 7, must(policy.FixedWindow(1, 366*24*time.Hour)).String()},
		{must(policy.SlidingWindow(100, time.Minute)), 7, must(policy.SlidingWindow(14, time.Minute)).String()},
		{must(policy.AlignedWindow(100, time.Minute)), 7, must(policy.AlignedWindow(14, time.Minute)).String()},
		{log(t), 4, must(policy.AtMost(25, time.Second)).String()},
		// One unit in 12 years cannot be divided.
		{must(policy.Funnel(1, 1, 12*366*24*time.Hour)), 64, must(policy.Funnel(1, 1, 12*366*24*time.Hour)).String()},
	} {
		part, err := Of(c.whole, c.servers)
		require.NoError(t, err)
		assert.Equal(t, c.part, part.String(), "%v by %d", c.whole, c.servers)
	}
}

func TestLimitsWithoutShares(t *testing.T) {
	for _, p := range []policy.Policy{
		policy.Must(policy.AtMost(1, time.Second)),
		policy.Must(policy.WarmingUp(1, time.Second, time.Second, 3)),
	} {
		_, err := Of(p, 2)
		require.ErrorContains(t, err, "has no shares")
	}
}

func TestSharesKeepTheLimit(t *testing.T) {
	const (
		tick = 10 * time.Millisecond
		span = 4 * time.Second
	)
	must := policy.Must
	for _, c := range []struct {
		whole policy.Policy
		// most is the whole's units in the span; fresh is the units of a server beyond the divisor.
		most, fresh int64
	}{
		{must(policy.Funnel(40, 10, time.Second)), 40 + 40, 0},
		{must(policy.Funnel(2, 10, time.Second)), 2 + 40, 1},
		{must(policy.Queue(39, 10, time.Second)), 40 + 40, 0},
		{must(policy.Bursty(10, time.Second, 40)), 40 + 40, 1}, // the last call adds to it
		{must(policy.FixedWindow(40, time.Second)), 4 * 40, 0},
		{must(policy.FixedWindow(2, time.Second)), 4 * 2, 1},
		{must(policy.SlidingWindow(40, time.Second)), 4 * 40, 0},
		{must(policy.AlignedWindow(40, time.Second)), 4 * 40, 0},
		{log(t), 4 * 100, 0},
	} {
		for _, servers := range []int{1, 2, 3, 8} {
			t.Run(fmt.Sprint(c.whole, servers), func(t *testing.T) {
				part, err := Of(c.whole, servers)
				require.NoError(t, err)
				words := make([]uint64, servers)
				var admitted int64
				for now := policy.Instant(1); now < policy.Instant(span); now += policy.Instant(tick) {
					for i := range words {
						for d := (policy.Decision{Allowed: true}); d.Allowed; {
							if words[i], d = part.Take(words[i], now, 1, 0); d.Allowed {
								admitted++
							}
						}
					}
				}
				require.LessOrEqual(t, admitted, c.most+c.fresh*int64(servers))
				require.GreaterOrEqual(t, admitted, c.most/2, "and not much less")
			})
		}
	}
}
