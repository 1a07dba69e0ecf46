//go:build unix

package bench

import (
	"syscall"
	"time"
)

// processorTime returns the processor time used by the process, false if unknown.
func processorTime() (time.Duration, bool) {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0, false
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), true
}
