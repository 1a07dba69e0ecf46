package bench

import (
	"sync/atomic"
	"time"
)

// caller is a goroutine that asks a limiter. It writes its counters when it has stopped.
type caller struct {
	stream
	// asked and passed count over all passes.
	asked, passed int64
	recorder      Recorder
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

func sumAsked(callers []*caller) (n int64) {
	for _, c := range callers {
		n += c.asked
	}
	return n
}

func sumPassed(callers []*caller) (n int64) {
	for _, c := range callers {
		n += c.passed
	}
	return n
}

// askedWindow is a window and the calls in it.
type askedWindow struct {
	Window
	callers []*caller
	// from and to are the calls of each caller before and after.
	from, to []int64
	// passed counts the calls in the window that passed.
	passed int64
}

func beginWindow(callers []*caller) askedWindow {
	return askedWindow{callers: callers, from: askedSoFar(callers), passed: -sumPassed(callers)}
}

func (s askedWindow) end(w Window) askedWindow {
	s.Window, s.to, s.passed = w, askedSoFar(s.callers), s.passed+sumPassed(s.callers)
	return s
}

func askedSoFar(callers []*caller) []int64 {
	asked := make([]int64, len(callers))
	for i, c := range callers {
		asked[i] = c.asked
	}
	return asked
}

// count adds the calls for each key to times, for callers that loop over their streams.
func (s askedWindow) count(times []int64) {
	for i, caller := range s.callers {
		n := int64(len(caller.order))
		if n == 0 || s.from[i] == s.to[i] {
			continue
		}
		upTo := func(asked int64, index int64) int64 {
			if index < asked%n {
				return asked/n + 1
			}
			return asked / n
		}
		for index, key := range caller.order {
			times[key] += upTo(s.to[i], int64(index)) - upTo(s.from[i], int64(index))
		}
	}
}

// auditOf sums up the windows of a limiter, in order.
func auditOf(promise Promise, limit Limit, keys int, windows []askedWindow) *auditor {
	auditor := newAuditor(promise, limit, keys)
	auditor.addAll(windows, func() {})
	if auditor.admitted <= auditor.allowed() {
		return auditor
	}
	// Where it grew takes a look at all keys after each window.
	// maxOver is the largest excess so far.
	var maxOver int64
	again := newAuditor(promise, limit, keys)
	again.addAll(windows, func() {
		if over := again.admitted - again.allowed(); over > maxOver {
			maxOver = over
			auditor.overPasses++
		}
	})
	return auditor
}

// addAll adds the windows, and calls added after each.
func (a *auditor) addAll(windows []askedWindow, added func()) {
	times := make([]int64, len(a.asked))
	for _, askedWindow := range windows {
		askedWindow.count(times)
		a.add(askedWindow.Window, times)
		clear(times)
		a.admitted += askedWindow.passed
		added()
	}
}
