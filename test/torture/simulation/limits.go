package simulation

import (
	"time"

	"github.com/ral-limiter/ral/policy"
)

// limit wraps a policy of Ral's. It tells its decisions, and lets other goroutines run between the
// reading of the word and its swap.
type limit struct {
	policy.Policy
	s *scheduler

	// most returns the units that may be admitted in a window of length t, both ends included.
	most func(t int64) int64
	// after is set if takes are paid for afterwards: the last of them does not count.
	after bool
	// monotone is set if, after the clock went back, the limit holds only as if it had stood still.
	monotone bool
	aligned  bool
	// A funnel's figures, for the reference. interval is 0 for other limits.
	capacity, interval int64
	// longest is the longest time in use, and 0 for other limits. A unit that is not released ends no
	// later than part after it.
	longest, part time.Duration
}

const perUnit = 4 * time.Millisecond

func funnel(scheduler *scheduler, capacity int64, interval time.Duration) *limit {
	return &limit{
		Policy: policy.Must(policy.Funnel(capacity, 1, interval)), s: scheduler,
		most:     func(t int64) int64 { return capacity + t/int64(interval) },
		capacity: capacity, interval: int64(interval),
	}
}

// queue admits as a funnel that holds one unit more: the unit that is leaving.
func queue(scheduler *scheduler, capacity int64, interval time.Duration) *limit {
	return &limit{
		Policy: policy.Must(policy.Queue(capacity, 1, interval)), s: scheduler,
		most: func(t int64) int64 { return capacity + 1 + t/int64(interval) },
	}
}

func fixedWindow(scheduler *scheduler, most int64, per time.Duration) *limit {
	return &limit{
		Policy: policy.Must(policy.FixedWindow(most, per)), s: scheduler, monotone: true,
		most: func(t int64) int64 { return most * (1 + (t+int64(per)-1)/int64(per)) },
	}
}

func slidingWindow(scheduler *scheduler, most int64, per time.Duration) *limit {
	return &limit{
		Policy: policy.Must(policy.SlidingWindow(most, per)), s: scheduler, monotone: true,
		// One end of its windows is not included.
		most: func(t int64) int64 { return most + most*(t+1)/int64(per) },
	}
}

// atMost admits so many in each window of length per, ends included; several cover a longer window.
func atMost(scheduler *scheduler, most int64, per time.Duration) *limit {
	return &limit{
		Policy: policy.Must(policy.AtMost(most, per)), s: scheduler, monotone: true,
		most: func(t int64) int64 { return most * (1 + t/(int64(per)+1)) },
	}
}

// alignedWindow counts in windows of Unix time. A stretch of time meets at most one window more
// than its length, rounded up.
func alignedWindow(scheduler *scheduler, most int64, per time.Duration) *limit {
	limit := fixedWindow(scheduler, most, per)
	limit.Policy, limit.aligned = policy.Must(policy.AlignedWindow(most, per)), true
	return limit
}

func bursty(scheduler *scheduler, stored int64, interval time.Duration) *limit {
	return &limit{
		Policy: policy.Must(policy.Bursty(1, interval, stored)), s: scheduler,
		most:  func(t int64) int64 { return stored + t/int64(interval) },
		after: true, monotone: true,
	}
}

func warmingUp(scheduler *scheduler, warmup, interval time.Duration) *limit {
	return &limit{
		Policy: policy.Must(policy.WarmingUp(1, interval, warmup, 2)), s: scheduler,
		most:  func(t int64) int64 { return t / int64(interval) },
		after: true, monotone: true,
	}
}

func (l *limit) Take(word uint64, now policy.Instant, n int64, patience time.Duration) (uint64, policy.Decision) {
	read := l.s.steps
	l.s.Step("policy: take")
	next, decision := l.Policy.Take(word, now, n, patience)
	l.s.tell("take %d of %x at %d with patience %v: %x, %+v", n, word, now, patience, next, decision)
	if actor := l.s.current; actor != nil && decision.Allowed && n > 0 {
		actor.judged = judged{n, now + policy.Instant(decision.Wait), now, read}
	}
	return next, decision
}

func (l *limit) Choke(word uint64, now policy.Instant) (uint64, bool) {
	read := l.s.steps
	l.s.Step("policy: choke")
	if choker, ok := l.Policy.(policy.Choker); ok {
		next, allowed := choker.Choke(word, now)
		l.s.tell("choke %x at %d: %x, %v", word, now, next, allowed)
		if actor := l.s.current; actor != nil && allowed {
			actor.judged = judged{1, now, now, read}
		}
		return next, allowed
	}
	next, decision := l.Policy.Take(word, now, 1, 0)
	if actor := l.s.current; actor != nil && decision.Allowed {
		actor.judged = judged{1, now + policy.Instant(decision.Wait), now, read}
	}
	return next, decision.Allowed
}

// refunder is a limit whose units can be given back without their take.
type refunder struct{ *limit }

func (l refunder) Refund(word uint64, now policy.Instant, n int64) uint64 {
	l.s.Step("policy: refund")
	next := l.Policy.(policy.Refunder).Refund(word, now, n)
	l.s.tell("refund %d to %x at %d: %x", n, word, now, next)
	return next
}

func (l refunder) Cancel(word, taken uint64, takenAt, now policy.Instant, n, undone int64) uint64 {
	l.s.Step("policy: cancel")
	next := l.Policy.(policy.Refunder).Cancel(word, taken, takenAt, now, n, undone)
	l.s.tell("cancel %d of %x, which left %x at %d, at %d, with %d undone: %x", n, word, taken, takenAt, now, undone, next)
	return next
}

// exact is a limit whose takes need not be remembered.
type exact struct{ refunder }

func (l exact) Restore(word, before uint64, now policy.Instant) uint64 {
	next := l.Policy.(policy.Restorer).Restore(word, before, now)
	l.s.tell("restore %x of %x at %d: %x", before, word, now, next)
	return next
}

// whole returns the limit with all interfaces of its policy.
func (l *limit) whole() policy.Policy {
	if l.longest > 0 {
		return occupied{l}
	}
	if _, ok := l.Policy.(policy.Restorer); ok {
		return exact{refunder{l}}
	}
	return refunder{l}
}

// bare returns the policy of a limit, and other policies as they are: a saved policy is bare.
func bare(limit policy.Policy) policy.Policy {
	switch l := limit.(type) {
	case refunder:
		return l.Policy
	case exact:
		return l.Policy
	case occupied:
		return l.Policy
	}
	return limit
}

func (l *limit) Anchor(zero time.Time) policy.Policy {
	anchored := *l
	if a, ok := l.Policy.(policy.Anchored); ok {
		anchored.Policy = a.Anchor(zero)
	}
	return anchored.whole()
}

func (l *limit) Reads(other policy.Policy) bool {
	return bare(other) != other && l.Policy.(policy.Relative).Reads(bare(other))
}

func (l *limit) Carry(from policy.Policy, word uint64, now policy.Instant) (uint64, bool) {
	return l.Policy.(policy.Relative).Carry(bare(from), word, now)
}

// inFlight admits so many units at once, each for longest at most.
func inFlight(scheduler *scheduler, most int64, longest time.Duration) *limit {
	p := policy.Must(policy.InFlight(most, longest))
	return &limit{Policy: p, s: scheduler, capacity: most, longest: longest, part: longest/time.Duration(policy.Parts(p)) + 8}
}

// occupied is a limit of units in use.
type occupied struct{ *limit }

func (l occupied) Release(word, taken uint64, now policy.Instant, n int64) (uint64, bool) {
	l.s.Step("policy: release")
	next, ok := l.Policy.(policy.Occupier).Release(word, taken, now, n)
	l.s.tell("release %d of %x from %x at %d: %x, %v", n, taken, word, now, next, ok)
	return next, ok
}

func (l occupied) Extend(word, taken uint64, now policy.Instant, n int64) (uint64, bool) {
	l.s.Step("policy: extend")
	next, ok := l.Policy.(policy.Occupier).Extend(word, taken, now, n)
	l.s.tell("extend %d of %x in %x at %d: %x, %v", n, taken, word, now, next, ok)
	return next, ok
}

func (l occupied) Vacate(word uint64, now policy.Instant) uint64 {
	next := l.Policy.(policy.Occupier).Vacate(word, now)
	l.s.tell("vacate %x at %d: %x", word, now, next)
	return next
}

func (l occupied) LayoutMask() uint64 {
	return l.Policy.(interface{ LayoutMask() uint64 }).LayoutMask()
}

func (l occupied) Alone(word uint64) uint64 {
	return l.Policy.(interface{ Alone(word uint64) uint64 }).Alone(word)
}
