package testenv

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

// SeedVariable is the environment variable with the seed: a number, or "random".
const SeedVariable = "RAL_SEED"

// Seed returns the seed of a test of random inputs, which a failing test should print. It is 1 unless
// the environment says otherwise: a change fails only for its own faults. make nightly draws seeds.
func Seed(t testing.TB) uint64 {
	t.Helper()
	switch text := os.Getenv(SeedVariable); text {
	case "":
		return 1
	case "random":
		return rand.Uint64()
	default:
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("%s is %q, want a number below 2^64 or random", SeedVariable, text)
		}
		return n
	}
}
