package bench

import "time"

// schedule is a workload with the keys and turns that its steps use. steps.go makes the steps. The steps in
// knownkeys.go ask limiters that are kept for all rounds. The steps in newkeys.go make one for each pass.
type schedule struct {
	Workload
	workers
	cpu   int
	o     Options
	turns []*turn

	// pool has all keys, and known the further keys of Workload.Known.
	pool, known stream
	// streams have the order in which each caller asks for known keys.
	streams []stream
}

type step struct {
	contender string
	// cost is the estimated time of the step.
	cost time.Duration
	do   func() error
	// round is counted from 1. It is 0 before the rounds.
	round int
	// first is set in the first step of each round after the first round.
	first bool
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

// turn is a contender in a workload, with the result so far.
type turn struct {
	Result
	// session and callers are for known keys.
	session *session
	callers []*caller
	// recorders has a Recorder for each caller.
	recorders *recorders
	known     *recorders
}

// Estimated costs, measured on two quiet cores of an Intel Xeon.
const (
	// newKeyCost is the time to open a key: the mean processor time of the nearest peers.
	newKeyCost = 500 * time.Nanosecond
	// slowKeyCost is the time to open a key with a slow contender.
	slowKeyCost = 30 * time.Microsecond
	// prepareCost is the time to make a key's name.
	prepareCost = 100 * time.Nanosecond
	// turnCost is the time of a garbage collection and of the rest of a turn.
	turnCost = 10 * time.Millisecond
)

func (s *schedule) keyCost(turn *turn) time.Duration {
	switch {
	case s.CallCost > 0:
		return time.Duration(s.keyCalls()) * s.CallCost
	case turn.Slow:
		return time.Duration(s.keyCalls()) * slowKeyCost
	case s.Draw == DrawSameOrder:
		return time.Duration(s.Keys)*newKeyCost + time.Duration(s.keyCalls())*prepareCost
	}
	return time.Duration(s.keyCalls()) * newKeyCost
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

// allKeys returns the callers with all keys, shared out to them unless each asks for all.
func (s *schedule) allKeys() []*caller {
	callers := make([]*caller, s.Callers)
	for i := range callers {
		callers[i] = &caller{stream: s.pool, slow: s.CallCost > 0}
		if s.Draw != DrawSameOrder {
			callers[i].stream = s.pool.part(i, len(callers))
		}
	}
	return callers
}

func (s *schedule) unmeasured() (names []string) {
	for _, t := range s.turns {
		if len(t.Rounds) == 0 {
			names = append(names, t.Name)
		}
	}
	return names
}

// keep keeps a pass, unless it was cut short.
func (s *schedule) keep(turn *turn, pass Pass) {
	if turn.Elsewhere {
		// The other process works for the contender.
		pass.Others, pass.Disturbed = 0, false
	}
	if s.ctx.Err() == nil {
		turn.Rounds = append(turn.Rounds, pass)
	}
}

// close frees the limiter of a session and adds its audit, unless it is a yardstick.
func (t *turn) close(session *session, limit Limit, keys int) error {
	if t.IsLimiter() {
		if t.Audit == nil {
			t.Audit = new(Audit)
		}
		auditor := newAuditor(t.Promise, limit, keys)
		auditor.addAll(session.windows)
		t.Audit.add(auditor, session.limiter.Counts)
	}
	return session.limiter.Close()
}
