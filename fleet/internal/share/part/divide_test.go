package part

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/fleet/internal/slidinglog"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/policy"
)

func TestShareIsAPartOfTheLimit(t *testing.T) {
	want := policy.Must
	for _, c := range []struct {
		whole   policy.Policy
		servers int
		part    string
	}{
		{want(policy.Funnel(100, 10, time.Second)), 0, "funnel 100, 10/s"},
		{want(policy.Funnel(100, 10, time.Second)), 3, "funnel 33, 10/3s"},
		{want(policy.Funnel(2, 10, time.Second)), 5, "funnel 1, 10/5s"},
		{want(policy.Queue(19, 10, time.Second)), 4, want(policy.Queue(4, 10, 4*time.Second)).String()},
		{want(policy.Bursty(10, time.Second, 9)), 4, want(policy.Bursty(10, 4*time.Second, 2)).String()},
		{want(policy.FixedWindow(100, time.Minute)), 7, want(policy.FixedWindow(14, time.Minute)).String()},
		{want(policy.FixedWindow(3, time.Minute)), 7, want(policy.FixedWindow(1, 3*time.Minute)).String()},
		{want(policy.FixedWindow(1, 366*24*time.Hour)), 7, want(policy.FixedWindow(1, 366*24*time.Hour)).String()},
		{want(policy.SlidingWindow(100, time.Minute)), 7, want(policy.SlidingWindow(14, time.Minute)).String()},
		{want(policy.AlignedWindow(100, time.Minute)), 7, want(policy.AlignedWindow(14, time.Minute)).String()},
		{must.Get(slidinglog.New(100, time.Second)), 4, want(policy.AtMost(25, time.Second)).String()},
		// One unit in 12 years cannot be divided.
		{want(policy.Funnel(1, 1, 12*366*24*time.Hour)), 64, want(policy.Funnel(1, 1, 12*366*24*time.Hour)).String()},
	} {
		part, err := Of(c.whole, c.servers)
		require.NoError(t, err)
		assert.Equal(t, c.part, part.String(), "%v by %d", c.whole, c.servers)
	}
	for _, p := range []policy.Policy{want(policy.AtMost(1, time.Second)), want(policy.WarmingUp(1, time.Second, time.Second, 3))} {
		_, err := Of(p, 2)
		require.ErrorContains(t, err, "has no shares")
	}
}
