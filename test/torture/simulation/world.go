package simulation

import (
	"fmt"
	"hash/maphash"
	"slices"
	"time"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/internal/core/seam"
	"github.com/ral-limiter/ral/janitor"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/supervisor"
	"github.com/ral-limiter/ral/table"
)

type Result struct {
	Seed    uint64
	Failure string // "" if every promise was kept
	Hash    uint64 // of all events: the same seed gives the same
	Steps   int
	Deaths  []Death
	// Stuck goroutines are left behind, and the process should end.
	Stuck bool
}

// Run runs the world of a seed in a bubble of testing/synctest, moving its clock. log, if not nil,
// gets each event.
func Run(seed uint64, log func(line string)) Result {
	world := newWorld(seed)
	world.log = log
	world.play()
	world.end()
	if world.failure != "" {
		world.failure = fmt.Sprintf("seed %d: %s\n  world: %s", seed, world.failure, world.describe())
	}
	return Result{
		Seed: seed, Failure: world.failure, Hash: world.hash ^ world.total.admitted<<32 ^ world.total.refused<<48,
		Steps: world.steps, Deaths: world.deaths, Stuck: len(world.actors) > 0,
	}
}

var points = slices.Concat(table.Points(), janitor.Points(), supervisor.Points(),
	[]string{"writer: begin", "writer: received", "writer: done", "writer: settle"})

func newWorld(seed uint64) *world {
	w := &world{seed: seed}
	r := &w.random
	*r = random(seed)
	r.next()
	w.back = make(chan struct{})
	w.first, w.base, w.tie = 1, 1, -1
	w.death, w.each = w.observe, w.eachStep
	w.joined = func(caller *caller) { w.lines[caller.number] = append(w.lines[caller.number], caller) }

	w.chaos = newChaos(r)
	n := 1 + r.n(5)
	first := r.n(poolSize)
	for i := range n {
		w.keys = append(w.keys, pool()[(first+i*(1+4*int(seed&1)))%poolSize])
		w.accounts = append(w.accounts, &account{name: string(rune('a' + i)), known: true})
	}
	w.dead = make([]*table.Entry[key], n)
	w.filed = make([]*table.Entry[key], n)
	w.lines = make([][]*caller, n)

	config := &w.config
	config.MaxKeys = 1 + r.n(5)
	config.WhenFull = engine.WhenFull([]int{0, 0, 0, 1, 2}[r.n(5)])
	config.WhenUnavailable = engine.WhenUnavailable(r.n(2))
	config.QueueDepth = 1 + r.n(4)
	config.Idle = []time.Duration{1, time.Millisecond, 40 * time.Millisecond}[r.n(3)]
	config.OpenTimeout = []time.Duration{100 * time.Microsecond, time.Millisecond, 10 * time.Millisecond}[r.n(3)]
	config.MaxWaiting = 1 + r.n(4)
	config.Restarts = 1000
	if r.one(10) {
		config.Restarts = 1 + r.n(2)
	}
	w.plan = newPlan(r)
	callers := 1 + r.n(4)
	if r.one(10) {
		// Many calls wait, and nothing may change their order.
		w.plan.verbs, w.plan.changes = inLine, 0
		w.chaos.jump, w.chaos.clock = 0, 0
		config.MaxKeys, config.MaxWaiting = 5, 4
		callers = 2 + r.n(3)
	}
	w.roomy = n <= config.MaxKeys

	capacity := int64(1 + r.n(3))
	switch r.n(15) {
	case 0:
		w.limit = fixedWindow(&w.scheduler, capacity, perUnit)
	case 1:
		w.limit = atMost(&w.scheduler, capacity, perUnit)
	case 2:
		w.limit = queue(&w.scheduler, capacity-1, perUnit)
	case 3:
		w.limit = slidingWindow(&w.scheduler, capacity, perUnit)
	case 4:
		w.limit = bursty(&w.scheduler, capacity-1, perUnit)
	case 6:
		w.limit = alignedWindow(&w.scheduler, capacity, perUnit)
	case 5:
		w.limit = warmingUp(&w.scheduler, time.Duration(capacity)*perUnit, perUnit)
	default:
		w.limit = funnel(&w.scheduler, capacity, perUnit)
	}
	if seed%8 == 5 {
		w.limit = inFlight(&w.scheduler, capacity, perUnit<<r.n(5))
		w.plan.useUnits(r)
	}
	config.Policy = w.limit.whole()
	if w.ownClock = !r.one(4); w.ownClock {
		config.Clock = w.readClock
	} else {
		w.chaos.clock = 0
	}

	// The seed also determines the wall clock.
	second := time.Now().Truncate(time.Second).Add(time.Second)
	time.Sleep(time.Until(second) + time.Duration(r.n(int(perUnit))))
	w.keeps = w.plan.restart > 0
	seam.Give(config, &w.scheduler)
	var err error
	if w.engine, err = engine.New(*config, w.options()...); err != nil {
		panic(err)
	}
	for range callers {
		w.call()
	}
	return w
}

func (w *world) options() (options []engine.Option[key]) {
	if w.plan.chosen {
		options = append(options, engine.PolicyFor(func(key key) policy.Policy {
			return w.like(w.accounts[slices.Index(w.keys, key)])
		}))
	}
	return options
}

// limitOf returns the limit of a key.
func (w *world) limitOf(account *account) *limit {
	if account.own != nil {
		return account.own
	}
	return w.limit
}

// like returns a limit that is equal to the key's.
func (w *world) like(account *account) policy.Policy {
	like := *w.limitOf(account)
	return like.whole()
}

// newChaos chooses the faults of a run. Some runs are nearly quiet, to make single faults visible.
func newChaos(random *random) chaos {
	some := func(often uint64) uint64 {
		if random.one(3) {
			return 0
		}
		return often << random.n(4)
	}
	return chaos{
		stay:   []int{0, 8, 12, 15}[random.n(4)],
		stall:  some(20),
		sleep:  some(50),
		jump:   some(100),
		clock:  some(50),
		early:  some(20),
		refuse: some(2),
		die:    some(10),
		point:  points[random.n(len(points))],
		deaths: random.n(8),
		kinds:  uint64(1 + random.n(3)),
		leap:   some(5),
	}
}

func (w *world) hashOf(key key) uint64 { return maphash.Comparable(hashSeed, key) }

func (w *world) eachStep() {
	if n := w.table.View().Len(); n > w.config.MaxKeys && !w.closing {
		w.fail("%d keys of at most %d", n, w.config.MaxKeys)
	}
	if caller := w.current.caller; caller != nil && caller.busy && caller.verb == takeAll {
		caller.counts.add(w.counts()) // it counts key by key, and other calls come between
	}
}

func (w *world) play() {
	for w.goOn() {
		if !slices.ContainsFunc(w.callers, func(caller *caller) bool { return !caller.ended }) {
			break
		}
		if !slices.ContainsFunc(w.callers, func(caller *caller) bool { return caller.busy }) && w.writerSleeps() {
			w.atRest()
		}
		w.passTo(w.next())
	}
	w.quiet = true
}

// goOn runs until no actor can go on. It reports false if that takes too many steps.
func (w *world) goOn() bool {
	for {
		w.run()
		switch {
		case w.steps > maxSteps:
			w.fail("no end after %d steps", w.steps)
			return false
		case w.jump == 0:
			return true
		}
		for _, caller := range w.callers {
			caller.excuse += w.jump
		}
		w.passTo(w.elapsed + w.jump)
		w.jump = 0
	}
}

func (w *world) passTo(instant int64) {
	if instant == never {
		w.fail("deadlock: no goroutine can go on")
		w.steps = maxSteps + 1
		return
	}
	w.passes(instant - w.elapsed)
	for _, caller := range w.callers {
		caller.clock(w.rawClock())
		caller.late()
	}
}

func (w *world) writerSleeps() bool {
	for _, actor := range w.actors {
		if actor.waits && actor.point == "queue: receive" {
			return true
		}
	}
	return false
}

// end stops all faults and checks the final state.
func (w *world) end() {
	w.quiet = true
	stood := w.rawClock()
	w.stopped = false
	w.wentBack = w.wentBack || w.rawClock() < stood
	if w.steps > maxSteps || !w.goOn() {
		return
	}
	if w.failure == "" && !w.closing && w.engine.Health() == nil {
		w.atRest()
		if w.limit.longest > 0 {
			w.releaseAll()
			if !w.goOn() {
				return
			}
			w.atRest()
		}
		w.leave()
	}
	w.start("closer", func() {
		if err := w.engine.Close(); err != nil {
			w.fail("Close: %v", err)
		}
	})
	for w.goOn() && len(w.actors) > 0 {
		if at := w.next(); at != never && w.elapsed < int64(time.Hour) {
			w.passTo(at)
			continue
		}
		w.fail("%d goroutines do not end", len(w.actors))
		return
	}
	if w.failure != "" {
		return
	}
	deaths := len(w.deaths)
	if stats := w.engine.Stats(); stats.Restarts > uint64(deaths) || stats.Dropped > uint64(deaths/2) {
		w.fail("%d restarts and %d commands dropped for %d deaths", stats.Restarts, stats.Dropped, deaths)
	}
}

// leave lets all keys drain and leave, and then takes each key's whole limit.
func (w *world) leave() {
	const ages = int64(time.Hour)
	if w.offset = max(w.offset, 0); w.ownClock {
		w.offset += ages
	} else {
		w.passTo(w.elapsed + ages)
	}
	// A key that has only landed is filed at one look, and due an idle time later.
	limit := w.elapsed + int64(w.config.Idle+3*janitor.Every(w.config.Idle))
	for w.elapsed < limit && w.engine.Len() > 0 {
		w.passTo(w.next())
		if !w.goOn() {
			return
		}
	}
	if n := w.engine.Len(); n > 0 {
		w.fail("%d keys do not leave", n)
		return
	}
	w.atRest()
	w.start("last", func() {
		for i, key := range w.keys[:min(len(w.keys), w.config.MaxKeys)] {
			most := w.engine.Take(key, 0).Limit
			w.enters(w.accounts[i], most)
			if decision := w.engine.Take(key, most); !decision.Allowed {
				w.fail("key %s may take %d, and is refused for %v", w.accounts[i].name, most, decision.RetryAfter)
			}
			w.counted(1, 0)
			if w.engine.Choke(key) {
				w.fail("key %s may take %d, and one more", w.accounts[i].name, most)
			}
			w.counted(0, 1)
		}
	})
	if w.goOn() {
		for _, account := range w.accounts {
			account.known, account.loose = false, true
		}
		w.atRest()
	}
}

func (w *world) describe() string {
	config := w.config
	return fmt.Sprintf("%d callers, %d keys of at most %d, %v, %v, %v, queue of %d, idle %v, open timeout %v, "+
		"%d waiting, %d restarts, own clock %v; chaos %+v; plan %+v; %d deaths",
		len(w.callers), len(w.keys), config.MaxKeys, w.limit, config.WhenFull, config.WhenUnavailable, config.QueueDepth, config.Idle,
		config.OpenTimeout, config.MaxWaiting, config.Restarts, w.ownClock, w.chaos, w.plan, len(w.deaths))
}
