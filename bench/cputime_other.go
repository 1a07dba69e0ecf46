//go:build !unix

package bench

import "time"

// processorTime reports false: this system does not tell.
func processorTime() (time.Duration, bool) { return 0, false }
