package policy

import (
	"math"
	"time"
)

// Instant is a point in time: nanoseconds since the engine's epoch on a
// monotonic clock. The first instant of an engine is 1; 0 means "before
// everything", and instants below it are taken as 0.
type Instant int64

// Never is the RetryAfter of a call that is refused however long the caller waits: it
// asks for more than the limit, or for less than nothing.
const Never = time.Duration(math.MaxInt64)

// MaxWord is the largest word that a policy may return: 2^63 less a few. The table
// uses the top bit and the words above MaxWord itself, and passes none of those to a
// policy.
const MaxWord = 1<<63 - 17

// Policy is a limiting algorithm. Its methods are pure functions of their arguments
// and of the immutable parameters that it was made with, so any number of goroutines
// may call them at once. They must neither block nor panic: FreshAt also runs on the
// goroutine that owns the table.
//
// The word 0 is that of a key that was never used.
type Policy interface {
	// Take asks for n units at the instant now, for a key whose word is word.
	// An allowed call is recorded by storing next in place of word; until that
	// is done it has not happened. A refused call, and one for n == 0, returns
	// word itself.
	//
	// patience is the longest wait that the caller accepts; 0 or less means none. A
	// call that could start within it is allowed, and Decision.Wait says when. A
	// Queue delays calls without patience too; see there.
	//
	// n == 0 looks without taking and is always allowed. n < 0, and n above
	// Decision.Limit, are refused with Never.
	Take(word uint64, now Instant, n int64, patience time.Duration) (next uint64, d Decision)

	// FreshAt returns the instant from which word means the same as 0, so that
	// forgetting the key changes no answer. FreshAt(0) is 0.
	FreshAt(word uint64) Instant

	// Limit returns the most units that one call can take. It is the Limit of every
	// Decision.
	Limit() int64

	// Delays reports whether Take may return a Wait to an allowed call without
	// patience, as a Queue does.
	Delays() bool

	// String describes the limit. That of a limit of this package is a text that Parse
	// reads.
	String() string
}

// Choker is an optional interface of a Policy, for speed. Choke is Take of one unit
// without patience, and reports only whether the call is allowed. The two must always
// agree. All policies of this package implement it.
type Choker interface {
	Choke(word uint64, now Instant) (next uint64, allowed bool)
}

// Refunder is an optional interface of a Policy, for giving units back. All policies
// of this package implement it.
type Refunder interface {
	// Refund returns the word after n units are given back at the instant now. For n
	// < 0 it charges -n units more, whether the limit allows that or not. It gives
	// back no more units than the key has used that still count. Of a limit that
	// counts in windows it gives back no more than the current window has. Units that
	// do not fit the word are not charged.
	Refund(word uint64, now Instant, n int64) (next uint64)

	// Cancel returns the word after one take is undone: the one made at the instant
	// at, which left the word taken. n is the number of its units to give back; if
	// not all, they are its last. As many come back as possible without exceeding the
	// limit, assuming that later takes start when they were told to.
	//
	// undone is the number of units that other calls have given back since the take.
	// It may be an overestimate, never an underestimate. math.MaxInt64 means that
	// nothing is known of other calls, which may have taken under other limits of the
	// family.
	//
	// Cancel is not needed while the word is still taken and nothing was given back:
	// restoring the word from before undoes the take entirely.
	Cancel(word, taken uint64, at, now Instant, n, undone int64) (next uint64)
}

// Relative is an optional interface of a Policy, so that one limit can follow another
// for keys in use. All policies of this package implement it. Each constructor
// documents which limits are of one family.
type Relative interface {
	// Reads reports whether this policy understands the words of other unchanged, so
	// that calls under either can come in any order.
	Reads(other Policy) bool

	// Carry translates a word of the policy from, as it stands at now, when this
	// policy replaces it for good. The units that still count then count under this
	// policy too, up to as many as it allows. Promised turns are kept free: no other
	// call is admitted before the last of them. Changing to policies that allow as
	// many units and back again lets no call start sooner, for a word that counts no
	// more than this policy allows and was not translated before. ok is false if from
	// is of another family.
	Carry(from Policy, word uint64, now Instant) (next uint64, ok bool)
}

// Decision is the answer to one call. The zero Decision is a refusal.
type Decision struct {
	// Allowed reports whether the call may go ahead.
	Allowed bool
	// Limit is the most units that one call can take. An engine returns a Limit of 0
	// and a RetryAfter of Never if the limit that came with the call, or that
	// engine.PolicyFor chose, is of another family than its own. No policy of this package
	// answers with both.
	Limit int64
	// Remaining is the number of units that can be taken right now, after this call:
	// 0 <= Remaining <= Limit. Under a Bursty or a WarmingUp a single call may take
	// up to Limit on credit. Remaining is then the number of calls of one unit that
	// would be admitted now.
	Remaining int64
	// Wait is the delay after which an allowed call should start. It is 0 unless
	// patience was given, or the limit is a Queue.
	Wait time.Duration
	// RetryAfter is 0 for an allowed call. A refused call succeeds if it is repeated
	// after exactly this time, provided that no other call takes meanwhile; a
	// nanosecond sooner it is refused. It is Never if the call can never succeed.
	RetryAfter time.Duration
	// ResetAfter is the time until the key is as good as new.
	ResetAfter time.Duration
}

// Must returns p, and panics if err is not nil. It is for limits written in the
// program; for a limit from outside, handle the error.
func Must(p Policy, err error) Policy {
	if err != nil {
		panic(err)
	}
	return p
}
