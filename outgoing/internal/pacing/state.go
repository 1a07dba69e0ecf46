package pacing

import (
	"math"
	"time"

	"github.com/ral-limiter/ral/outgoing/internal/answer"
)

// State is what the answers of a key have told. Times are durations since the line began. It needs Config.
// State is not safe for concurrent use.
type State struct {
	*Config
	// Pace is how calls are sent now, nil for the probe of an unknown key.
	Pace *Pace
	// Delay spaces the key's calls by this time or more.
	Delay time.Duration
	// Unrecorded reports whether there was no room to remember the key. All its calls are then Forgotten.
	Unrecorded bool

	// newest is the number of the newest answered turn. pacedTurn is the number of the last turn
	// before the present pace.
	newest, pacedTurn uint64
	// strikes is the number of back-offs in a row without a stated length.
	strikes int
	// refused and late are when the last refusal and the last Answer.ResetsLate came, 0 for none. heldUntil is the
	// end of the latest hold.
	refused, late, heldUntil time.Duration
	// Calls are spaced until spacedUntil, as others share the limit.
	spacedUntil time.Duration
	// rest is the number of units that the slowest of several limits has left.
	rest      int64
	own       tally
	guess     guess
	secondary secondary
	overlong  overlong
}

// Change is what a line does at once for a key. Its parts are done in this order.
type Change struct {
	// Restart reports whether the key's use and back-off are forgotten.
	Restart bool
	// Pace is the pace from now on.
	Pace *Pace
	// FailsUntil is the end of the key's overlong time, 0 for none.
	FailsUntil time.Duration
	// If Lowers, the key has at most Left units from now on.
	Lowers bool
	Left   int64
	// All calls wait for the time Hold, and one of them may go after it. 0 is for no wait.
	Hold time.Duration
}

// Start returns the state of a key that is new to a line.
func Start(config *Config, now, delay time.Duration) State {
	state := State{Config: config, Delay: delay}
	state.Pace = state.unlearned()
	state.guess.Begin(now)
	return state
}

// unlearned returns the pace of a key before anything is learned about it.
func (s *State) unlearned() *Pace {
	if s.Delay == 0 {
		return nil
	}
	return &Pace{Limit: Evenly(1, 1, s.Delay), Guessed: true}
}

// Answered returns the change after an answer to a call.
func (s *State) Answered(call Call, now time.Duration, a answer.Answer) (change Change) {
	answer.LeaveReserve(&a, s.Reserve)
	// A final refusal's fields tell the limit as the fields of a served call do.
	if answer.IsFinal(&a) {
		a.Refused, call.First = false, false
	}
	if a.Refused && a.RetryAfter == 0 && a.HasRemaining && a.Remaining <= 0 {
		a.RetryAfter = a.Reset
	}
	newest := call.Number > s.newest
	s.newest = max(s.newest, call.Number)
	if call.Probe && call.First && !a.Refused && !call.Forgotten && s.overlong.until != 0 {
		s.endOverlong(&change)
	}
	learns := s.Learns && !call.Forgotten && s.overlong.until == 0
	switch {
	case !learns:
	case s.secondary.Counts(call.Sent):
		s.secondary.Count(call.Units, call.First && !s.Pace.Spends(), a.Refused)
	default:
		// The call was sent after the refusal.
		s.endTrial(&call)
		s.learn(&call, now, &a, newest)
		if call.First && !a.Refused {
			s.serve(&call, now)
		}
	}
	switch {
	case a.Refused:
		s.refuse(&call, now, &a, learns, &change)
	case newest:
		if call.First {
			s.strikes = 0
		}
		if learns || s.Learns && s.Unrecorded {
			s.lower(&call, now, &a, &change)
		}
	}
	if learns && call.UnderWay == 0 {
		s.endTrial(&call)
	}
	return s.changed(change)
}

// Abandoned returns the change after a call that gets no answer. The calls behind a first call go on.
func (s *State) Abandoned(call Call) Change {
	if s.Learns && !call.Forgotten {
		if call.UnderWay == 0 && s.overlong.until == 0 {
			s.endTrial(&call)
		}
		if s.newest == 0 && call.Turns == 1 {
			s.endProbe(&call)
		}
	}
	return s.changed(Change{})
}

// Begin returns the change as a call is sent. The first call sent after a window begins the next
// window.
func (s *State) Begin(sent time.Duration, underWay int64) Change {
	if s.Pace.IsOver(sent) {
		if s.secondary.Expires() {
			s.secondary = secondary{}
			// Calls until now were kept within the limit.
			s.guess.Begin(sent)
		}
		s.Pace = s.Pace.Open(sent, underWay)
	}
	return s.changed(Change{})
}

// Enter returns the change as a call comes in an overlong time. fails reports whether the call must fail at
// once, and probes whether it becomes the probe. A call becomes the probe only if it claims.
func (s *State) Enter(now time.Duration, claims bool) (change Change, fails, probes bool) {
	left := s.overlong.until - now
	switch {
	case s.overlong.until == 0:
	case left <= s.MaxBackoff:
		s.endOverlong(&change)
		change.Hold = max(left, 1)
	default:
		fails, probes = s.overlong.enter(now, claims)
	}
	return s.changed(change), fails, probes
}

// Unsent makes the next call the probe, as the last probe was not sent.
func (s *State) Unsent() { s.overlong.probe = 0 }

func (s *State) changed(change Change) Change {
	change.Pace, change.FailsUntil = s.Pace, s.overlong.until
	return change
}

// set sets the pace, nil for the probe.
func (s *State) set(pace *Pace, call *Call) {
	if s.Delay > 0 && pace != nil {
		pace = pace.Delayed(s.Delay)
	}
	s.Pace, s.pacedTurn = pace, call.Turns
}

// endProbe lets the calls behind the first go if no pace was learned, as after Config.Probe.
func (s *State) endProbe(call *Call) {
	if s.Pace == nil && !call.Holding {
		s.set(Probed, call)
	}
}

// endTrial ends the count for a secondary limit, if there is one.
func (s *State) endTrial(call *Call) {
	if spaced := s.secondary.End(); spaced != nil && s.Pace == Probed {
		s.set(spaced.Slower(), call)
	}
}

// endOverlong ends the overlong time, after which the key is as new.
func (s *State) endOverlong(change *Change) {
	s.overlong, change.Restart = overlong{}, true
	if s.Learns {
		s.Pace = s.unlearned()
	}
}

// serve counts a served call, which may raise a guessed pace.
func (s *State) serve(call *Call, now time.Duration) {
	s.secondary.Serve(call.Units)
	s.guess.Serve(now, call.Units, call.Waited)
	if s.Pace.Guesses() && s.guess.SpeedUp(now) {
		s.set(s.guess.Pace(s.MaxBackoff), call)
	}
}

// learn sets the pace by what an answer tells of the limit.
func (s *State) learn(call *Call, now time.Duration, answered *answer.Answer, newest bool) {
	pace := s.Pace
	// bound bounds the calls of each further period: see Pace.Max.
	var bound int64
	if s.Spends && s.Reserve == 0 && answer.TellsSeveral(answered) {
		left := answered.Burst
		if pace.Spends() && pace.Quota() == answer.SmallestOf(answered) {
			left = call.Ours
		}
		s.rest = answer.RestOf(answered, s.rest, call.Units, call.UnderWay)
		bound = answer.BindSlowest(answered, left, s.rest)
	}
	if pace.Spends() {
		if answered.Refused || call.Sent < pace.Opened && !pace.Lasts(now, answered) {
			// A refusal is left to refuse. Any other answer here is of a window that is over.
			return
		}
		if pace.IsShared(answered, call) {
			s.spacedUntil = now + Forgiving*min(pace.Window, answer.MaxTime/Forgiving)
		}
	} else if !newest {
		return
	}
	spends := s.Spends && !answered.Refused && now >= s.spacedUntil && s.Delay == 0
	if spends {
		bound = max(bound, s.secondary.Bind(pace, answered, call.Ours))
	}
	switch {
	case answer.Describes(answered):
		s.follow(call, now, answered, bound, spends)
	case answered.HasRemaining && answered.Reset > 0:
		s.followRest(call, now, answered, spends)
	// If the key is held, the call was sent before the refusal, so its answer does not show that there
	// is no limit.
	case !answered.Refused && pace.IsUnknown() && !call.Holding:
		s.set(Unlimited, call)
	}
}

// follow sets the pace by an answer that tells the limit with its window.
func (s *State) follow(call *Call, now time.Duration, answered *answer.Answer, bound int64, spends bool) {
	pace, next := s.Pace, Pace{Terms: answer.TermsOf(answered), Max: bound}
	if pace != nil && pace.Terms == next.Terms {
		next.Sliding, next.Slowed = pace.Sliding, pace.Slowed
	} else {
		pace, s.late = nil, 0
	}
	next.Sliding = next.Sliding || s.slides(now, answered)
	switch quiet := now - s.refused; {
	case answered.Refused && pace != nil && call.Number > s.pacedTurn:
		next.Slowed = min(next.Slowed+1, MaxSlowed)
	case !answered.Refused && next.Slowed > 0 && quiet/Forgiving > answered.Window:
		next.Slowed--
		s.refused = now
	}
	several := next.Burst < next.Count
	if spends && !next.Sliding && next.Slowed == 0 && !several && s.spend(call, now, answered, next) {
		return
	}
	if pace == nil || pace.Spends() || pace.Sliding != next.Sliding || pace.Slowed != next.Slowed {
		s.set(next.Spaced(s.Spends), call)
	}
}

// followRest sets the pace by an answer that tells only the units left until a reset.
func (s *State) followRest(call *Call, now time.Duration, answered *answer.Answer, spends bool) {
	pace, reset := s.Pace, min(answered.Reset, s.MaxBackoff)
	over := pace.IsUnknown() || pace.Guesses() || pace.Expires > 0 && (now >= pace.Expires || !pace.Spends() && now+reset > pace.Expires+reset/16)
	if !over && !pace.Spends() {
		return
	}
	left := min(max(answered.Remaining, 0), answer.MaxCount)
	next := Pace{Terms: answer.Terms{Count: left + 1, Window: reset}, Expires: now + reset}
	if !over {
		next.Count, next.Window = max(pace.Count, next.Count), max(pace.Window, reset)
	}
	if spends && s.spend(call, now, answered, next) {
		return
	}
	// Without a window, spread the rest over the time until the reset.
	window := reset
	if left == 0 {
		// The next call goes at the reset.
		window = reset / 100 * SharePercent
	} else if pace.IsUnknown() {
		// A bucket tells a later reset with each call.
		window = max(window, s.Probe)
	}
	next.Terms = answer.TermsOf(&answer.Answer{Limit: left + 1, Window: window})
	s.set(next.Spaced(s.Spends), call)
}

// spend has calls spend the units left under the limit of next, and reports false if it cannot be enforced.
func (s *State) spend(call *Call, now time.Duration, answered *answer.Answer, next Pace) bool {
	pace := s.Pace.Spend(answered, next, call, now, s.Config)
	if pace != nil && pace != s.Pace {
		s.set(pace, call)
	}
	return pace != nil
}

// slides reports whether an answer shows a limit counted in two windows. Rounding may show a fixed
// window a second late in its first answer only; two late answers within a window show a limit
// counted in two windows.
func (s *State) slides(now time.Duration, answered *answer.Answer) bool {
	if !answered.ResetsLate || answered.Refused {
		return false
	}
	last := s.late
	s.late = now
	return answered.Limit == 1 || last > 0 && now-last < answered.Window
}

// lower lowers the key's units to those that the server reports.
func (s *State) lower(call *Call, now time.Duration, answered *answer.Answer, change *Change) {
	if !answered.HasRemaining || s.Pace.Spends() {
		return
	}
	change.Lowers, change.Left = true, max(answered.Remaining, 0)
	tightest := answer.TightestOf(answered)
	var own int64
	if answer.Describes(answered) {
		own = s.own.Add(now, tightest.Window, call.Units)
	}
	if answered.Remaining > 0 || answered.Reset <= 0 {
		return
	}
	// Nothing is left. If these calls took half of the limit, the pace accounts for it. Otherwise
	// others use it too, or calls cost several units: only the reset is certain.
	switch {
	case !answer.Describes(answered):
		s.hold(call, now, answered.Reset, change)
	case own < tightest.Limit/2:
		s.hold(call, now, min(answered.Reset, tightest.Window), change)
	}
}

// refuse holds a key for the stated time, or for the back-off due, and slows its pace.
func (s *State) refuse(call *Call, now time.Duration, answered *answer.Answer, learns bool, change *Change) {
	if learns {
		s.endProbe(call)
	}
	// A refusal of a call that was sent before the end of a hold belongs to that hold. The call may
	// have been sent after the hold began, if it had its turn already.
	duration, isNew := answered.RetryAfter, call.Sent >= s.heldUntil
	s.refused = now
	switch {
	case duration > 0:
		s.strikes = 0
	case isNew || s.strikes == 0:
		s.strikes++
		isNew = true
	}
	if duration <= 0 {
		if s.overlong.until != 0 {
			// The answer states no other time.
			return
		}
		duration = s.MaxBackoff
		if doubled := math.Ldexp(float64(s.Backoff), s.strikes-1); doubled < float64(duration) {
			duration = time.Duration(doubled)
		}
	}
	s.hold(call, now, duration, change)
	if !learns || s.overlong.until != 0 {
		return
	}
	switch pace := s.Pace; {
	case pace.Guesses() && isNew:
		s.guess.SlowDown(now, duration)
		s.set(s.guess.Pace(s.MaxBackoff), call)
	case pace.Guesses():
	case pace.Spends() && s.Spends && s.secondary.Try(pace, &s.guess, answered, call.Units, call.Sent, now, duration):
		// The used units belong to the told limit, so they are forgotten.
		s.Pace, change.Restart = Probed, true
	case pace.Spends():
		s.set(pace.Slower(), call)
	}
}

// hold makes all calls of a key wait for d, or fail if d begins or changes an overlong time.
func (s *State) hold(call *Call, now, d time.Duration, change *Change) {
	d = min(d, answer.MaxTime)
	if call.Forgotten || s.overlong.until == 0 && d <= s.MaxBackoff {
		change.Hold = max(min(d, s.MaxBackoff), 1)
		s.heldUntil = max(s.heldUntil, now+change.Hold)
		return
	}
	if s.overlong.extend(now, now+d, s.MaxBackoff, call.Probe) {
		// Calls in line get their turns at once, and fail.
		change.Restart = true
		if s.Learns {
			s.Pace = Unlimited
		}
	}
}

// overlong is a time that an answer stated and that is longer than Config.MaxBackoff. Meanwhile the
// key's calls fail at once, except a probe now and then, as the server may err.
type overlong struct {
	// until is its end, 0 if there is none.
	until time.Duration
	// probe is when the next probe may be sent, and pause the time before it, which doubles with each probe.
	probe, pause time.Duration
}

// extend begins an overlong time, or changes it, and reports whether it does. A probe's answer replaces the
// time; any other answer only lengthens it.
func (o *overlong) extend(now, until, pause time.Duration, byProbe bool) bool {
	switch {
	case o.until == 0:
		o.probe, o.pause = now+pause, pause
	case until < o.until && !byProbe:
		return false
	}
	o.until = until
	return true
}

// enter is State.Enter in an overlong time.
func (o *overlong) enter(now time.Duration, claims bool) (fails, probes bool) {
	if now < o.probe || !claims {
		return now < o.probe, false
	}
	o.pause = min(2*o.pause, answer.MaxTime)
	o.probe = now + o.pause
	return false, true
}
