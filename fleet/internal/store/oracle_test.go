package store_test

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/ral-limiter/ral/fleet/internal/store"
	"github.com/ral-limiter/ral/policy"
)

const oracleSteps = 250

// oraclePolicies are of all kinds, at corners and of any size.
func oraclePolicies(seed uint64) []policy.Policy {
	day := 24 * time.Hour
	policies := []policy.Policy{
		policy.Must(policy.Funnel(1, 1, time.Second)),
		policy.Must(policy.Funnel(10, 7, time.Second)),
		policy.Must(policy.Funnel(100, 1_000_000, time.Second)),
		policy.Must(policy.Funnel(1_000_000, 333_333, 10*time.Second)),
		policy.Must(policy.Funnel(3, 16_000_000, time.Second)),
		// Time ends within two years.
		policy.Must(policy.Funnel(16, 1, 365*day)),
		policy.Must(policy.Funnel(5, 16_000, 7*time.Microsecond)),
		policy.Must(policy.Queue(0, 10, time.Second)),
		policy.Must(policy.Queue(20, 7, time.Minute)),
		policy.Must(policy.Queue(1000, 999_983, time.Second)),
		policy.Must(policy.Queue(15, 1, 365*day)),
		policy.Must(policy.Bursty(5, time.Second, 0)),
		policy.Must(policy.Bursty(7, time.Minute, 100)),
		policy.Must(policy.Bursty(999_983, time.Second, 1)),
		policy.Must(policy.Bursty(1, 365*day, 6)),
		policy.Must(policy.FixedWindow(1, time.Millisecond)),
		// The step of 129 ns may end in mid-microsecond.
		policy.Must(policy.FixedWindow(2, 1_024_001)),
		policy.Must(policy.FixedWindow(10, time.Second)),
		policy.Must(policy.FixedWindow(100, time.Second/3)),
		policy.Must(policy.FixedWindow(1_000_000, 1234567*time.Nanosecond)),
		policy.Must(policy.FixedWindow(1_000_000, time.Hour)),
		policy.Must(policy.FixedWindow(5, 366*day)),
		policy.Must(policy.SlidingWindow(3, time.Millisecond)),
		policy.Must(policy.SlidingWindow(10, time.Second)),
		policy.Must(policy.SlidingWindow(1000, 333_333*time.Microsecond)),
		policy.Must(policy.SlidingWindow(1_000_000, time.Minute)),
		policy.Must(policy.SlidingWindow(8_000_000, time.Hour)),
		policy.Must(policy.SlidingWindow(100_000_000, 30*day)),
		policy.Must(policy.SlidingWindow(500_000_000, 366*day)),
		aligned(3, time.Millisecond),
		aligned(1<<29-1, time.Second),
		aligned(1000, 333_333*time.Microsecond),
		aligned(1<<34-1, time.Minute),
		aligned(10, 24*time.Hour),
		aligned(1<<51-1, 30*day),
	}
	any := rand.New(rand.NewPCG(seed, 0))
	for range 30 {
		policies = append(policies, anyPolicy(any))
	}
	return policies
}

func anyPolicy(random *rand.Rand) policy.Policy {
	for {
		count := 1 + random.Int64N(1<<random.IntN(32))
		per := time.Duration(1 + random.Int64N(1<<random.IntN(56)))
		var p policy.Policy
		var err error
		switch random.IntN(6) {
		case 0:
			p, err = policy.Funnel(1+random.Int64N(1<<random.IntN(32)), count, per)
		case 1:
			p, err = policy.Queue(random.Int64N(1<<random.IntN(32)), count, per)
		case 2:
			p, err = policy.Bursty(count, per, random.Int64N(1<<random.IntN(32)))
		case 3:
			// Scripts hold no higher limit.
			p, err = policy.FixedWindow(min(count, 1_000_000), per)
		case 4:
			if p, err = policy.AlignedWindow(count, min(max(per.Truncate(time.Microsecond), time.Millisecond), 30*24*time.Hour)); err == nil {
				p = p.(policy.Anchored).Anchor(store.DefaultEpoch)
			}
		default:
			p, err = policy.SlidingWindow(count, max(per.Truncate(time.Microsecond), time.Millisecond))
		}
		if err == nil {
			return p
		}
	}
}

// nextInstant moves clock, in microseconds: to a hinted retry or just before it; a little, a lot,
// or back; to a window's edge; to the end of time.
func nextInstant(random *rand.Rand, p policy.Policy, clock int64, word uint64, hint policy.Decision) int64 {
	const most = int64(math.MaxInt64 / 1000 / 4)
	toward := func(d time.Duration) int64 {
		if d < 0 || d > time.Duration(most)*1000 {
			return clock
		}
		return clock + int64((d+999)/1000)
	}
	switch random.IntN(14) {
	case 0, 1:
		return toward(hint.RetryAfter)
	case 2:
		return max(toward(hint.RetryAfter)-1, 0)
	case 3:
		return toward(hint.ResetAfter)
	case 4:
		return max(toward(hint.ResetAfter)-1, 0)
	case 5:
		return toward(time.Duration(random.Int64N(int64(hint.ResetAfter) + 1)))
	case 6:
		return max(clock-random.Int64N(2_000_000), 0)
	case 7:
		return random.Int64N(max(clock, 0) + 1)
	case 8:
		return clock + random.Int64N(1_000_000_000)
	case 9:
		return int64(p.FreshAt(word))/1000 + random.Int64N(3) - 1
	case 10:
		if random.IntN(4) == 0 {
			return int64(random.Uint64N(uint64(most)) >> random.IntN(50))
		}
		return clock + 1
	case 11:
		if random.IntN(4) == 0 {
			return -random.Int64N(1_000_000)
		}
		return clock
	default:
		return clock + random.Int64N(3)
	}
}

// anyWord returns a word of the policy that owes, or any word.
func anyWord(random *rand.Rand, p policy.Policy, refunder policy.Refunder, word uint64, clock int64) uint64 {
	now := policy.Instant(clock) * 1000
	switch random.IntN(8) {
	case 0:
		return policy.MaxWord - random.Uint64N(1<<random.IntN(40))
	case 1:
		return random.Uint64N(policy.MaxWord)
	case 2:
		return random.Uint64N(1 << random.IntN(62))
	case 3:
		return 0
	// The word has a debt.
	case 4:
		return refunder.Refund(word, now, -1-random.Int64N(1<<random.IntN(32)))
	// The word has a credit.
	case 5:
		return refunder.Refund(word, now, 1+random.Int64N(1<<random.IntN(32)))
	// The word lies near the splits of a pair.
	case 6:
		return (1+random.Uint64N(9_000_000_000))*1_000_000_000 + random.Uint64N(3) - 1
	default:
		next, _ := p.Take(word, now, 1, math.MaxInt64)
		return next
	}
}

func anyUnits(random *rand.Rand, limit, remaining int64) int64 {
	switch random.IntN(12) {
	case 0:
		return 0
	case 1:
		return limit
	case 2:
		return remaining
	case 3:
		return remaining + 1
	case 4:
		return 1 + random.Int64N(limit)
	case 5:
		return []int64{-1, limit + 1, math.MinInt64, math.MaxInt64}[random.IntN(4)]
	default:
		return 1 + random.Int64N(min(limit, 5))
	}
}

func anyPatience(random *rand.Rand, hint policy.Decision) time.Duration {
	switch random.IntN(10) {
	case 0:
		return time.Duration(random.Int64N(int64(time.Hour)))
	case 1:
		return time.Duration(random.Int64N(math.MaxInt64) >> random.IntN(62))
	case 2:
		return math.MaxInt64
	case 3:
		return -1
	case 4:
		return hint.RetryAfter
	case 5:
		return hint.RetryAfter - 1
	default:
		return 0
	}
}
