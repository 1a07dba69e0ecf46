//go:build !race

package testenv

// Race reports whether the race detector is on.
const Race = false

// RaceSlowdown is about how many times longer code takes because of the race detector.
const RaceSlowdown = 1
