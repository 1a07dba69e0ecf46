package pacing

import (
	"math"
	"time"

	"github.com/ral-limiter/ral/outgoing/internal/answer"
	"github.com/ral-limiter/ral/policy"
)

const (
	// An even pace at this share stays within the limit however it is counted, and leaves room for
	// calls that overtake another. Below 96% nothing would be left above the promised 95%.
	SharePercent, fullPercent = 96, 99
	// A call, or this share if that is more, may go at once: together 1% below the limit.
	burstPercent = 3
	// maxAtOnce and maxRate hold without a known limit.
	maxAtOnce, maxRate = 1 << 30, 1_000_000_000
	// Each refusal of a paced key slows its pace by this factor, up to MaxSlowed times. After
	// Forgiving windows without a refusal it regains a step.
	slowing   = 1.1
	MaxSlowed = 16
	Forgiving = 30
)

// Pace is how the calls of a key are sent under a limit. A nil Pace is of a key of which nothing is known.
// Paces are not changed once they are used.
type Pace struct {
	Limit *Limit
	answer.Terms
	// Opened is when the first call of the window was sent, if the limit drains in steps.
	Opened time.Duration
	// Max bounds the calls of each further period, as other limits bind then. 0 is for the whole count.
	Max int64
	// Sliding reports whether the limit is counted in two windows.
	Sliding bool
	// Slowed is the number of steps of slowing after refusals.
	Slowed int
	// Guessed reports whether the limit is guessed from refusals.
	Guessed bool
	// Expires is when the limit is to be learned anew, 0 if never.
	Expires time.Duration

	// answered is when the first answer came to the latest calls that were sent at once. whole is when the limit is
	// whole again, by the answers to these calls, if all remaining units are used now.
	answered, whole time.Duration
}

// Policy returns the limit, nil for an unknown key.
func (p *Pace) Policy() policy.Policy {
	if p == nil {
		return nil
	}
	return p.Limit
}

var (
	// Probed is the pace of a key whose first call was answered without a limit.
	Probed = &Pace{Limit: Evenly(1, 1, ProbePause)}
	// Unlimited is the pace of a key whose server advertises no limit.
	Unlimited = &Pace{Limit: Evenly(maxAtOnce, maxRate, time.Second)}
)

// Quota returns the limit of the pace.
func (p *Pace) Quota() answer.Quota { return answer.Quota{Limit: p.Count, Window: p.Window} }

// IsUnknown reports whether nothing is known of the key's limit.
func (p *Pace) IsUnknown() bool { return p == nil || p == Probed }

// HasLimit reports whether the pace is of a limit, told or guessed.
func (p *Pace) HasLimit() bool { return !p.IsUnknown() && p != Unlimited }

// Spends reports whether calls may spend at once the units that remain.
func (p *Pace) Spends() bool { return p != nil && p.Limit.period > 0 }

// Guesses reports whether the pace is for a server that tells no limit.
func (p *Pace) Guesses() bool { return p == Unlimited || p != nil && p.Guessed }

// Spaced returns the pace that spaces calls under the limit of Terms, nil if it cannot be enforced.
// spends reports whether the line's calls otherwise spend the remaining units at once.
//
// Calls spaced evenly, a little slower than count per window, never exceed a bucket, a fixed window
// or a call log of that limit, wherever a window begins. A sliding window gets at most one call
// less than its limit: see answer.Terms. Of several limits the slowest sets the pace and the smallest the
// burst, so that the calls stay within each.
func (p Pace) Spaced(spends bool) *Pace {
	count, window := min(p.Count, answer.MaxCount), float64(min(p.Window, answer.MaxWindow))
	per, burst := window*100/SharePercent, max(1, min(count, p.Burst)*burstPercent/100)
	if p.Sliding {
		burst = 1
		// No calls were spaced less before.
		if spends {
			per = window * 100 / fullPercent
		}
		per = max(per, p.Spacing*float64(count))
	}
	for range p.Slowed {
		burst, per = 1, per*slowing
	}
	if p.Limit = Evenly(burst, count, time.Duration(math.Ceil(per))); p.Limit == nil {
		return nil
	}
	p.Limit.returnsEarly = p.Sliding
	return &p
}

// Slower returns the pace that spaces calls a step slower, nil if it cannot be enforced.
func (p Pace) Slower() *Pace {
	p.Slowed = min(p.Slowed+1, MaxSlowed)
	return p.Spaced(true)
}

// Delayed returns the pace with calls at least a time apart.
func (p Pace) Delayed(delay time.Duration) *Pace {
	p.Limit = Evenly(1, 1, min(max(delay, p.Limit.each), answer.MaxWindow))
	return &p
}

// Charge returns how many of n units a call still takes, below 0 for units that come back. sent is when the call
// was sent, and early reports whether it took its units before there was a limit.
func (p *Pace) Charge(n int64, sent time.Duration, early bool) int64 {
	switch {
	case p.Spends() && sent < p.Opened:
		// The call's window is over.
		return 0
	case n < 0 && early && p.HasLimit() && !p.Spends():
		// A refund would return other calls' units.
		return 0
	// All units come back at the reset.
	case p != nil && p.Expires > 0:
		return min(max(n, -p.Count), p.Count)
	}
	return n
}

// IsOver reports whether the window of the pace has ended before a call was sent.
func (p *Pace) IsOver(sent time.Duration) bool { return p.Spends() && sent >= p.Limit.ends() }

// IsShared reports whether the answer to a call shows that others have used up more than a tenth of the limit.
func (p *Pace) IsShared(answered *answer.Answer, call *Call) bool {
	ours := call.Ours
	// Estimated costs under way may differ from those charged.
	if call.Units != 1 {
		ours -= call.Later + call.Units
	}
	same := p.Expires > 0 || answer.Describes(answered) && answer.TermsOf(answered) == p.Terms
	return answered.HasRemaining && same && answered.Remaining < ours-max(p.Count/10, 1)
}

// Lasts reports whether the answer shows that a window with an unknown length has not ended yet. A
// bucket tells a later reset with each call.
func (p *Pace) Lasts(now time.Duration, answered *answer.Answer) bool {
	return p.Expires > 0 && answered.HasRemaining && now+answered.Reset > p.Limit.ends()
}
