//go:build !race

package properties

const raceEnabled = false
