//go:build race

package table

// The race detector makes everything ten times as slow, so tests that try many
// schedules or many keys try fewer under it.
const underRace = true
