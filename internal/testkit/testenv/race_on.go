//go:build race

package testenv

// Race reports whether the race detector is on.
const Race = true

// RaceSlowdown is about how many times longer code takes because of the race detector.
const RaceSlowdown = 10
