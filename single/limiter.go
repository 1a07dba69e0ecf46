package single

import (
	"math"
	"sync"
	"sync/atomic"

	"github.com/ral-limiter/ral/internal/core/decide"
	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/internal/core/underway"
	"github.com/ral-limiter/ral/internal/core/waitline"
	"github.com/ral-limiter/ral/policy"
)

// Limiter limits how often calls may act, all together. New and MustNew make a Limiter. The zero
// Limiter refuses every call: with policy.Never, or with ErrNever if the call may wait. Its methods are
// safe for concurrent use. A Limiter must not be copied after its first use.
//
// Choke answers yes or no. Take also takes several units and returns how long to wait, TakeUpTo takes
// as many of them as there are, and Peek only looks. Wait, Acquire and Reserve are for calls that
// can come later. Admit, Hold, Look and LimitFor make a Limiter usable for package limits and the
// adapters on it.
type Limiter struct {
	// terms is nil only in the zero Limiter.
	terms atomic.Pointer[terms]
	time  timeSource

	maxWaiting int
	// lines is nil until a call waits.
	lines atomic.Pointer[waitline.Lines[struct{}, standing]]

	// mu is held by calls that lower the word or replace the terms. Takes go on meanwhile. Lock
	// order: the line, then mu.
	mu sync.Mutex
}

// terms are a policy and its word. SetPolicy makes new terms; only word, returned and next change.
//
// To use the word, load the terms, then their word. If the word is moved, go on with the successor.
type terms struct {
	word atomic.Uint64
	// returned counts units given back. The count grows before the word is lowered, by at least as
	// many, so that earlier takers notice that theirs may have moved. A caller that may give units
	// back reads the count before the word.
	returned atomic.Uint64

	policy policy.Policy
	// choker is nil without this fast path.
	choker policy.Choker
	// refunder is nil if the policy cannot give back.
	refunder policy.Refunder
	// remembered is set if takes have to be remembered, to be given back.
	remembered bool

	// inUse is nil unless units are in use until a release.
	inUse *inUse

	// log is of reservations and charges. Limiter.mu guards it.
	log underway.Log

	// next is set before the word is moved, and cleared once the Limiter has the new terms.
	next atomic.Pointer[terms]
}

// moved is the last word of replaced terms; no swap replaces it. Policies use up to policy.MaxWord.
const moved = math.MaxUint64

func newTerms(limit policy.Policy) *terms {
	t := &terms{policy: limit}
	t.choker, _ = limit.(policy.Choker)
	t.refunder, _ = limit.(policy.Refunder)
	_, restores := limit.(policy.Restorer)
	if occupier, ok := limit.(policy.Occupier); ok {
		t.inUse = &inUse{occupier: occupier}
		// take looks whether a call is in line.
		t.choker = nil
	}
	t.remembered = !restores && t.inUse == nil
	return t
}

// after returns the successor of t after its word was moved.
func (l *Limiter) after(t *terms) *terms {
	if next := t.next.Load(); next != nil {
		return next
	}
	// The terms are stored before next is cleared.
	return l.terms.Load()
}

// New returns a Limiter, or a *policy.FieldError for a nil policy or a bad option.
func New(limit policy.Policy, more ...Option) (*Limiter, error) {
	if shape.IsNil(limit) {
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
	limiter := &Limiter{time: newTimeSource(o), maxWaiting: o.maxWaiting}
	limiter.terms.Store(newTerms(limiter.time.anchored(limit)))
	return limiter, nil
}

// MustNew is New for a policy constructor's results, and panics on an error:
//
//	var limiter = single.MustNew(policy.Funnel(20, 10, time.Second))
func MustNew(limit policy.Policy, err error) *Limiter {
	limiter, err := New(policy.Must(limit, err))
	if err != nil {
		panic(err)
	}
	return limiter
}

func nilPolicy(of string) error {
	return &policy.FieldError{Of: of, Field: "policy", Value: "nil", Want: "a policy, such as policy.Funnel returns"}
}

// Choke reports whether the caller may act now, and takes a unit if so. Choke is Take(1).Allowed
// and the fastest call. Choke never waits and never allocates.
func (l *Limiter) Choke() bool {
	terms := l.terms.Load()
	if terms != nil && terms.choker != nil {
		now := l.time.now()
		for {
			word := terms.word.Load()
			if word > policy.MaxWord {
				// The terms were replaced.
				break
			}
			next, allowed := terms.choker.Choke(word, now)
			if next > policy.MaxWord {
				// The policy breaks its contract: see take.
				break
			}
			if !allowed {
				return false
			}
			// A successful swap hands the unit to this call.
			if terms.word.CompareAndSwap(word, next) {
				return true
			}
		}
	}
	var decision policy.Decision
	l.take(&request{n: 1}, &decision, nil)
	return decision.Allowed
}

// Allow is Choke under its name in golang.org/x/time/rate.
func (l *Limiter) Allow() bool { return l.Choke() }

// Take asks for n units now, and records them if allowed. n above the limit or below 0 is refused
// with policy.Never; n == 0 only looks. RetryAfter of a refusal is exact. Take never waits and
// never allocates.
func (l *Limiter) Take(n int64) (decision policy.Decision) {
	l.take(&request{n: n}, &decision, nil)
	return decision
}

// TakeUpTo takes n units if Take would, as a Bursty does on credit, and otherwise as many as remain.
// TakeUpTo returns how many, and the decision on these: a Take of one unit, refused, if none remain.
func (l *Limiter) TakeUpTo(n int64) (taken int64, decision policy.Decision) {
	var q request
	taken = decide.UpTo(n, &decision, func(n int64) {
		q.n = n
		l.take(&q, &decision, nil)
	})
	return taken, decision
}

// Peek returns the decision of Take(n) now: whether n units would pass, or how long until they do.
// Peek takes nothing. With n == 0 the decision is the state of the limit: only the zero Limiter's
// is not Allowed.
func (l *Limiter) Peek(n int64) policy.Decision { return l.probe(n, 0) }

// Limit returns the policy of New or the last SetPolicy, nil for the zero Limiter.
func (l *Limiter) Limit() policy.Policy {
	if t := l.terms.Load(); t != nil {
		return t.policy
	}
	return nil
}
