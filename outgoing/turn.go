package outgoing

import (
	"context"
	"errors"
	"time"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/policy"
)

// Wait blocks until a call for the key may be sent, and takes its turn. A key's calls are served in
// order of arrival. A call whose context ends takes nothing.
//
// cost has the units that the call takes of the key's limit, 1 if it is absent or less, and of each
// of Config.Units, 0 if it is absent or less. Estimate units known only afterwards, and correct them
// by [Turn.Settle]. All limits are met together; then calls may overtake others. Of a cost above
// what a limit allows at once, the rest is owed.
//
// The error wraps an error of package engine: ErrCancelled with the context's error, ErrDeadline at
// once if the turn comes after the context's deadline or Config.Patience (a *[TurnError]), ErrCrowded
// or ErrClosed.
// Without waiting, a call of a known key allocates nothing, unless there are Units.
func (l *Line[K]) Wait(ctx context.Context, key K, cost ...int64) (Turn[K], error) {
	if len(l.units) > 0 {
		return l.waitForAll(ctx, key, cost)
	}
	p := l.part(key, costOf(cost, 0))
	defer p.leave()
	r, err := l.engine.Acquire(ctx, key, p.fits, l.config.Patience)
	for errors.Is(err, engine.ErrNever) && p.fitAgain() {
		r, err = l.engine.Acquire(ctx, key, p.fits, l.config.Patience)
	}
	if err != nil {
		return Turn[K]{}, p.late(ctx, err)
	}
	p.begin(ctx, r.Decision, r.Waited)
	l.counters.turns.Add(1)
	return Turn[K]{Waited: r.Waited, part: p, held: r}, nil
}

func (l *Line[K]) waitForAll(ctx context.Context, key K, cost []int64) (Turn[K], error) {
	parts := make([]part[K], 0, 1+mostUnits)
	for of := range l.each() {
		var p part[K]
		if n := costOf(cost, len(parts)); n > 0 {
			p = of.part(key, n)
			defer p.leave()
		}
		parts = append(parts, p)
	}
	for {
		var claims []engine.Claim
		var of []*part[K]
		for i := range parts {
			if p := &parts[i]; p.line != nil {
				claims, of = append(claims, p.line.engine.Claim(key, p.fits)), append(of, p)
			}
		}
		all, err := engine.AcquireAll(ctx, l.config.Patience, claims...)
		if err != nil {
			binding := of[max(all.Binding, 0)]
			if errors.Is(err, engine.ErrNever) && binding.fitAgain() {
				continue
			}
			return Turn[K]{}, binding.late(ctx, err)
		}
		for i, p := range of {
			waited := time.Duration(0)
			if i == all.Binding {
				waited = all.Waited
			}
			p.begin(ctx, all.Decisions[i], waited)
		}
		l.counters.turns.Add(1)
		return Turn[K]{Waited: all.Waited, part: parts[0], units: parts[1:], all: &all}, nil
	}
}

// costOf returns a cost of Wait.
func costOf(cost []int64, at int) (n int64) {
	if at < len(cost) {
		n = cost[at]
	}
	if at == 0 {
		return max(n, 1)
	}
	return max(n, 0)
}

// part is a turn under one limit.
type part[K comparable] struct {
	line   *Line[K] // nil if the call takes nothing of the limit
	key    K
	state  *state
	n      int64 // units taken or owed
	fits   int64 // as many of them as the limit allows at once
	cost   int64 // n as corrected by Settle
	number uint64

	sent   policy.Instant
	ended  int64 // units of calls that had ended before this one was sent
	waited time.Duration
	obeyed bool
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

// begin begins the call in its turn.
func (p *part[K]) begin(ctx context.Context, d policy.Decision, waited time.Duration) {
	l, s, now := p.line, p.state, time.Since(p.line.began)
	s.used.Store(int64(now))
	p.waited, p.number, p.sent, p.ended = waited, s.turns.Add(1), instant(now), s.ended.Load()
	s.taken.Add(p.n)
	if owed := p.n - p.fits; owed > 0 && (l.probe == nil || !s.pace.Load().unknown()) {
		l.engine.Refund(p.key, -owed)
	}
	l.open(p)
	if l.config.OnTurn != nil {
		d.Wait = waited
		l.config.OnTurn(ctx, l.config.Name, d)
	}
}

// Turn allows a call to be sent. Call Obey with the answer, Cancel if the call was not sent, or
// Lost if no answer will come; otherwise it counts as sent, and the windows after it have a call
// less. Methods are for one goroutine at a time; do not use a copy as well. The zero Turn does
// nothing.
type Turn[K comparable] struct {
	// Waited is how long the call waited for its turn.
	Waited time.Duration

	part[K]
	units []part[K] // of Config.Units
	held  engine.Reservation[K]
	all   *engine.Outcome // instead of held, with Config.Units
}

// each calls f with the parts that take units.
func (t *Turn[K]) each(f func(p *part[K])) {
	f(&t.part)
	for i := range t.units {
		if t.units[i].line != nil {
			f(&t.units[i])
		}
	}
}

// Cancel returns the turn of a call that was not sent. It does nothing after Obey.
func (t *Turn[K]) Cancel() {
	if t.line != nil && !t.obeyed {
		if t.all != nil {
			t.all.Cancel()
		} else {
			t.held.Cancel()
		}
		t.each((*part[K]).lost)
	}
	t.line = nil
}

// Lost ends the turn of a call without an answer, such as a failed connection. The call counts as
// sent; a first call no longer delays those behind it. It does nothing after Obey.
func (t *Turn[K]) Lost() {
	if t.line != nil && !t.obeyed {
		t.each((*part[K]).lost)
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
	refused := t.refusedBy(&a)
	t.part.obey(a, refused == &t.part || !a.Refused)
	for i := range t.units {
		if p := &t.units[i]; p.line != nil {
			of := a.unit(i)
			if p == refused {
				of.Refused, of.RetryAfter, of.stated = true, a.RetryAfter, a.stated
			}
			p.obey(of, p == refused || !a.Refused)
		}
	}
}

// refusedBy returns the part whose limit has refused the call: of Config.Units one with less left
// than the call's units.
func (t *Turn[K]) refusedBy(a *Answer) *part[K] {
	if !a.Refused || a.Told && a.Remaining <= 0 {
		return &t.part
	}
	for i := range t.units {
		p := &t.units[i]
		if of := a.unit(i); p.line != nil && of.Told && of.Remaining < p.n {
			return p
		}
	}
	return &t.part
}

// obey uses an answer. decided reports whether the limit has decided the call.
func (p *part[K]) obey(a Answer, decided bool) {
	first := !p.obeyed
	if first {
		p.obeyed = true
		p.state.ended.Add(p.n)
	}
	if !decided {
		a.Refused, a.RetryAfter, first = false, 0, false
	}
	p.line.obey(p, a, first)
}

// Settle corrects the units that Wait took, in the order of its costs, once they are known. It may
// be called before Obey and after it, and again. A number below 0, or absent, stands for a cost
// that remains as it is. An excess is charged. The rest comes back unless the server tells how much
// is left: then its answers have corrected the cost already.
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
		if rest := p.cost - n; rest < 0 || p.line.probe == nil || p.state.pace.Load().guesses() {
			p.line.engine.Refund(p.key, rest)
		}
		p.cost = n
	}
}
