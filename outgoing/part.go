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

// part is the part of a turn that one limit decides. A part takes units of the limit's engine, and passes the answer
// to pacing.State.Answered. Line.apply applies the resulting pacing.Change to the engine while the key's state is
// locked.
type part[K comparable] struct {
	// line is nil in the zero Turn.
	line  *Line[K]
	state *state[K]
	// index is the index of the part's cost in the costs of Wait.
	index int
	// n is the cost of the call, in units, which are taken or owed.
	n int64
	// burstUnits is n, or the burst of the limit if that is less. These units are waited for.
	burstUnits int64
	// cost is n as corrected by Settle.
	cost  int64
	grant engine.Reservation[K]
	// early reports whether the units were taken before a limit was known.
	early bool

	// number is the number of the turn for its key, from 1. sent is the time of the turn.
	number uint64
	sent   time.Duration
	// ended is the sum of the units of the calls that had ended before this call was sent.
	ended int64
	// obeyed reports whether an answer, or Abandon, has ended the part.
	obeyed bool
	// probes reports whether the call is a probe of Config.MaxBackoff. A probe takes no units.
	probes bool
}

// part returns the part of a call of n units. The units count as waiting until Turn.leave.
func (l *Line[K]) part(key K, n int64) part[K] {
	n = min(n, answer.MaxCount)
	p := part[K]{line: l, state: l.keys.join(key, n, l.hasGates()), n: n, burstUnits: n, cost: n}
	if n > 1 {
		p.fitAgain()
	}
	return p
}

// fitAgain computes burstUnits by the present limit, and reports whether the units changed.
func (p *part[K]) fitAgain() bool {
	before := p.burstUnits
	p.burstUnits = min(p.n, max(p.line.Limit(p.state.key).Limit(), 1))
	return p.burstUnits != before
}

// acquire waits for the units that fit. If the limit changes meanwhile, so that more or fewer fit, acquire
// gives the units back and waits again. For example, while a key's first call probes the limit, each call behind
// it waits for one unit, and a call of several units waits again once the limit is known.
func (p *part[K]) acquire(ctx context.Context, patience time.Duration) (err error) {
	for {
		if err := p.admit(true); err != nil || p.probes {
			return err
		}
		p.grant, err = p.line.engine.Acquire(ctx, p.state.key, p.burstUnits, max(patience, 0))
		p.early = !p.state.pace.Load().HasLimit()
		fits := p.burstUnits
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

// admit returns an error if the call must fail at once: either its cost is above the capacity of the server, or the
// key has an overlong time and no probe is due. claims reports whether the call becomes the probe if one is due.
func (p *part[K]) admit(claims bool) error {
	line, state := p.line, p.state
	if capacity := state.capacity.Load(); capacity > 0 && p.n > capacity && !line.config.Debts && int64(line.keys.now()) < state.capacityUntil.Load() {
		return fmt.Errorf("%w: the call costs %d, and the server admits at most %d", engine.ErrNever, p.n, capacity)
	}
	if state.failsUntil.Load() == 0 || p.probes {
		return nil
	}
	state.mu.Lock()
	defer state.mu.Unlock()
	if !line.keys.has(state) {
		return nil
	}
	now := line.keys.now()
	change, fails, probes := state.mu.learned.Enter(now, claims)
	p.probes = probes
	line.apply(state, change, state.mu.heldBy)
	if fails {
		return fmt.Errorf("%w: %v to wait, %v at the most", engine.ErrDeadline, state.failsFor(now), line.config.MaxBackoff)
	}
	return nil
}

// tell calls Config.OnTurn, if there is one.
func (p *part[K]) tell(ctx context.Context, decision policy.Decision) {
	if config := &p.line.config; config.OnTurn != nil {
		config.OnTurn(ctx, config.Name, decision)
	}
}

// begin counts the call as sent, charges the units beyond the burst, and reports the turn to Config.OnTurn.
func (p *part[K]) begin(ctx context.Context, waited time.Duration) {
	decision := p.grant.Decision
	decision.Wait = waited
	p.tell(ctx, decision)
	state, now := p.state, p.line.keys.now()
	state.lastTurn.Store(int64(now))
	p.number, p.sent, p.ended = state.turns.Add(1), now, state.ended.Load()
	state.taken.Add(p.n)
	if state.pace.Load().IsOver(now) {
		p.open()
	}
	if p.n > p.burstUnits && (!p.line.pacing.Learns || !state.pace.Load().IsUnknown()) {
		p.charge(p.n - p.burstUnits)
	}
}

// open begins the next window. The call is the first one that is sent after the end of the last window.
func (p *part[K]) open() {
	state := p.state
	state.mu.Lock()
	defer state.mu.Unlock()
	if p.line.keys.has(state) {
		p.line.apply(state, state.mu.learned.Begin(p.sent, state.taken.Load()-state.ended.Load()), state.mu.pacedBy)
	}
}

// charge takes n more units. If n is negative, charge gives -n units back.
func (p *part[K]) charge(n int64) {
	line, key := p.line, p.state.key
	// The engine no longer has the units of a key that was forgotten.
	if p.state.unrecorded || line.keys.has(p.state) {
		line.engine.Refund(key, -min(p.state.pace.Load().Charge(n, p.sent, p.early), decide.MostCharge(line.Limit(key))))
	}
}

// settle corrects the units that the call took. An excess is always charged. Unused units do not come back if the
// calls of the key spend the units that the server says are left.
func (p *part[K]) settle(used int64) {
	state := p.state
	if more := used - p.cost; more > 0 || !p.line.pacing.Learns || state.delay == 0 && !state.pace.Load().Spends() {
		p.charge(more)
		p.cost = used
	}
}

// giveBack gives back n units of a call that was not sent. If the call is the probe, the next call becomes it.
func (p *part[K]) giveBack(n int64) {
	switch {
	case p.probes:
		p.state.mu.Lock()
		defer p.state.mu.Unlock()
		p.state.mu.learned.Unsent()
	case n == p.burstUnits && p.state.pace.Load().IsUnknown():
		p.grant.Cancel()
	default:
		p.charge(-n)
	}
}

// end counts the call as ended, once, and returns the call and the figures of its key for package pacing. It needs
// state.mu locked, so that the answers of all ended calls have been counted.
func (p *part[K]) end() pacing.Call {
	line, state := p.line, p.state
	if !p.obeyed {
		p.obeyed = true
		state.ended.Add(p.n)
	}
	call := pacing.Call{
		Number: p.number, Turns: state.turns.Load(), Sent: p.sent, Units: p.n,
		Waited: p.grant.Waited > 0, Probe: p.probes, Forgotten: !line.keys.has(state),
	}
	switch pace := state.pace.Load(); {
	case pace.Spends():
		call.Ours = line.engine.Peek(state.key, 0).Remaining
	case pace.IsUnknown():
		call.Holding = line.engine.Blocked(state.key) > 0
	}
	// Waiting is read before taken, so that a call that gets its turn in between is counted once or twice, and never missed.
	call.Waiting = state.waiting.Load()
	taken := state.taken.Load()
	call.Later, call.UnderWay = taken-p.ended-p.n, taken-state.ended.Load()
	return call
}

// lost ends a call that gets no answer, as by Turn.Abandon.
func (p *part[K]) lost() {
	state := p.state
	state.mu.Lock()
	defer state.mu.Unlock()
	p.line.apply(state, state.mu.learned.Abandoned(p.end()), state.mu.pacedBy)
}

// obey applies an answer to the key. decided is false if another limit refused the call.
func (p *part[K]) obey(a Answer, decided bool) {
	line, state := p.line, p.state
	// believe is called without the lock, since its Logger may itself send calls by this line.
	line.believe(&a)
	if capacity := answer.CapacityOf(&a); capacity > 0 && line.pacing.Learns {
		// The server may raise its capacity, and no answer tells so while no call is sent.
		state.capacity.Store(capacity)
		state.capacityUntil.Store(int64(line.keys.now() + line.config.MaxBackoff))
	}
	if a.Refused {
		line.refusals.Add(1)
	}
	state.mu.Lock()
	defer state.mu.Unlock()
	isFirst := decided && !p.obeyed
	call := p.end()
	call.First = isFirst
	line.apply(state, state.mu.learned.Answered(call, line.keys.now(), a), origin{p.number, a.Field, answer.LimitField(&a), time.Now()})
}

// believe sets Reset to 0 if the reset has passed or is too far ahead, and logs the first such reset.
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

// apply applies a change of a key to its state and to the engine. origin is the answer behind the change. It needs
// state.mu locked.
func (l *Line[K]) apply(state *state[K], change pacing.Change, origin origin) {
	if change.Restart {
		l.engine.Reset(state.key)
	}
	// Calls in line get new turns in the same order.
	if from := state.pace.Load(); change.Pace != from {
		state.pace.Store(change.Pace)
		state.mu.pacedBy = origin
		// The change fails only if the engine is closed.
		_ = l.engine.ChangeLimit(state.key, from.Policy(), change.Pace.Policy())
	}
	if until := int64(change.FailsUntil); until != state.failsUntil.Load() {
		switch before := state.failsUntil.Swap(until); {
		case until == 0:
			l.failing.Add(-1)
		case before == 0:
			l.failing.Add(1)
		}
		state.heldUntil.Store(until)
		state.mu.heldBy = origin
	}
	if change.Lowers {
		if ours := l.engine.Peek(state.key, 0).Remaining; ours > change.Left {
			l.engine.Refund(state.key, change.Left-ours)
		}
	}
	if change.Hold > 0 {
		l.hold(state, change.Hold, origin)
	}
}

// hold makes all calls of a key wait for d, and takes all units that the key has after d except one, since the
// server promised room for one call. Under a windowed Config.Policy, one unit is left in the present window, and
// later windows lose none. It needs state.mu locked.
func (l *Line[K]) hold(state *state[K], d time.Duration, origin origin) {
	if l.config.Jitter > 0 {
		d = min(d+rand.N(l.config.Jitter), answer.MaxTime)
	}
	if until := int64(l.keys.now() + d); until > state.heldUntil.Load() {
		state.heldUntil.Store(until)
		state.mu.heldBy = origin
	}
	burst := l.burst
	if l.pacing.Learns {
		burst = pacing.BurstOf(l.Limit(state.key))
	}
	if n := burst.Excess(l.engine.Peek(state.key, 0), d); n > 0 {
		l.engine.Refund(state.key, -n)
	}
	if err := l.engine.Block(state.key, d); err != nil {
		l.unheld.Add(1)
	}
}
