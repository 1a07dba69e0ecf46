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

// MaxWord is the largest word that a policy may return. The words above it mark
// the stages of an entry's life in the table and are never given to a policy.
const MaxWord = math.MaxUint64 - 16

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
	// Decision.Wait says when.
	//
	// n == 0 looks without taking and is always allowed. n < 0, and n above
	// Decision.Limit, are refused with Never.
	Take(word uint64, now Instant, n int64, patience time.Duration) (next uint64, d Decision)

	// FreshAt returns the instant from which word means the same as 0, so that
	// forgetting the key changes no answer. FreshAt(0) is 0.
	FreshAt(word uint64) Instant

	// String describes the limit for people.
	String() string
}

// Choker is what a Policy may offer besides, for speed: Choke is Take of one
// unit without patience, and says only whether the call is allowed. The two
// must always agree.
type Choker interface {
	Choke(word uint64, now Instant) (next uint64, allowed bool)
}

// Decision is the answer to one call. The zero Decision is a refusal.
type Decision struct {
	// Allowed tells whether the call may go ahead.
	Allowed bool
	// Limit is the most that can be taken at once.
	Limit int64
	// Remaining is what can be taken right now, after this call:
	// 0 <= Remaining <= Limit.
	Remaining int64
	// Wait is how much later an allowed call should start. It is 0 unless
	// patience was given.
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
