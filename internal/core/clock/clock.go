package clock

import (
	"math/bits"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// Late bounds how far an instant is behind package time.
	Late = 800 * time.Nanosecond
	// Early bounds how far an instant is ahead of package time: 0 if all counters agree.
	Early = 200 * time.Nanosecond
)

const (
	// hold is how long an anchor holds, by the counter's rate. The line falls back by at most
	// 0.232 of it. Package time rises by 1.101, the line by 0.875, and the rate may be off by 1
	// in 200. With span and three counts of a slow counter, of 42 ns, that must stay below Late.
	hold = 2 * time.Microsecond
	// span is the longest reading of package time for an anchor, by the counter.
	span = 200 * time.Nanosecond
	// slope is the line's slope by the counter's rate. It must be below 0.899, the slowest package
	// time, by more than the rate's error.
	slope = 0.875
	// tries bounds readings in a row above span. Sixteen interrupts in a row are no accident.
	tries = 16
)

// Clock is package time's monotonic clock, read from the processor's counter while that is
// trustworthy. Shared and New return a Clock. Any number of goroutines may use it.
type Clock struct {
	// The anchor is on a cache line of its own.
	_ [64]byte

	// The anchor. A call loads it in this order, and then reads the counter.
	// width is the number of counts for which an anchor holds, or 0 once the counter is given up.
	width atomic.Uint64
	// since is the count from which the last anchor holds.
	since atomic.Uint64
	// offset is the offset of the line in nanoseconds. It only grows.
	offset atomic.Int64

	// first is the count at which the line began.
	first uint64
	// mult is the nanoseconds of a count, by slope, times 1<<(64-shift).
	mult  uint64
	shift uint8
	// epoch is the time of instant 0.
	epoch time.Time

	_ [64]byte
}

// Shared returns the clock of the process, or nil if the goroutine must use package time. That is
// if the counter is not trusted, or in a bubble of testing/synctest. The first call takes 0.1 ms.
func Shared() *Clock {
	if inBubble() {
		return nil
	}
	if clock := shared(); clock != nil && clock.Counts() {
		return clock
	}
	return nil
}

var shared = sync.OnceValue(func() *Clock {
	if !trusted() {
		return nil
	}
	return New()
})

// New returns a clock of its own that reads the counter although the kernel may not, for tests.
// It returns nil without a counter, or if its rate cannot be told.
func New() *Clock {
	perCount, ok := nanosecondsPerCount()
	if !ok || inBubble() {
		return nil
	}
	clock := newClock(perCount, count())
	clock.epoch = time.Now()
	if clock.begin(count, clock.PackageTime); !clock.Counts() {
		return nil
	}
	return clock
}

// newClock returns a clock without an anchor, for a counter at first.
func newClock(perCount float64, first uint64) *Clock {
	clock := &Clock{first: first}
	scaled := perCount * slope
	for scaled >= 1 {
		scaled /= 2
		clock.shift++
	}
	clock.mult = uint64(scaled * (1 << 64))
	clock.width.Store(clock.counts(hold))
	return clock
}

// counts returns the number of counts in d, at most: exactly for a line.
func (c *Clock) counts(d time.Duration) uint64 {
	perCount := float64(c.mult) / slope / (1 << 64) * float64(uint64(1)<<c.shift)
	return uint64(float64(d) / perCount)
}

// Now returns the nanoseconds since the clock was made.
func (c *Clock) Now() int64 { return c.read(count, c.PackageTime) }

// read is Now with the clocks that a test may replace.
func (c *Clock) read(count func() uint64, packageTime func() int64) int64 {
	width, since, offset := c.width.Load(), c.since.Load(), c.offset.Load()
	if n := count(); n-since < width {
		return offset + c.scale(n)
	}
	return c.renew(count, packageTime)
}

// Counts reports whether the clock reads the counter. Once false, it is package time for good.
func (c *Clock) Counts() bool { return c.width.Load() != 0 }

// PackageTime returns the instant by package time, the reference of the clock.
func (c *Clock) PackageTime() int64 { return int64(time.Since(c.epoch)) }

// scale returns the nanoseconds by which the line rises from first to n.
func (c *Clock) scale(n uint64) int64 {
	high, _ := bits.Mul64((n-c.first)<<(c.shift&63), c.mult)
	return int64(high)
}
