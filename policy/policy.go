package policy

import (
	"math"
	"time"
)

// Instant is a point in time: nanoseconds since the engine's epoch on a
// monotonic clock. The first instant of an engine is 1; 0 means "before
// everything", and instants below it are taken as 0.
type Instant int64

// Never is the RetryAfter of a call that can never be admitted, however long
// the caller waits: it asks for more than the limit, or for less than nothing.
const Never = time.Duration(math.MaxInt64)

// MaxWord is the largest word that a policy may return: 63 bits, less a few. The
// table needs the last bit, and the words above MaxWord, for its own purposes, and
// never gives one of those to a policy.
const MaxWord = 1<<63 - 17

// Policy is a limiting algorithm. Its methods are pure functions of their
// arguments and of the immutable parameters that it was made with, so any
// number of goroutines may call them at once. They must neither block nor
// panic: FreshAt runs on the goroutine that owns the table as well.
//
// The word 0 is that of a key that was never used.
type Policy interface {
	// Take asks for n units at the instant now, for a key whose word is word.
	// An allowed call is recorded by storing next in place of word; until that
	// is done it has not happened. A refused call, and one for n == 0, returns
	// word itself.
	//
	// patience is how long the caller would wait for its turn, 0 or less for
	// not at all: a call that could start within it is allowed, and
	// Decision.Wait says when. (A Queue makes everybody wait; see there.)
	//
	// n == 0 looks without taking and is always allowed. n < 0, and n above
	// Decision.Limit, are refused with Never.
	Take(word uint64, now Instant, n int64, patience time.Duration) (next uint64, d Decision)

	// FreshAt returns the instant from which word means the same as 0, so that
	// forgetting the key changes no answer. FreshAt(0) is 0.
	FreshAt(word uint64) Instant

	// Limit returns the most units that one call can take, which is every decision's
	// Limit.
	Limit() int64

	// Delays reports whether Take may tell an allowed call without patience to wait, as
	// a Queue does.
	Delays() bool

	// String describes the limit for people.
	String() string
}

// Choker is what a Policy may offer besides, for speed: Choke is Take of one
// unit without patience, and says only whether the call is allowed. The two
// must always agree.
type Choker interface {
	Choke(word uint64, now Instant) (next uint64, allowed bool)
}

// Refunder is what a Policy offers besides, so that units can be given back. All
// policies of this package do.
type Refunder interface {
	// Refund returns the word after n units are given back at the instant now or,
	// for n < 0, after -n more are charged, whether the limit allows that or not.
	// It gives back no more than the key has used that still counts, and of a limit
	// that counts in windows no more than the current one has. What a word cannot
	// hold is not charged.
	Refund(word uint64, now Instant, n int64) (next uint64)

	// Cancel returns the word after one take is undone: the take that was made at the
	// instant at, and left the word taken. n is how many of its units are given back,
	// the last ones if not all. As many are as can be without admitting more than the
	// limit to those who come next, given that those who took since start when they
	// were told to.
	//
	// undone is how many units others have given back since the take, or more than
	// that, as its own may not be where they were. math.MaxInt64 says that nothing is
	// known of others, who may have taken under other limits of the family.
	//
	// While the word is still what the take left, and nothing was given back, nobody
	// need call this: putting back the word from before undoes the take entirely.
	Cancel(word, taken uint64, at, now Instant, n, undone int64) (next uint64)
}

// Relative is what a Policy offers besides, so that one limit can follow another
// for keys in use. All policies of this package do; which are of one family, each
// constructor tells.
type Relative interface {
	// Reads reports whether this policy understands the words of other as they are,
	// so that calls under either can come in any order.
	Reads(other Policy) bool

	// Carry translates a word of another policy, as it stands at now, when this
	// policy takes over for good. The units that count then count under this policy
	// too, up to as many as it allows. Promised turns are kept free: no other call is
	// admitted before the last of them. Changing to policies that allow as many units and back again lets no call start
	// sooner. ok is false if from is of another family.
	Carry(from Policy, word uint64, now Instant) (next uint64, ok bool)
}

// Decision is the answer to one call. The zero Decision is a refusal.
type Decision struct {
	// Allowed tells whether the call may go ahead.
	Allowed bool
	// Limit is the most that can be taken at once. An engine answers with a Limit of 0
	// and a RetryAfter of Never if the limit that came with the call, or that
	// engine.PolicyFor chose, is of another family than its own. No other answer has both.
	Limit int64
	// Remaining is what can be taken right now, after this call: 0 <= Remaining <= Limit.
	// Under a Bursty or a WarmingUp a single call may take up to Limit on credit.
	// Remaining is then how many calls of one unit would be admitted now.
	Remaining int64
	// Wait is how much later an allowed call should start. It is 0 unless
	// patience was given, or the limit is a Queue.
	Wait time.Duration
	// RetryAfter is 0 for an allowed call. A refused one, made again after
	// exactly this long, succeeds if nobody else takes in the meantime; a
	// nanosecond sooner it is refused. Never if it can never succeed.
	RetryAfter time.Duration
	// ResetAfter is how long it takes until the key is as good as new.
	ResetAfter time.Duration
}

// Must returns p, and panics if err is not nil. It is for limits written down
// in the program; a limit that comes from outside deserves its error handled.
func Must(p Policy, err error) Policy {
	if err != nil {
		panic(err)
	}
	return p
}
