package single

import (
	"math"
	"sync"
	"sync/atomic"

	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/internal/core/underway"
	"github.com/ral-limiter/ral/internal/core/waitline"
	"github.com/ral-limiter/ral/policy"
)

// Limiter limits how often calls may act, all together. New and MustNew make one. The
// zero Limiter has no policy and refuses every call: with policy.Never, or with ErrNever
// if the call may wait. Any number of goroutines may call its methods. It must not be
// copied after its first use.
//
// Reach for Choke if yes or no is enough, for Take if a call costs more than one unit or
// the answer must say how long to wait, and for Peek to look. Wait, Acquire and Reserve
// are for calls that would rather come later than not at all.
type Limiter struct {
	terms atomic.Pointer[terms] // nil only in the zero Limiter
	time  timeSource

	maxWaiting int
	lines      atomic.Pointer[waitline.Lines[struct{}, standing]] // nil until a call waits

	// mu is held by calls that lower the word or replace the terms. Takes go on
	// meanwhile. The lock of the line comes before it.
	mu sync.Mutex
}

// terms are a policy and the word that it reads. A change of policy makes new ones. Only
// their word and returned change, and next.
//
// To use the word: load the terms of the Limiter, and then their word. If that is moved,
// the terms have been replaced: go on with the successor.
type terms struct {
	word atomic.Uint64
	// returned counts the units that were given back. It grows before the word is lowered,
	// by at least as many units, so that earlier takers notice that theirs may have moved.
	// A caller that may want to give its units back reads it before the word.
	returned atomic.Uint64

	policy   policy.Policy
	choker   policy.Choker   // nil if the policy has no such fast path
	refunder policy.Refunder // nil if the policy cannot give back

	log underway.Log // of reservations; guarded by Limiter.mu

	// next is set before the word is moved, and cleared once the Limiter has the new terms.
	next atomic.Pointer[terms]
}

// moved is the last word of terms that were replaced. No swap replaces it. Words up to
// policy.MaxWord belong to the policy.
const moved = math.MaxUint64

func newTerms(p policy.Policy) *terms {
	t := &terms{policy: p}
	t.choker, _ = p.(policy.Choker)
	t.refunder, _ = p.(policy.Refunder)
	return t
}

// after returns the terms that came after t, whose word is moved.
func (l *Limiter) after(t *terms) *terms {
	if next := t.next.Load(); next != nil {
		return next
	}
	return l.terms.Load() // next is cleared after these are stored
}

// New returns a Limiter that holds the policy. The error is a *policy.FieldError if the
// policy is nil, or an option is not acceptable.
func New(p policy.Policy, more ...Option) (*Limiter, error) {
	if shape.IsNil(p) {
		return nil, nilPolicy("single.New")
	}
	o := options{maxWaiting: defaultMaxWaiting}
	for _, option := range more {
		if option == nil {
			return nil, &policy.FieldError{Of: "single.New", Field: "more", Value: "nil", Want: "an option, such as MaxWaiting returns"}
		}
		if err := option(&o); err != nil {
			return nil, err
		}
	}
	l := &Limiter{time: newTimeSource(o), maxWaiting: o.maxWaiting}
	l.terms.Store(newTerms(l.time.anchored(p)))
	return l, nil
}

// MustNew is New of what a constructor of package policy returns, and panics if there is
// an error. It is for limits written in the program:
//
//	var limiter = single.MustNew(policy.Funnel(20, 10, time.Second))
func MustNew(p policy.Policy, err error) *Limiter {
	l, err := New(policy.Must(p, err))
	if err != nil {
		panic(err)
	}
	return l
}

// nilPolicy returns the error about a policy that is nil.
func nilPolicy(of string) error {
	return &policy.FieldError{Of: of, Field: "policy", Value: "nil", Want: "a policy, such as policy.Funnel returns"}
}

// Choke reports whether the caller may act now, and records it if so: true passes. It is
// Take(1).Allowed, and the fastest call there is. It never waits and never allocates.
func (l *Limiter) Choke() bool {
	t := l.terms.Load()
	if t != nil && t.choker != nil {
		// What follows is take for one unit.
		now := l.time.now()
		for {
			word := t.word.Load()
			if word > policy.MaxWord {
				break // moved: these terms have been replaced
			}
			next, allowed := t.choker.Choke(word, now)
			if next > policy.MaxWord {
				break // a policy that breaks its contract: take deals with it
			}
			if !allowed {
				return false
			}
			// A swap that succeeds hands the unit to this call. Nothing else has to agree.
			if t.word.CompareAndSwap(word, next) {
				return true
			}
		}
	}
	var d policy.Decision
	l.take(&request{n: 1}, &d, nil)
	return d.Allowed
}

// Allow is Choke under the name that users of golang.org/x/time/rate look for.
func (l *Limiter) Allow() bool { return l.Choke() }

// Take asks for n units now, and records them if they are allowed. More than the limit,
// and less than none, is refused with policy.Never. n == 0 looks without taking.
// RetryAfter of a refusal is exact. Take never waits and never allocates.
func (l *Limiter) Take(n int64) (d policy.Decision) {
	l.take(&request{n: n}, &d, nil)
	return d
}

// Peek returns the state of the limit. It takes nothing. The decision is always Allowed,
// since it asked for nothing, except that of the zero Limiter.
func (l *Limiter) Peek() (d policy.Decision) {
	l.take(&request{}, &d, nil)
	return d
}

// Limit returns the policy that New was given, or that SetPolicy has put in its place. It
// is nil for the zero Limiter.
func (l *Limiter) Limit() policy.Policy {
	if t := l.terms.Load(); t != nil {
		return t.policy
	}
	return nil
}
