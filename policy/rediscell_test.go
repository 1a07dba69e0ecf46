package policy_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/ral-limiter/ral/policy"
	"github.com/stretchr/testify/assert"
)

func TestRedisCell(t *testing.T) {
	const most = math.MaxInt64
	for _, c := range []struct {
		name string
		d    policy.Decision
		want [5]int64
	}{
		{"the zero decision is a refusal", policy.Decision{}, [5]int64{1, 0, 0, 0, 0}},
		{"allowed", policy.Decision{Allowed: true, Limit: 16, Remaining: 15, ResetAfter: 2 * time.Second}, [5]int64{0, 16, 15, -1, 2}},
		{"allowed, with a wait", policy.Decision{Allowed: true, Limit: 16, Wait: time.Minute, ResetAfter: 1}, [5]int64{0, 16, 0, -1, 1}},
		{"refused", policy.Decision{Limit: 16, Remaining: 3, RetryAfter: 1, ResetAfter: time.Second}, [5]int64{1, 16, 3, 1, 1}},
		{"rounded up", policy.Decision{Limit: 1, RetryAfter: time.Second + 1, ResetAfter: 2*time.Second - 1}, [5]int64{1, 1, 0, 2, 2}},
		{"a limit's own rounding", policy.Decision{Limit: 1, RetryAfter: time.Minute + 80*time.Microsecond, ResetAfter: time.Minute + 80*time.Microsecond}, [5]int64{1, 1, 0, 61, 60}},
		{"never", policy.Decision{Limit: 5, Remaining: 5, RetryAfter: policy.Never}, [5]int64{1, 5, 5, -1, 0}},
		{"as long as can be", policy.Decision{Limit: most, Remaining: most, RetryAfter: most - 1, ResetAfter: most},
			[5]int64{1, most, most, 9223372037, 9223372037}},
	} {
		assert.Equal(t, c.want, c.d.RedisCell(), c.name)
	}
}

// Whole seconds agree with exact arithmetic. A fresh key is as good as new within its window.
// Promise: Seconds for clients are rounded once.
func TestSecondsAreRoundedOnce(t *testing.T) {
	dice := rand.New(rand.NewPCG(28, 12))
	seconds := func(most int64) int64 { return 1 + dice.Int64N(most) }
	for range 100_000 {
		now := policy.Instant(1 + dice.Int64N(1<<56))
		capacity, count, per := seconds(1000), seconds(9999), seconds(86400)
		n := 1 + dice.Int64N(capacity)
		_, d := policy.Must(policy.Funnel(capacity, count, time.Duration(per)*time.Second)).Take(0, now, n, 0)
		assert.Equal(t, (n*per+count-1)/count, d.RedisCell()[4], "%d of a funnel %d, %d/%ds at %d", n, capacity, count, per, now)

		_, d = policy.Must(policy.FixedWindow(capacity, time.Duration(per)*time.Second)).Take(0, now, n, 0)
		assert.Equal(t, per, d.RedisCell()[4], "%d of a window %d/%ds at %d", n, capacity, per, now)
	}
}
