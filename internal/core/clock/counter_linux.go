//go:build amd64 || arm64

package clock

import (
	"os"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

// count reads the counter. No memory access waits for it, nor it for any.
//
//go:noescape
func count() uint64

// trusted reports whether the kernel reads the time from the counter, with a fixed rate and equal
// on all processors. A system that hides its clock source, such as gVisor, is not trusted.
func trusted() bool {
	source, err := os.ReadFile("/sys/devices/system/clocksource/clocksource0/current_clocksource")
	return err == nil && strings.TrimSpace(string(source)) == kernelsName && invariant()
}

// inBubble reports whether the goroutine is in a bubble of testing/synctest, which replaces only
// package time. It may report true while the wall clock is set.
func inBubble() bool {
	before, err := wall()
	now := time.Now().UnixMicro()
	after, err2 := wall()
	return err != nil || err2 != nil || now < before || after < now
}

// wall returns the kernel's wall clock in microseconds, past the runtime.
func wall() (int64, error) {
	var t syscall.Timeval
	err := syscall.Gettimeofday(&t)
	return t.Nano() / 1000, err
}

const (
	// rateSpan is the least time for which the counter's rate is measured.
	rateSpan = 100 * time.Microsecond
	// ratePrecision is how many times longer than its readings a measurement must be, for a rate
	// within 1 in 200. A reading takes 0.2 µs on most systems, and 4 µs on some.
	ratePrecision = 100
	// rateGivenUp ends a measurement with an interrupted first reading.
	rateGivenUp = 10 * time.Millisecond
	rateTries   = 8
)

// nanosecondsPerCount measures the rate by the kernel's raw clock, which is never slewed.
func nanosecondsPerCount() (per float64, ok bool) {
	for range rateTries {
		begin := readRaw()
		for {
			end := readRaw()
			took := end.middle - begin.middle
			if took > int64(rateGivenUp) || end.middle < 0 || end.count <= begin.count {
				break
			}
			if took >= max(int64(rateSpan), ratePrecision*(begin.took+end.took)) {
				return float64(took) / float64(end.count-begin.count), true
			}
		}
	}
	return 0, false
}

type reading struct {
	count uint64
	// middle is the middle of the reading, and took is its length, in nanoseconds.
	middle, took int64
}

func readRaw() reading {
	before := rawClock()
	n := count()
	after := rawClock()
	return reading{count: n, middle: before + (after-before)/2, took: after - before}
}

// rawClock returns CLOCK_MONOTONIC_RAW in nanoseconds, or -1.
func rawClock() int64 {
	const clockMonotonicRaw = 4
	var timespec syscall.Timespec
	if _, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockMonotonicRaw, uintptr(unsafe.Pointer(&timespec)), 0); errno != 0 {
		return -1
	}
	return timespec.Nano()
}
