//go:build unix

package sidebyside

import (
	"syscall"
	"testing"
)

// reportCPU reports the processor time of the whole process for each call, client and server
// together. Unlike wall time it excludes other processes. Call the returned function when
// the benchmark is over.
func reportCPU(b *testing.B) func() {
	before := cpuTime()
	return func() { b.ReportMetric(float64(cpuTime()-before)/float64(b.N), "cpu-ns/op") }
}

func cpuTime() int64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return u.Utime.Nano() + u.Stime.Nano()
}
