package outgoing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/ral-limiter/ral/cell"
	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/internal/core/decide"
	"github.com/ral-limiter/ral/outgoing/internal/answer"
	"github.com/ral-limiter/ral/outgoing/internal/pacing"
	"github.com/ral-limiter/ral/policy"
)

// Wait blocks until a call for the key may be sent, and takes its turn. A key's calls are served in
// order of arrival. A call whose context ends takes nothing.
//
// cost has the units that the call takes of the key's limit, 1 if it is absent or less, and of each
// of Config.Units, 0 if it is absent or less. Estimate units known only afterwards, and correct them
// by [Turn.Settle]. All limits are met together. If a cost exceeds what Config.Policy allows at once,
// or what a server with Config.Debts tells, the excess is owed until an answer tells what is left, if
// the limit keeps debts. Costs are cut to a billion.
//
// The error wraps an error of package engine: ErrCancelled with the context's error, ErrDeadline at
// once if the turn comes after the context's deadline or Config.Patience, or behind a time longer than
// Config.MaxBackoff (a *[TurnError]), ErrNever if the cost exceeds the limit that the server told,
// ErrCrowded or ErrClosed. With Units a call behind others may learn later that its turn is too late.
// Without waiting, a call of a known key allocates nothing, unless there are Units.
func (l *Line[K]) Wait(ctx context.Context, key K, cost ...int64) (Turn[K], error) {
	if len(l.units) > 0 {
		return l.waitForAll(ctx, key, cost)
	}
	p := l.part(key, costOf(cost, 0))
	defer p.leave()
	if err := p.acquire(ctx, l.config.Patience); err != nil {
		return Turn[K]{}, p.late(ctx, err)
	}
	p.tell(ctx, p.held.Waited)
	p.begin()
	l.counters.turns.Add(1)
	return Turn[K]{Waited: p.held.Waited, part: p}, nil
}

// Send waits for a turn and calls send, and again in a new turn as long as send reports that the call may be
// repeated, up to retries times. send must tell the turn the answer. The error is that of [Line.Wait] for the
// first turn. If there is no turn for a repetition, Send returns nil as if send had reported false. A turn
// that send leaves open, also by a panic, is abandoned.
func (l *Line[K]) Send(ctx context.Context, key K, retries int, send func(turn *Turn[K]) (again bool)) error {
	turn, err := l.Wait(ctx, key)
	if err != nil {
		return err
	}
	defer func() { turn.Abandon() }()
	for ; send(&turn) && retries > 0; retries-- {
		next, err := l.Wait(ctx, key)
		if err != nil {
			return nil //nolint:nilerr // the answer of the last attempt is the call's
		}
		turn = next
		l.retries.Add(1)
	}
	return nil
}

func (l *Line[K]) waitForAll(ctx context.Context, key K, cost []int64) (Turn[K], error) {
	t := Turn[K]{part: l.part(key, costOf(cost, 0))}
	defer t.leave()
	for i, of := range l.units {
		var p part[K]
		if n := costOf(cost, i+1); n > 0 {
			p = of.part(key, n)
			defer p.leave()
		}
		t.units = append(t.units, p)
	}
	began := time.Now()
	if err := t.acquireAll(ctx, began); err != nil {
		return Turn[K]{}, err
	}
	l.counters.turns.Add(1)
	t.Waited = time.Since(began)
	for p := range t.parts() {
		p.tell(ctx, t.Waited)
	}
	return t, nil
}

// acquireAll has the key's calls pass a gate one at a time. So only one call has units of some limits
// and waits for others, and none is passed for ever by calls that take less.
func (t *Turn[K]) acquireAll(ctx context.Context, began time.Time) error {
	if err := t.enter(ctx); err != nil {
		return err
	}
	defer func() { <-t.state.gate }()
	fail := func(p *part[K], err error) error {
		err = p.late(ctx, err)
		for p := range t.parts() {
			if p.sent > 0 {
				p.giveBack(p.fits)
			}
		}
		return err
	}
	for p := range t.parts() {
		if err := p.acquire(ctx, t.line.config.Patience-time.Since(began)); err != nil {
			return fail(p, err)
		}
		p.sent = pacing.Instant(time.Since(p.line.began))
	}
	for p := range t.parts() {
		if err := p.admit(false); err != nil { // it has waited for other parts
			return fail(p, err)
		}
	}
	for p := range t.parts() {
		p.begin()
	}
	return nil
}

// enter waits for the key's gate. A turn that is too late already is an error at once.
func (t *Turn[K]) enter(ctx context.Context) error {
	l, s := t.line, t.state
	patience, late := l.config.Patience, engine.ErrDeadline
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < patience {
		patience, late = time.Until(deadline), fmt.Errorf("%w: %w", late, context.DeadlineExceeded)
	}
	for p := range t.parts() {
		if err := p.admit(false); err != nil {
			return p.late(ctx, err)
		}
	}
	if p, in := t.last(); in > patience {
		return p.late(ctx, late)
	}
	select {
	case s.gate <- struct{}{}:
		return nil
	default:
	}
	most := int64(cmp.Or(l.config.MaxWaiting, defaultMaxWaiting))
	began := time.Now()
	defer func() {
		s.gated.Add(-1)
		l.gated.Add(-1)
		l.gateTime.Add(int64(time.Since(began)))
	}()
	if l.gated.Add(1); s.gated.Add(1) > most {
		return fmt.Errorf("outgoing: %w: %d calls wait for the key", engine.ErrCrowded, most)
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case s.gate <- struct{}{}:
		return nil
	case <-timer.C:
		p, _ := t.last()
		return p.late(ctx, late)
	case <-ctx.Done():
		return fmt.Errorf("outgoing: %w", cell.Cancelled(ctx))
	}
}

// last returns the part whose turn comes last, and the time until then.
func (t *Turn[K]) last() (last *part[K], in time.Duration) {
	last = &t.part
	for p := range t.parts() {
		if d := p.line.engine.Peek(p.key, p.fits); d.RetryAfter > in && d.RetryAfter != policy.Never {
			last, in = p, d.RetryAfter
		}
	}
	return last, in
}

// costOf returns a cost of Wait.
func costOf(cost []int64, index int) (n int64) {
	if index < len(cost) {
		n = cost[index]
	}
	minCost := int64(0)
	if index == 0 {
		minCost = 1
	}
	return min(max(n, minCost), answer.MaxCount)
}

// part is a turn under one limit.
type part[K comparable] struct {
	line   *Line[K] // nil if the call takes nothing of the limit
	key    K
	state  *state
	n      int64 // units taken or owed
	fits   int64 // as many of them as the limit allows at once
	cost   int64 // n as corrected by Settle
	held   engine.Reservation[K]
	number uint64

	sent   policy.Instant
	ended  int64 // units of calls that had ended before this one was sent
	obeyed bool
	early  bool // taken before there was a limit
	probes bool // it is sent in an overlong time, without units
}

// part returns the part of a call that is about to wait, until leave.
func (l *Line[K]) part(key K, n int64) part[K] {
	p := part[K]{line: l, key: key, state: l.join(key, n), n: n, fits: n, cost: n}
	if n > 1 {
		p.fitAgain()
	}
	return p
}

func (p *part[K]) leave() { p.state.waiting.Add(-p.n) }

// fitAgain fits the units to the present limit, and reports whether that changes them.
func (p *part[K]) fitAgain() bool {
	before := p.fits
	p.fits = min(p.n, max(p.line.engine.LimitFor(p.key).Limit(), 1))
	return p.fits != before
}

// acquire waits for the units that fit. The limit may change meanwhile: the calls behind a first call
// take a unit each, and then wait for all of theirs.
func (p *part[K]) acquire(ctx context.Context, patience time.Duration) (err error) {
	for {
		if err := p.admit(true); err != nil || p.probes {
			return err
		}
		p.held, err = p.line.engine.Acquire(ctx, p.key, p.fits, max(patience, 0))
		p.early = !p.state.pace.Load().HasLimit()
		taken := p.fits
		again := p.n > 1 && p.fitAgain()
		if err != nil && !(again && errors.Is(err, engine.ErrNever)) {
			return err
		}
		if err == nil {
			if err = p.admit(false); !again && err == nil {
				return nil
			}
			p.sent = pacing.Instant(time.Since(p.line.began))
			p.charge(-taken)
			p.sent = 0
			if err != nil {
				return err
			}
		}
		patience -= p.held.Waited
	}
}

// tell tells Config.OnTurn.
func (p *part[K]) tell(ctx context.Context, waited time.Duration) {
	if c := &p.line.config; c.OnTurn != nil {
		d := p.held.Decision
		d.Wait = waited
		c.OnTurn(ctx, c.Name, d)
	}
}

// begin begins the call in its turn.
func (p *part[K]) begin() {
	s, now := p.state, time.Since(p.line.began)
	s.used.Store(int64(now))
	p.number, p.sent, p.ended = s.turns.Add(1), pacing.Instant(now), s.ended.Load()
	s.taken.Add(p.n)
	p.line.open(p)
	if p.n > p.fits && (p.line.probe == nil || !s.pace.Load().IsUnknown()) {
		p.charge(p.n - p.fits)
	}
}

// charge takes n units more, or gives units back below 0.
func (p *part[K]) charge(n int64) {
	e, pace := p.line.engine, p.state.pace.Load()
	switch {
	case !p.line.has(p.key, p.state), pace.Spends() && p.sent < pace.Opened:
		return // the key was forgotten, or the call's window is over
	case n < 0 && p.early && pace.HasLimit() && !pace.Spends():
		return // the call took its units before this limit was learned; a refund would return other calls' units
	case pace != nil && pace.Expires > 0: // all units come back at the reset
		n = min(max(n, -pace.Count), pace.Count)
	}
	e.Refund(p.key, -min(n, decide.MostCharge(e.LimitFor(p.key))))
}

// giveBack gives back n units of a call that is not sent.
func (p *part[K]) giveBack(n int64) {
	if p.probes {
		p.state.mu.Lock()
		defer p.state.mu.Unlock()
		p.state.mu.overlong.probe = 0 // the next call is the probe
		return
	}
	if n == p.fits && (p.line.probe == nil || p.state.pace.Load().IsUnknown()) {
		p.held.Cancel()
	} else {
		p.charge(-n)
	}
}

// Turn allows a call to be sent. Call Obey with the answer, Cancel if the call was not sent, or
// Abandon if no answer will come; otherwise it counts as sent, and the windows after it have a call
// less. Methods are for one goroutine at a time; do not use a copy as well. The zero Turn does
// nothing.
type Turn[K comparable] struct {
	// Waited is how long the call waited for its turn.
	Waited time.Duration

	part[K]
	units []part[K] // of Config.Units
}

// parts yields the parts that take units.
func (t *Turn[K]) parts() iter.Seq[*part[K]] {
	return func(yield func(*part[K]) bool) {
		more := yield(&t.part)
		for i := range t.units {
			if more && t.units[i].line != nil {
				more = yield(&t.units[i])
			}
		}
	}
}

// Cancel returns the turn of a call that was not sent. It does nothing after Obey.
func (t *Turn[K]) Cancel() {
	if t.line != nil && !t.obeyed {
		for p := range t.parts() {
			p.giveBack(p.cost)
			p.lost()
		}
	}
	t.line = nil
}

// Abandon ends the turn of a call without an answer, such as a failed connection. The call counts as
// sent; a first call no longer delays those behind it. It does nothing after Obey.
func (t *Turn[K]) Abandon() {
	if t.line != nil && !t.obeyed {
		for p := range t.parts() {
			p.lost()
		}
	}
	t.line = nil
}

// Obey tells the line the answer. A refusal holds the key before Obey returns. Answers may come in
// any order: an answer does not set the pace after a call sent later was answered. No answer
// shortens a back-off.
//
// A call answered in parts, such as a stream, may call Obey again: only refusals are then used.
func (t *Turn[K]) Obey(a Answer) {
	if t.line == nil {
		return
	}
	refused, of := t.refusedBy(&a)
	if most := answer.CapacityOf(&of); most > 0 && a.Refused && refused.n > most && !t.line.config.Debts {
		a.RetryAfter = policy.Never
	}
	final := answer.IsFinal(&a) && !t.obeyed
	t.part.obey(a, refused == &t.part || !a.Refused)
	for i := range t.units {
		if p := &t.units[i]; p.line != nil {
			of := answer.UnitOf(&a, i)
			if p == refused {
				of.Refused, of.RetryAfter = true, a.RetryAfter
			}
			p.obey(of, p == refused || !a.Refused)
		}
	}
	if final { // The server counts the call at most, and none of its units.
		used := [1 + maxUnits]int64{1}
		t.Settle(used[:]...)
	}
}

// refusedBy returns the part whose limit has refused the call, and the answer about that limit: of
// Config.Units one with less left than the call's units.
func (t *Turn[K]) refusedBy(a *Answer) (*part[K], Answer) {
	if !a.Refused || a.HasRemaining && a.Remaining <= 0 {
		return &t.part, *a
	}
	for i := range t.units {
		p := &t.units[i]
		if of := answer.UnitOf(a, i); p.line != nil && of.HasRemaining && of.Remaining < p.n {
			return p, of
		}
	}
	return &t.part, *a
}

// obey uses an answer. decided reports whether the limit has decided the call.
func (p *part[K]) obey(a Answer, decided bool) {
	if !decided {
		a.Refused, a.RetryAfter = false, 0
	}
	p.line.obey(p, a, decided)
}

// Settle corrects the units that Wait took, in the order of its costs, once they are known. It may
// be called before Obey and after it, and again. A number below 0, or absent, leaves a cost as it
// is, and a cost of 0 stays 0. An excess is charged. The rest comes back, unless calls spend the
// units that the server says are left: then its answers correct the cost.
func (t *Turn[K]) Settle(used ...int64) {
	if t.line == nil {
		return
	}
	for i, n := range used[:min(len(used), 1+len(t.units))] {
		p := &t.part
		if i > 0 {
			p = &t.units[i-1]
		}
		if p.line == nil || n < 0 {
			continue
		}
		if more := n - p.cost; more > 0 || p.line.probe == nil || p.state.delay == 0 && !p.state.pace.Load().Spends() {
			p.charge(more)
			p.cost = n
		}
	}
}
