package outgoing

import (
	"time"

	"github.com/ral-limiter/ral/outgoing/internal/answer"
	"github.com/ral-limiter/ral/policy"
)

// shared reports whether others have used up more than a tenth of the limit. ours are the units that
// the key has left.
func (p *pace) shared(a *Answer, ours int64) bool {
	same := p.expires > 0 || answer.Describes(a) && answer.TermsOf(a) == p.Terms
	return a.HasRemaining && same && a.Remaining < ours-max(p.Count/10, 1)
}

// lasts reports whether the answer shows that a window with an unknown length has not ended yet. A
// bucket tells a later reset with each call.
func (p *pace) lasts(now policy.Instant, a *Answer) bool {
	return p.expires > 0 && a.HasRemaining && now+policy.Instant(a.Reset) > p.limit.until-clockOffset
}

// uncertain returns the number of units of estimated costs under way, which may differ from those charged.
func (t *part[K]) uncertain() int64 {
	if t.n == 1 {
		return 0
	}
	return t.state.taken.Load() - t.ended
}

// spend lets the calls have at once the units that the server has left, until its reset. ours are
// the units that the key has left if its calls spend already. spend reports false if such a limit
// cannot be enforced.
func (l *Line[K]) spend(t *part[K], now time.Duration, a *Answer, next pace, ours int64) bool {
	s, p, at := t.state, t.state.pace.Load(), instant(now)
	count, period := min(next.Count, answer.MaxCount), policy.Instant(min(next.Window, answer.MaxWindow))
	waiting := s.waiting.Load() // read before taken: a call that gets its turn in between is counted once or twice, never missed
	sent := s.taken.Load() - t.ended - t.n
	known := told{max(count-t.n, 0), sent, sent + waiting}
	next.opened = t.sent
	until := t.sent + period
	var old *limit
	if p.spends() && (a.HasRemaining || p.Terms == next.Terms) {
		if next.opened = p.opened; p.Terms == next.Terms || next.expires > 0 {
			next.known, next.whole = p.known, p.whole
		}
		old, until = p.limit, p.limit.until-clockOffset
		if !a.HasRemaining && p.Terms == next.Terms {
			if next.most == 0 || next.most >= old.Limit() {
				return true
			}
			known.left = ours
		}
	}
	if a.HasRemaining {
		known.left = min(max(a.Remaining, 0), count)
	}
	switch each := period / policy.Instant(count); {
	case !a.HasRemaining || a.Reset == 0:
	case !answer.Describes(a):
		// A bucket tells a later reset with each call: those under way, and those that go now.
		next.whole = max(next.whole, at+policy.Instant(a.Reset))
		until = next.whole
		if under := s.taken.Load() - s.ended.Load(); under > 0 || waiting > 0 && known.left > sent {
			until = max(until, at+policy.Instant(l.config.Probe))
		}
	default:
		// A bucket is whole later if the units left are used. The answers to calls sent at once may
		// come in any order.
		used := known.left
		if used < t.n { // such calls do not use it
			used = 0
		}
		whole := at + policy.Instant(a.Reset) + policy.Instant(used)*each
		if t.sent < next.known {
			whole = min(whole, next.whole)
		} else {
			next.known = at
		}
		next.whole = whole
		if until = min(whole, at+2*period); a.ResetsLate { // its units come back sooner
			until = whole - policy.Instant(known.certain(old, ours))*each
		}
	}
	if l.config.Reserve > 0 { // a bucket that is not emptied is whole sooner
		until = max(until, next.opened+period)
	}
	if next.most > 0 {
		count = min(count, max(known.left, next.most))
	}
	if next.limit = inSteps(count, time.Duration(period), until, known); next.limit == nil {
		return false
	}
	l.setPace(t.key, s, &next)
	return true
}

// open begins a window with the first call that was sent after the last one.
func (l *Line[K]) open(t *part[K]) {
	over := func(p *pace) bool { return p.spends() && t.sent >= p.limit.until-clockOffset }
	if !over(t.state.pace.Load()) {
		return
	}
	s := t.state
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.pace.Load()
	if !over(p) {
		return
	}
	if s.mu.secondary.expires() {
		s.mu.secondary = secondary{}
		s.mu.guess.begin(time.Duration(t.sent - 1)) // calls until now were kept within the limit
	}
	next := *p
	next.opened, next.known, next.whole = t.sent, 0, 0
	// The server may count calls under way in the new window.
	count, under := p.limit.Limit(), s.taken.Load()-s.ended.Load()
	known := told{left: max(count-under, 0), begun: count} // no more is certain
	next.limit = inSteps(count, p.limit.period, t.sent+policy.Instant(p.limit.period), known)
	s.pace.Store(&next)
	_ = l.engine.ChangeLimit(t.key, p.limit, next.limit)
}

// instant returns the engine's instant at a time since Line.began.
func instant(since time.Duration) policy.Instant { return policy.Instant(since + 1) }
