package bench

import (
	"errors"
	"fmt"
	"runtime"
	"time"
)

// lasting is the course of a workload on known keys: each contender's limiter is
// made once, told all the keys, and asked in every round.
type lasting struct {
	base
	opening stream
	streams []stream
	states  []*state // as turns
	find    bool     // the limit is to be found
}

// state is one contender's limiter and its callers.
type state struct {
	limiter          Limiter
	openers, callers []*caller
	spells           []spell
}

func (c *lasting) steps() []step {
	steps := []step{{
		doing: "preparing keys", do: always(c.prepare),
		cost: (time.Duration(c.Keys) + min(drawsInAll, 4*time.Duration(c.Keys)*time.Duration(c.Workload.Callers))) * prepareCost,
	}}
	for i, t := range c.turns {
		steps = append(steps, step{
			contender: t.Name, doing: "opening keys and warming up",
			cost: c.keyCost(t) + c.o.Duration/2,
			do:   always(func() error { return c.open(i) }),
		})
	}
	for round := range c.Workload.Rounds {
		for at, i := range Order(round, len(c.turns)) {
			cost := c.o.Duration + turnCost + time.Duration(c.Keys)*prepareCost/4
			if c.o.NewRecorder != nil {
				cost += c.o.Duration / 2
			}
			steps = append(steps, step{
				contender: c.turns[i].Name,
				doing:     fmt.Sprintf("round %d of %d", round+1, c.Workload.Rounds),
				cost:      cost,
				round:     round, first: round > 0 && at == 0,
				watched: !c.turns[i].Elsewhere,
				do: func(again bool) (bool, error) {
					if at == 0 || again {
						runtime.GC()
					}
					return c.round(i, again), nil
				},
			})
		}
	}
	return steps
}

func (c *lasting) prepare() error {
	c.opening = newStream(upTo(0, c.Keys))
	c.streams = drawStreams(c.Workload, c.Workload.Callers)
	if c.find = c.Limit == (Limit{}); c.find {
		c.Limit = c.limitAt(guessedSpeed * float64(c.Workload.Callers))
	}
	return nil
}

// open makes a contender's limiter, asks for each key once, and warms up.
func (c *lasting) open(i int) error {
	setup := c.setup()
	if c.turns[i].Floor && c.Refused > 0 {
		setup.Refuse = mostAsked(c.streams, c.Keys, c.Refused)
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
		s.callers[j].recorder = c.turns[i].recorders.of(j)
	}
	s.ask(c.crew, 0, s.openers, (*caller).once)
	settle(limiter)
	p := s.ask(c.crew, c.o.Duration/2, s.callers, (*caller).around)
	if c.find && c.turns[i].Floor && i == 0 {
		// Nobody has been given a limit yet.
		c.Limit = c.limitAt(float64(p.Calls) / p.Elapsed.Seconds() / slowdown)
	}
	return nil
}

func (c *lasting) limitAt(speed float64) Limit {
	return limitRefusing(c.streams, c.Keys, c.Refused, speed, c.o.Duration)
}

// round is a contender's turn: first untimed calls, then timed ones. The timed
// ones are not done again.
func (c *lasting) round(i int, again bool) (disturbed bool) {
	s, t := c.states[i], c.turns[i]
	p := s.ask(c.crew, c.o.Duration, s.callers, (*caller).around)
	disturbed = c.keep(t, p, again)
	if c.o.NewRecorder != nil && !again {
		settle(s.limiter)
		s.ask(c.crew, c.o.Duration/2, s.callers, (*caller).aroundTimed)
		t.recorders.endRound(c.ctx.Err() == nil)
	}
	settle(s.limiter)
	return disturbed
}

// ask lets the callers work, each in the same way.
func (s *state) ask(crew crew, d time.Duration, callers []*caller, how callerJob) Pass {
	jobs, asked, passed := jobsOf(callers, s.limiter, how), sumAsked(callers), sumPassed(callers)
	spell := begin(callers)
	p, window := crew.work(d, nil, jobs...)
	p.Calls, p.Passed = sumAsked(callers)-asked, sumPassed(callers)-passed
	s.spells = append(s.spells, spell.end(window))
	return p
}

// finish audits the limiters and closes them.
func (c *lasting) finish() (WorkloadReport, error) {
	var failures []error
	for i, s := range c.states {
		t := c.turns[i]
		settle(s.limiter)
		t.audit.add(account(c.Limit, c.Keys, s.spells), sumPassed(s.openers)+sumPassed(s.callers), countsOf(s.limiter))
		if err := s.limiter.Close(); err != nil {
			failures = append(failures, fmt.Errorf("closing %s: %w", t.Name, err))
		}
	}
	report := c.report()
	c.states, c.streams, c.opening = nil, nil, stream{}
	return report, errors.Join(failures...)
}
