package fleet

import (
	"errors"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ral-limiter/ral/fleet/internal/share"
	"github.com/ral-limiter/ral/fleet/internal/store"
	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/policy"
)

// catalog has the limits by which calls are decided.
type catalog struct {
	config Config
	// own are the terms of calls that bring no limit.
	own atomic.Pointer[terms]
	// change is the change of own.
	change change
	// others are the terms of calls that bring a limit.
	others otherTerms
	// byLimit leads from *store.Limit to *terms, for terms that have a share.
	byLimit sync.Map
	// maker makes limits. It has no client.
	maker *store.Store
	// local is the share of the own terms. It is nil except for FallbackShare, and under a limit in
	// flight.
	local *share.Local
	// divisor is the number of servers by which a share divides the limit. It is 0 if it is unknown or
	// there are no shares.
	divisor atomic.Int64
	// misfits counts the calls in error for their limit.
	misfits atomic.Uint64
}

// terms are a limit by which calls are decided, ready for Redis and the share. They do not change.
type terms struct {
	// policy is the policy as it was given.
	policy policy.Policy
	// limit is for Redis: of the policy or, in Leased mode, of its plan.
	limit *store.Limit
	// local is nil except for FallbackShare, and under a limit in flight.
	local *share.Local
	// maxTake is the most that can be taken at once.
	maxTake int64
	// wordless reports whether Redis keeps a set for a key of the limit in place of a word.
	wordless bool
	// maxUse is the time for which units may be in flight, and 0 under other limits.
	maxUse time.Duration
}

func newTerms(p policy.Policy, limit *store.Limit, local *share.Local) *terms {
	kept := limit.Policy()
	maxUse, _ := store.InFlightFor(kept)
	return &terms{policy: p, limit: limit, local: local, maxTake: kept.Limit(), wordless: store.Wordless(kept), maxUse: maxUse}
}

const (
	// maxLimits bounds the limits, different in text, that come with calls. Each has its share.
	maxLimits = 1024
	// maxPolicies bounds the policies known for them. Others are looked up by text.
	maxPolicies = 4 * maxLimits
)

// otherTerms are of limits that came with calls. Any number of goroutines may use them.
type otherTerms struct {
	// known leads from policy.Policy to *terms.
	known sync.Map

	mu sync.Mutex
	// policies is the number of policies in known.
	policies int
	// byText and made have the terms by their text, and in the order in which they were made.
	byText map[string]*terms
	made   []*terms
}

func (o *otherTerms) all() []*terms {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.made[:len(o.made):len(o.made)]
}

// under returns a call's terms: of limit, else of Config.PolicyFor's choice, else the limiter's
// own.
func (c *catalog) under(limit policy.Policy, key string) (*terms, error) {
	if err := store.CheckKey(key); err != nil {
		return nil, err
	}
	terms, err := c.find(limit, key)
	if err != nil && !errors.Is(err, ErrModeUnsupported) {
		c.misfits.Add(1)
	}
	return terms, err
}

// find is under without counting.
func (c *catalog) find(limit policy.Policy, key string) (*terms, error) {
	if limit == nil && c.config.PolicyFor != nil {
		limit = c.config.PolicyFor(key)
	}
	own := c.own.Load()
	switch {
	case limit == nil || shape.IsNil(limit):
		return own, nil
	case c.config.Mode == Leased:
		return nil, unsupported("a limit that comes with a call")
	}
	if comparable := reflect.TypeOf(limit).Comparable(); comparable {
		if limit == own.policy {
			return own, nil
		}
		if t, ok := c.others.known.Load(limit); ok {
			return c.reading(t.(*terms), own)
		}
	}
	t, err := c.learnLimit(limit)
	if err != nil {
		return nil, err
	}
	return c.reading(t, own)
}

// reading returns terms that came with a call, or ErrMisfit if they do not read own's words.
func (c *catalog) reading(terms, own *terms) (*terms, error) {
	if !terms.limit.Reads(own.limit) {
		return nil, fmt.Errorf("%w: %v, and the limiter's is %v", ErrMisfit, terms.policy, own.policy)
	}
	return terms, nil
}

// learnLimit makes the terms of a call's limit, or finds them by text.
func (c *catalog) learnLimit(p policy.Policy) (*terms, error) {
	otherTerms := &c.others
	text := p.String()
	otherTerms.mu.Lock()
	defer otherTerms.mu.Unlock()
	t, there := otherTerms.byText[text]
	if !there {
		if len(otherTerms.made) >= maxLimits {
			return nil, fmt.Errorf("%w: %v would be one more than %d", ErrTooManyLimits, p, maxLimits)
		}
		limit, err := c.newLimit(p)
		if field := (*policy.FieldError)(nil); errors.As(err, &field) {
			return nil, fmt.Errorf("%w: %v cannot be kept: want %s", ErrMisfit, p, field.Want)
		}
		local, err := c.newShare(p)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrMisfit, err)
		}
		t = newTerms(p, limit, local)
		if otherTerms.byText == nil {
			otherTerms.byText = map[string]*terms{}
		}
		otherTerms.byText[text] = t
		otherTerms.made = append(otherTerms.made, t)
		if local != nil {
			c.byLimit.Store(limit, t)
		}
	}
	if otherTerms.policies < maxPolicies && reflect.TypeOf(p).Comparable() {
		otherTerms.policies++
		otherTerms.known.Store(p, t)
	}
	return t, nil
}

// newLimit prepares a policy for Redis, unless time ends for it soon.
func (c *catalog) newLimit(p policy.Policy) (*store.Limit, error) {
	limit, err := c.maker.Limit(p)
	if err == nil {
		err = lasting(c.config, limit.Lasts())
	}
	return limit, err
}

// newShare returns another limit's share, which follows the limiter's own; nil if that is nil.
func (c *catalog) newShare(limit policy.Policy) (*share.Local, error) {
	if c.local == nil {
		return nil, nil
	}
	local, err := share.New(share.Config{Policy: c.config.anchored(limit), MaxKeys: c.config.MaxKeys, Full: c.config.FullShares, Name: store.Short})
	if err != nil {
		return nil, err
	}
	return local, local.Follow(c.local)
}

// shares returns all terms with a share, the limiter's own first.
func (c *catalog) shares() []*terms {
	if c.local == nil {
		return nil
	}
	return append([]*terms{c.own.Load()}, c.others.all()...)
}

// orOwn is under without Config.PolicyFor.
func (c *catalog) orOwn(limit policy.Policy, key string) (*terms, error) {
	if shape.IsNil(limit) {
		return c.own.Load(), nil
	}
	return c.under(limit, key)
}

// uncounted adds ErrUncounted to a cause if there is no share.
func (c *catalog) uncounted(cause error) error {
	if c.config.Outage == FallbackShare && c.divisor.Load() == 0 {
		return fmt.Errorf("%w; %w", cause, ErrUncounted)
	}
	return cause
}

type change struct {
	mu sync.Mutex
	// before are the policies that this server had, and that others may still keep.
	before []policy.Policy
}

// holdTo has p, with its limit, and all policies before hold. The caller locks change.mu.
func (c *catalog) holdTo(p policy.Policy, limit *store.Limit) error {
	kept, err := strictest(p, c.change.before)
	if err != nil {
		return err
	}
	if kept != p {
		if limit, err = c.maker.Limit(kept); err != nil {
			return err
		}
	}
	own := newTerms(p, limit, c.local)
	if c.local != nil {
		c.byLimit.Store(limit, own)
	}
	c.own.Store(own)
	return nil
}

// errPace says why a Bursty cannot follow another.
var errPace = errors.New("a Bursty of the same count and per: of two that drain differently none is known that admits what both do")

// strictest returns a policy that admits only calls that p and all the others admit, on the same
// words. Each unit costs a word at least as much as under any of them. It is admitted only if the
// bucket is as empty as each wants before the call. Limits that count in windows, and limits of one
// rate, admit on the same words as many as the larger, in any order. For them it returns p.
func strictest(p policy.Policy, others []policy.Policy) (policy.Policy, error) {
	shaped, ok := p.(shape.Shaped)
	if !ok {
		// The policy is a log.
		return p, nil
	}
	own := shaped.Shape()
	slow, differs := own, false
	all := []shape.Shape{own}
	for _, limit := range others {
		s := limit.(shape.Shaped).Shape()
		all = append(all, s)
		differs = differs || s.Interval != own.Interval
		if s.Interval > slow.Interval {
			slow = s
		}
	}
	switch {
	case !differs:
		return p, nil
	case own.Kind == shape.Bursty:
		return nil, errPace
	case own.Kind == shape.Queue:
		// A call of n units needs a queue n-1 units shorter than allowed.
		depth := slow.Depth
		for _, s := range all {
			depth = min(depth, s.Depth)
		}
		return policy.Queue(int64(depth/slow.Interval), slow.Count, slow.Per)
	}
	// A call of n units needs room for them. If they drain slower than under s, the bucket is
	// emptier before them than s wants, least for n = 1.
	depth := slow.Depth
	for _, s := range all {
		depth = min(depth, s.Depth-s.Interval+slow.Interval)
	}
	return policy.Funnel(int64(depth/slow.Interval), slow.Count, slow.Per)
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
	shaped, ok := of.policy.(shape.Shaped)
	if !ok || shaped.Shape().Kind != shape.Queue {
		return false
	}
	return patience >= time.Duration(shaped.Shape().Depth/ticks)
}

// ticks is how many of a shape's ticks a nanosecond has.
const ticks = 16

// remember has the share begin from Redis's answer about a key. late reports that it is some time old.
func (t *terms) remember(key string, got store.Taken, late bool) {
	if t.local == nil {
		return
	}
	word := got.After
	if t.wordless {
		word = t.local.Word(got.Limit-got.Remaining, got.At)
	}
	if late {
		t.local.LearnLate(key, word, got.At)
	} else {
		t.local.Learn(key, word, got.At)
	}
}
