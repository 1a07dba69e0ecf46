package engine

import "github.com/ral-limiter/ral/internal/race"

// raceFactor divides the size of large tests under the race detector.
const raceFactor = race.Slowdown
