package policy_test

import (
	"math"
	"math/big"
	"math/bits"
	"math/rand/v2"
	"testing"

	"github.com/ral-limiter/ral/policy"
	"github.com/stretchr/testify/require"
)

// The edges: divisors around powers of two, and dividends around multiples and at the end of the
// range.
func TestDivideIsExact(t *testing.T) {
	divisors := []uint64{3, 5, 7, 9, 10, 1000, 1e6, 1e9, 62_500, 15_625, 60e9, 366 * 24 * 3600 * 1e9}
	for i := range 64 {
		for _, d := range []uint64{1<<i - 1, 1 << i, 1<<i + 1, 1<<i + 1<<i/3, 1<<i + 1<<i/2} {
			if d >= 1 && d <= 1<<63 {
				divisors = append(divisors, d)
			}
		}
	}
	random := rand.New(rand.NewPCG(1, 1))
	for range 20_000 / raceFactor {
		divisors = append(divisors, 1+random.Uint64()>>(1+random.UintN(63)))
	}
	for _, d := range divisors {
		last := math.MaxInt64 / d * d // the largest multiple
		for _, x := range []uint64{0, 1, 2, d - 1, d, d + 1, 2*d - 1, 2 * d, last - 1, last, last + 1,
			last - d - 1, last - d, last / 2 / d * d, last/2/d*d - 1, math.MaxInt64 - 1, math.MaxInt64,
			random.Uint64() >> (1 + random.UintN(63)), random.Uint64() >> 1 / d * d, random.Uint64()>>1/d*d - 1} {
			if x > math.MaxInt64 {
				continue
			}
			if got := policy.Divide(x, d); got != x/d {
				t.Fatalf("%d/%d is %d, not %d", x, d, x/d, got)
			}
		}
	}
}

func FuzzDivide(f *testing.F) {
	f.Add(uint64(math.MaxInt64), uint64(7))
	f.Add(uint64(math.MaxInt64), uint64(1)<<63)
	f.Fuzz(func(t *testing.T, x, d uint64) {
		x, d = x>>1, max(min(d, 1<<63), 1)
		if got := policy.Divide(x, d); got != x/d {
			t.Fatalf("%d/%d is %d, not %d", x, d, x/d, got)
		}
	})
}

// Both agree with the plain fraction, in 64 bits or more.
func TestSlidingShareIsExact(t *testing.T) {
	random := &script{rng: rand.New(rand.NewPCG(2, 1))}
	long := 0
	for range 50_000 / raceFactor {
		limit := slidingWindows.read(random)
		per, full := uint64(limit.period), int64(1)<<slidingFigures(limit.period)-1
		before, count := uint64(random.between(0, full)), random.between(0, full)
		passed, n := uint64(random.between(0, int64(per)-1)), random.between(1, limit.limit)
		if room := uint64(limit.limit - n - count); count+n <= limit.limit && room < before && random.byte()%2 == 0 {
			// About the instant from which they fit.
			hi, lo := bits.Mul64(room, per)
			covered, _ := bits.Div64(hi, lo, before)
			passed = per - 1 - min(covered+uint64(random.byte()%3), per) + min(covered, 1)
			passed = min(passed, per-1)
		}
		if hi, lo := bits.Mul64(before, per); hi > 0 || lo >= 1<<62 {
			long++
		}
		share := new(big.Int).Mul(new(big.Int).SetUint64(before), new(big.Int).SetUint64(per-1-passed))
		want := uint64(count) + ceilInt(new(big.Rat).SetFrac(share, new(big.Int).SetUint64(per))).Uint64()
		if got := policy.SlidingUsed(limit.Policy, before, uint64(count), passed); got != want {
			t.Fatalf("%v: %d and %d, at %d: %d count, want %d", limit, before, count, passed, got, want)
		}
		fits := want+uint64(n) <= uint64(limit.limit)
		if got := policy.SlidingFitsNow(limit.Policy, before, uint64(count), passed, uint64(n)); got != fits {
			t.Fatalf("%v: %d more fit beside %d and %d, at %d: %v", limit, n, before, count, passed, got)
		}
	}
	require.Greater(t, long, 1000/raceFactor, "of more than 62 bits")
}

func TestWarmingUpTimesIsExact(t *testing.T) {
	random := &script{rng: rand.New(rand.NewPCG(3, 1))}
	for range 1000 / raceFactor {
		limit := warmingUps.read(random)
		for range 50 {
			for _, up := range []bool{false, true} {
				_, _, level, shift := policy.WarmingUpTimes(limit.Policy, 0, up)
				ticks := random.rng.Uint64() >> (1 + random.rng.UintN(63))
				if random.byte()%2 == 0 { // about a whole number of levels
					hi, lo := bits.Mul64(random.rng.Uint64N(ticks/(level>>shift+1)+1), level)
					ticks = min(hi<<(64-shift)|lo>>shift+uint64(random.byte()%3), math.MaxInt64)
				}
				q, rest, _, _ := policy.WarmingUpTimes(limit.Policy, ticks, up)
				wantQ, wantRest := bits.Div64(ticks>>(64-shift), ticks<<shift, level)
				if q != wantQ || rest != wantRest {
					t.Fatalf("%v: %d ticks are %d levels, rest %d; want %d, %d", limit, ticks, q, rest, wantQ, wantRest)
				}
			}
		}
	}
}
