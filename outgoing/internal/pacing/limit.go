package pacing

import (
	"time"

	"github.com/ral-limiter/ral/outgoing/internal/answer"
	"github.com/ral-limiter/ral/policy"
)

// Limit is a key's learned limit. It is a policy.Funnel that drains evenly or, for calls that spend
// what remains, in steps: all at once whenever a period ends. Its words are the funnel's.
type Limit struct {
	funnel
	// each is the time in which a unit drains.
	each time.Duration
	// first is how long an unused key's first unit holds the others, 0 for not at all.
	first time.Duration

	// period is 0 if the funnel drains evenly. Otherwise a period ends at until, in the time of the funnel.
	period time.Duration
	until  policy.Instant
	// known is what Carry knows of the units left.
	known Known

	// returnsEarly reports whether the limit counts in two windows. A limit that drains evenly and follows
	// one in steps then has units return from one period before its end.
	returnsEarly bool
}

// clockOffset is the funnel's time less the engine's, which begins at 1, as a period may have begun
// before.
const clockOffset = policy.Instant(answer.MaxWindow)

// funnel has the methods of policy.Funnel's result that a server's limit needs. Embedding them, rather
// than a policy.Policy, keeps them methods of the limit.
type funnel interface {
	policy.Policy
	policy.Refunder
	policy.Relative
	policy.Windowed
}

// Known is what is known of the units left of a limit that drains in steps.
type Known struct {
	// Left is the number of units when the server decided the call.
	Left int64
	// Sent counts the calls that the server may have decided later, since they were not answered before
	// its call was sent. Begun also counts waiting calls: their units are taken before they are woken.
	Sent, Begun int64
}

// certain returns a lower bound of the units left, the greater of two. One is the server's remaining units less
// the calls sent later. The other is our own remaining units, at most the server's.
func (k Known) certain(until *Limit, ours int64) int64 {
	if until == nil || until.period == 0 {
		return max(k.Left-k.Sent, 0)
	}
	return max(k.Left-k.Begun, min(ours, k.Left), 0)
}

// Evenly returns a limit of count calls in per, up to burst at once, nil if it cannot be enforced.
func Evenly(burst, count int64, per time.Duration) *Limit {
	// A policy refuses a shorter period.
	if per < time.Microsecond {
		count, per = 1000*count, 1000*per
	}
	limit, err := policy.Funnel(burst, count, per)
	if err != nil {
		return nil
	}
	return &Limit{funnel: limit.(funnel), each: per / time.Duration(count)}
}

// InSteps returns a limit of count calls in each period, where a period ends at until, since the line began.
// It returns nil if the limit cannot be enforced.
func InSteps(count int64, period, until time.Duration, known Known) *Limit {
	// The unit is rounded down, so that a period drains the limit.
	limit := Evenly(count, 1, period/time.Duration(count))
	if limit == nil {
		return nil
	}
	limit.period, limit.until, limit.known = period, Instant(until)+clockOffset, known
	return limit
}

// ProbePause is the distance of the calls of a key of which nothing is known.
const ProbePause = 10 * time.Millisecond

// Probe returns the limit of an unknown key. Its first call holds the others for a time, or until the limit
// is changed. After that they go ProbePause apart.
func Probe(first time.Duration) *Limit {
	limit := Evenly(1, 1, ProbePause)
	limit.first = first
	return limit
}

// began returns the beginning of the period that an instant is in. Every instant before until is in
// the period that ends at until. If the funnel drains evenly, began returns the instant itself.
func (p *Limit) began(instant policy.Instant) policy.Instant {
	switch period := policy.Instant(p.period); {
	case period == 0:
		return instant
	case instant < p.until:
		return p.until - period
	default:
		return instant - (instant-p.until)%period
	}
}

// next returns the first beginning of a period from an instant on, or the instant itself.
func (p *Limit) next(instant policy.Instant) policy.Instant {
	began := p.began(instant)
	if began < instant {
		began += policy.Instant(p.period)
	}
	return began
}

func (p *Limit) Take(word uint64, now policy.Instant, n int64, patience time.Duration) (next uint64, decision policy.Decision) {
	now += clockOffset
	if p.period == 0 {
		next, decision = p.funnel.Take(word, now, n, patience)
		if decision.Allowed && n > 0 && word == 0 && p.first > 0 {
			next = p.funnel.Refund(next, now, -int64(p.first/ProbePause))
		}
		return next, decision
	}
	from := p.began(now)
	next, decision = p.funnel.Take(word, from, n, 0)
	if !decision.Allowed && decision.RetryAfter != policy.Never {
		turn := p.next(from + policy.Instant(decision.RetryAfter))
		wait := time.Duration(turn - now)
		if wait <= patience {
			next, decision = p.funnel.Take(word, turn, n, 0)
			decision.Wait, decision.Remaining, from = wait, 0, turn
		} else {
			decision.RetryAfter = wait - max(patience, 0)
		}
	}
	if decision.ResetAfter > 0 {
		decision.ResetAfter = time.Duration(p.next(from+policy.Instant(decision.ResetAfter)) - now)
	}
	return next, decision
}

func (p *Limit) FreshAt(word uint64) policy.Instant {
	if word == 0 {
		return 0
	}
	return max(p.next(p.funnel.FreshAt(word))-clockOffset, 0)
}

func (p *Limit) Refund(word uint64, now policy.Instant, n int64) uint64 {
	return p.funnel.Refund(word, p.began(now+clockOffset), n)
}

func (p *Limit) Cancel(word, taken uint64, at, now policy.Instant, n, undone int64) uint64 {
	return p.funnel.Cancel(word, taken, p.began(at+clockOffset), p.began(now+clockOffset), n, undone)
}

func (p *Limit) Reads(other policy.Policy) bool {
	_, ok := other.(*Limit)
	return ok
}

// Carry returns the word under p by p.known. If calls are spaced from then on, they
// wait for the end of a period that is used up.
func (p *Limit) Carry(from policy.Policy, word uint64, now policy.Instant) (next uint64, ok bool) {
	old, ok := from.(*Limit)
	switch {
	case !ok || word == 0:
		return 0, ok
	case p.period > 0:
		_, decision := old.Take(word, now, 0, 0)
		return p.Refund(0, now, p.known.certain(old, decision.Remaining)-p.Limit()), true
	case old.period > 0 && p.returnsEarly:
		return old.Refund(word, now, old.Limit()-2), true
	case old.period > 0:
		return word, true
	case old.first > 0:
		return p.Refund(0, now, -1), true
	}
	return p.funnel.Carry(old.funnel, word, now+clockOffset)
}

// String returns the text of the funnel, or of the server's window.
func (p *Limit) String() string {
	if p.period == 0 {
		return p.funnel.String()
	}
	if w, err := policy.FixedWindow(p.Limit(), p.period); err == nil {
		return w.String()
	}
	return p.funnel.String()
}

func (p *Limit) Window() time.Duration {
	if p.period > 0 {
		return p.period
	}
	return p.funnel.Window()
}

// Instant returns the engine's instant at a time since the line began.
func Instant(since time.Duration) policy.Instant { return policy.Instant(since + 1) }

// ends returns when the period ends that InSteps was given, since the line began.
func (p *Limit) ends() time.Duration { return time.Duration(p.until-clockOffset) - 1 }
