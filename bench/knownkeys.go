package bench

import (
	"runtime"
	"slices"
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
		turn.callers = append(turn.callers, &caller{stream: stream, recorder: turn.recorders.get(j)})
	}
	if limiter.Prepare != nil {
		limiter.Prepare(s.pool.keys)
	}
	turn.session.askOnce(s.workers, nil, s.allKeys())
	limiter.settle()
	p := turn.session.loop(s.workers, s.o.Duration/2, turn.callers, false)
	if s.findLimit && turn.Yardstick == YardstickMap && s.onlyYardsticks(i) {
		s.Limit = s.limitAt(float64(p.Calls) / p.Elapsed.Seconds() / slowdown)
	}
	return nil
}

// onlyYardsticks reports whether no limiter precedes turn i.
func (s *schedule) onlyYardsticks(i int) bool {
	return !slices.ContainsFunc(s.turns[:i], func(t *turn) bool { return t.Yardstick == "" })
}

func (s *schedule) limitAt(speed float64) Limit {
	return limitRefusing(s.streams, s.Keys, s.Refused, speed, s.o.Duration)
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
	times, calls := countKeys(streams, keys)
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
