package outgoing

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/ral-limiter/ral/policy"
)

// Answer is what the other side said about a call. The zero Answer says that the call was
// served, and no more.
type Answer struct {
	// Refused reports whether the call was refused because it came too early.
	Refused bool
	// RetryAfter is after which time a refused call may be sent again. 0 and less say
	// nothing, except policy.Never: the call can never be served, whenever it is sent, and
	// says nothing about others.
	RetryAfter time.Duration

	// Limit calls pass in each Window, if both are known and positive. Of several limits it
	// is the slowest.
	Limit  int64
	Window time.Duration
	// Burst is the smallest Limit of several limits, which need not be that of the slowest. It
	// bounds how many calls may be sent at once. 0 and less stand for Limit.
	Burst int64
	// Later reports whether a limit is as good as new only after its window has passed once
	// more, by what is told: a fixed window is by less than a second, and a sliding one
	// always.
	Later bool

	// Remaining is how many calls the other side would admit at once after this one, if Told.
	// Reset is the time until it would admit all that it ever does, 0 if unknown. Of several
	// limits it is that with the least left.
	Told      bool
	Remaining int64
	Reset     time.Duration

	// apart is the time in nanoseconds between calls that all of several limits admit if they
	// slide, 0 if Limit and Window tell it.
	apart float64
	// least is the one of several limits that Remaining is of, zero if that is not known.
	least quota
}

// quota is a limit of so many calls in a window.
type quota struct {
	limit  int64
	window time.Duration
}

// described reports whether the answer describes a limit with its window.
func (a *Answer) described() bool { return a.Limit > 0 && a.Window > 0 }

const (
	// An even pace at this share of the limit stays within the limit however it is counted,
	// and the rest is room for calls that reach the other side faster than the one before.
	// Below 96% there would be no room left of what is promised, 95%.
	sharePercent = 96
	// burstPercent of the limit may be sent at once, if that is a call or more. Together
	// with the share it stays below the limit by 1%.
	burstPercent = 3
	// A pace is at most this, and it is that of a key without a known limit.
	mostAtOnce, mostRate = 1 << 20, 1_000_000
	longestWindow        = 366 * 24 * time.Hour
	mostCount            = 1_000_000_000
	// Each refusal of a paced key slows its pace down by so much, up to mostSlowed times. Once
	// there was none in as many windows as forgiving says, it is as much faster again.
	slowing    = 1.1
	mostSlowed = 16
	forgiving  = 30
)

// pace is a limit that was learned, and what it was learned from.
type pace struct {
	limit policy.Policy
	learned
	sliding bool          // counted in two windows
	slowed  int           // how often it was refused nevertheless
	expires time.Duration // when it has to be learned anew, 0 if never
}

// learned is what answers describe of a limit. See Answer.
type learned struct {
	count  int64
	window time.Duration
	burst  int64
	apart  float64
}

// learned returns what the answer describes.
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

// apart returns the time in nanoseconds between calls that a limit admits if it counts in two
// windows: it sees up to one call more than an even pace has in a window.
func apart(limit int64, window time.Duration) float64 {
	return float64(min(window, longestWindow)) * 1.01 / max(float64(min(limit, mostCount))-1, 0.5)
}

// policy returns the limit, nil if there is none.
func (p *pace) policy() policy.Policy {
	if p == nil {
		return nil
	}
	return p.limit
}

// probe is the pace of a key of which nothing is known. The calls behind the first have a debt
// beside it: see Line.acquire.
var probe = policy.Must(policy.Funnel(1, 1, probePause))

const probePause = 10 * time.Millisecond

// unlimited is the pace of a key whose other side describes no limit.
var unlimited = &pace{limit: policy.Must(policy.Funnel(mostAtOnce, mostRate, time.Second))}

// make sets the limit of a pace by what it was learned from. It reports whether there is one
// that can be kept.
//
// Calls that come evenly, a little slower than count in a window, never exceed a bucket, a fixed
// window or a log of calls of that limit, wherever a window begins. A window that slides gets one
// less than the limit at most: see apart.
//
// Of several limits the pace is that of the slowest, so it is slow enough for each. The calls that
// go at once are as few as the smallest of the limits alone would have, so that they stay within
// each as well.
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

// obey carries out what an answer to a turn of a key says.
func (l *Line[K]) obey(key K, s *state, turn uint64, a Answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Since(l.began)
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

// learn sets the pace of a key by an answer.
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
		// Without a window what remains is spread over the time until it comes anew.
		if reset := min(a.Reset, l.config.MaxBackoff); p == nil || p == unlimited || now >= p.expires && p.expires > 0 {
			l.setPace(key, s, pace{
				learned: (&Answer{Limit: min(a.Remaining, mostCount) + 1, Window: reset}).learned(), expires: now + reset,
			}.make())
		}
	case a.Refused && p == unlimited && a.RetryAfter != policy.Never:
		l.setPace(key, s, nil)
	case !a.Refused && p == nil && l.engine.Blocked(key) == 0: // of a held key: it was sent before the refusal
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

// endProbe ends the debt behind the first call of a key if no pace was learned. The calls behind
// it go as they do after Config.Probe, until one of them is answered.
func (l *Line[K]) endProbe(key K, s *state) {
	if l.probe == nil || s.lone || s.pace.Load() != nil || l.engine.Blocked(key) != 0 {
		return
	}
	l.endDebt(key)
	_ = l.engine.ChangeLimit(key, l.probe, l.probe) // turns anew
}

// slides reports whether an answer shows a limit that counts in two windows. A fixed window may
// seem to end a second late in the first answer of each window, as seconds are rounded. Two such
// answers within a window tell.
func (s *state) slides(now time.Duration, a *Answer) bool {
	if !a.Later || a.Refused {
		return false
	}
	last := s.mu.later
	s.mu.later = now
	return a.Limit == 1 || last > 0 && now-last < a.Window
}

// setPace sets the pace of a key; nil is that of the probe. Calls in line get turns by it, in
// the same order.
func (l *Line[K]) setPace(key K, s *state, p *pace) {
	from := s.pace.Load().policy()
	s.pace.Store(p)
	s.mu.paced = s.turns.Load()
	if from == nil && p != nil && l.engine.Blocked(key) == 0 {
		l.endDebt(key)
	}
	_ = l.engine.ChangeLimit(key, from, p.policy()) // a closed engine
}

// endDebt ends the debt of the calls behind the first. One unit was taken.
func (l *Line[K]) endDebt(key K) {
	l.engine.Reset(key)
	l.engine.RefundWith(l.probe, key, -1)
}

// remaining charges a key by what the other side says is left.
func (l *Line[K]) remaining(key K, s *state, now time.Duration, a *Answer) {
	if !a.Told || l.probe == nil {
		return
	}
	if ours := l.engine.Peek(key).Remaining; ours > a.Remaining {
		l.engine.Refund(key, max(a.Remaining, 0)-ours)
	}
	of := a.least
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
	// Nothing is left. If most of the limit went to these calls, the pace accounts for it.
	// Otherwise others use it too, or calls cost more than one: only the reset is certain.
	switch {
	case !a.described():
		l.hold(key, s, a.Reset)
	case own < of.limit/2:
		l.hold(key, s, min(a.Reset, of.window))
	}
}

// refused holds a key as long as an answer to a turn says, or as long as it is due.
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
		if turn > s.mu.barrier || s.mu.strikes == 0 { // those that were sent before are of the same refusal
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

// hold makes all calls of a key wait for d, and leaves it with one unit then: the other side
// promised room for one call, no more. A limit of Config.Policy that counts in windows is left
// with one unit in the present window, and with all of one that opens later.
func (l *Line[K]) hold(key K, s *state, d time.Duration) {
	d = min(d, l.config.MaxBackoff)
	if l.config.Jitter > 0 {
		d += rand.N(l.config.Jitter)
	}
	d = min(max(d, 1), longest)
	if until := int64(time.Since(l.began) + d); until > s.held.Load() { // with s.mu held
		s.held.Store(until)
	}
	l.drain(key, d)
	if err := l.engine.Block(key, d); err != nil {
		l.counters.unheld.Add(1)
	}
}

// drain charges a key what it may have left in d, except for one unit.
func (l *Line[K]) drain(key K, d time.Duration) {
	have := l.engine.Peek(key)
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

// burst is what drain needs to know of a limit.
type burst struct {
	spaced bool  // it admits no calls at once, and so needs no draining
	most   int64 // calls that a new key may send at once
	// lasts reports whether units that are charged beyond the limit count until they have
	// drained. Those of a limit that counts in windows end with their window.
	lasts bool
	unit  float64       // nanoseconds in which a unit drains
	left  time.Duration // the time until a key with one unit left is as good as new
}

// burstOf asks a limit about a key that was not used for long.
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
	// Of a limit that counts in windows two may count at a time, no more.
	if b.lasts = owing.ResetAfter > 4*full.ResetAfter && full.ResetAfter > 0; b.lasts {
		b.unit = float64(full.ResetAfter) / float64(b.most)
		b.left = full.ResetAfter - time.Duration(b.unit)
	}
	return b
}
