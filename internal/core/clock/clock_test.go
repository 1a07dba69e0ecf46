package clock

import (
	"flag"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// world is a machine with time that passes when its clocks are read. Tests set both clocks.
type world struct {
	random *rand.Rand
	// perCount is the nanoseconds of the raw clock for a count.
	perCount float64
	// raw is the nanoseconds that have passed.
	raw float64
	// counter is the counter's nanoseconds.
	counter float64
	// package_ is package time.
	package_ float64
	// slew is the speed of package time by the raw clock.
	slew float64
	// speed is the speed of the counter by the raw clock.
	speed float64
	// skew is the nanoseconds by which this processor's counter is ahead.
	skew float64
	// pauses is the part of steps in which the goroutine is off its processor.
	pauses float64
	// step is the length of a step, by the usual length.
	step float64
	// slow is the nanoseconds for which package time's return is delayed.
	slow float64
	// between runs while a caller is off its processor.
	between func()
}

func newWorld(seed uint64, perCount float64) *world {
	return &world{random: rand.New(rand.NewPCG(seed, 1)), perCount: perCount, counter: 1e6, slew: 1, speed: 1, step: 1}
}

func (w *world) pass(ns float64) {
	w.raw += ns
	w.package_ += ns * w.slew
	w.counter += ns * w.speed
}

func (w *world) run() {
	w.pass((2 + 8*w.random.Float64()) * w.step)
	if w.random.Float64() < w.pauses {
		w.pass(w.random.ExpFloat64() * 10_000)
		if between := w.between; between != nil {
			w.between = nil
			between()
			w.between = between
		}
		w.pass(w.random.ExpFloat64() * 10_000)
	}
}

func (w *world) count() uint64 {
	w.run()
	n := uint64((w.counter + w.skew) / w.perCount)
	w.run()
	return n
}

func (w *world) packageTime() int64 {
	w.run()
	w.pass(20)
	now := int64(w.package_)
	w.pass(w.slow)
	w.run()
	return now
}

// clock returns a clock that took the rate for mistaken times its value.
func (w *world) clock(t *testing.T, mistaken float64) *Clock {
	c := newClock(w.perCount*mistaken, w.count())
	c.begin(w.count, w.packageTime)
	require.True(t, c.Counts())
	return c
}

// The rates of a counter: of amd64, of ARM's standard, and of slow counters.
var perCounts = []float64{0.21, 0.477, 1, 10, 1000.0 / 24}

// slews are the usual rates, and the furthest that a kernel may set.
var slews = []float64{0.899, 0.9995, 1, 1.0005, 1.101}

// check reads the clock once, and checks that the instant is within the bounds.
func (w *world) check(t *testing.T, c *Clock, early time.Duration) int64 {
	from := w.package_
	now := c.read(w.count, w.packageTime)
	if float64(now) < from-float64(Late)-1 || float64(now) > w.package_+float64(early) {
		require.FailNow(t, "out of bounds", "read %d, package time %.0f to %.0f", now, from, w.package_)
	}
	return now
}

func (w *world) wait() {
	switch w.random.IntN(10) {
	case 0:
		w.pass(w.random.ExpFloat64() * 10_000)
	case 1:
		w.pass(w.random.ExpFloat64() * 1e9)
	default:
		w.pass(w.random.ExpFloat64() * 100)
	}
}

// Whatever the kernel does, and however long callers are held up while others read the clock and
// set anchors, it keeps its bounds, never goes back, and keeps the counter.
// Promise: The counter is at most 800 ns behind package time, 200 ahead, and never goes back for a goroutine.
func TestKeepsToPackageTime(t *testing.T) {
	for seed := range uint64(100) {
		w := newWorld(seed, perCounts[seed%5])
		w.slew = slews[w.random.IntN(5)]
		w.pauses = []float64{0, 0, 0.001, 0.01}[w.random.IntN(4)]
		c := w.clock(t, 1+(w.random.Float64()-0.5)/100)
		last := int64(0)
		if seed%2 == 1 {
			w.pauses = 0.05
			w.between = func() {
				for range 1 + w.random.IntN(3) {
					now := w.check(t, c, 0)
					require.GreaterOrEqual(t, now, last, "it goes backwards for another")
					last = now
					w.wait()
				}
			}
		}
		for range 3000 {
			if w.random.IntN(500) == 0 {
				w.slew = slews[w.random.IntN(5)]
			}
			w.wait()
			before := last
			now := w.check(t, c, 0)
			require.GreaterOrEqual(t, now, before, "the clock goes backwards")
			last = max(last, now)
		}
		require.True(t, c.Counts(), "seed %d: the counter was given up", seed)
	}
}

// A caller that read both clocks before another set an anchor does not put a lower in its
// place.
func TestSlowReadingDoesNotLowerTheLine(t *testing.T) {
	w := newWorld(1, 0.1)
	w.step = 0.1
	c := w.clock(t, 1)
	w.pass(float64(time.Second))
	var other, offset int64
	// The call sets an anchor on which the clocks agree.
	c.read(w.count, w.packageTime)
	w.pass(1e6)
	calls := 0
	c.read(func() uint64 {
		n := w.count()
		// The first look found no anchor that holds.
		if calls++; calls == 2 {
			other = w.check(t, c, 0)
			offset = c.offset.Load()
			w.slow = 100
		}
		return n
	}, w.packageTime)
	require.Greater(t, calls, 2)
	require.GreaterOrEqual(t, c.offset.Load(), offset)
	w.slow = 0
	require.GreaterOrEqual(t, w.check(t, c, 0), other)
}

// The counters of two processors may differ by less than Early. No caller sees the clock go back.
func TestCountersMayDiffer(t *testing.T) {
	for seed := range uint64(20) {
		w := newWorld(seed, 0.477)
		c := w.clock(t, 1)
		var last [2]int64
		for range 3000 {
			i := w.random.IntN(2)
			w.skew = float64(i) * 60
			w.wait()
			now := w.check(t, c, Early)
			require.GreaterOrEqual(t, now, last[i])
			require.GreaterOrEqual(t, now, last[1-i]-int64(Early), "further than they differ")
			last[i] = now
		}
		require.True(t, c.Counts(), "seed %d: the counter was given up", seed)
	}
}

// If they part, the clock is package time as soon as the last anchor lapses. Until then it is off
// by no more than an anchor holds.
// Promise: Engines drop a counter that departs from package time.
func TestCounterIsGivenUp(t *testing.T) {
	for name, part := range map[string]func(w *world){
		"the machine is suspended and the counter runs on": func(w *world) { w.counter += 3.6e12 },
		"the counter begins anew":                          func(w *world) { w.counter = 0 },
		"the counter is stepped forward":                   func(w *world) { w.counter += 1e6 },
		"the counter is stepped back":                      func(w *world) { w.counter -= 1e5 },
		"the counter is faster":                            func(w *world) { w.speed = 1.2 },
		"the counter is slower":                            func(w *world) { w.speed = 0.7 },
		"package time stands still":                        func(w *world) { w.slew = 0 },
		"package time is a system call":                    func(w *world) { w.slow = 1000 },
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(50) {
				w := newWorld(seed, perCounts[seed%5])
				c := w.clock(t, 1)
				var last int64
				for range 100 {
					w.wait()
					last = w.check(t, c, 0)
				}
				part(w)
				for range 20 {
					from := w.package_
					now := c.read(w.count, w.packageTime)
					require.GreaterOrEqual(t, float64(now), from-1.5*float64(hold))
					require.LessOrEqual(t, float64(now), w.package_+float64(hold))
					require.GreaterOrEqual(t, now, last-int64(hold))
					w.pass(100_000)
				}
				requirePackageTime(t, w, c)
			}
		})
	}
}

// Package time that jumps, as in a synctest bubble, changes nothing that the clock keeps.
func TestPackageTimeThatJumpsChangesNoAnchor(t *testing.T) {
	for _, by := range []float64{9e17, 1e5, -1e5, -9e17} {
		w := newWorld(1, 0.477)
		c := w.clock(t, 1)
		w.pass(10_000)
		w.check(t, c, 0)
		w.package_ += by
		offset := c.offset.Load()
		w.pass(10_000)
		c.read(w.count, w.packageTime)
		require.Equal(t, offset, c.offset.Load())
		requirePackageTime(t, w, c)
	}
}

func requirePackageTime(t *testing.T, w *world, c *Clock) {
	t.Helper()
	require.False(t, c.Counts(), "the counter is still read")
	from := w.package_
	now := c.read(w.count, w.packageTime)
	require.GreaterOrEqual(t, float64(now), from-1)
	require.LessOrEqual(t, float64(now), w.package_, "not package time")
}

// New gives up where package time cannot be read fast enough.
func TestSlowPackageTimeHasNoCounter(t *testing.T) {
	w := newWorld(1, 0.477)
	w.slow = 1000
	c := newClock(w.perCount, w.count())
	c.begin(w.count, w.packageTime)
	require.False(t, c.Counts())
}

var lasting = flag.Duration("for", 0, "how long TestCounterOfThisMachine goes on; 0 is the short part")

// On this machine, trusted or not, each instant lies between two readings of package time around
// it, and no goroutine sees it go back, in the last minute as in the first. It logs how far off it
// was.
func TestCounterOfThisMachine(t *testing.T) {
	c := New()
	if c == nil {
		t.Skip("there is no counter")
	}
	// pause lets the goroutine move to another processor.
	minutes, bursts, pause := 1, 200, runtime.Gosched
	if *lasting > 0 {
		minutes = max(int(*lasting/time.Minute), 2)
		bursts, pause = 6000, func() { time.Sleep(10 * time.Millisecond) } // wall: between bursts, of any length
	}
	for minute := range minutes {
		var mu sync.Mutex
		var late, early int64
		var callers sync.WaitGroup
		for range runtime.GOMAXPROCS(0) {
			callers.Go(func() {
				var last, back, most, ahead int64
				for range bursts {
					pause()
					for range 1000 {
						from := c.PackageTime()
						now := c.Now()
						to := c.PackageTime()
						most, ahead = max(most, from-now), max(ahead, now-to)
						back = max(back, last-now)
						last = now
					}
				}
				mu.Lock()
				defer mu.Unlock()
				assert.Zero(t, back, "the clock goes backwards")
				late, early = max(late, most), max(early, ahead)
			})
		}
		callers.Wait()
		assert.LessOrEqual(t, late, int64(Late))
		assert.LessOrEqual(t, early, int64(Early))
		t.Logf("minute %d: counter in use: %v, %d ns late and %d ns early at the most", minute+1, c.Counts(), late, early)
	}
}

// Promise: In a synctest bubble time is the bubble's.
func TestBubbleHasNoCounter(t *testing.T) {
	outside := New()
	synctest.Test(t, func(t *testing.T) {
		require.Nil(t, Shared())
		require.Nil(t, New())
		time.Sleep(1000 * time.Hour)
		require.Nil(t, Shared())
		require.Nil(t, New())
	})
	// A clock from outside that is read in a bubble becomes package time.
	if outside == nil {
		t.Skip("there is no counter")
	}
	synctest.Test(t, func(*testing.T) {
		outside.since.Add(-outside.width.Load())
		outside.Now()
	})
	require.False(t, outside.Counts())
	from := outside.PackageTime()
	require.GreaterOrEqual(t, outside.Now(), from)
	require.LessOrEqual(t, outside.Now(), outside.PackageTime())
}

func TestReadAllocatesNothing(t *testing.T) {
	c := New()
	if c == nil {
		t.Skip("there is no counter")
	}
	require.Zero(t, testing.AllocsPerRun(1000, func() { c.Now() }))
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		c.since.Add(-c.width.Load())
		c.Now()
	}))
}
