package outgoing

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/ral-limiter/ral/policy"
)

// Answer is the server's answer to a call. The zero Answer says only that it was served.
type Answer struct {
	// Refused reports whether the call was refused because it came too early.
	Refused bool
	// RetryAfter is when a refused call may be sent again; 0 and less say nothing. With
	// policy.Never the call can never be served, which says nothing about others.
	RetryAfter time.Duration

	// Limit calls pass in each Window, if both are positive: the slowest of several limits.
	Limit  int64
	Window time.Duration
	// Burst, the smallest Limit of several, bounds the calls sent at once. 0 and less stand for
	// Limit.
	Burst int64
	// Later reports whether the advertised reset is more than a window from now. Sliding windows
	// always are; fixed windows only by rounding to seconds.
	Later bool

	// If Told, Remaining calls would be admitted now, and Reset is the time until the limit is
	// whole again, 0 if unknown. Of several limits these describe the least left.
	Told      bool
	Remaining int64
	Reset     time.Duration

	// Field is the name of the header field behind RetryAfter or else Reset, for errors. It may be
	// empty.
	Field string

	limitField string // the field behind Limit and Window
	past       bool   // the reset has passed
	stated     bool   // RetryAfter is not from Reset

	// apart is the spacing in nanoseconds for several limits even if they slide. 0: use Limit,
	// Window.
	apart    float64
	tightest quota // the limit of Remaining, zero if unknown
}

type quota struct {
	limit  int64
	window time.Duration
}

func (a *Answer) described() bool { return a.Limit > 0 && a.Window > 0 }

const (
	// An even pace at this share stays within the limit however it is counted, and leaves room for
	// calls that overtake another. Below 96% nothing would be left above the promised 95%.
	sharePercent = 96
	// A call, or this share if that is more, may go at once: together 1% below the limit.
	burstPercent         = 3
	mostAtOnce, mostRate = 1 << 20, 1_000_000 // without a known limit
	longestWindow        = 366 * 24 * time.Hour
	mostCount            = 1_000_000_000
	// Each refusal of a paced key slows its pace by this factor, up to mostSlowed times. After
	// forgiving windows without a refusal it regains a step.
	slowing    = 1.1
	mostSlowed = 16
	forgiving  = 30
)

type pace struct {
	limit policy.Policy
	learned
	sliding bool          // counted in two windows
	slowed  int           // steps of slowing after refusals
	expires time.Duration // when to learn it anew, 0 if never
}

type learned struct {
	count  int64
	window time.Duration
	burst  int64
	apart  float64
}

func (a *Answer) learned() learned {
	w := learned{a.Limit, a.Window, a.Limit, a.apart}
	if a.Burst > 0 {
		w.burst = min(w.burst, a.Burst)
	}
	if w.apart == 0 {
		w.apart = apart(a.Limit, a.Window)
	}
	return w
}

// apart returns the spacing in nanoseconds that a limit counted in two windows admits: it sees up
// to a call more per window than an even pace has.
func apart(limit int64, window time.Duration) float64 {
	return float64(min(window, longestWindow)) * 1.01 / max(float64(min(limit, mostCount))-1, 0.5)
}

func (p *pace) policy() policy.Policy {
	if p == nil {
		return nil
	}
	return p.limit
}

// probe is the pace of an unknown key. Calls behind the first also have a debt: see Line.acquire.
var probe = policy.Must(policy.Funnel(1, 1, probePause))

const probePause = 10 * time.Millisecond

// unlimited is the pace of a key without an advertised limit.
var unlimited = &pace{limit: policy.Must(policy.Funnel(mostAtOnce, mostRate, time.Second))}

// make sets the limit of a pace from the advertised limit, nil if it cannot be enforced.
//
// Calls spaced evenly, a little slower than count per window, never exceed a bucket, a fixed window
// or a call log of that limit, wherever a window begins. A sliding window gets at most one call
// less than its limit: see apart. Of several limits the slowest sets the pace and the smallest the
// burst, so that the calls stay within each.
func (p pace) make() *pace {
	count, window := min(p.count, mostCount), float64(min(p.window, longestWindow))
	per, burst := window*100/sharePercent, max(1, min(count, p.burst)*burstPercent/100)
	if p.sliding {
		burst = 1
		per = max(per, p.apart*float64(count))
	}
	for range p.slowed {
		burst, per = 1, per*slowing
	}
	limit, err := policy.Funnel(burst, count, time.Duration(math.Ceil(per)))
	if err != nil {
		return nil
	}
	p.limit = limit
	return &p
}

func (l *Line[K]) obey(key K, s *state, turn uint64, a Answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Since(l.began)
	l.believe(&a)
	s.mu.answer, s.mu.limitField = origin{turn, a.Field, time.Now()}, a.limitField
	newest := turn > s.mu.newest
	if newest {
		s.mu.newest = turn
	}
	if newest && l.probe != nil && !s.lone {
		l.learn(key, s, turn, now, &a)
	}
	switch {
	case a.Refused:
		l.refused(key, s, turn, &a)
	case newest:
		s.mu.strikes = 0
		l.remaining(key, s, now, &a)
	}
}

func (l *Line[K]) learn(key K, s *state, turn uint64, now time.Duration, a *Answer) {
	p := s.pace.Load()
	switch {
	case a.described():
		next := pace{learned: a.learned()}
		if p != nil && p.learned == next.learned {
			next.sliding, next.slowed = p.sliding, p.slowed
		} else {
			p, s.mu.later = nil, 0
		}
		next.sliding = next.sliding || s.slides(now, a)
		switch quiet := now - s.mu.refused; {
		case a.Refused && p != nil && turn > s.mu.paced:
			next.slowed = min(next.slowed+1, mostSlowed)
		case !a.Refused && next.slowed > 0 && quiet/forgiving > a.Window:
			next.slowed--
			s.mu.refused = now
		}
		if p == nil || p.sliding != next.sliding || p.slowed != next.slowed {
			l.setPace(key, s, next.make())
		}
	case a.Told && a.Reset > 0:
		// Without a window, spread the rest over the time until the reset.
		if reset := min(a.Reset, l.config.MaxBackoff); p == nil || p == unlimited || now >= p.expires && p.expires > 0 {
			window := reset
			if a.Remaining <= 0 {
				window = reset / 100 * sharePercent // the next call goes at the reset
			}
			l.setPace(key, s, pace{
				learned: (&Answer{Limit: min(a.Remaining, mostCount) + 1, Window: window}).learned(), expires: now + reset,
			}.make())
		}
	case a.Refused && p == unlimited && a.RetryAfter != policy.Never:
		l.setPace(key, s, nil)
	case !a.Refused && p == nil && l.engine.Blocked(key) == 0: // a held key's call was sent before the refusal
		l.setPace(key, s, unlimited)
	}
}

// lost ends the probe of a key if its first call gets no answer.
func (l *Line[K]) lost(key K, s *state) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.newest == 0 && s.turns.Load() == 1 {
		l.endProbe(key, s)
	}
}

// endProbe ends the debt behind the first call if no pace was learned, as after Config.Probe.
func (l *Line[K]) endProbe(key K, s *state) {
	if l.probe == nil || s.lone || s.pace.Load() != nil || l.engine.Blocked(key) != 0 {
		return
	}
	l.endDebt(key)
	_ = l.engine.ChangeLimit(key, l.probe, l.probe) // recompute turns
}

// slides reports whether an answer shows a limit counted in two windows. Rounding may show a fixed
// window a second late in its first answer only; two late answers within a window tell.
func (s *state) slides(now time.Duration, a *Answer) bool {
	if !a.Later || a.Refused {
		return false
	}
	last := s.mu.later
	s.mu.later = now
	return a.Limit == 1 || last > 0 && now-last < a.Window
}

// setPace sets the pace of a key, nil for the probe. Calls in line get new turns in the same order.
func (l *Line[K]) setPace(key K, s *state, p *pace) {
	from := s.pace.Load().policy()
	s.pace.Store(p)
	s.mu.paced = s.turns.Load()
	s.mu.pacedBy = s.mu.answer
	if s.mu.limitField != "" {
		s.mu.pacedBy.field = s.mu.limitField
	}
	if from == nil && p != nil && l.engine.Blocked(key) == 0 {
		l.endDebt(key)
	}
	_ = l.engine.ChangeLimit(key, from, p.policy()) // fails only if closed
}

// endDebt ends the debt behind the first call. That call's unit stays taken.
func (l *Line[K]) endDebt(key K) {
	l.engine.Reset(key)
	l.engine.RefundWith(l.probe, key, -1)
}

// remaining lowers the key's units to those the server reports.
func (l *Line[K]) remaining(key K, s *state, now time.Duration, a *Answer) {
	if !a.Told || l.probe == nil {
		return
	}
	if ours := l.engine.Peek(key, 0).Remaining; ours > a.Remaining {
		l.engine.Refund(key, max(a.Remaining, 0)-ours)
	}
	of := a.tightest
	if of.limit <= 0 || of.window <= 0 {
		of = quota{a.Limit, a.Window}
	}
	var own int64
	if a.described() {
		own = s.mu.own.add(now, of.window)
	}
	if a.Remaining > 0 || a.Reset <= 0 {
		return
	}
	// Nothing is left. If these calls took half of the limit, the pace accounts for it. Otherwise
	// others use it too, or calls cost several units: only the reset is certain.
	switch {
	case !a.described():
		l.hold(key, s, a.Reset)
	case own < of.limit/2:
		l.hold(key, s, min(a.Reset, of.window))
	}
}

// refused holds a key for the stated time, or for the back-off due.
func (l *Line[K]) refused(key K, s *state, turn uint64, a *Answer) {
	l.counters.refusals.Add(1)
	l.endProbe(key, s)
	d := a.RetryAfter
	s.mu.refused = time.Since(l.began)
	switch {
	case d == policy.Never:
		return
	case d > 0:
		s.mu.strikes = 0
	default:
		if turn > s.mu.barrier || s.mu.strikes == 0 { // earlier calls belong to the same refusal
			s.mu.strikes++
			s.mu.barrier = s.turns.Load()
		}
		d = l.config.Backoff
		for range s.mu.strikes - 1 {
			if d = 2 * d; d >= l.config.MaxBackoff {
				break
			}
		}
	}
	l.hold(key, s, d)
}

// hold makes all calls of a key wait for d, and leaves a unit: the server promised room for a call.
// A windowed Config.Policy keeps a unit in the present window, and all of a later window.
func (l *Line[K]) hold(key K, s *state, d time.Duration) {
	d = min(d, l.config.MaxBackoff)
	if l.config.Jitter > 0 {
		d += rand.N(l.config.Jitter)
	}
	d = min(max(d, 1), longest)
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
	const now = policy.Instant(longest)
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
