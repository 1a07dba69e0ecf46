package pacing

import (
	"time"

	"github.com/ral-limiter/ral/outgoing/internal/answer"
)

// secondary is a limit beside the told one. Answers do not tell it, but it refuses calls while the told
// limit has units left. It stays known when the told limit begins anew.
type secondary struct {
	// Quota is zero if the limit is unknown. Until trial is nil, its Limit is a count of served units.
	answer.Quota
	trial *trial
	// until is the end of the refusal that told the limit. Calls that were sent before
	// it are counted for the limit.
	until time.Duration
	// served and refused are the numbers of units that were served and refused since the limit was
	// last unknown.
	served, refused int64
}

// trial is a refusal whose limit is not yet known, as calls that were sent before it are under way.
// Their answers come in any order, and only with all of them is the number of served units known.
type trial struct {
	// pace is the pace under the told limit that the refusal ended.
	pace *Pace
	// remaining and reset are the told limit's, by the refusal.
	remaining int64
	reset     time.Duration
}

// Try begins to count for a secondary limit under a pace, after a refusal of a call that holds the key for a
// time. It reports false if the told limit may have refused the call.
func (b *secondary) Try(pace *Pace, guess *guess, answered *answer.Answer, n int64, sent, now, hold time.Duration) bool {
	switch {
	case answered.RetryAfter <= 0 || !answered.HasRemaining || answered.Remaining < n:
		return false
	case b.Counts(sent):
		// The answer is of the same refusal.
		return true
	}
	units := guess.served
	// Calls of the minute before may count, too. The next refusal corrects an excess.
	if b.Limit == 0 {
		units += guess.before
		b.served = 0
	}
	// The time is the window's length or its rest.
	window := hold + hold/100 + now - sent
	if used := now - guess.since; used > hold {
		window += used
	}
	b.Quota, b.until, b.refused = answer.Quota{Limit: units, Window: window}, now+hold, b.refused+n
	b.trial = &trial{pace, answered.Remaining, answered.Reset}
	guess.Begin(now + hold)
	return true
}

// Counts reports whether a call that was sent at a time is counted for the limit, as it was sent
// before the end of the refusal.
func (b *secondary) Counts(sent time.Duration) bool { return sent < b.until && b.Window > 0 }

// Count counts the answer to a call that was sent before the end of the refusal. early reports
// whether it is the call's first answer, and came while the pace spends no units yet.
func (b *secondary) Count(n int64, early, refused bool) {
	switch {
	case refused:
		b.refused += n
	case early:
		b.Limit += n
	}
}

// Serve counts units that were served after the refusal.
func (b *secondary) Serve(n int64) { b.served += n }

// End ends the count. It keeps the limit unless spacing the told units until their reset is faster. It then
// forgets the limit and returns the pace under the told limit.
func (b *secondary) End() (spaced *Pace) {
	told := b.trial
	if b.trial = nil; told == nil || float64(b.Limit)*float64(told.reset) >= float64(told.remaining)*float64(b.Window) {
		return nil
	}
	*b = secondary{}
	return told.pace
}

// Bind puts the secondary limit in the place of the told one if the told one has more left. ours are the
// units that the key has left under its pace. The result bounds the calls of a further period.
func (b *secondary) Bind(pace *Pace, answered *answer.Answer, ours int64) (bound int64) {
	if !pace.Spends() || pace.Quota() != b.Quota {
		ours = b.Limit
	}
	if b.Limit == 0 || !answered.HasRemaining || answered.Remaining <= ours {
		return 0
	}
	answer.BindHidden(answered, b.Quota)
	return answered.Remaining - ours
}

// Expires reports whether the limit, which may have grown, is to be forgotten. By then it has
// admitted so many units that learning it again refuses less than 1% of them.
func (b *secondary) Expires() bool {
	return b.Limit > 0 && b.served >= max(Forgiving*b.Limit, 100*b.refused)
}
