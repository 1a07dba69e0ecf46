package bench

import (
	"runtime"
	"sync/atomic"
	"time"
)

// passesOf returns a contender's turn on new keys: every pass has its own empty limiter, and ends
// when all keys have been asked for.
func (s *schedule) passesOf(turn *turn) (steps []step) {
	cost := turnCost + s.keyCost(turn)
	if s.Memory {
		cost += 7 * s.collectionCost()
	}
	pass := func(timed bool) {
		steps = append(steps, step{cost: cost, do: func() error { return s.pass(turn, timed) }})
	}
	timed := s.o.NewRecorder != nil
	if s.OneTimedPass {
		pass(timed)
	} else if pass(false); timed {
		pass(true)
	}
	if s.Memory && turn.Idles {
		steps = append(steps, step{cost: cost + (minIdles+2)*(s.Idle+s.collectionCost()), do: func() error { return s.idle(turn) }})
	}
	return steps
}

func (s *schedule) collectionCost() time.Duration {
	return turnCost + time.Duration(s.Keys)*prepareCost/2
}

// pass makes a limiter, asks for all keys, audits and closes it.
func (s *schedule) pass(turn *turn, timed bool) error {
	var heap gauge
	if s.Memory {
		heap = newGauge()
	}
	limiter, err := turn.New(s.setup())
	if err != nil {
		return err
	}
	x := &session{limiter: limiter}

	// The prober asks once first, so that its keys are known.
	prober := &caller{stream: s.known}
	if s.Known > 0 {
		x.askOnce(s.workers, nil, []*caller{prober})
		limiter.settle()
	}

	callers := s.allKeys()
	for i, caller := range callers {
		caller.recorder = turn.recorders.each[i]
	}
	jobs := jobsOf(callers, limiter, (*caller).once, timed)
	if timed && s.Known > 0 {
		prober.recorder = turn.known.each[0]
		stopAfterLast(jobs)
		jobs = append(jobs, jobsOf([]*caller{prober}, limiter, (*caller).probe, true)...)
	}

	runtime.GC()
	pass := x.ask(s.workers, 0, limiter.settle, jobs, callers, prober)
	if !timed || s.OneTimedPass {
		s.keep(turn, pass)
	}
	if s.Memory && s.ctx.Err() == nil {
		turn.Memory = heap.full(s.Keys)
		turn.Memory.IdleUnknown = turn.Idles
	}
	if timed {
		turn.recorders.endRound(pass, s.ctx.Err() == nil)
		turn.known.endRound(pass, s.ctx.Err() == nil)
	}
	return turn.close(x, s.Limit, s.Keys+s.Known)
}

// idle measures the heap of a limiter with a short idle time once it has forgotten all keys. The
// limiter of the full heap cannot serve: filling a large heap takes longer than the idle time.
func (s *schedule) idle(turn *turn) error {
	if turn.Memory == nil {
		// The pass was ended.
		return nil
	}
	heap, setup := newGauge(), s.setup()
	setup.Idle = s.Idle
	limiter, err := turn.New(setup)
	if err != nil {
		return err
	}
	x := &session{limiter: limiter}
	x.askOnce(s.workers, limiter.settle, s.allKeys())
	heap.idle(s.ctx, turn.Memory, s.Idle)
	return turn.close(x, s.Limit, s.Keys)
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
