package bench

import (
	"runtime"
	"time"
)

// open makes a contender's limiter for all rounds, asks for each key once, and warms up.
func (s *schedule) open(i int) error {
	turn, setup := s.turns[i], s.setup()
	if turn.Yardstick != "" && s.Refused > 0 {
		setup.Refuse = frequentKeys(s.streams, s.Keys, s.Refused)
	}
	limiter, err := turn.New(setup)
	if err != nil {
		return err
	}
	turn.session = &session{limiter: limiter}
	for j, stream := range s.streams {
		turn.callers = append(turn.callers, &caller{stream: stream, recorder: turn.recorders.each[j]})
	}
	if limiter.Prepare != nil {
		limiter.Prepare(s.pool.keys)
	}
	turn.session.askOnce(s.workers, nil, s.allKeys())
	limiter.settle()
	turn.session.loop(s.workers, s.o.Duration/2, turn.callers, false)
	return nil
}

// roundOf returns a contender's turn on known keys: untimed calls, then timed ones.
func (s *schedule) roundOf(turn *turn, isFirst bool) step {
	timed := s.o.NewRecorder != nil
	cost := s.o.Duration + turnCost + time.Duration(s.Keys)*prepareCost/4
	if timed {
		cost += s.o.Duration / 2
	}
	return step{cost: cost, do: func() error {
		if isFirst {
			runtime.GC()
		}
		s.keep(turn, turn.session.loop(s.workers, s.o.Duration, turn.callers, false))
		if timed {
			turn.session.limiter.settle()
			turn.recorders.endRound(turn.session.loop(s.workers, s.o.Duration/2, turn.callers, true), s.ctx.Err() == nil)
		}
		turn.session.limiter.settle()
		return nil
	}}
}
