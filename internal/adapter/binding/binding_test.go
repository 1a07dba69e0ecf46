package binding

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/policy"
)

func TestScarcestOrSlowestClaimBinds(t *testing.T) {
	left := func(n, of int64) policy.Decision { return policy.Decision{Allowed: true, Remaining: n, Limit: of} }
	credit := func(n int64) policy.Decision {
		return policy.Decision{Allowed: true, Remaining: n, Limit: math.MaxInt32}
	}
	retry := func(after time.Duration) policy.Decision { return policy.Decision{Limit: 1, RetryAfter: after} }
	for _, c := range []struct {
		name    string
		allowed bool
		seen    []policy.Decision
		index   int
		retry   time.Duration
	}{
		{"no claims", true, nil, -1, 0},
		{"the least share is left, not the fewest units", true, []policy.Decision{left(1, 2), left(10, 100), left(3, 4)}, 1, 0},
		{"the first of two alike", true, []policy.Decision{left(1, 2), left(5, 10)}, 0, 0},
		{"nothing left of a limit of nothing", true, []policy.Decision{left(1, 2), left(0, 0)}, 1, 0},
		{"units on credit do not remain", true, []policy.Decision{credit(5), left(3, 10), credit(9)}, 1, 0},
		{"the longest wait", false, []policy.Decision{retry(1), retry(3), left(0, 9), retry(2)}, 1, 3},
		{"the first of two that wait as long", false, []policy.Decision{left(1, 1), retry(2), retry(2)}, 1, 2},
		{"never", false, []policy.Decision{retry(5), retry(policy.Never)}, 1, policy.Never},
		{"a refusal binds, whatever is left of the others", false, []policy.Decision{left(0, 9), retry(1)}, 1, 1},
		{"refused although no claim says so", false, []policy.Decision{left(1, 9)}, -1, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := New(c.allowed)
			for i, d := range c.seen {
				atOnce := d.Limit
				if atOnce == math.MaxInt32 {
					atOnce = 10
				}
				b.See(i, &d, atOnce)
			}
			require.Equal(t, c.index, b.Index)
			require.Equal(t, c.retry, b.RetryAfter)
		})
	}
}

func TestSumNeverOverflows(t *testing.T) {
	for _, c := range [][3]int64{
		{0, 0, 0}, {2, 3, 5}, {-1, 3, -1}, {3, -7, -1}, {-1, -1, -1},
		{math.MaxInt64 - 1, 1, math.MaxInt64}, {math.MaxInt64, 1, math.MaxInt64}, {math.MaxInt64, math.MaxInt64, math.MaxInt64},
	} {
		require.Equal(t, c[2], Sum(c[0], c[1]), c)
	}
}

func TestTextOfAnOutcome(t *testing.T) {
	require.Equal(t, "allowed", Text(true, -1, 0, 0))
	require.Equal(t, "allowed by claim 0, after 2s in line", Text(true, 0, 0, 2*time.Second))
	require.Equal(t, "refused for 3s by claim 1", Text(false, 1, 3*time.Second, 0))
	require.Equal(t, "refused for ever by claim 2", Text(false, 2, policy.Never, 0))
}
