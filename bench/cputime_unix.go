//go:build unix

package bench

import (
	"syscall"
	"time"
)

// processorTime returns the processor time used by the process, false if unknown.
func processorTime() (time.Duration, bool) {
	var rusage syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &rusage) != nil {
		return 0, false
	}
	return time.Duration(rusage.Utime.Nano() + rusage.Stime.Nano()), true
}
