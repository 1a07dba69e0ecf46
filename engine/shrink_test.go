package engine

import (
	"testing"

	"github.com/ral-limiter/ral/internal/testkit/testenv"
)

// raceFactor divides the size of large tests under the race detector.
const raceFactor = testenv.RaceSlowdown

// repeated returns n, or a fifth of it with -short: for tests that only repeat.
func repeated(n int) int {
	if testing.Short() {
		return n / 5
	}
	return n
}
