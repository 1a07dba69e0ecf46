// Package seeds gives tests of random inputs their seeds.
package seeds

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

// Env is the environment variable with the seed: a number, or "random".
const Env = "RAL_SEED"

// Of returns the seed of a test of random inputs, which a failing test should print. It is 1 unless
// the environment says otherwise: a change fails only for its own faults. make nightly draws seeds.
func Of(t testing.TB) uint64 {
	t.Helper()
	switch text := os.Getenv(Env); text {
	case "":
		return 1
	case "random":
		return rand.Uint64()
	default:
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("%s is %q, want a number below 2^64 or random", Env, text)
		}
		return n
	}
}
