package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// schedule is a workload in steps. The last may be left out. session.go asks limiters that are kept
// for all rounds, and newkeys.go those that are made for a pass.
type schedule struct {
	Workload
	workers
	cpu   int
	o     Options
	turns []*turn

	pool, known stream   // all keys, and those of Workload.Known
	streams     []stream // the order in which each caller asks for known keys
	findLimit   bool
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

type turn struct {
	Contender
	session   *session // on known keys
	callers   []*caller
	rounds    []Pass
	recorders *recorders // by caller
	known     *recorders
	repeated  int
	memory    *Memory
	share     float64
	audit     Audit
}

// steps returns the steps: the keys are prepared, limiters that are kept are opened, and then each
// contender has its turn in each round.
func (s *schedule) steps() (steps []step) {
	if s.Draw != DrawElsewhere {
		steps = append(steps, step{doing: "preparing keys", cost: s.prepareTime(), do: undisturbed(s.prepare)})
	}
	if s.Draw.keepsLimiter() {
		for i, t := range s.turns {
			steps = append(steps, step{
				contender: t.Name, doing: "opening keys and warming up",
				cost: s.keyCost(t) + s.o.Duration/2, do: undisturbed(func() error { return s.open(i) }),
			})
		}
	}
	for round := range s.Rounds {
		for place, i := range Order(round, len(s.turns)) {
			for n, next := range s.stepsOf(s.turns[i], place == 0) {
				next.contender, next.round = s.turns[i].Name, round
				next.first = round > 0 && place == 0 && n == 0 && s.Draw != DrawElsewhere
				next.doing = fmt.Sprintf("round %d of %d%s", round+1, s.Rounds, next.doing)
				steps = append(steps, next)
			}
		}
	}
	return steps
}

// stepsOf returns the steps of a contender's turn in a round, which may be the round's first turn.
func (s *schedule) stepsOf(t *turn, isFirst bool) []step {
	switch {
	case s.Draw == DrawElsewhere:
		return []step{{cost: s.o.Duration, do: undisturbed(func() error { return s.measure(t) })}}
	case s.Draw.keepsLimiter():
		return []step{s.roundOf(t, isFirst)}
	}
	return s.passesOf(t)
}

// measure keeps a round that a contender measured itself, unless the run was ended meanwhile.
func (s *schedule) measure(t *turn) error {
	m, err := t.Measure(s.ctx, s.Workload, s.o.Duration)
	switch {
	case s.ctx.Err() != nil:
		return nil
	case err != nil:
		return err
	}
	t.rounds = append(t.rounds, m.Pass)
	t.memory, t.share = m.Memory, m.Share
	if m.Latency != (Latency{}) {
		t.recorders.rounds = append(t.recorders.rounds, m.Latency)
	}
	if m.Audit != nil {
		t.audit = *m.Audit
	}
	return nil
}

// Estimated costs, measured on two quiet cores of an Intel Xeon.
const (
	newKeyCost  = time.Microsecond      // opening a key
	slowKeyCost = 30 * time.Microsecond // opening a key with a slow contender
	prepareCost = 100 * time.Nanosecond // making a key's name
	turnCost    = 10 * time.Millisecond // a garbage collection, and the rest of a turn
)

func (s *schedule) keyCost(t *turn) time.Duration {
	switch {
	case s.CallCost > 0:
		return time.Duration(s.keyCalls()) * s.CallCost
	case t.Slow:
		return time.Duration(s.keyCalls()) * slowKeyCost
	case s.Draw == DrawSameOrder:
		return time.Duration(s.Keys)*newKeyCost + time.Duration(s.keyCalls())*prepareCost
	}
	return time.Duration(s.keyCalls()) * newKeyCost
}

func (s *schedule) prepareTime() time.Duration {
	keys := time.Duration(s.Keys)
	if s.Draw.keepsLimiter() {
		keys += min(drawsInAll, 4*keys*time.Duration(s.Callers))
	}
	return keys * prepareCost
}

func (s *schedule) prepare() error {
	s.pool, s.known = newStream(upTo(0, s.Keys)), newStream(upTo(s.Keys, s.Known))
	if s.Draw.keepsLimiter() {
		s.streams = drawStreams(s.Workload, s.Callers)
		if s.findLimit = s.Limit == (Limit{}); s.findLimit {
			s.Limit = s.limitAt(guessedSpeed * float64(s.Callers))
		}
	}
	return nil
}

func (s *schedule) setup() Setup {
	keys := s.Keys + s.Known
	setup := Setup{Limit: s.Limit, Keys: keys, MaxKeys: s.MaxKeys}
	if setup.MaxKeys == 0 {
		// Two callers that meet at a new key may take a place each for a moment.
		setup.MaxKeys = keys + keys/8 + 1024
	}
	return setup
}

func (s *schedule) isLong() bool { return s.OneTimedPass || s.Memory }

func (s *schedule) unmeasured() (names []string) {
	for _, t := range s.turns {
		if len(t.rounds) == 0 {
			names = append(names, t.Name)
		}
	}
	return names
}

// keep keeps a pass, unless it was cut short. A repeated pass replaces the first if it lost less to
// other load. keep reports whether the kept pass is disturbed.
func (s *schedule) keep(t *turn, p Pass, again bool) (disturbed bool) {
	if s.ctx.Err() != nil {
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

// finish ends the limiters that were kept, and reports the workload.
func (s *schedule) finish() (WorkloadReport, error) {
	var failures []error
	for _, t := range s.turns {
		if t.session == nil {
			continue
		}
		t.session.limiter.settle()
		if err := t.session.close(t, s.Limit, s.Keys); err != nil {
			failures = append(failures, fmt.Errorf("closing %s: %w", t.Name, err))
		}
	}
	w := WorkloadReport{Workload: s.Workload, CPU: s.cpu}
	w.MaxKeys = s.setup().MaxKeys
	for _, t := range s.turns {
		if len(t.rounds) == 0 {
			continue
		}
		r := Result{
			Contender: t.Contender, Apart: s.Apart, Outside: s.Draw == DrawElsewhere, Rounds: t.rounds, Repeated: t.repeated,
			Latency: t.recorders.latency(), LatencyRounds: t.recorders.rounds, Known: t.known.latency(), Memory: t.memory, Share: t.share,
		}
		r.Needs, r.New, r.Measure = nil, nil, nil // they hold limiters and keys
		if t.Yardstick == "" && t.audit.Limiters > 0 {
			r.Audit = &t.audit
		}
		w.Results = append(w.Results, r)
	}
	w.Summarize()
	return w, errors.Join(failures...)
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
