package configfile

import "sync/atomic"

// Reads counts the readings of a configuration. The zero Reads is ready. It is safe for concurrent use.
type Reads struct {
	Good, Bad atomic.Uint64
	// Failing reports whether the last reading was bad, and the configuration before it is in force.
	Failing atomic.Bool
}
