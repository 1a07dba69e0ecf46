//go:build !unix

package bench

import "time"

// processorTime is not to be had here.
func processorTime() (time.Duration, bool) { return 0, false }
