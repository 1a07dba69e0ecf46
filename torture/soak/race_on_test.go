//go:build race

package soak

// raceEnabled: everything takes ten times as long.
const raceEnabled = true
