// Package race reports whether the race detector is on, which slows tests and adds allocations.
package race
