package pacing

import (
	"time"

	"github.com/ral-limiter/ral/outgoing/internal/answer"
	"github.com/ral-limiter/ral/policy"
)

// Call is an answered call, with the units of its key when it was answered.
type Call struct {
	// Sent and Now are when the call was sent and answered.
	Sent, Now policy.Instant
	// Units is the number of units that the call takes.
	Units int64
	// Later is the number of units of other calls that were not answered before this one was sent, and
	// UnderWay of calls that are not answered yet. Waiting is the number of units of waiting calls.
	Later, UnderWay, Waiting int64
	// Ours is the number of units that the key has left, if its calls spend already.
	Ours int64
}

// Config is what a line's configuration says of spending.
type Config struct {
	// Probe is how long an answer is waited for.
	Probe time.Duration
	// Reserves reports whether a part of each limit is left to others.
	Reserves bool
}

// Spend returns the pace that follows p by an answer: calls have at once the units that the server has left,
// until its reset. next has the new limit. Spend returns p if it stays, and nil if such a limit cannot be
// enforced.
func (p *Pace) Spend(a *answer.Answer, next Pace, t *Call, config Config) *Pace {
	count, period := min(next.Count, answer.MaxCount), policy.Instant(min(next.Window, answer.MaxWindow))
	known := Known{max(count-t.Units, 0), t.Later, t.Later + t.Waiting}
	next.Opened = t.Sent
	until := t.Sent + period
	var old *Limit
	if p.Spends() && (a.HasRemaining || p.Terms == next.Terms) {
		if next.Opened = p.Opened; p.Terms == next.Terms || next.Expires > 0 {
			next.answered, next.whole = p.answered, p.whole
		}
		old, until = p.Limit, p.Limit.until-clockOffset
		if !a.HasRemaining && p.Terms == next.Terms {
			if next.Max == 0 || next.Max >= old.Limit() {
				return p
			}
			known.Left = t.Ours
		}
	}
	if a.HasRemaining {
		known.Left = min(max(a.Remaining, 0), count)
	}
	switch each := period / policy.Instant(count); {
	case !a.HasRemaining || a.Reset == 0:
	case !answer.Describes(a):
		// A bucket tells a later reset with each call: those under way, and those that go now.
		next.whole = max(next.whole, t.Now+policy.Instant(a.Reset))
		until = next.whole
		if t.UnderWay > 0 || t.Waiting > 0 && known.Left > t.Later {
			until = max(until, t.Now+policy.Instant(config.Probe))
		}
	default:
		// A bucket is whole later if the units left are used. The answers to calls sent at once may
		// come in any order.
		used := known.Left
		if used < t.Units { // such calls do not use it
			used = 0
		}
		whole := t.Now + policy.Instant(a.Reset) + policy.Instant(used)*each
		if t.Sent < next.answered {
			whole = min(whole, next.whole)
		} else {
			next.answered = t.Now
		}
		next.whole = whole
		if until = min(whole, t.Now+2*period); a.ResetsLate { // its units come back sooner
			until = whole - policy.Instant(known.certain(old, t.Ours))*each
		}
	}
	if config.Reserves { // a bucket that is not emptied is whole sooner
		until = max(until, next.Opened+period)
	}
	if next.Max > 0 {
		count = min(count, max(known.Left, next.Max))
	}
	if next.Limit = InSteps(count, time.Duration(period), until, known); next.Limit == nil {
		return nil
	}
	return &next
}

// Open returns the pace that begins a window with a call that was sent after the last window. The server may
// count calls under way in the new window.
func (p *Pace) Open(sent policy.Instant, underWay int64) *Pace {
	next := *p
	next.Opened, next.answered, next.whole = sent, 0, 0
	count, period := p.Limit.Limit(), p.Limit.period
	known := Known{Left: max(count-underWay, 0), Begun: count} // no more is certain
	next.Limit = InSteps(count, period, sent+policy.Instant(period), known)
	return &next
}
