package bench

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// job is what one goroutine does until it is done or stop is set.
type job func(stop *atomic.Bool)

// crew lets goroutines work at the same time.
type crew struct {
	ctx   context.Context
	epoch time.Time // what windows are counted from
	busy  busyTime
}

// work runs the jobs, all from the same moment on, until they end. They are told
// to stop after d, unless d is 0, and when the context ends. finish, if it is not
// nil, still belongs to the measured time.
func (c crew) work(d time.Duration, finish func(), jobs ...job) (Pass, Window) {
	var stop atomic.Bool
	var ready, done sync.WaitGroup
	gate := make(chan struct{})
	ready.Add(len(jobs))
	for _, j := range jobs {
		done.Go(func() {
			ready.Done()
			<-gate
			j(&stop)
		})
	}
	ready.Wait()
	defer context.AfterFunc(c.ctx, func() { stop.Store(true) })()

	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	used, known := processorTime()
	busy, _, _ := c.busy()
	start := time.Since(c.epoch)
	if d > 0 {
		defer time.AfterFunc(d, func() { stop.Store(true) }).Stop()
	}
	close(gate)
	done.Wait()
	if finish != nil {
		finish()
	}
	end := time.Since(c.epoch)
	cpu, _ := processorTime()
	busyAfter, processors, watched := c.busy()
	runtime.ReadMemStats(&after)
	elapsed, wanted := end-start, min(len(jobs), runtime.GOMAXPROCS(0))
	if cpu -= used; !known {
		cpu = elapsed * time.Duration(wanted)
	}
	p := Pass{
		Elapsed: elapsed,
		CPU:     cpu,
		Allocs:  after.Mallocs - before.Mallocs,
		Bytes:   after.TotalAlloc - before.TotalAlloc,
	}
	if watched && known {
		p.Others = max(busyAfter-busy-cpu, 0)
		p.lost = lost(p.Others, elapsed, wanted, processors)
		p.Disturbed = disturbs(p.lost, elapsed, wanted)
	}
	return p, Window{start, end}
}

// caller is one goroutine's part in asking one limiter. Its counters are its
// own, and it writes them when it has stopped.
type caller struct {
	stream
	asked, passed int64 // over all passes
	recorder      Recorder
}

// around asks the keys of the stream over and over, one batch at least: a short pass may
// be over before a busy machine lets anybody begin, and would have nothing to tell.
func (c *caller) around(l Limiter, stop *atomic.Bool) { c.goAround(l, stop, Limiter.ChokeAll) }

// aroundTimed is around with every call timed.
func (c *caller) aroundTimed(l Limiter, stop *atomic.Bool) { c.goAround(l, stop, c.timed) }

// once asks the keys of the stream and ends.
func (c *caller) once(l Limiter, stop *atomic.Bool) { c.goOnce(l, stop, Limiter.ChokeAll) }

// onceTimed is once with every call timed.
func (c *caller) onceTimed(l Limiter, stop *atomic.Bool) { c.goOnce(l, stop, c.timed) }

// ask asks a limiter for the keys of a batch, one call of it a batch.
type ask func(l Limiter, keys []string) (passed int)

func (c *caller) goAround(l Limiter, stop *atomic.Bool, ask ask) {
	at := int(c.asked % int64(len(c.keys)))
	asked, passed := 0, 0
	for ended := false; !ended; ended = stop.Load() {
		end := min(at+batch, len(c.keys))
		passed += ask(l, c.keys[at:end])
		asked += end - at
		if at = end; at == len(c.keys) {
			at = 0
		}
	}
	c.asked += int64(asked)
	c.passed += int64(passed)
}

func (c *caller) goOnce(l Limiter, stop *atomic.Bool, ask ask) {
	asked, passed := 0, 0
	for at := 0; at < len(c.keys) && !stop.Load(); at += batch {
		keys := c.keys[at:min(at+batch, len(c.keys))]
		passed += ask(l, keys)
		asked += len(keys)
	}
	c.asked += int64(asked)
	c.passed += int64(passed)
}

// rest is how long a prober rests between two batches, so that it does not
// take a processor from those whom it watches.
const rest = 100 * time.Microsecond

// probe asks the keys of the stream over and over, with every call timed and
// with rests.
func (c *caller) probe(l Limiter, stop *atomic.Bool) {
	for ; !stop.Load(); time.Sleep(rest) {
		c.passed += int64(c.timed(l, c.keys))
		c.asked += int64(len(c.keys))
	}
}

func (c *caller) timed(l Limiter, keys []string) (passed int) {
	epoch, recorder := time.Now(), c.recorder
	for _, key := range keys {
		from := time.Since(epoch)
		ok := l.Choke(key)
		recorder.Record(time.Since(epoch) - from)
		if ok {
			passed++
		}
	}
	return passed
}

// callerJob is one of the ways in which a caller asks.
type callerJob func(c *caller, l Limiter, stop *atomic.Bool)

func jobsOf(callers []*caller, l Limiter, how callerJob) []job {
	jobs := make([]job, len(callers))
	for i, c := range callers {
		jobs[i] = func(stop *atomic.Bool) { how(c, l, stop) }
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

// spell is a window in which callers asked.
type spell struct {
	Window
	callers  []*caller
	from, to []int64 // what they had asked by then
}

// begin notes what the callers have asked before they ask on.
func begin(callers []*caller) spell {
	return spell{callers: callers, from: askedSoFar(callers)}
}

// end notes what they have asked since.
func (s spell) end(w Window) spell {
	s.Window, s.to = w, askedSoFar(s.callers)
	return s
}

func askedSoFar(callers []*caller) []int64 {
	asked := make([]int64, len(callers))
	for i, c := range callers {
		asked[i] = c.asked
	}
	return asked
}

// count adds to times how often each of the keys was asked, by callers who go
// around their streams.
func (s spell) count(times []int64) {
	for i, c := range s.callers {
		n := int64(len(c.order))
		if n == 0 || s.from[i] == s.to[i] {
			continue
		}
		upTo := func(asked int64, at int64) int64 {
			if at < asked%n {
				return asked/n + 1
			}
			return asked / n
		}
		for at, key := range c.order {
			times[key] += upTo(s.to[i], int64(at)) - upTo(s.from[i], int64(at))
		}
	}
}

// account sums up the spells of one limiter, which are in order.
func account(limit Limit, keys int, spells []spell) *accountant {
	a := newAccountant(limit, keys)
	times := make([]int64, keys)
	for _, s := range spells {
		s.count(times)
		a.window(s.Window, times)
		clear(times)
	}
	return a
}
