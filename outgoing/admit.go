package outgoing

import (
	"fmt"
	"time"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/outgoing/internal/answer"
	"github.com/ral-limiter/ral/outgoing/internal/pacing"
)

// overlong is a time that an answer stated and that is longer than Config.MaxBackoff. Meanwhile the
// key's calls fail at once, except a probe now and then, as the server may err.
type overlong struct {
	probe time.Duration // when the next probe may be sent, since Line.began
	pause time.Duration // the time before that probe; it doubles with each probe
}

// overlongLeft returns the rest of the key's overlong time, 0 if there is none.
func (l *Line[K]) overlongLeft(s *state) time.Duration {
	until := time.Duration(s.overlong.Load())
	if until == 0 {
		return 0
	}
	return max(until-time.Since(l.began), 1)
}

// holdOverlong begins an overlong time that an answer to t states, or changes it, and reports false
// if d is none. A probe's answer replaces the time; any other answer only lengthens it. It needs s.mu locked.
func (l *Line[K]) holdOverlong(t *part[K], d time.Duration) bool {
	s, until := t.state, int64(time.Since(l.began)+min(d, answer.MaxTime))
	switch before := s.overlong.Load(); {
	case s.unrecorded || !l.has(t.key, s) || before == 0 && d <= l.config.MaxBackoff:
		return false
	case before == 0:
		l.overlongs.Add(1)
		s.mu.overlong = overlong{time.Since(l.began) + l.config.MaxBackoff, l.config.MaxBackoff}
	case until < before && !t.probes:
		return true
	}
	s.overlong.Store(until)
	s.held.Store(until)
	s.mu.heldBy = s.mu.answer
	// Calls in line get their turns at once, and fail: see admit.
	l.restart(t.key, s, pacing.Unlimited)
	return true
}

// restart forgets the key's use and back-off, and sets a pace if the line learns paces. It needs s.mu
// locked.
func (l *Line[K]) restart(key K, s *state, next *pacing.Pace) {
	l.engine.Reset(key)
	if l.probe != nil {
		from := s.pace.Swap(next)
		_ = l.engine.ChangeLimit(key, from.Policy(), next.Policy()) // fails only if closed
	}
}

// endOverlong ends the overlong time, after which the key is as new. It needs s.mu locked.
func (l *Line[K]) endOverlong(key K, s *state) {
	s.overlong.Store(0)
	l.overlongs.Add(-1)
	l.restart(key, s, s.unlearned())
}

// admit returns an error if the call must fail at once: its cost is above what the server admits, or
// the key has an overlong time, and no probe is due. With claim the call becomes the probe.
func (p *part[K]) admit(claim bool) error {
	l, s := p.line, p.state
	if most := s.capacity.Load(); most > 0 && p.n > most && !l.config.Debts && time.Since(l.began) < time.Duration(s.capacityUntil.Load()) {
		return fmt.Errorf("%w: the call costs %d, and the server admits at most %d", engine.ErrNever, p.n, most)
	}
	if s.overlong.Load() == 0 || p.probes {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	left, now := l.overlongLeft(s), time.Since(l.began)
	switch {
	case left == 0 || !l.has(p.key, s):
		return nil
	case left <= l.config.MaxBackoff:
		l.endOverlong(p.key, s)
		l.hold(p, left)
		return nil
	case now < s.mu.overlong.probe:
		return fmt.Errorf("%w: %v to wait, %v at the most", engine.ErrDeadline, left, l.config.MaxBackoff)
	case claim:
		pause := min(2*s.mu.overlong.pause, answer.MaxTime)
		s.mu.overlong, p.probes = overlong{now + pause, pause}, true
	}
	return nil
}

// learnCapacity records the capacity that an answer tells. It is believed for Config.MaxBackoff, as
// it may change while no call is sent.
func (l *Line[K]) learnCapacity(s *state, a *Answer) {
	if most := answer.CapacityOf(a); most > 0 && l.probe != nil {
		s.capacity.Store(most)
		s.capacityUntil.Store(int64(time.Since(l.began) + l.config.MaxBackoff))
	}
}
