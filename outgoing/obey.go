package outgoing

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/ral-limiter/ral/outgoing/internal/answer"
	"github.com/ral-limiter/ral/policy"
)

const (
	// An even pace at this share stays within the limit however it is counted, and leaves room for
	// calls that overtake another. Below 96% nothing would be left above the promised 95%.
	sharePercent, fullPercent = 96, 99
	// A call, or this share if that is more, may go at once: together 1% below the limit.
	burstPercent       = 3
	maxAtOnce, maxRate = 1 << 30, 1_000_000_000 // without a known limit
	// Each refusal of a paced key slows its pace by this factor, up to maxSlowed times. After
	// forgiving windows without a refusal it regains a step.
	slowing   = 1.1
	maxSlowed = 16
	forgiving = 30
)

type pace struct {
	limit *limit
	answer.Terms
	opened  policy.Instant // when its window's first call was sent, if the limit drains in steps
	known   policy.Instant // when the first answer of the latest calls at once came
	whole   policy.Instant // when the limit will be whole again, by these answers, if all remaining units are used now
	most    int64          // calls in each further period, as other limits bind then; 0 for the whole count
	sliding bool           // counted in two windows
	slowed  int            // steps of slowing after refusals
	guessed bool           // from refusals
	expires time.Duration  // when to learn it anew, 0 if never
}

func (p *pace) policy() policy.Policy {
	if p == nil {
		return nil
	}
	return p.limit
}

const probePause = 10 * time.Millisecond

// An unknown key has no pace: see limit.first.
var (
	probed    = &pace{limit: evenly(1, 1, probePause)}                // the first call's answer named no limit
	unlimited = &pace{limit: evenly(maxAtOnce, maxRate, time.Second)} // no limit is advertised
)

// quota returns the limit of the pace.
func (p *pace) quota() answer.Quota { return answer.Quota{Limit: p.Count, Window: p.Window} }

func (p *pace) unknown() bool { return p == nil || p == probed }

// limits reports whether the pace is of a limit, told or guessed.
func (p *pace) limits() bool { return !p.unknown() && p != unlimited }

// spends reports whether calls may spend at once what remains.
func (p *pace) spends() bool { return p != nil && p.limit.period > 0 }

// make sets the limit of a pace that spaces calls from the advertised limit, nil if it cannot be enforced.
//
// Calls spaced evenly, a little slower than count per window, never exceed a bucket, a fixed window
// or a call log of that limit, wherever a window begins. A sliding window gets at most one call
// less than its limit: see answer.Terms. Of several limits the slowest sets the pace and the smallest the
// burst, so that the calls stay within each.
func (l *Line[K]) make(p pace) *pace {
	count, window := min(p.Count, answer.MaxCount), float64(min(p.Window, answer.MaxWindow))
	per, burst := window*100/sharePercent, max(1, min(count, p.Burst)*burstPercent/100)
	if p.sliding {
		burst = 1
		if l.config.Pace == Spend { // no calls were spaced less before
			per = window * 100 / fullPercent
		}
		per = max(per, p.Spacing*float64(count))
	}
	for range p.slowed {
		burst, per = 1, per*slowing
	}
	if p.limit = evenly(burst, count, time.Duration(math.Ceil(per))); p.limit == nil {
		return nil
	}
	p.limit.returnsEarly = p.sliding
	return &p
}

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
	case s.mu.secondary.counts(t.sent):
		s.mu.secondary.count(t.n, first && !s.pace.Load().spends(), a.Refused)
	default:
		l.endTrial(key, s) // the call was sent after the refusal
		l.learn(t, now, &a, newest)
		if first && !a.Refused {
			l.speedUp(t, now)
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
	if p.spends() {
		ours = l.engine.Peek(key, 0).Remaining
	}
	if l.config.Pace == Spend && l.config.Reserve == 0 && answer.TellsSeveral(a) {
		left := a.Burst
		if p.spends() && p.quota() == answer.SmallestOf(a) {
			left = ours
		}
		s.mu.rest = answer.RestOf(a, s.mu.rest, t.n, s.taken.Load()-s.ended.Load())
		most = answer.BindSlowest(a, left, s.mu.rest)
	}
	if p.spends() {
		if a.Refused || t.sent < p.opened && !p.lasts(instant(now), a) {
			return // see refused, or of a window that is over
		}
		if p.shared(a, ours-t.uncertain()) {
			s.mu.spaced = now + forgiving*min(p.Window, answer.MaxTime/forgiving)
		}
	} else if !newest {
		return
	}
	spends := l.config.Pace == Spend && !a.Refused && now >= s.mu.spaced && s.delay == 0
	if spends {
		most = max(most, s.mu.secondary.bind(p, a, ours))
	}
	switch {
	case answer.Describes(a):
		next := pace{Terms: answer.TermsOf(a), most: most}
		if p != nil && p.Terms == next.Terms {
			next.sliding, next.slowed = p.sliding, p.slowed
		} else {
			p, s.mu.later = nil, 0
		}
		next.sliding = next.sliding || s.slides(now, a)
		switch quiet := now - s.mu.refused; {
		case a.Refused && p != nil && t.number > s.mu.paced:
			next.slowed = min(next.slowed+1, maxSlowed)
		case !a.Refused && next.slowed > 0 && quiet/forgiving > a.Window:
			next.slowed--
			s.mu.refused = now
		}
		several := next.Burst < next.Count
		if spends && !next.sliding && next.slowed == 0 && !several && l.spend(t, now, a, next, ours) {
			return
		}
		if p == nil || p.spends() || p.sliding != next.sliding || p.slowed != next.slowed {
			l.setPace(key, s, l.make(next))
		}
	case a.HasRemaining && a.Reset > 0:
		reset := min(a.Reset, l.config.MaxBackoff)
		over := p.unknown() || p.guesses() || p.expires > 0 && (now >= p.expires || !p.spends() && now+reset > p.expires+reset/16)
		if !over && !p.spends() {
			return
		}
		next := pace{Terms: answer.Terms{Count: min(max(a.Remaining, 0), answer.MaxCount) + 1, Window: reset}, expires: now + reset}
		if !over {
			next.Count, next.Window = max(p.Count, next.Count), max(p.Window, reset)
		}
		if spends && l.spend(t, now, a, next, ours) {
			return
		}
		// Without a window, spread the rest over the time until the reset.
		window := reset
		if a.Remaining <= 0 {
			window = reset / 100 * sharePercent // the next call goes at the reset
		} else if p.unknown() {
			window = max(window, l.config.Probe) // a bucket tells a later reset with each call
		}
		next.Terms = answer.TermsOf(&Answer{Limit: min(a.Remaining, answer.MaxCount) + 1, Window: window})
		l.setPace(key, s, l.make(next))
	case !a.Refused && p.unknown() && l.engine.Blocked(key) == 0: // a held key's call was sent before the refusal
		l.setPace(key, s, unlimited)
	}
}

// end counts the call as ended, once. It needs s.mu locked, so that all calls that have ended were
// also counted by their answers.
func (t *part[K]) end() {
	if !t.obeyed {
		t.obeyed = true
		t.state.ended.Add(t.n)
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
		l.setPace(key, s, probed)
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
func (l *Line[K]) setPace(key K, s *state, p *pace) {
	if !l.has(key, s) {
		return // of a turn from before Reset
	}
	if s.delay > 0 && p != nil {
		slow := *p
		slow.limit, p = evenly(1, 1, min(max(s.delay, p.limit.each), answer.MaxWindow)), &slow
	}
	from := s.pace.Load().policy()
	s.pace.Store(p)
	s.mu.paced = s.turns.Load()
	s.mu.pacedBy = s.mu.answer
	if s.mu.limitField != "" {
		s.mu.pacedBy.field = s.mu.limitField
	}
	_ = l.engine.ChangeLimit(key, from, p.policy()) // fails only if closed
}

// remaining lowers the key's units to those the server reports.
func (l *Line[K]) remaining(t *part[K], now time.Duration, a *Answer) {
	key, s := t.key, t.state
	if !a.HasRemaining || l.probe == nil || s.pace.Load().spends() {
		return
	}
	if ours := l.engine.Peek(key, 0).Remaining; ours > a.Remaining {
		l.engine.Refund(key, max(a.Remaining, 0)-ours)
	}
	tightest := answer.TightestOf(a)
	var own int64
	if answer.Describes(a) {
		own = s.mu.own.add(now, tightest.Window, t.n)
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
	default:
		if isNew || s.mu.strikes == 0 {
			s.mu.strikes++
			isNew = true
		}
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
	if isNew {
		s.mu.refusedTurn = s.turns.Load()
	}
	switch p := s.pace.Load(); {
	case p.guesses() && isNew:
		l.slowDown(t, now, d)
	case p.guesses():
	case p.spends() && l.trySecondary(t, now, d, a):
		l.restart(key, s, probed) // the used units are the told limit's
	case p.spends():
		l.spaceMore(key, s, p)
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
		b = burstOf(l.engine.LimitFor(key))
	}
	var n int64
	switch {
	case b.spaced:
	case b.lasts:
		n = int64((float64(d) + float64(b.left) - float64(have.ResetAfter)) / b.unit)
	default:
		n = have.Remaining - 1
	}
	if n > 0 {
		l.engine.Refund(key, -n)
	}
}

type burst struct {
	spaced bool          // admits no calls at once: no draining needed
	most   int64         // calls that a new key may send at once
	lasts  bool          // units beyond the limit count until drained; in windows they end with theirs
	unit   float64       // nanoseconds to drain a unit
	left   time.Duration // time until a key with a unit left is as new
}

// burstOf asks a limit about a long unused key.
func burstOf(limit policy.Policy) burst {
	const now = policy.Instant(answer.MaxTime)
	_, unused := limit.Take(0, now, 0, 0)
	b := burst{spaced: limit.Delays(), most: max(min(unused.Remaining, math.MaxInt64/8), 1)}
	books, ok := limit.(policy.Refunder)
	if !ok {
		return b
	}
	_, full := limit.Take(books.Refund(0, now, -b.most), now, 0, 0)
	_, owing := limit.Take(books.Refund(0, now, -8*b.most), now, 0, 0)
	// Windowed limits count at most two windows at a time.
	if b.lasts = owing.ResetAfter > 4*full.ResetAfter && full.ResetAfter > 0; b.lasts {
		b.unit = float64(full.ResetAfter) / float64(b.most)
		b.left = full.ResetAfter - time.Duration(b.unit)
	}
	return b
}
