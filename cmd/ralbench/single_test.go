package main

import (
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/single"
)

// Lines that docs/choosing.md pairs with x/time/rate do the same, at any time and for any number of
// units. Calls are admitted alike, and delayed alike to a microsecond, as rate uses floats.
func TestSingleDecidesLikeTimeRate(t *testing.T) {
	for name, limits := range map[string]struct {
		rate   *rate.Limiter
		policy policy.Policy
	}{
		"rate.NewLimiter(10, 20)":             {rate.NewLimiter(10, 20), policy.Must(policy.Funnel(20, 10, time.Second))},
		"rate.NewLimiter(rate.Every(2*s), 3)": {rate.NewLimiter(rate.Every(2*time.Second), 3), policy.Must(policy.Funnel(3, 1, 2*time.Second))},
		"rate.NewLimiter(rate.Limit(0.5), 1)": {rate.NewLimiter(rate.Limit(0.5), 1), policy.Must(policy.Funnel(1, 1, 2*time.Second))},
		"rate.NewLimiter(100_000, 1_000_000)": {rate.NewLimiter(100_000, 1_000_000), policy.Must(policy.Funnel(1_000_000, 100_000, time.Second))},
	} {
		synctest.Test(t, func(t *testing.T) {
			x, l := limits.rate, single.MustNew(limits.policy, nil)
			dice := rand.New(rand.NewPCG(18, 18))
			burst := int64(x.Burst())
			assert.Equal(t, burst, l.Limit().Limit(), name)
			admitted, refused, delayed := 0, 0, 0
			for range 2000 {
				time.Sleep(time.Duration(dice.Float64() * 2 * float64(time.Second) / float64(x.Limit()) * float64(burst) / 3))
				n := 1 + dice.Int64N(burst)
				if dice.IntN(20) == 0 {
					n = burst + 1
				}
				switch dice.IntN(3) {
				case 0:
					require.Equal(t, x.Allow(), l.Allow(), name)
				case 1:
					want := x.AllowN(time.Now(), int(n))
					require.Equal(t, want, l.Take(n).Allowed, name)
					if want {
						admitted++
					} else {
						refused++
					}
				case 2:
					before, r := x.ReserveN(time.Now(), int(n)), l.Reserve(n, math.MaxInt64)
					require.Equal(t, before.OK(), r.Allowed, name)
					if r.Allowed {
						require.InDelta(t, before.Delay(), r.Wait, float64(time.Microsecond), name)
						if r.Wait > 0 {
							delayed++
						}
						if dice.IntN(2) == 0 && r.Wait > 0 { // its time has not come, and no other call took
							before.Cancel()
							r.Cancel()
						}
					}
				}
				if tokens := x.Tokens(); tokens >= 0 {
					require.InDelta(t, math.Floor(tokens+1e-9), l.Peek(0).Remaining, 1, name)
				} else {
					require.Zero(t, l.Peek(0).Remaining, name)
				}
			}
			assert.Greater(t, min(admitted, refused, delayed), 50, name)
		})
	}
}
