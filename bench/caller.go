package bench

import (
	"sync/atomic"
	"time"
)

// caller is a goroutine that asks a limiter. It writes its counters when it has stopped.
type caller struct {
	stream
	// tally counts over all passes.
	tally
	recorder Recorder
	// slow calls take milliseconds: once then checks after each whether to stop.
	slow bool
}

// askFunc asks for a batch of keys.
type askFunc func(keys []string) (passed int)

type callerJob func(c *caller, stop *atomic.Bool, ask askFunc)

// probePause lies between the batches of a prober, so that it takes no processor from others.
const probePause = 100 * time.Microsecond

// probe asks for the keys repeatedly, with pauses.
func (c *caller) probe(stop *atomic.Bool, ask askFunc) {
	for ; !stop.Load(); time.Sleep(probePause) {
		c.passed += int64(ask(c.keys))
		c.asked += int64(len(c.keys))
	}
}

// loop asks for the keys repeatedly, at least a batch: on a busy machine a short pass may end
// before a caller begins.
func (c *caller) loop(stop *atomic.Bool, ask askFunc) {
	index := int(c.asked % int64(len(c.keys)))
	asked, passed := 0, 0
	for ended := false; !ended; ended = stop.Load() {
		end := min(index+batch, len(c.keys))
		passed += ask(c.keys[index:end])
		asked += end - index
		if index = end; index == len(c.keys) {
			index = 0
		}
	}
	c.asked += int64(asked)
	c.passed += int64(passed)
}

// once asks for each key of the stream once. If the stream has no names, it builds an address for
// each call and drops it afterwards, so that the heap has those that a limiter keeps.
func (c *caller) once(stop *atomic.Bool, ask askFunc) {
	asked, passed, size := 0, 0, batch
	var built [batch]string
	if c.slow {
		size = 1
	}
	for index := 0; index < len(c.order) && !stop.Load(); index += size {
		end := min(index+size, len(c.order))
		keys := built[:end-index]
		if c.keys != nil {
			keys = c.keys[index:end]
		} else {
			for i, key := range c.order[index:end] {
				keys[i] = newAddress(key)
			}
		}
		passed += ask(keys)
		asked += len(keys)
	}
	c.asked += int64(asked)
	c.passed += int64(passed)
}

// timing returns ask with each call recorded.
func (c *caller) timing(ask askFunc) askFunc {
	epoch, recorder := time.Now(), c.recorder
	return func(keys []string) (passed int) {
		for i := range keys {
			from := time.Since(epoch)
			passed += ask(keys[i : i+1])
			recorder.Record(time.Since(epoch) - from)
		}
		return passed
	}
}

func jobsOf(callers []*caller, limiter Limiter, how callerJob, timed bool) []job {
	jobs := make([]job, len(callers))
	for i, caller := range callers {
		ask := askFunc(limiter.Ask)
		if timed {
			ask = caller.timing(ask)
		}
		jobs[i] = func(stop *atomic.Bool) { how(caller, stop, ask) }
	}
	return jobs
}

// tally counts the calls of a caller so far.
type tally struct{ asked, passed int64 }

func tallies(callers []*caller) []tally {
	counts := make([]tally, len(callers))
	for i, caller := range callers {
		counts[i] = caller.tally
	}
	return counts
}
