package policy_test

import (
	"math/bits"

	"github.com/ral-limiter/ral/internal/testkit/race"
)

// raceFactor divides the size of large tests under the race detector, with little to find in pure
// functions, and on 32 bits, with arithmetic several times as slow.
const raceFactor = max(race.Slowdown, 10*(64-bits.UintSize)/32)
