package bench

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"
)

// knownKeys schedules a workload on known keys: each contender's limiter is made once, told all
// keys, and asked in every round.
type knownKeys struct {
	base
	opening   stream
	streams   []stream
	states    []*state // as turns
	findLimit bool
}

type state struct {
	limiter          Limiter
	openers, callers []*caller
	windows          []askedWindow
}

func (c *knownKeys) steps() []step {
	steps := []step{{
		doing: "preparing keys", do: undisturbed(c.prepare),
		cost: (time.Duration(c.Keys) + min(drawsInAll, 4*time.Duration(c.Keys)*time.Duration(c.Workload.Callers))) * prepareCost,
	}}
	for i, t := range c.turns {
		steps = append(steps, step{
			contender: t.Name, doing: "opening keys and warming up",
			cost: c.keyCost(t) + c.o.Duration/2,
			do:   undisturbed(func() error { return c.open(i) }),
		})
	}
	for round := range c.Workload.Rounds {
		for place, i := range Order(round, len(c.turns)) {
			cost := c.o.Duration + turnCost + time.Duration(c.Keys)*prepareCost/4
			if c.o.NewRecorder != nil {
				cost += c.o.Duration / 2
			}
			steps = append(steps, step{
				contender: c.turns[i].Name,
				doing:     fmt.Sprintf("round %d of %d", round+1, c.Workload.Rounds),
				cost:      cost,
				round:     round, first: round > 0 && place == 0,
				watched: !c.turns[i].Elsewhere,
				do: func(again bool) (bool, error) {
					if place == 0 || again {
						runtime.GC()
					}
					return c.round(i, again), nil
				},
			})
		}
	}
	return steps
}

func (c *knownKeys) prepare() error {
	c.opening = newStream(upTo(0, c.Keys))
	c.streams = drawStreams(c.Workload, c.Workload.Callers)
	if c.findLimit = c.Limit == (Limit{}); c.findLimit {
		c.Limit = c.limitAt(guessedSpeed * float64(c.Workload.Callers))
	}
	return nil
}

// open makes a contender's limiter, asks for each key once, and warms up.
func (c *knownKeys) open(i int) error {
	setup := c.setup()
	if c.turns[i].Yardstick != "" && c.Refused > 0 {
		setup.Refuse = frequentKeys(c.streams, c.Keys, c.Refused)
	}
	limiter, err := c.turns[i].New(setup)
	if err != nil {
		return err
	}
	s := &state{limiter: limiter}
	c.states = append(c.states, s)
	for j, stream := range c.streams {
		s.callers = append(s.callers, &caller{stream: stream})
		s.openers = append(s.openers, &caller{stream: c.opening.part(j, len(c.streams))})
		s.callers[j].recorder = c.turns[i].recorders.get(j)
	}
	if limiter.Prepare != nil {
		limiter.Prepare(c.opening.keys)
	}
	s.ask(c.workers, 0, s.openers, (*caller).once, false)
	limiter.settle()
	p := s.ask(c.workers, c.o.Duration/2, s.callers, (*caller).loop, false)
	if c.findLimit && c.turns[i].Yardstick == YardstickMap && c.onlyYardsticks(i) {
		c.Limit = c.limitAt(float64(p.Calls) / p.Elapsed.Seconds() / slowdown)
	}
	return nil
}

// onlyYardsticks reports whether no limiter precedes turn i.
func (c *knownKeys) onlyYardsticks(i int) bool {
	return !slices.ContainsFunc(c.turns[:i], func(t *turn) bool { return t.Yardstick == "" })
}

func (c *knownKeys) limitAt(speed float64) Limit {
	return limitRefusing(c.streams, c.Keys, c.Refused, speed, c.o.Duration)
}

// round is a contender's turn: untimed calls, then timed ones, which are not repeated.
func (c *knownKeys) round(i int, again bool) (disturbed bool) {
	s, t := c.states[i], c.turns[i]
	p := s.ask(c.workers, c.o.Duration, s.callers, (*caller).loop, false)
	disturbed = c.keep(t, p, again)
	if c.o.NewRecorder != nil && !again {
		s.limiter.settle()
		s.ask(c.workers, c.o.Duration/2, s.callers, (*caller).loop, true)
		t.recorders.endRound(c.ctx.Err() == nil)
	}
	s.limiter.settle()
	return disturbed
}

func (s *state) ask(w workers, d time.Duration, callers []*caller, how callerJob, timed bool) Pass {
	jobs, asked, passed := jobsOf(callers, s.limiter, how, timed), sumAsked(callers), sumPassed(callers)
	begun, spent := beginWindow(callers), s.limiter.spent()
	p, window := w.run(d, nil, jobs...)
	p.Behind = s.limiter.spent() - spent
	p.Calls, p.Passed = sumAsked(callers)-asked, sumPassed(callers)-passed
	s.windows = append(s.windows, begun.end(window))
	return p
}

func (c *knownKeys) finish() (WorkloadReport, error) {
	var failures []error
	for i, s := range c.states {
		t := c.turns[i]
		s.limiter.settle()
		t.audit.add(auditOf(t.Promise, c.Limit, c.Keys, s.windows), sumPassed(s.openers)+sumPassed(s.callers), s.limiter.Counts)
		if err := s.limiter.Close(); err != nil {
			failures = append(failures, fmt.Errorf("closing %s: %w", t.Name, err))
		}
	}
	report := c.report()
	c.states, c.streams, c.opening = nil, nil, stream{}
	return report, errors.Join(failures...)
}

// guessedSpeed is the calls a second of a caller until a yardstick was measured. slowdown is the
// assumed cost of a limiter relative to the xsync map.
const (
	guessedSpeed = 5e6
	slowdown     = 1.5
)

// limitRefusing returns the limit that refuses this share of calls at this speed, in calls a
// second.
//
// The capacity is a quarter of a round's units, at least 3: keys that may not come twice in a row
// are refused far below their rate. It hardly matters to the share, which by Zipf's law falls with
// the logarithm of the takes in a round. A limiter four times as fast or slow as expected is still
// refused 40% to 60% of its calls.
func limitRefusing(streams []stream, keys int, share, speed float64, round time.Duration) Limit {
	times := make([]float64, keys)
	calls := 0.0
	for _, s := range streams {
		for _, i := range s.order {
			times[i]++
			calls++
		}
	}
	// A key with a share p of the calls is refused max(p-most, 0) of all.
	low, high := 0.0, 1.0
	for range 30 {
		most := (low + high) / 2
		refused := 0.0
		for _, n := range times {
			refused += max(n/calls-most, 0)
		}
		if refused > share {
			low = most
		} else {
			high = most
		}
	}
	rate := high * speed
	return Limit{
		Capacity: max(int64(rate*round.Seconds()/4), 3),
		Count:    max(int64(rate), 1),
		Per:      time.Second,
	}
}
