package share

import (
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
		{must(policy.Funnel(100, 10, time.Second)), 0, "funnel 100, 10/s"},
		{must(policy.Funnel(100, 10, time.Second)), 3, "funnel 33, 10/3s"},
		{must(policy.Funnel(2, 10, time.Second)), 5, "funnel 1, 10/5s"},
		{must(policy.Queue(19, 10, time.Second)), 4, must(policy.Queue(4, 10, 4*time.Second)).String()},
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
	for _, p := range []policy.Policy{must(policy.AtMost(1, time.Second)), must(policy.WarmingUp(1, time.Second, time.Second, 3))} {
		_, err := Of(p, 2)
		require.ErrorContains(t, err, "has no shares")
	}
}
