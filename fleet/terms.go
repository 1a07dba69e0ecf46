package fleet

import (
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/ral-limiter/ral/fleet/internal/share"
	"github.com/ral-limiter/ral/fleet/internal/slidinglog"
	"github.com/ral-limiter/ral/fleet/internal/store"
	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/policy"
)

// terms are a limit by which calls are decided, ready for Redis and the share. They do not change.
type terms struct {
	policy policy.Policy // as it was given
	limit  *store.Limit  // for Redis: of the policy or, in Leased mode, of its plan
	local  *share.Local  // nil except for FallbackShare
	most   int64         // that can be taken at once
	logged bool          // it is a SlidingLog, which has no words in Redis
}

func newTerms(p policy.Policy, limit *store.Limit, local *share.Local) *terms {
	kept := limit.Policy()
	_, logged := kept.(*slidinglog.Log)
	return &terms{policy: p, limit: limit, local: local, most: kept.Limit(), logged: logged}
}

const (
	// mostLimits bounds the limits, different in text, that come with calls. Each has its share.
	mostLimits = 1024
	// mostPolicies bounds the policies known for them. Others are looked up by text.
	mostPolicies = 4 * mostLimits
)

// otherTerms are of limits that came with calls. Any number of goroutines may use them.
type otherTerms struct {
	known sync.Map // policy.Policy to *terms

	mu       sync.Mutex
	policies int               // in known
	byText   map[string]*terms // in the order of made
	made     []*terms
}

func (o *otherTerms) all() []*terms {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.made[:len(o.made):len(o.made)]
}

// under returns a call's terms: of limit, else of Config.PolicyFor's choice, else the limiter's
// own.
func (l *Limiter) under(limit policy.Policy, key string) (*terms, error) {
	if err := store.CheckKey(key); err != nil {
		return nil, err
	}
	t, err := l.find(limit, key)
	if err != nil && !errors.Is(err, ErrModeUnsupported) {
		l.tally.misfits.Add(1)
	}
	return t, err
}

// find is under without counting.
func (l *Limiter) find(limit policy.Policy, key string) (*terms, error) {
	if limit == nil && l.config.PolicyFor != nil {
		limit = l.config.PolicyFor(key)
	}
	own := l.own.Load()
	switch {
	case limit == nil || shape.IsNil(limit):
		return own, nil
	case l.leased != nil:
		return nil, unsupported("a limit that comes with a call")
	}
	if comparable := reflect.TypeOf(limit).Comparable(); comparable {
		if limit == own.policy {
			return own, nil
		}
		if t, ok := l.others.known.Load(limit); ok {
			return l.reading(t.(*terms), own)
		}
	}
	t, err := l.learnLimit(limit)
	if err != nil {
		return nil, err
	}
	return l.reading(t, own)
}

// reading returns terms that came with a call, or ErrMisfit if they do not read own's words.
func (l *Limiter) reading(t, own *terms) (*terms, error) {
	if !t.limit.Reads(own.limit) {
		return nil, fmt.Errorf("%w: %v, and the limiter's is %v", ErrMisfit, t.policy, own.policy)
	}
	return t, nil
}

// learnLimit makes the terms of a call's limit, or finds them by text.
func (l *Limiter) learnLimit(p policy.Policy) (*terms, error) {
	o := &l.others
	text := p.String()
	o.mu.Lock()
	defer o.mu.Unlock()
	t, there := o.byText[text]
	if !there {
		if len(o.made) >= mostLimits {
			return nil, fmt.Errorf("%w: %v would be one more than %d", ErrTooManyLimits, p, mostLimits)
		}
		limit, err := l.maker.Limit(p)
		if err == nil {
			err = lasting(l.config, limit.Lasts())
		}
		if field := (*policy.FieldError)(nil); errors.As(err, &field) {
			return nil, fmt.Errorf("%w: %v cannot be kept: want %s", ErrMisfit, p, field.Want)
		}
		local, err := l.newShare(p)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrMisfit, err)
		}
		t = newTerms(p, limit, local)
		if o.byText == nil {
			o.byText = map[string]*terms{}
		}
		o.byText[text] = t
		o.made = append(o.made, t)
		if local != nil {
			l.byLimit.Store(limit, t)
		}
	}
	if o.policies < mostPolicies && reflect.TypeOf(p).Comparable() {
		o.policies++
		o.known.Store(p, t)
	}
	return t, nil
}

// newShare returns another limit's share, which follows the limiter's own; nil if that is nil.
func (l *Limiter) newShare(p policy.Policy) (*share.Local, error) {
	if l.local == nil {
		return nil, nil
	}
	local, err := share.New(share.Config{Policy: l.config.anchored(p), MaxKeys: l.config.MaxKeys, Full: l.config.FullShares, Name: store.Short})
	if err != nil {
		return nil, err
	}
	return local, local.Follow(l.local)
}

// shares returns all terms with a share, the limiter's own first.
func (l *Limiter) shares() []*terms {
	if l.local == nil {
		return nil
	}
	return append([]*terms{l.own.Load()}, l.others.all()...)
}

// Limit returns the limiter's own limit: Config.Policy, or its replacement by SetPolicy.
func (l *Limiter) Limit() policy.Policy { return l.own.Load().policy }

// LimitFor returns the key's limit now: Config.PolicyFor's choice, or otherwise Limit. In Leased
// mode a Funnel has a smaller burst. It does not ask Redis.
func (l *Limiter) LimitFor(key string) policy.Policy {
	if l.config.PolicyFor != nil {
		if p := l.config.PolicyFor(key); p != nil && !shape.IsNil(p) {
			return p
		}
	}
	if l.leased != nil {
		return l.leased.plan.Policy
	}
	return l.Limit()
}

// orAtOnce has zero patience hold also under a policy that delays calls.
func (of *terms) orAtOnce(patience time.Duration) time.Duration {
	if of.policy.Delays() {
		return max(patience, 1)
	}
	return patience
}

// crowds reports whether such patience is refused only for want of a place in a policy.Queue.
func (of *terms) crowds(patience time.Duration) bool {
	s, ok := of.policy.(shape.Shaped)
	if !ok || s.Shape().Kind != shape.Queue {
		return false
	}
	return patience >= time.Duration(s.Shape().Depth/ticks)
}

// ticks is how many of a shape's ticks a nanosecond has.
const ticks = 16

// remember has the share begin from Redis's answer about a key. late reports that it is some time old.
func (t *terms) remember(key string, got store.Taken, late bool) {
	if t.local == nil {
		return
	}
	word := got.After
	if t.logged {
		word = t.local.Word(got.Limit-got.Remaining, got.At)
	}
	if late {
		t.local.LearnLate(key, word, got.At)
	} else {
		t.local.Learn(key, word, got.At)
	}
}
