package fleet

import (
	"math"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/fleet/internal/storetest"
	"github.com/ral-limiter/ral/internal/testkit/testenv"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// TestClockStepsMintNothing steps Redis's clock back and forth in the scripts' input: no more is admitted than
// in the time from the earliest instant to the latest.
// Promise: A Redis clock stepping back and forth mints nothing.
func TestClockStepsMintNothing(t *testing.T) {
	must := policy.Must
	const per = 10 * time.Second
	sliding := policy.Must(SlidingLog(20, per))
	for _, c := range []struct {
		p policy.Policy
		// most bounds the admissions in a span of so many periods.
		most func(periods float64) float64
	}{
		{must(policy.Funnel(20, 20, per)), func(n float64) float64 { return 20 + 20*n }},
		{must(policy.Queue(19, 20, per)), func(n float64) float64 { return 20 + 20*n }},
		{must(policy.Bursty(20, per, 20)), func(n float64) float64 { return 20 + 20*n + 1 }},
		{must(policy.FixedWindow(20, per)), func(n float64) float64 { return 20 * (math.Floor(n) + 1) }},
		{must(policy.SlidingWindow(20, per)), func(n float64) float64 { return 20 * (math.Floor(n) + 2) }},
		{must(policy.AlignedWindow(20, per)), func(n float64) float64 { return 20 * (math.Floor(n) + 2) }},
		{sliding, func(n float64) float64 { return 20 * (math.Floor(n) + 1) }},
	} {
		t.Run(c.p.String(), func(t *testing.T) {
			inBubble(t, func(t *testing.T, redis *storetest.Redis) {
				const start = int64(time.Hour / time.Microsecond)
				us, least, latest := start, start, start
				// clock has us, which the keeper reads as well.
				var clock atomic.Int64
				clock.Store(us)
				config := on(redis, c.p)
				config.clock = clock.Load
				l := open(t, config)
				seed := testenv.Seed(t)
				random := rand.New(rand.NewPCG(seed, 0))
				admitted := 0
				for i := range 3000 {
					a := take(t, l, "a", 1)
					require.Equal(t, limits.SourceRedis, a.Source(), a.Err())
					if a.Allowed {
						admitted++
						least, latest = min(least, us), max(latest, us)
					}
					switch step := random.Int64N(int64(per / time.Microsecond)); {
					// The clock jumps far away.
					case i%100 == 99:
						us += random.Int64N(2*step+1) - step
					case i%2 == 0:
						us += step / 20
					default:
						us -= step / 25
					}
					us = max(us, 0)
					clock.Store(us)
				}
				span := float64(latest-least) / float64(per/time.Microsecond)
				require.LessOrEqual(t, float64(admitted), c.most(span), "seed %d, %v periods", seed, span)
				require.Greater(t, admitted, 19, "seed %d", seed)
				t.Logf("%d of at most %.0f", admitted, c.most(span))
			})
		})
	}
}
