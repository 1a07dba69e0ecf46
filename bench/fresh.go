package bench

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"time"
)

// fresh is the course of a workload on new keys: every pass has a limiter of its
// own, which knows none of them, and ends when all have been asked for.
type fresh struct {
	base
	pool  stream // all keys
	known stream // those that are known from the beginning
}

func (c *fresh) steps() []step {
	steps := []step{{
		doing: "preparing keys", do: c.prepare,
		cost: time.Duration(c.Keys) * prepareCost,
	}}
	cost := turnCost + time.Duration(c.Keys)*newKeyCost
	if c.Draw == Together {
		cost += time.Duration(c.Keys) * time.Duration(c.Workload.Callers) * prepareCost
	}
	for round := range c.Workload.Rounds {
		for at, i := range Order(round, len(c.turns)) {
			first := round > 0 && at == 0
			add := func(doing string, timed bool) {
				steps = append(steps, step{
					contender: c.turns[i].Name,
					doing:     fmt.Sprintf("round %d of %d, %s", round+1, c.Workload.Rounds, doing),
					cost:      cost,
					round:     round, first: first,
					do: func() error { return c.pass(c.turns[i], timed) },
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
		}
	}
	return steps
}

func (c *fresh) prepare() error {
	c.pool = newStream(upTo(0, c.Keys))
	c.known = newStream(upTo(c.Keys, c.Known))
	return nil
}

// pass makes a limiter, asks for all keys, audits and closes it.
func (c *fresh) pass(t *turn, timed bool) error {
	limiter, err := t.New(c.setup())
	if err != nil {
		return err
	}
	var windows []Window

	// Those who ask for known keys: first once, so that they are known.
	prober := &caller{stream: c.known}
	if c.Known > 0 {
		_, w := c.work(0, nil, func(stop *atomic.Bool) { prober.once(limiter, stop) })
		windows = append(windows, w)
		settle(limiter)
	}

	callers := make([]*caller, c.Workload.Callers)
	for i := range callers {
		callers[i] = &caller{stream: c.pool}
		if c.Draw == Once {
			callers[i].stream = c.pool.part(i, len(callers))
		}
		if timed {
			callers[i].recorder = t.recorders[i]
		}
	}
	how := (*caller).once
	if timed {
		how = (*caller).onceTimed
	}
	jobs := jobsOf(callers, limiter, how)
	if timed && c.Known > 0 {
		prober.recorder = t.known[0]
		endWithLast(jobs)
		jobs = append(jobs, func(stop *atomic.Bool) { prober.probe(limiter, stop) })
	}

	runtime.GC()
	// Filing the last keys is part of the work.
	p, w := c.work(0, func() { settle(limiter) }, jobs...)
	windows = append(windows, w)
	if !timed || c.OneTimedPass {
		p.Calls, p.Passed = sumAsked(callers), sumPassed(callers)
		c.keep(t, p)
	}

	asked := make([]int64, c.Keys+c.Known)
	askedBy(callers, asked)
	askedBy([]*caller{prober}, asked)
	t.audit.add(c.Limit, asked, sumPassed(callers)+prober.passed, windows, countsOf(limiter))
	return limiter.Close()
}

// endWithLast makes the job that ends last tell all others to stop.
func endWithLast(jobs []job) {
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

func (c *fresh) finish() (WorkloadReport, error) {
	report := c.report()
	c.pool, c.known = stream{}, stream{}
	return report, nil
}
