//go:build race

package properties

// raceEnabled: everything takes ten times as long.
const raceEnabled = true
