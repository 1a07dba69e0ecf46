package bench

import (
	"errors"
	"fmt"
	"runtime"
	"time"
)

// steps returns the steps: the keys are prepared, limiters that are kept are opened, and then each
// contender has its turn in each round.
func (s *schedule) steps() (steps []step) {
	if s.Draw != DrawElsewhere {
		steps = append(steps, step{cost: s.prepareTime(), do: s.prepare})
	}
	for i, turn := range s.turns {
		if s.Draw.KeepsLimiter() && turn.Measure == nil {
			open := func() error { return s.open(i) }
			steps = append(steps, step{contender: turn.Name, cost: s.keyCost(turn) + s.o.Duration/2, do: open})
		}
	}
	for round := range s.Rounds {
		for place, i := range Order(round, len(s.turns)) {
			for n, next := range s.stepsOf(s.turns[i], place == 0) {
				next.contender, next.round = s.turns[i].Name, round+1
				next.first = round > 0 && place == 0 && n == 0 && s.Draw != DrawElsewhere
				steps = append(steps, next)
			}
		}
	}
	return steps
}

// stepsOf returns the steps of a contender's turn in a round, which may be the round's first turn.
func (s *schedule) stepsOf(turn *turn, isFirst bool) []step {
	switch {
	case turn.Measure != nil:
		return []step{{cost: s.o.Duration, do: func() error { return s.measure(turn, isFirst) }}}
	case s.Draw.KeepsLimiter():
		return []step{s.roundOf(turn, isFirst)}
	}
	return s.passesOf(turn)
}

// measure keeps a round that a contender measured itself, unless the run was ended meanwhile. Other
// load is not known if that has several processes.
func (s *schedule) measure(turn *turn, isFirst bool) error {
	if isFirst && s.Draw != DrawElsewhere {
		runtime.GC()
	}
	busy, processors, watched := s.busy()
	measured, err := turn.Measure(s.ctx, s.Workload, s.o.Duration)
	switch {
	case s.ctx.Err() != nil:
		return nil
	case err != nil:
		return err
	}
	if after, _, _ := s.busy(); watched && s.Draw != DrawElsewhere {
		measured.Pass.disturb(after-busy, min(s.Callers, s.cpu), processors)
	}
	s.keep(turn, measured.Pass)
	turn.Memory, turn.Share = measured.Memory, measured.Share
	if measured.Latency != (Latency{}) {
		turn.recorders.rounds = append(turn.recorders.rounds, measured.Latency)
	}
	turn.Audit = measured.Audit
	return nil
}

func (s *schedule) prepareTime() time.Duration {
	keys := time.Duration(s.Keys)
	if s.Draw.KeepsLimiter() {
		keys += min(drawsInAll, 4*keys*time.Duration(s.Callers))
	}
	return keys * prepareCost
}

func (s *schedule) prepare() error {
	if s.pool.order = upTo(0, s.Keys); !s.Memory {
		s.pool = newStream(s.pool.order)
	}
	s.known = newStream(upTo(s.Keys, s.Known))
	if s.Draw.KeepsLimiter() {
		s.streams = drawStreams(s.Workload, s.Callers)
	}
	return nil
}

// finish ends the limiters that were kept, and reports the workload.
func (s *schedule) finish() (WorkloadReport, error) {
	var failures []error
	for _, turn := range s.turns {
		if turn.session == nil {
			continue
		}
		turn.session.limiter.settle()
		if err := turn.close(turn.session, s.Limit, s.Keys); err != nil {
			failures = append(failures, fmt.Errorf("closing %s: %w", turn.Name, err))
		}
	}
	workloadReport := WorkloadReport{Workload: s.Workload, CPU: s.cpu}
	workloadReport.MaxKeys = s.setup().MaxKeys
	for _, turn := range s.turns {
		if len(turn.Rounds) == 0 {
			continue
		}
		turn.Latency, turn.LatencyRounds, turn.Known = turn.recorders.latency(), turn.recorders.rounds, turn.known.latency()
		// These hold limiters and keys.
		turn.Needs, turn.New, turn.Measure = nil, nil, nil
		workloadReport.Results = append(workloadReport.Results, turn.Result)
	}
	workloadReport.Summarize()
	return workloadReport, errors.Join(failures...)
}
