// Package race reports whether the race detector is on, for tests that try less under
// it or that count allocations, which it adds.
package race
