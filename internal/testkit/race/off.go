//go:build !race

package race

// Enabled reports whether the race detector is on.
const Enabled = false

// Slowdown is about how many times longer code takes because of the race detector.
const Slowdown = 1
