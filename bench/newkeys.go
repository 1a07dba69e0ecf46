package bench

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"time"
)

// newKeys schedules a workload on new keys: every pass has its own empty limiter, and ends when all
// keys have been asked for.
type newKeys struct {
	base
	pool  stream // all keys
	known stream // keys that are known from the beginning
}

func (c *newKeys) steps() []step {
	steps := []step{{
		doing: "preparing keys", do: undisturbed(c.prepare),
		cost: time.Duration(c.Keys) * prepareCost,
	}}
	for round := range c.Workload.Rounds {
		for place, i := range Order(round, len(c.turns)) {
			cost := turnCost + c.keyCost(c.turns[i])
			if c.Memory {
				cost += 7 * c.collectionCost()
			}
			first := round > 0 && place == 0
			add := func(doing string, timed bool) {
				steps = append(steps, step{
					contender: c.turns[i].Name,
					doing:     fmt.Sprintf("round %d of %d, %s", round+1, c.Workload.Rounds, doing),
					cost:      cost,
					round:     round, first: first,
					watched: !timed && !c.Memory && !c.turns[i].Elsewhere,
					do:      func(again bool) (bool, error) { return c.pass(c.turns[i], timed, again) },
				})
				first = false
			}
			switch timed := c.o.NewRecorder != nil; {
			case c.OneTimedPass:
				add("throughput and latency", timed)
			case timed:
				add("throughput", false)
				add("latency", true)
			default:
				add("throughput", false)
			}
			if c.Memory && c.turns[i].Idles {
				steps = append(steps, step{
					contender: c.turns[i].Name, doing: "idling",
					cost:  cost + (minIdles+2)*(c.Idle+c.collectionCost()),
					round: round,
					do:    undisturbed(func() error { return c.idle(c.turns[i]) }),
				})
			}
		}
	}
	return steps
}

func (c *newKeys) collectionCost() time.Duration {
	return turnCost + time.Duration(c.Keys)*prepareCost/2
}

func (c *newKeys) prepare() error {
	c.pool = newStream(upTo(0, c.Keys))
	c.known = newStream(upTo(c.Keys, c.Known))
	return nil
}

// pass makes a limiter, asks for all keys, audits and closes it. It reports whether to repeat the
// pass because of other load.
func (c *newKeys) pass(t *turn, timed, again bool) (disturbed bool, err error) {
	var heap gauge
	if c.Memory {
		heap = newGauge()
	}
	limiter, err := t.New(c.setup())
	if err != nil {
		return false, err
	}
	var windows []askedWindow

	// The prober asks once first, so that its keys are known.
	prober := &caller{stream: c.known}
	if c.Known > 0 {
		begun := beginWindow([]*caller{prober})
		_, w := c.run(0, nil, jobsOf([]*caller{prober}, limiter, (*caller).once, false)...)
		windows = append(windows, begun.end(w))
		limiter.settle()
	}

	callers := make([]*caller, c.Workload.Callers)
	for i := range callers {
		callers[i] = &caller{stream: c.pool, slow: c.CallCost > 0}
		if c.Draw == DrawOnce {
			callers[i].stream = c.pool.part(i, len(callers))
		}
		if timed {
			callers[i].recorder = t.recorders.get(i)
		}
	}
	jobs := jobsOf(callers, limiter, (*caller).once, timed)
	if timed && c.Known > 0 {
		prober.recorder = t.known.get(0)
		stopAfterLast(jobs)
		jobs = append(jobs, jobsOf([]*caller{prober}, limiter, (*caller).probe, true)...)
	}

	runtime.GC()
	begun := beginWindow(append(callers, prober))
	p, w := c.run(0, limiter.settle, jobs...)
	windows = append(windows, begun.end(w))
	if !timed || c.OneTimedPass {
		p.Calls, p.Passed = sumAsked(callers), sumPassed(callers)
		// A pass of seconds is disturbed each time, and its latencies are recorded already.
		disturbed = c.keep(t, p, again) && !c.OneTimedPass && !c.Memory
	}
	if c.Memory && c.ctx.Err() == nil {
		t.memory = heap.full(c.Keys)
		t.memory.IdleUnknown = t.Idles
	}
	if timed {
		t.recorders.endRound(c.ctx.Err() == nil)
		t.known.endRound(c.ctx.Err() == nil)
	}

	t.audit.add(auditOf(t.Promise, c.Limit, c.Keys+c.Known, windows), sumPassed(begun.callers), limiter.Counts)
	return disturbed, limiter.Close()
}

// idle measures the heap of a limiter with a short idle time once it has forgotten all keys. The
// limiter of the full heap cannot serve: filling a large heap takes longer than the idle time.
func (c *newKeys) idle(t *turn) error {
	if t.memory == nil {
		return nil // the pass was ended
	}
	heap := newGauge()
	setup := c.setup()
	setup.Idle = c.Idle
	limiter, err := t.New(setup)
	if err != nil {
		return err
	}
	callers := make([]*caller, c.Workload.Callers)
	for i := range callers {
		callers[i] = &caller{stream: c.pool.part(i, len(callers))}
	}
	begun := beginWindow(callers)
	_, w := c.run(0, limiter.settle, jobsOf(callers, limiter, (*caller).once, false)...)
	heap.idle(c.ctx, t.memory, c.Idle)
	t.audit.add(auditOf(t.Promise, c.Limit, c.Keys, []askedWindow{begun.end(w)}), sumPassed(callers), limiter.Counts)
	return limiter.Close()
}

func stopAfterLast(jobs []job) {
	var left atomic.Int64
	left.Store(int64(len(jobs)))
	for i, j := range jobs {
		jobs[i] = func(stop *atomic.Bool) {
			j(stop)
			if left.Add(-1) == 0 {
				stop.Store(true)
			}
		}
	}
}

func (c *newKeys) finish() (WorkloadReport, error) {
	report := c.report()
	c.pool, c.known = stream{}, stream{}
	return report, nil
}
