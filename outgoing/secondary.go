package outgoing

import (
	"time"

	"github.com/ral-limiter/ral/outgoing/internal/answer"
	"github.com/ral-limiter/ral/policy"
)

// secondary is a limit beside the told one. Answers do not tell it, but it refuses calls while the told
// limit has units left. It stays known when the told limit begins anew.
type secondary struct {
	// Quota is zero if the limit is unknown. Until trial is nil, its Limit is a count of served units.
	answer.Quota
	trial *trial
	// until is the end of the refusal that told the limit, since Line.began. Calls that were sent before
	// it are counted for the limit.
	until time.Duration
	// served and refused are the numbers of units that were served and refused since the limit was
	// unknown.
	served, refused int64
}

// trial is a refusal whose limit is not yet known, as calls that were sent before it are under way.
// Their answers come in any order, and only with all of them is the number of served units known.
type trial struct {
	// pace is the pace under the told limit that the refusal ended.
	pace *pace
	// remaining and reset are the told limit's, by the refusal.
	remaining int64
	reset     time.Duration
}

// trySecondary begins to count for a secondary limit, after a refusal that holds the key for a time. It
// reports false if the told limit may have refused the call.
func (l *Line[K]) trySecondary(t *part[K], now, held time.Duration, a *Answer) bool {
	s, g, b := t.state, &t.state.mu.guess, &t.state.mu.secondary
	switch {
	case l.config.Pace != Spend || a.RetryAfter <= 0 || !a.HasRemaining || a.Remaining < t.n:
		return false
	case b.counts(t.sent):
		return true // of the same refusal
	}
	units := g.served
	// Calls of the minute before may count, too. The next refusal corrects an excess.
	if b.Limit == 0 {
		units += g.before
		b.served = 0
	}
	// The time is the window's length or its rest.
	window := held + held/100 + now - time.Duration(t.sent)
	if used := now - g.since; used > held {
		window += used
	}
	b.Quota, b.until, b.refused = answer.Quota{Limit: units, Window: window}, now+held, b.refused+t.n
	b.trial = &trial{s.pace.Load(), a.Remaining, a.Reset}
	g.begin(now + held)
	return true
}

// counts reports whether a call that was sent at an instant is counted for the limit, as it was sent
// before the end of the refusal.
func (b *secondary) counts(sent policy.Instant) bool { return sent < instant(b.until) && b.Window > 0 }

// count counts the answer to a call that was sent before the end of the refusal. early reports whether
// it is the call's first answer, and came before calls spend the limit.
func (b *secondary) count(n int64, early, refused bool) {
	switch {
	case refused:
		b.refused += n
	case early:
		b.Limit += n
	}
}

// endTrial ends the trial, if there is one. It keeps the limit unless spacing the told units until their
// reset is faster. It needs s.mu locked.
func (l *Line[K]) endTrial(key K, s *state) {
	b := &s.mu.secondary
	told := b.trial
	if b.trial = nil; told == nil || float64(b.Limit)*float64(told.reset) >= float64(told.remaining)*float64(b.Window) {
		return
	}
	*b = secondary{}
	if s.pace.Load() == probed {
		l.spaceMore(key, s, told.pace)
	}
}

// spaceMore spaces the calls of a key by a pace, a step slower. It needs s.mu locked.
func (l *Line[K]) spaceMore(key K, s *state, p *pace) {
	even := *p
	even.slowed = min(p.slowed+1, maxSlowed)
	l.setPace(key, s, l.make(even))
}

// bind puts the secondary limit in the place of the told one if the told one has more left. ours are the
// units that the key has left under its pace. most bounds the calls of a further period.
func (b *secondary) bind(p *pace, a *Answer, ours int64) (most int64) {
	if !p.spends() || p.quota() != b.Quota {
		ours = b.Limit
	}
	if b.Limit == 0 || !a.HasRemaining || a.Remaining <= ours {
		return 0
	}
	answer.BindHidden(a, b.Quota)
	return a.Remaining - ours
}

// expires reports whether the limit, which may have grown, is to be forgotten. It has then admitted so
// much that learning it again has less than 1% refused.
func (b *secondary) expires() bool {
	return b.Limit > 0 && b.served >= max(forgiving*b.Limit, 100*b.refused)
}
