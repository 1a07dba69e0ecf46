package outgoing

import "time"

// secondary is a limit beside the told one. Answers do not tell it, but it refuses calls while the told
// limit has units left. It stays known when the told limit begins anew.
type secondary struct {
	// quota is zero if the limit is unknown.
	quota
	// periods is the number of periods that began since the limit was learned.
	periods int64
	// refused is the number of units that the limit refused when it was learned.
	refused int64
}

// learnSecondary learns a secondary limit from a refusal that holds the key for a time. It reports false if
// the told limit may have refused the call, or if spacing the told units until their reset is faster.
func (l *Line[K]) learnSecondary(t *part[K], now, held time.Duration, a *Answer) bool {
	s, g := t.state, &t.state.mu.guess
	switch {
	case l.config.Pace != Spend || a.RetryAfter <= 0 || !a.Told || a.Remaining < t.n:
		return false
	case t.number <= g.barrier:
		return true // of the same refusal
	}
	units := g.served
	// Calls of the minute before may count, too. The next refusal corrects an excess.
	if s.mu.secondary.limit == 0 {
		units += g.before
	}
	// The time is the window's length or its rest.
	window := held + held/100 + now - time.Duration(t.sent)
	if used := now - g.since; used > held {
		window += used
	}
	if float64(units)*float64(a.Reset) < float64(a.Remaining)*float64(window) {
		return false
	}
	s.mu.secondary = secondary{quota: quota{units, window}, refused: t.n}
	g.barrier, g.since, g.served, g.lined, g.before = s.turns.Load(), now+held, 0, 0, 0
	return true
}

// count counts a call that was sent before the refusal that told the limit. early reports whether its
// first answer came before calls spend the limit.
func (b *secondary) count(n int64, early, refused bool) {
	switch {
	case refused:
		b.refused += n
	case early:
		b.limit += n
	}
}

// bind puts the secondary limit in the place of the told one if the told one has more left. ours are the
// units that the key has left under its pace. most bounds the calls of a further period.
func (b *secondary) bind(p *pace, a *Answer, ours int64) (most int64) {
	if !p.spends() || (quota{p.count, p.window}) != b.quota {
		ours = b.limit
	}
	if b.limit == 0 || !a.Told || a.Remaining <= ours {
		return 0
	}
	a.Limit, a.Window, a.binds, a.Told = b.limit, b.window, b.quota, false
	return a.Remaining - ours
}

// open counts a period of the pace. It forgets the limit, which may have grown, after a number of
// periods that admit so much that learning it again has less than 1% refused.
func (b *secondary) open(p *pace) {
	if (quota{p.count, p.window}) != b.quota {
		return
	}
	if b.periods++; b.periods >= max(forgiving, 100*b.refused/max(b.limit, 1)) {
		*b = secondary{}
	}
}
