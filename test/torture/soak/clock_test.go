package soak

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/ral-limiter/ral/internal/core/clock"
)

var clockLasting = flag.Duration("clock", 0, "how long TestClock goes on; 0 is the short part")

// A goroutine per processor reads the counter's clock between two readings of package time, in
// bursts of a thousand with pauses. Checked:
//
//  1. an instant is at most clock.Late behind package time and clock.Early ahead, in the last
//     minute as in the first: the error does not accumulate;
//  2. no goroutine sees the clock go back.
//
// A clock that gives up the counter is package time from then on, and is logged.
func TestClock(t *testing.T) {
	c := clock.New()
	if c == nil {
		t.Skip("there is no counter")
	}
	const burst = 1000
	rounds, bursts := 2, 100 // in each round
	pause := runtime.Gosched
	if *clockLasting > 0 {
		rounds = max(int(*clockLasting/time.Minute), 2)
		bursts, pause = 6000, func() { time.Sleep(10 * time.Millisecond) }
	}
	for round := range rounds {
		var mu sync.Mutex
		var late, early, back, reads int64
		var readers sync.WaitGroup
		for range runtime.GOMAXPROCS(0) {
			readers.Go(func() {
				var last, mostLate, mostEarly, mostBack, n int64
				for range bursts {
					pause()
					for range burst {
						from := c.PackageTime()
						now := c.Now()
						to := c.PackageTime()
						mostLate, mostEarly = max(mostLate, from-now), max(mostEarly, now-to)
						mostBack = max(mostBack, last-now)
						last = now
					}
					n += burst
				}
				mu.Lock()
				defer mu.Unlock()
				late, early, back = max(late, mostLate), max(early, mostEarly), max(back, mostBack)
				reads += n
			})
		}
		readers.Wait()
		say := t.Logf
		if *clockLasting > 0 {
			say = func(format string, args ...any) { fmt.Fprintf(os.Stderr, "clock: "+format+"\n", args...) }
		}
		say("period %d: %d reads, %d ns late and %d ns early at the most; counter in use: %v", round+1, reads, late, early, c.Counts())
		assert.LessOrEqual(t, late, int64(clock.Late), "period %d", round+1)
		assert.LessOrEqual(t, early, int64(clock.Early), "period %d", round+1)
		assert.Zero(t, back, "it goes back, period %d", round+1)
	}
}
