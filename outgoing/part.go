package outgoing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/internal/core/decide"
	"github.com/ral-limiter/ral/outgoing/internal/answer"
	"github.com/ral-limiter/ral/outgoing/internal/pacing"
	"github.com/ral-limiter/ral/policy"
)

// part is a turn under one limit. It is where the engine and the decisions of package pacing meet. A turn takes
// units of the engine, and its answer goes to pacing.State.Answered. Line.apply does the Change to the engine
// while the key's state is locked.
type part[K comparable] struct {
	// line is nil in the zero Turn.
	line  *Line[K]
	state *state[K]
	// index is the index in the costs of Wait.
	index int
	// n is the units taken or owed.
	n int64
	// fits is as many of them as the limit allows at once.
	fits int64
	// cost is n as corrected by Settle.
	cost  int64
	grant engine.Reservation[K]
	// early means that the units were taken before there was a limit.
	early bool

	number uint64
	sent   time.Duration
	// ended is the units of calls that had ended before this one was sent.
	ended  int64
	obeyed bool
	// probes means that the call is sent in an overlong time, without units.
	probes bool
}

// part returns the part of a call of n units. They count as waiting until Turn.leave.
func (l *Line[K]) part(key K, n int64) part[K] {
	n = min(n, answer.MaxCount)
	p := part[K]{line: l, state: l.keys.join(key, n, l.hasGates()), n: n, fits: n, cost: n}
	if n > 1 {
		p.fitAgain()
	}
	return p
}

// fitAgain fits the units to the present limit, and reports whether that changes them.
func (p *part[K]) fitAgain() bool {
	before := p.fits
	p.fits = min(p.n, max(p.line.Limit(p.state.key).Limit(), 1))
	return p.fits != before
}

// acquire waits for the units that fit. If the limit changes meanwhile, so that more or fewer fit, it
// gives the units back and waits again. So do calls of several units that waited, for a unit each, behind a
// first call.
func (p *part[K]) acquire(ctx context.Context, patience time.Duration) (err error) {
	for {
		if err := p.admit(true); err != nil || p.probes {
			return err
		}
		p.grant, err = p.line.engine.Acquire(ctx, p.state.key, p.fits, max(patience, 0))
		p.early = !p.state.pace.Load().HasLimit()
		fits := p.fits
		again := p.n > 1 && p.fitAgain()
		if err != nil && !(again && errors.Is(err, engine.ErrNever)) {
			return err
		}
		if err == nil {
			p.sent = p.line.keys.now()
			if err = p.admit(false); !again && err == nil {
				return nil
			}
			p.charge(-fits)
			if err != nil {
				return err
			}
		}
		patience -= p.grant.Waited
	}
}

// admit returns an error if the call must fail at once. Its cost is then above what the server admits, or the key
// has an overlong time and no probe is due. A call that claims becomes the probe.
func (p *part[K]) admit(claims bool) error {
	l, s := p.line, p.state
	if capacity := s.capacity.Load(); capacity > 0 && p.n > capacity && !l.config.Debts && int64(l.keys.now()) < s.capacityUntil.Load() {
		return fmt.Errorf("%w: the call costs %d, and the server admits at most %d", engine.ErrNever, p.n, capacity)
	}
	if s.failsUntil.Load() == 0 || p.probes {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !l.keys.has(s) {
		return nil
	}
	now := l.keys.now()
	c, fails, probes := s.mu.learned.Enter(now, claims)
	p.probes = probes
	l.apply(s, c, s.mu.heldBy)
	if fails {
		return fmt.Errorf("%w: %v to wait, %v at the most", engine.ErrDeadline, s.failsFor(now), l.config.MaxBackoff)
	}
	return nil
}

// tell tells Config.OnTurn.
func (p *part[K]) tell(ctx context.Context, d policy.Decision) {
	if c := &p.line.config; c.OnTurn != nil {
		c.OnTurn(ctx, c.Name, d)
	}
}

// begin begins the call in its turn.
func (p *part[K]) begin(ctx context.Context, waited time.Duration) {
	d := p.grant.Decision
	d.Wait = waited
	p.tell(ctx, d)
	s, now := p.state, p.line.keys.now()
	s.used.Store(int64(now))
	p.number, p.sent, p.ended = s.turns.Add(1), now, s.ended.Load()
	s.taken.Add(p.n)
	if s.pace.Load().IsOver(now) {
		p.open()
	}
	if p.n > p.fits && (!p.line.pacing.Learns || !s.pace.Load().IsUnknown()) {
		p.charge(p.n - p.fits)
	}
}

// open begins a window with the first call that was sent after the last one.
func (p *part[K]) open() {
	s := p.state
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.line.keys.has(s) {
		p.line.apply(s, s.mu.learned.Begin(p.sent, s.taken.Load()-s.ended.Load()), s.mu.pacedBy)
	}
}

// charge takes n units more, or gives units back below 0.
func (p *part[K]) charge(n int64) {
	l, key := p.line, p.state.key
	// Otherwise the key was forgotten.
	if p.state.unrecorded || l.keys.has(p.state) {
		l.engine.Refund(key, -min(p.state.pace.Load().Charge(n, p.sent, p.early), decide.MostCharge(l.Limit(key))))
	}
}

// settle corrects the units that the call took, unless calls spend the units that the server says are left.
func (p *part[K]) settle(used int64) {
	s := p.state
	if more := used - p.cost; more > 0 || !p.line.pacing.Learns || s.delay == 0 && !s.pace.Load().Spends() {
		p.charge(more)
		p.cost = used
	}
}

// giveBack gives back n units of a call that is not sent.
func (p *part[K]) giveBack(n int64) {
	switch {
	case p.probes:
		p.state.mu.Lock()
		defer p.state.mu.Unlock()
		p.state.mu.learned.Unsent()
	case n == p.fits && p.state.pace.Load().IsUnknown():
		p.grant.Cancel()
	default:
		p.charge(-n)
	}
}

// end counts the call as ended, once, and returns it with the figures of its key. It needs state.mu locked, so that all calls
// that have ended were also counted by their answers.
func (p *part[K]) end() pacing.Call {
	l, s := p.line, p.state
	if !p.obeyed {
		p.obeyed = true
		s.ended.Add(p.n)
	}
	c := pacing.Call{
		Number: p.number, Turns: s.turns.Load(), Sent: p.sent, Units: p.n,
		Waited: p.grant.Waited > 0, Probe: p.probes, Forgotten: !l.keys.has(s),
	}
	switch pace := s.pace.Load(); {
	case pace.Spends():
		c.Ours = l.engine.Peek(s.key, 0).Remaining
	case pace.IsUnknown():
		c.Blocked = l.engine.Blocked(s.key) > 0
	}
	// Waiting is read before taken: a call that gets its turn in between is counted once or twice, never missed.
	c.Waiting = s.waiting.Load()
	taken := s.taken.Load()
	c.Later, c.UnderWay = taken-p.ended-p.n, taken-s.ended.Load()
	return c
}

// lost ends a call that gets no answer.
func (p *part[K]) lost() {
	s := p.state
	s.mu.Lock()
	defer s.mu.Unlock()
	p.line.apply(s, s.mu.learned.Abandoned(p.end()), s.mu.pacedBy)
}

// obey uses an answer. decided reports whether the limit has decided the call.
func (p *part[K]) obey(a Answer, decided bool) {
	l, s := p.line, p.state
	// The lock is not held, as the log may wait for a turn.
	l.believe(&a)
	if capacity := answer.CapacityOf(&a); capacity > 0 && l.pacing.Learns {
		// The capacity may change while no call is sent.
		s.capacity.Store(capacity)
		s.capacityUntil.Store(int64(l.keys.now() + l.config.MaxBackoff))
	}
	if a.Refused {
		l.refusals.Add(1)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	isFirst := decided && !p.obeyed
	call := p.end()
	call.First = isFirst
	l.apply(s, s.mu.learned.Answered(call, l.keys.now(), a), origin{p.number, a.Field, answer.LimitField(&a), time.Now()})
}

// believe drops a reset that has passed or is too far ahead.
func (l *Line[K]) believe(a *Answer) {
	latest := l.pacing.MaxReset(a)
	if !answer.IsPast(a) && a.Reset <= latest {
		return
	}
	if l.badResets.Add(1) == 1 {
		l.config.Logger.Warn("outgoing: ignored a reset that is past or too far ahead; later ones are only counted",
			slog.String("line", l.config.Name), slog.String("field", a.Field), slog.Duration("reset", a.Reset), slog.Duration("most", latest))
	}
	a.Reset = 0
}

// apply does a change of a key, by an answer. It needs state.mu locked.
func (l *Line[K]) apply(s *state[K], c pacing.Change, by origin) {
	if c.Restart {
		l.engine.Reset(s.key)
	}
	// Calls in line get new turns in the same order.
	if from := s.pace.Load(); c.Pace != from {
		s.pace.Store(c.Pace)
		s.mu.pacedBy = by
		// The change fails only if the engine is closed.
		_ = l.engine.ChangeLimit(s.key, from.Policy(), c.Pace.Policy())
	}
	if until := int64(c.FailsUntil); until != s.failsUntil.Load() {
		switch before := s.failsUntil.Swap(until); {
		case until == 0:
			l.failing.Add(-1)
		case before == 0:
			l.failing.Add(1)
		}
		s.heldUntil.Store(until)
		s.mu.heldBy = by
	}
	if c.Lowers {
		if ours := l.engine.Peek(s.key, 0).Remaining; ours > c.Left {
			l.engine.Refund(s.key, c.Left-ours)
		}
	}
	if c.Hold > 0 {
		l.hold(s, c.Hold, by)
	}
}

// hold makes all calls of a key wait for d, and leaves a unit: the server promised room for a call.
// A windowed Config.Policy keeps a unit in the present window, and all of a later window. It needs
// state.mu locked.
func (l *Line[K]) hold(s *state[K], d time.Duration, by origin) {
	if l.config.Jitter > 0 {
		d = min(d+rand.N(l.config.Jitter), answer.MaxTime)
	}
	// state.mu is locked.
	if until := int64(l.keys.now() + d); until > s.heldUntil.Load() {
		s.heldUntil.Store(until)
		s.mu.heldBy = by
	}
	burst := l.burst
	if l.pacing.Learns {
		burst = pacing.BurstOf(l.Limit(s.key))
	}
	if n := burst.Excess(l.engine.Peek(s.key, 0), d); n > 0 {
		l.engine.Refund(s.key, -n)
	}
	if err := l.engine.Block(s.key, d); err != nil {
		l.unheld.Add(1)
	}
}
