package policy_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/ral-limiter/ral/policy"
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
		// last is the largest multiple.
		last := math.MaxInt64 / d * d
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
