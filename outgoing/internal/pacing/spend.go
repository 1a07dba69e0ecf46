package pacing

import (
	"time"

	"github.com/ral-limiter/ral/outgoing/internal/answer"
)

// Spend returns the pace that follows p by an answer: calls have at once the units that the server has left,
// until its reset. next has the new limit. Spend returns p if it stays, and nil if such a limit cannot be
// enforced.
func (p *Pace) Spend(answered *answer.Answer, next Pace, call *Call, now time.Duration, config *Config) *Pace {
	count, period := min(next.Count, answer.MaxCount), min(next.Window, answer.MaxWindow)
	known := Known{max(count-call.Units, 0), call.Later, call.Later + call.Waiting}
	next.Opened = call.Sent
	until := call.Sent + period
	var old *Limit
	if p.Spends() && (answered.HasRemaining || p.Terms == next.Terms) {
		if next.Opened = p.Opened; p.Terms == next.Terms || next.Expires > 0 {
			next.answered, next.whole = p.answered, p.whole
		}
		old, until = p.Limit, p.Limit.ends()
		if !answered.HasRemaining && p.Terms == next.Terms {
			if next.Max == 0 || next.Max >= old.Limit() {
				return p
			}
			known.Left = call.Ours
		}
	}
	if answered.HasRemaining {
		known.Left = min(max(answered.Remaining, 0), count)
	}
	switch each := period / time.Duration(count); {
	case !answered.HasRemaining || answered.Reset == 0:
	case !answer.Describes(answered):
		// A bucket tells a later reset with each call: those under way, and those that go now.
		next.whole = max(next.whole, now+answered.Reset)
		until = next.whole
		if call.UnderWay > 0 || call.Waiting > 0 && known.Left > call.Later {
			until = max(until, now+config.Probe)
		}
	default:
		// A bucket is whole later if the units left are used. The answers to calls sent at once may
		// come in any order.
		used := known.Left
		// Calls above the burst do not use what is left.
		if used < call.Units {
			used = 0
		}
		whole := now + answered.Reset + time.Duration(used)*each
		if call.Sent < next.answered {
			whole = min(whole, next.whole)
		} else {
			next.answered = now
		}
		next.whole = whole
		// If the answer states a late reset, the units come back before the limit is whole.
		if until = min(whole, now+2*period); answered.ResetsLate {
			until = whole - time.Duration(known.certain(old, call.Ours))*each
		}
	}
	// A bucket that is not emptied is whole sooner.
	if config.Reserve > 0 {
		until = max(until, next.Opened+period)
	}
	if next.Max > 0 {
		count = min(count, max(known.Left, next.Max))
	}
	if next.Limit = InSteps(count, period, until, known); next.Limit == nil {
		return nil
	}
	return &next
}

// Open returns the pace that begins a window with a call that was sent after the last window. The server may
// count calls under way in the new window.
func (p *Pace) Open(sent time.Duration, underWay int64) *Pace {
	next := *p
	next.Opened, next.answered, next.whole = sent, 0, 0
	count, period := p.Limit.Limit(), p.Limit.period
	// No units beyond these are certain.
	known := Known{Left: max(count-underWay, 0), Begun: count}
	next.Limit = InSteps(count, period, sent+period, known)
	return &next
}
