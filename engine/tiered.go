package engine

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"time"

	"github.com/ral-limiter/ral/cell"
	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/policy"
)

// Tiered holds several limits on each key at once, such as 10 a second and 1,000 an hour. A call
// passes if all of them let it pass, and then counts for all. A refused call counts for none, as
// with TakeAll. Call NewTiered to make one; the zero value has no limits, and lets everything pass.
// Its methods are safe for concurrent use. Each limit has its own engine and keys.
type Tiered[K comparable] struct{ engines []*Engine[K] }

// maxTiers bounds the limits of a Tiered, so that a call on them needs no allocation.
const maxTiers = 8

// NewTiered starts an engine for Config.Policy and one for each further policy, at most 8 in all,
// each with this Config otherwise. The error, if any, is a *policy.FieldError that names the field.
func NewTiered[K comparable](config Config, further ...policy.Policy) (*Tiered[K], error) {
	if len(further) >= maxTiers {
		return nil, &policy.FieldError{Of: "engine.NewTiered", Field: "further", Value: len(further), Want: "7 policies at the most"}
	}
	t := &Tiered[K]{}
	path := config.State.Path
	config.seed = maphash.MakeSeed() // shared, so that a call hashes its key once
	for i := -1; i < len(further); i++ {
		if i >= 0 {
			if path != "" {
				config.State.Path = tierName(path, i+1)
			}
			if config.Policy = further[i]; shape.IsNil(config.Policy) {
				t.abandon()
				return nil, &policy.FieldError{
					Of: "engine.NewTiered", Field: fmt.Sprintf("further[%d]", i), Value: "nil", Want: "a policy, such as policy.Funnel returns",
				}
			}
		}
		e, err := New[K](config)
		if err != nil {
			t.abandon()
			return nil, err
		}
		t.engines = append(t.engines, e)
	}
	return t, nil
}

func tierName(first string, index int) string {
	if index == 0 {
		return first
	}
	return fmt.Sprintf("%s.%d", first, index+1)
}

// abandon closes unused engines without saving under limits that may be mistaken.
func (t *Tiered[K]) abandon() {
	for _, e := range t.engines {
		if e.keeper != nil {
			_ = e.keeper.abandon()
		}
	}
	_ = t.Close()
}

// Choke reports whether the key may act now under every limit, and takes a unit if so.
func (t *Tiered[K]) Choke(key K) bool {
	c := tieredCall[K]{tiers: t, key: key, n: 1}
	if allowed, decided := c.take(nil); decided {
		return allowed
	}
	d, _ := c.takeRest(nil)
	return d.Allowed
}

// Take asks every limit for n units, and records them if all allow it. Limit and Remaining are the
// smallest of all limits, RetryAfter and ResetAfter the longest. n == 0 looks without taking. For a
// known key it never waits and never allocates.
func (t *Tiered[K]) Take(key K, n int64) (all policy.Decision) {
	all, _ = t.take(key, n)
	return all
}

func (t *Tiered[K]) take(key K, n int64) (all policy.Decision, recorded bool) {
	var decisions [maxKnown]policy.Decision
	c := tieredCall[K]{tiers: t, key: key, n: n}
	allowed, decided := c.take(&decisions)
	if !decided {
		return c.takeRest(&decisions)
	}
	all.Allowed = allowed
	for i := range t.engines {
		d := &decisions[i]
		if !allowed && d.Allowed { // nothing was taken
			c.offers[i].Look(d)
		}
		combine(&all, d, i == 0)
	}
	return all, true
}

// tieredCall is a call on a key under all limits of a Tiered. If all engines know the key, each
// offers its take, and then each take is one swap.
type tieredCall[K comparable] struct {
	tiers   *Tiered[K]
	key     K
	n       int64
	offers  [maxKnown]cell.Offer
	refuses [maxKnown]bool
	taken   int // number of offers accepted
}

// take takes by offers from all engines, or from none. decisions may be nil if n is 1. decided is
// false if takeRest is to go on.
func (c *tieredCall[K]) take(decisions *[maxKnown]policy.Decision) (allowed, decided bool) {
	engines := c.tiers.engines
	if len(engines) > maxKnown {
		return false, false
	}
	var now moment
	var hash uint64
	allowed = true
	for i, e := range engines {
		// Engines of a Tiered share a seed, but a test's may not.
		if i == 0 || e.cell.Seed() != engines[i-1].cell.Seed() {
			if hash, decided = e.cell.Hash(c.key); !decided {
				return false, false
			}
		}
		o := &c.offers[i]
		o.At = e.time.read(&now)
		if o.Level, o.Terms, o.Before, o.Returned = e.cell.Known(c.key, hash, o.At); o.Level == nil {
			return false, false
		}
		one := false
		if decisions == nil {
			one, decided = o.TakeOne()
		} else {
			decided = o.Take(c.n, &decisions[i])
			one = decisions[i].Allowed
		}
		if !decided {
			return false, false
		}
		c.refuses[i] = !one
		allowed = allowed && one
	}
	if allowed {
		for i := range engines {
			if !c.offers[i].Accept() {
				c.taken = i
				return false, false
			}
		}
	}
	for i, e := range engines {
		switch {
		case allowed:
			e.cell.Tally().CountAdmitted()
			if e.cell.Warns() {
				e.cell.WarnOfOffer(c.key, &c.offers[i])
			}
		case !c.refuses[i]:
		case decisions == nil:
			e.cell.Count(c.key, &policy.Decision{}, cell.Basis{})
		default:
			e.cell.Count(c.key, &decisions[i], cell.Basis{})
		}
	}
	return allowed, true
}

// takeRest goes on after take, for any key. recorded reports whether all limits recorded the key.
func (c *tieredCall[K]) takeRest(decisions *[maxKnown]policy.Decision) (all policy.Decision, recorded bool) {
	engines := c.tiers.engines
	var room [maxTiers]keyRequest[tier[K], cell.Held[K]]
	m := multiTake[tier[K], cell.Held[K]]{keys: room[:len(engines)], order: asMade[:len(engines)]}
	for i, e := range engines {
		k := &m.keys[i]
		k.claim, k.n = tier[K]{e.cell, c.key}, c.n
		if i >= c.taken {
			continue
		}
		if k.decision.Allowed = true; decisions != nil {
			k.decision = decisions[i]
		}
		k.held, k.taken = e.cell.Held(&c.offers[i], cell.Remembered{}, c.n), true
		k.basis = e.cell.OfferBasis(&c.offers[i])
	}
	all.Allowed, recorded = m.take(c.taken), true
	m.countAnswers(all.Allowed)
	for i := range m.keys {
		combine(&all, &m.keys[i].decision, i == 0)
		recorded = recorded && m.keys[i].basis.Recorded()
	}
	return all, recorded
}

var asMade = []int{0, 1, 2, 3, 4, 5, 6, 7}

func combine(all, d *policy.Decision, first bool) {
	if first {
		all.Limit, all.Remaining = d.Limit, d.Remaining
	}
	all.Limit = min(all.Limit, d.Limit)
	all.Remaining = min(all.Remaining, d.Remaining)
	all.ResetAfter = max(all.ResetAfter, d.ResetAfter)
	all.RetryAfter = max(all.RetryAfter, d.RetryAfter)
}

// tier is a key under a limit of a Tiered. It implements claimant without allocating.
type tier[K comparable] struct {
	cell *cell.Cell[K]
	key  K
}

func (t tier[K]) probe(n int64) (d policy.Decision, basis cell.Basis, _ int64) {
	basis = t.cell.Probe(t.cell.Chosen(t.key), t.key, n, &d)
	return d, basis, 0
}

func (t tier[K]) tryTake(n int64) (d policy.Decision, h cell.Held[K], basis cell.Basis, _ int64) {
	basis = t.cell.TryTake(t.cell.Chosen(t.key), t.key, n, true, &d, &h)
	return d, h, basis, 0
}

func (t tier[K]) release(held cell.Held[K]) { held.Keep(0) }

func (t tier[K]) count(d policy.Decision, basis cell.Basis) policy.Decision {
	t.cell.Count(t.key, &d, basis)
	return d
}

// Wait blocks until n units can be used under every limit, takes them and returns nil. Errors are
// as for Engine.Wait; nothing was then taken. It waits as AcquireAll does.
func (t *Tiered[K]) Wait(ctx context.Context, key K, n int64) error {
	_, err := t.Acquire(ctx, key, n, policy.Never)
	return err
}

// Acquire is Wait with bounded patience, for units to be given back by Keep or Cancel: see
// AcquireAll. The outcome has a claim for each limit, in the order of Engines.
func (t *Tiered[K]) Acquire(ctx context.Context, key K, n int64, patience time.Duration) (Outcome, error) {
	return AcquireAll(ctx, patience, t.Claims(key, n)...)
}

// Refund gives n units back to the key, under every limit: see Engine.Refund. The decision is
// Allowed if all recorded it.
func (t *Tiered[K]) Refund(key K, n int64) policy.Decision {
	all := true
	for _, e := range t.engines {
		all = e.Refund(key, n).Allowed && all
	}
	d := t.Take(key, 0)
	d.Allowed = all
	return d
}

// Reset is Engine.Reset under every limit. It reports whether there was anything.
func (t *Tiered[K]) Reset(key K) bool {
	used := false
	for _, e := range t.engines {
		used = e.Reset(key) || used
	}
	return used
}

// Block refuses the key for d, under every limit; a d of 0 lifts its blocks: see Engine.Block. The
// first engine keeps the block. Config.Penalty counts the refusals of each limit apart.
func (t *Tiered[K]) Block(key K, d time.Duration) error {
	if len(t.engines) == 0 {
		return ErrUnavailable
	}
	err := t.engines[0].Block(key, d)
	for i := 1; i < len(t.engines) && err == nil && d == 0; i++ {
		err = t.engines[i].Block(key, 0)
	}
	return err
}

// Claims names n units of the key under every limit, for TakeAll.
func (t *Tiered[K]) Claims(key K, n int64) []Claim {
	claims := make([]Claim, len(t.engines))
	for i, e := range t.engines {
		claims[i] = e.Claim(key, n)
	}
	return claims
}

// Engines returns the engines, Config.Policy's first, for use of a single limit: Stats, SetPolicy,
// ChangeLimit, All.
func (t *Tiered[K]) Engines() []*Engine[K] { return append([]*Engine[K](nil), t.engines...) }

// Health returns nil if all engines work, and otherwise their errors: see Engine.Health.
func (t *Tiered[K]) Health() error {
	var all []error
	for _, e := range t.engines {
		all = append(all, e.Health())
	}
	return errors.Join(all...)
}

// Close closes all engines: see Engine.Close.
func (t *Tiered[K]) Close() error {
	var all []error
	for _, e := range t.engines {
		all = append(all, e.Close())
	}
	return errors.Join(all...)
}
