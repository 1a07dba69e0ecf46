package policy_test

import (
	"math/bits"

	"github.com/ral-limiter/ral/internal/testkit/race"
)

// raceFactor divides the size of large tests under the race detector, which has little
// to find in pure functions, and on 32 bits, where arithmetic on words is several times
// as slow.
const raceFactor = max(race.Slowdown, 10*(64-bits.UintSize)/32)
