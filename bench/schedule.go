package bench

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// schedule is a workload in steps. The last may be left out.
type schedule interface {
	about() WorkloadReport // without results
	// within sets the context that ends the passes, before the first step.
	within(context.Context)
	steps() []step
	isLong() bool         // its only round is a lot of work
	unmeasured() []string // the contenders without a round
	finish() (WorkloadReport, error)
}

type step struct {
	contender, doing string
	cost             time.Duration // by estimate
	// do does the step and reports whether to repeat it because of other load.
	do      func(again bool) (disturbed bool, err error)
	watched bool // do would have noticed other load
	round   int  // from 0
	first   bool // the first step of a round other than 0
}

// undisturbed makes a step's do that is never repeated.
func undisturbed(do func() error) func(bool) (bool, error) {
	return func(bool) (bool, error) { return false, do() }
}

// Order returns the order of n contenders in a round, from 0 on. Each begins a contender further
// on.
func Order(round, n int) []int {
	order := make([]int, n)
	for i := range order {
		order[i] = (round + i) % n
	}
	return order
}

type base struct {
	Workload
	workers
	cpu   int
	o     Options
	turns []*turn
}

type turn struct {
	Contender
	rounds    []Pass
	recorders *recorders // by caller
	known     *recorders
	repeated  int
	memory    *Memory
	share     float64
	audit     Audit
}

// Estimated costs, measured on two quiet cores of an Intel Xeon.
const (
	newKeyCost  = time.Microsecond      // opening a key
	slowKeyCost = 30 * time.Microsecond // opening a key with a slow contender
	prepareCost = 100 * time.Nanosecond // making a key's name
	turnCost    = 10 * time.Millisecond // a garbage collection, and the rest of a turn
)

func (b *base) keyCost(t *turn) time.Duration {
	switch {
	case b.CallCost > 0:
		return time.Duration(b.keyCalls()) * b.CallCost
	case t.Slow:
		return time.Duration(b.keyCalls()) * slowKeyCost
	case b.Draw == DrawSameOrder:
		return time.Duration(b.Keys)*newKeyCost + time.Duration(b.keyCalls())*prepareCost
	}
	return time.Duration(b.keyCalls()) * newKeyCost
}

func (b *base) setup() Setup {
	keys := b.Keys + b.Known
	s := Setup{Limit: b.Limit, Keys: keys, MaxKeys: b.MaxKeys}
	if s.MaxKeys == 0 {
		// Two callers that meet at a new key may take a place each for a moment.
		s.MaxKeys = keys + keys/8 + 1024
	}
	return s
}

func (b *base) within(ctx context.Context) { b.ctx = ctx }

func (b *base) isLong() bool { return b.OneTimedPass || b.Memory }

func (b *base) unmeasured() (names []string) {
	for _, t := range b.turns {
		if len(t.rounds) == 0 {
			names = append(names, t.Name)
		}
	}
	return names
}

// keep keeps a pass, unless it was cut short. A repeated pass replaces the first if it lost less to
// other load. keep reports whether the kept pass is disturbed.
func (b *base) keep(t *turn, p Pass, again bool) (disturbed bool) {
	if b.ctx.Err() != nil {
		return false
	}
	if t.Elsewhere {
		// The other process works for the contender.
		p.Others, p.Disturbed, p.lost = 0, false, 0
	}
	if !again {
		t.rounds = append(t.rounds, p)
		return p.Disturbed
	}
	t.repeated++
	last := &t.rounds[len(t.rounds)-1]
	if float64(p.lost)/float64(max(p.Elapsed, 1)) < float64(last.lost)/float64(max(last.Elapsed, 1)) {
		*last = p
	}
	return last.Disturbed
}

func (b *base) about() WorkloadReport {
	return WorkloadReport{
		Name: b.Name, About: b.About, Why: b.Why, Draw: b.Draw.String(), Limit: b.Limit,
		Keys: b.Keys, MaxKeys: b.setup().MaxKeys, Callers: b.Workload.Callers, CPU: b.cpu, Rounds: b.Workload.Rounds,
		Timed: b.OneTimedPass, Base: b.Base,
	}
}

func (b *base) report() WorkloadReport {
	w := b.about()
	for _, t := range b.turns {
		if len(t.rounds) == 0 {
			continue
		}
		r := Result{
			Contender: t.Name, About: t.Contender.About, Note: t.Note,
			Yardstick: t.Yardstick, Promise: t.Promise, Exact: t.Exact, Elsewhere: t.Elsewhere,
			Apart: b.Apart, Like: t.Like,
			Rounds: t.rounds, Repeated: t.repeated,
			Latency: t.recorders.latency(), LatencyRounds: t.recorders.rounds, Known: t.known.latency(), Memory: t.memory, Share: t.share,
			Outside: b.Draw == DrawElsewhere,
		}
		if t.Yardstick == "" && t.audit.Limiters > 0 {
			audit := t.audit
			r.Audit = &audit
		}
		w.Results = append(w.Results, r)
	}
	w.Summarize()
	return w
}

// job runs in a goroutine until done or stop is set.
type job func(stop *atomic.Bool)

// workers runs goroutines at the same time and measures their use.
type workers struct {
	ctx   context.Context
	epoch time.Time // the instant that windows are counted from
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
	p := Pass{
		Elapsed: elapsed,
		CPU:     cpu,
		Allocs:  after.Mallocs - before.Mallocs,
		Bytes:   after.TotalAlloc - before.TotalAlloc,
	}
	if watched && known {
		p.Others = max(busyAfter-busy-cpu, 0)
		p.lost = lostTime(p.Others, elapsed, wanted, processors)
		p.Disturbed = isDisturbed(p.lost, elapsed, wanted)
	}
	return p, Window{start, end}
}
