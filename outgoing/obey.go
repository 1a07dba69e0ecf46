package outgoing

import (
	"math/rand/v2"
	"time"

	"github.com/ral-limiter/ral/outgoing/internal/answer"
	"github.com/ral-limiter/ral/outgoing/internal/pacing"
)

// obey uses an answer. decided reports whether the limit has decided the call.
func (l *Line[K]) obey(t *part[K], a Answer, decided bool) {
	key, s, turn := t.key, t.state, t.number
	l.believe(&a) // without the lock: the log may wait for a turn
	l.learnCapacity(s, &a)
	answer.LeaveReserve(&a, l.config.Reserve)
	if answer.IsFinal(&a) { // The fields beside it tell the limit as those of a served call do.
		l.counters.refusals.Add(1)
		a.Refused, decided = false, false
	}
	if a.Refused && a.RetryAfter == 0 && a.HasRemaining && a.Remaining <= 0 {
		a.RetryAfter = a.Reset
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now, first := time.Since(l.began), decided && !t.obeyed
	t.end()
	s.mu.answer, s.mu.limitField = origin{turn, a.Field, time.Now()}, answer.LimitField(&a)
	newest := turn > s.mu.newest
	if newest {
		s.mu.newest = turn
	}
	if t.probes && first && !a.Refused && s.overlong.Load() != 0 && l.has(key, s) {
		l.endOverlong(key, s)
	}
	learns := l.probe != nil && !s.unrecorded && l.has(key, s) && s.overlong.Load() == 0
	switch {
	case !learns:
	case s.mu.secondary.Counts(t.sent):
		s.mu.secondary.Count(t.n, first && !s.pace.Load().Spends(), a.Refused)
	default:
		l.endTrial(key, s) // the call was sent after the refusal
		l.learn(t, now, &a, newest)
		if first && !a.Refused {
			s.mu.secondary.Serve(t.n)
			if s.mu.guess.SpeedUp(now, t.n, t.held.Waited > 0) {
				l.setPace(key, s, s.mu.guess.Pace(l.config.MaxBackoff))
			}
		}
	}
	switch {
	case a.Refused:
		l.refused(t, now, &a)
	case newest:
		if first {
			s.mu.strikes = 0
		}
		if learns || s.unrecorded {
			l.remaining(t, now, &a)
		}
	}
	if learns && s.ended.Load() == s.taken.Load() {
		l.endTrial(key, s)
	}
}

func (l *Line[K]) learn(t *part[K], now time.Duration, a *Answer, newest bool) {
	key, s, p := t.key, t.state, t.state.pace.Load()
	var ours, most int64
	if p.Spends() {
		ours = l.engine.Peek(key, 0).Remaining
	}
	if l.config.Pace == Spend && l.config.Reserve == 0 && answer.TellsSeveral(a) {
		left := a.Burst
		if p.Spends() && p.Quota() == answer.SmallestOf(a) {
			left = ours
		}
		s.mu.rest = answer.RestOf(a, s.mu.rest, t.n, s.taken.Load()-s.ended.Load())
		most = answer.BindSlowest(a, left, s.mu.rest)
	}
	if p.Spends() {
		if a.Refused || t.sent < p.Opened && !p.Lasts(pacing.Instant(now), a) {
			return // see refused, or of a window that is over
		}
		if p.IsShared(a, ours-t.uncertain()) {
			s.mu.spaced = now + pacing.Forgiving*min(p.Window, answer.MaxTime/pacing.Forgiving)
		}
	} else if !newest {
		return
	}
	spends := l.config.Pace == Spend && !a.Refused && now >= s.mu.spaced && s.delay == 0
	if spends {
		most = max(most, s.mu.secondary.Bind(p, a, ours))
	}
	call := pacing.Call{Sent: t.sent, Now: pacing.Instant(now), Units: t.n, Ours: ours, Waiting: s.waiting.Load()}
	// Waiting is read before taken: a call that gets its turn in between is counted once or twice, never missed.
	call.Later, call.UnderWay = s.taken.Load()-t.ended-t.n, s.taken.Load()-s.ended.Load()
	config := pacing.Config{Probe: l.config.Probe, Reserves: l.config.Reserve > 0}
	switch {
	case answer.Describes(a):
		next := pacing.Pace{Terms: answer.TermsOf(a), Max: most}
		if p != nil && p.Terms == next.Terms {
			next.Sliding, next.Slowed = p.Sliding, p.Slowed
		} else {
			p, s.mu.later = nil, 0
		}
		next.Sliding = next.Sliding || s.slides(now, a)
		switch quiet := now - s.mu.refused; {
		case a.Refused && p != nil && t.number > s.mu.paced:
			next.Slowed = min(next.Slowed+1, pacing.MaxSlowed)
		case !a.Refused && next.Slowed > 0 && quiet/pacing.Forgiving > a.Window:
			next.Slowed--
			s.mu.refused = now
		}
		several := next.Burst < next.Count
		if spends && !next.Sliding && next.Slowed == 0 && !several && l.follow(key, s, s.pace.Load().Spend(a, next, &call, config)) {
			return
		}
		if p == nil || p.Spends() || p.Sliding != next.Sliding || p.Slowed != next.Slowed {
			l.setPace(key, s, next.Spaced(l.config.Pace == Spend))
		}
	case a.HasRemaining && a.Reset > 0:
		reset := min(a.Reset, l.config.MaxBackoff)
		over := p.IsUnknown() || p.Guesses() || p.Expires > 0 && (now >= p.Expires || !p.Spends() && now+reset > p.Expires+reset/16)
		if !over && !p.Spends() {
			return
		}
		next := pacing.Pace{Terms: answer.Terms{Count: min(max(a.Remaining, 0), answer.MaxCount) + 1, Window: reset}, Expires: now + reset}
		if !over {
			next.Count, next.Window = max(p.Count, next.Count), max(p.Window, reset)
		}
		if spends && l.follow(key, s, p.Spend(a, next, &call, config)) {
			return
		}
		// Without a window, spread the rest over the time until the reset.
		window := reset
		if a.Remaining <= 0 {
			window = reset / 100 * pacing.SharePercent // the next call goes at the reset
		} else if p.IsUnknown() {
			window = max(window, l.config.Probe) // a bucket tells a later reset with each call
		}
		next.Terms = answer.TermsOf(&Answer{Limit: min(a.Remaining, answer.MaxCount) + 1, Window: window})
		l.setPace(key, s, next.Spaced(l.config.Pace == Spend))
	case !a.Refused && p.IsUnknown() && l.engine.Blocked(key) == 0: // a held key's call was sent before the refusal
		l.setPace(key, s, pacing.Unlimited)
	}
}

// follow sets the pace of a key that spends, and reports false if it is nil.
func (l *Line[K]) follow(key K, s *state, p *pacing.Pace) bool {
	if p != nil && p != s.pace.Load() {
		l.setPace(key, s, p)
	}
	return p != nil
}

// end counts the call as ended, once. It needs s.mu locked, so that all calls that have ended were
// also counted by their answers.
func (t *part[K]) end() {
	if !t.obeyed {
		t.obeyed = true
		t.state.ended.Add(t.n)
	}
}

// endTrial ends the count for a secondary limit, if there is one. It needs s.mu locked.
func (l *Line[K]) endTrial(key K, s *state) {
	if spaced := s.mu.secondary.End(); spaced != nil && s.pace.Load() == pacing.Probed {
		l.setPace(key, s, spaced.Slower())
	}
}

// lost ends the probe of a key if its first call gets no answer.
func (t *part[K]) lost() {
	s := t.state
	s.mu.Lock()
	defer s.mu.Unlock()
	t.end()
	if s.ended.Load() == s.taken.Load() && s.overlong.Load() == 0 {
		t.line.endTrial(t.key, s)
	}
	if s.mu.newest == 0 && s.turns.Load() == 1 {
		t.line.endProbe(t.key, s)
	}
}

// endProbe lets the calls behind the first go if no pace was learned, as after Config.Probe.
func (l *Line[K]) endProbe(key K, s *state) {
	if l.probe != nil && !s.unrecorded && s.pace.Load() == nil && l.engine.Blocked(key) == 0 {
		l.setPace(key, s, pacing.Probed)
	}
}

// slides reports whether an answer shows a limit counted in two windows. Rounding may show a fixed
// window a second late in its first answer only; two late answers within a window tell.
func (s *state) slides(now time.Duration, a *Answer) bool {
	if !a.ResetsLate || a.Refused {
		return false
	}
	last := s.mu.later
	s.mu.later = now
	return a.Limit == 1 || last > 0 && now-last < a.Window
}

// setPace sets the pace of a key, nil for the probe. Calls in line get new turns in the same order.
func (l *Line[K]) setPace(key K, s *state, p *pacing.Pace) {
	if !l.has(key, s) {
		return // of a turn from before Reset
	}
	if s.delay > 0 && p != nil {
		p = p.Delayed(s.delay)
	}
	from := s.pace.Load().Policy()
	s.pace.Store(p)
	s.mu.paced = s.turns.Load()
	s.mu.pacedBy = s.mu.answer
	if s.mu.limitField != "" {
		s.mu.pacedBy.field = s.mu.limitField
	}
	_ = l.engine.ChangeLimit(key, from, p.Policy()) // fails only if closed
}

// remaining lowers the key's units to those the server reports.
func (l *Line[K]) remaining(t *part[K], now time.Duration, a *Answer) {
	key, s := t.key, t.state
	if !a.HasRemaining || l.probe == nil || s.pace.Load().Spends() {
		return
	}
	if ours := l.engine.Peek(key, 0).Remaining; ours > a.Remaining {
		l.engine.Refund(key, max(a.Remaining, 0)-ours)
	}
	tightest := answer.TightestOf(a)
	var own int64
	if answer.Describes(a) {
		own = s.mu.own.Add(now, tightest.Window, t.n)
	}
	if a.Remaining > 0 || a.Reset <= 0 {
		return
	}
	// Nothing is left. If these calls took half of the limit, the pace accounts for it. Otherwise
	// others use it too, or calls cost several units: only the reset is certain.
	switch {
	case !answer.Describes(a):
		l.hold(t, a.Reset)
	case own < tightest.Limit/2:
		l.hold(t, min(a.Reset, tightest.Window))
	}
}

// refused holds a key for the stated time, or for the back-off due.
func (l *Line[K]) refused(t *part[K], now time.Duration, a *Answer) {
	key, s, turn := t.key, t.state, t.number
	l.counters.refusals.Add(1)
	l.endProbe(key, s)
	// Calls that were sent before the latest refusal belong to it.
	d, isNew := a.RetryAfter, turn > s.mu.refusedTurn
	s.mu.refused = now
	switch {
	case d > 0:
		s.mu.strikes = 0
	case isNew || s.mu.strikes == 0:
		s.mu.strikes++
		isNew = true
	}
	if isNew {
		s.mu.refusedTurn = s.turns.Load()
	}
	if d <= 0 {
		d = l.config.Backoff
		for range s.mu.strikes - 1 {
			if d = 2 * d; d >= l.config.MaxBackoff {
				break
			}
		}
		if d = min(d, l.config.MaxBackoff); s.overlong.Load() != 0 {
			return // it states no other time
		}
	}
	if l.holdOverlong(t, d) {
		return
	}
	switch p := s.pace.Load(); {
	case p.Guesses() && isNew:
		s.mu.guess.SlowDown(now, d)
		l.setPace(key, s, s.mu.guess.Pace(l.config.MaxBackoff))
	case p.Guesses():
	case p.Spends() && l.config.Pace == Spend && s.mu.secondary.Try(p, &s.mu.guess, a, t.sent, t.n, now, d):
		l.restart(key, s, pacing.Probed) // the used units are the told limit's
	case p.Spends():
		l.setPace(key, s, p.Slower())
	}
	l.hold(t, d)
}

// hold makes all calls of a key wait for d, and leaves a unit: the server promised room for a call.
// A windowed Config.Policy keeps a unit in the present window, and all of a later window. It needs
// s.mu locked.
func (l *Line[K]) hold(t *part[K], d time.Duration) {
	if l.holdOverlong(t, d) {
		return
	}
	key, s := t.key, t.state
	d = min(d, l.config.MaxBackoff)
	if l.config.Jitter > 0 {
		d += rand.N(l.config.Jitter)
	}
	d = min(max(d, 1), answer.MaxTime)
	if until := int64(time.Since(l.began) + d); until > s.held.Load() { // with s.mu held
		s.held.Store(until)
		s.mu.heldBy = s.mu.answer
	}
	l.drain(key, d)
	if err := l.engine.Block(key, d); err != nil {
		l.counters.unheld.Add(1)
	}
}

// drain charges all units a key may have after d, except the last.
func (l *Line[K]) drain(key K, d time.Duration) {
	have := l.engine.Peek(key, 0)
	b := l.burst
	if l.probe != nil {
		b = pacing.BurstOf(l.engine.LimitFor(key))
	}
	var n int64
	switch {
	case b.Spaced:
	case b.Lasts:
		n = int64((float64(d) + float64(b.Left) - float64(have.ResetAfter)) / b.Unit)
	default:
		n = have.Remaining - 1
	}
	if n > 0 {
		l.engine.Refund(key, -n)
	}
}
