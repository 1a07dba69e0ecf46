package policy

import (
	"fmt"
	"math"
	"time"
)

// Instant is a point in time: nanoseconds since the engine's epoch on a monotonic clock. The
// first is 1; 0 means "before everything", and lower values are taken as 0.
type Instant int64

// Never is the RetryAfter of a call that can never succeed.
const Never = time.Duration(math.MaxInt64)

// MaxWord is the largest word that a policy may return, slightly below 2^63. The table uses the
// words above it, and never passes them to a policy.
const MaxWord = 1<<63 - 17

// Policy is a limiting algorithm. Its methods are pure functions of their arguments and of
// immutable parameters, so any number of goroutines may call them at once. They must neither
// block nor panic: FreshAt also runs on the goroutine that owns the table. Word 0 belongs to a
// key that was never used.
type Policy interface {
	// Take asks for n units at the instant now, for a key with that word. Storing next in place
	// of word records an allowed call; until then it has not happened. A refused call, or n == 0,
	// returns word itself.
	//
	// patience is the longest wait that the caller accepts; 0 or less means none. A call that
	// could start within it is allowed, and Decision.Wait says when. A [Queue] delays calls
	// without patience too. n == 0 looks without taking and is always allowed. n < 0, and n above
	// Decision.Limit, are refused with Never.
	Take(word uint64, now Instant, n int64, patience time.Duration) (next uint64, d Decision)

	// FreshAt returns the instant from which word means the same as 0, so that forgetting the key
	// changes no answer. FreshAt(0) is 0.
	FreshAt(word uint64) Instant

	// Limit returns the most units that a call can take: the Limit of every Decision.
	Limit() int64

	// Delays reports whether Take may return a Wait without patience, as a Queue does.
	Delays() bool

	// String describes the limit. Parse reads the String of a limit of this package.
	String() string
}

// Choker is an optional interface of a Policy, for speed. Choke is Take of a unit without
// patience, and reports only whether it is allowed. The two must always agree. All policies of
// this package implement it.
type Choker interface {
	Choke(word uint64, now Instant) (next uint64, allowed bool)
}

// Refunder is an optional interface of a Policy, for giving units back. All policies of this
// package implement it except [InFlight], which is an [Occupier].
type Refunder interface {
	// Refund returns the word after n units are given back at now. n < 0 charges -n units,
	// whether the limit allows that or not; units that do not fit the word are not charged. No
	// more comes back than was used and still counts. Limits that count in windows give back no
	// more than the current window has.
	Refund(word uint64, now Instant, n int64) (next uint64)

	// Cancel returns the word after a take is undone: the take at the instant at, which left
	// the word taken. The last n of its units come back, as far as the limit is not exceeded if
	// later takes start when they were told to.
	//
	// undone is the number of units that other calls have given back since. It may be an
	// overestimate, never an underestimate. math.MaxInt64 means that nothing is known of other
	// calls, which may have taken under other limits of the family. Cancel is not needed while
	// the word is still taken and nothing was given back: restoring the previous word undoes the
	// take entirely.
	//
	// A give-back never refuses a call: at no instant, now or later, does less remain with next
	// than with word.
	Cancel(word, taken uint64, at, now Instant, n, undone int64) (next uint64)
}

// Restorer is an optional interface of a [Refunder] whose words suffice to give back exactly. Its
// Cancel gives back all units of a take that still count, unless a turn was promised behind them.
// Takes under other policies must be remembered for that, since a word does not tell how much of
// each take has drained. All policies of this package implement it except [Funnel], [Bursty] and
// [InFlight].
type Restorer interface {
	// Restore returns the word after a take is undone, if no other call has changed the key since.
	// word is the key's word at now. before is the word from before the take or, if a part of its
	// units was used, the word that a take of that part would have left. Restore returns before
	// unless a give-back leaves a trace: a [FixedWindow] stays where it opened, and a [WarmingUp]
	// stays as warm as it was. Otherwise later calls could be refused because of the give-back.
	Restore(word, before uint64, now Instant) (next uint64)
}

// untraced is the Restorer of a policy whose give-backs leave no trace.
type untraced struct{}

func (untraced) Restore(_, before uint64, _ Instant) uint64 { return before }

// Relative is an optional interface of a Policy: limits of one family, as each constructor
// documents it, can follow each other for keys in use. All policies of this package implement it.
type Relative interface {
	// Reads reports whether this policy understands the words of other unchanged, so that calls
	// under either can come in any order.
	Reads(other Policy) bool

	// Carry translates a word of the policy from, as it stands at now, when this policy replaces
	// it for good. Units that still count keep counting, up to as many as this policy allows. No
	// call is admitted before the last promised turn. Changing to policies that allow as many
	// units and back lets no call start sooner, for a word that counts no more than this policy
	// allows and was not translated before. ok is false if from is of another family.
	Carry(from Policy, word uint64, now Instant) (next uint64, ok bool)
}

// Windowed is an optional interface of a Policy, for telling clients "so many in so long". All
// policies of this package implement it. An [InFlight] has its longest time as a window: so many
// units pass in it even if none is released.
type Windowed interface {
	// Window returns the time in which Decision.Limit units pass in the long run, rounded up. It
	// is the period of a limit that counts in windows, for a [CalendarWindow] the exact mean. An
	// [AtMost] sustains less. A longer time than a duration holds becomes the longest.
	Window() time.Duration
}

// Decision is the answer to a call. The zero Decision is a refusal.
type Decision struct {
	// Allowed reports whether the call may go ahead.
	Allowed bool
	// Limit is the most units that a call can take. An engine returns 0, with a RetryAfter of
	// Never, if the call's own limit, or engine.PolicyFor's, is of another family. No policy of
	// this package returns both.
	Limit int64
	// Remaining is the number of units, from 0 to Limit, that can be taken right now, after this
	// call. Under a Bursty or a WarmingUp, which grant up to Limit on credit, it counts the calls
	// of one unit that would be admitted now.
	Remaining int64
	// Wait is the delay after which an allowed call should start. It is 0 without patience,
	// except under a Queue.
	Wait time.Duration
	// RetryAfter is 0 for an allowed call. A refused call succeeds if repeated after exactly this
	// time and no other call takes meanwhile; a nanosecond sooner it is refused. It is [Never] if
	// it can never succeed.
	RetryAfter time.Duration
	// ResetAfter is the time until the key is as if it had never been used.
	ResetAfter time.Duration
}

// String returns a line for logs, whose form may change: "admitted, 6 of 10 left, all in 4s",
// "admitted after 2s, 0 of 10 left, all in 12s", "refused for 1.5s, 0 of 10 left, all in 9.5s" or
// "refused for ever, of 10".
func (d Decision) String() string {
	left := fmt.Sprintf("%d of %d left", d.Remaining, d.Limit)
	if d.ResetAfter > 0 {
		left = fmt.Sprintf("%s, all in %v", left, d.ResetAfter)
	}
	switch {
	case d.Allowed && d.Wait > 0:
		return fmt.Sprintf("admitted after %v, %s", d.Wait, left)
	case d.Allowed:
		return "admitted, " + left
	case d.RetryAfter == Never:
		return fmt.Sprintf("refused for ever, of %d", d.Limit)
	}
	return fmt.Sprintf("refused for %v, %s", d.RetryAfter, left)
}

// Must returns limit, and panics if err is not nil. Use it for limits written in the program.
func Must(limit Policy, err error) Policy {
	if err != nil {
		panic(err)
	}
	return limit
}
