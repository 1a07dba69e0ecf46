package bench

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// job runs in a goroutine until done or stop is set.
type job func(stop *atomic.Bool)

// workers runs goroutines at the same time and measures their use.
type workers struct {
	ctx context.Context
	// epoch is the instant that windows are counted from.
	epoch time.Time
	busy  busyTime
}

// run runs the jobs, started together, until they end. They are told to stop after d, unless 0, and
// when the context ends. The measured time includes finish, unless nil.
func (c workers) run(d time.Duration, finish func(), jobs ...job) (Pass, Window) {
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
	pass := Pass{
		Elapsed: elapsed,
		CPU:     cpu,
		Allocs:  after.Mallocs - before.Mallocs,
		Bytes:   after.TotalAlloc - before.TotalAlloc,
	}
	if watched && known {
		pass.disturb(busyAfter-busy, wanted, processors)
	}
	return pass, Window{start, end}
}
