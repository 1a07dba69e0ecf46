//go:build race

package linear

// raceEnabled: everything takes ten times as long.
const raceEnabled = true
