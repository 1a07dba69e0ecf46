package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ral-limiter/ral/cell"
	"github.com/ral-limiter/ral/internal/shape"
	"github.com/ral-limiter/ral/policy"
)

// Tiered holds several limits on each key at once, such as 10 a second and 1,000 an
// hour. A call passes if all of them let it pass, and then counts for all. A refused call
// counts for none, as with TakeAll. Call NewTiered to make one; the zero value has no
// limits, and lets everything pass. Its methods may be called by any number of
// goroutines.
//
// Each limit has an engine of its own, so a key costs as much as one in each.
type Tiered[K comparable] struct{ engines []*Engine[K] }

// maxTiers bounds the limits of a Tiered, so that a call on them needs no allocation.
const maxTiers = 8

// NewTiered starts an engine for Config.Policy and one for each further policy, all with
// that configuration otherwise. There may be 8 in all. The error, if any, is a
// *policy.FieldError that names the field.
func NewTiered[K comparable](config Config, further ...policy.Policy) (*Tiered[K], error) {
	if len(further) >= maxTiers {
		return nil, &policy.FieldError{Of: "engine.NewTiered", Field: "further", Value: len(further), Want: "7 policies at the most"}
	}
	t := &Tiered[K]{}
	path := config.State.Path
	for i := -1; i < len(further); i++ {
		if i >= 0 {
			if path != "" {
				config.State.Path = fmt.Sprintf("%s.%d", path, i+2)
			}
			if config.Policy = further[i]; shape.IsNil(config.Policy) {
				_ = t.Close() // nothing has used it
				return nil, &policy.FieldError{
					Of: "engine.NewTiered", Field: fmt.Sprintf("further[%d]", i), Value: "nil", Want: "a policy, such as policy.Funnel returns",
				}
			}
		}
		e, err := New[K](config)
		if err != nil {
			_ = t.Close()
			return nil, err
		}
		t.engines = append(t.engines, e)
	}
	return t, nil
}

// Choke reports whether the key may act now under every limit, and records it if so.
func (t *Tiered[K]) Choke(key K) bool {
	var room [fewTiers]cell.Offer[K]
	if allowed, sure := t.takeKnown(key, 1, &room); sure {
		return allowed
	}
	return t.takeAny(key, 1).Allowed
}

// Take asks every limit for n units, and records them if all allow it. The decision is
// that of all limits together: Limit and Remaining are the smallest of each, RetryAfter
// and ResetAfter the longest. A refused call learns when all would let it pass. n == 0
// looks without taking. For a known key it never waits and never allocates.
func (t *Tiered[K]) Take(key K, n int64) (all policy.Decision) {
	var room [fewTiers]cell.Offer[K]
	allowed, sure := t.takeKnown(key, n, &room)
	if !sure {
		return t.takeAny(key, n)
	}
	all.Allowed = allowed
	for i, e := range t.engines {
		d := &room[i].Decision
		if !allowed && d.Allowed {
			e.cell.Peek(key, d) // nothing was taken
		}
		combine(&all, d, i == 0)
	}
	return all
}

// fewTiers bounds the limits of a Tiered that takeKnown tries. The usual number is two,
// and clearing room for more would cost each call.
const fewTiers = 3

// takeKnown takes from all engines, or from none, if all know the key: it takes what each
// has offered. sure is false if nothing was decided or taken.
func (t *Tiered[K]) takeKnown(key K, n int64, room *[fewTiers]cell.Offer[K]) (allowed, sure bool) {
	if len(t.engines) > fewTiers {
		return false, false
	}
	allowed = true
	for i, e := range t.engines {
		if !e.cell.Offer(key, n, &room[i]) {
			return false, false
		}
		allowed = allowed && room[i].Allowed
	}
	offers := room[:len(t.engines)]
	if allowed {
		for i := range offers {
			if offers[i].Accept() {
				continue
			}
			if !t.takeRest(key, n, offers, i) {
				return false, false
			}
			break
		}
	}
	for i, e := range t.engines {
		if offers[i].Allowed == allowed {
			e.cell.Count(allowed, cell.Basis{})
		}
	}
	return allowed, true
}

// takeRest goes on for takeKnown if another call was faster at the engine at: it decides
// there again, and goes on to the others. If one refuses, all is given back, also if a
// policy panics.
func (t *Tiered[K]) takeRest(key K, n int64, offers []cell.Offer[K], at int) (all bool) {
	taken := at
	defer func() {
		for ; !all && taken > 0; taken-- {
			offers[taken-1].Held.Cancel()
		}
	}()
	for ; taken < len(offers); taken++ {
		o := &offers[taken]
		if taken > at && o.Accept() {
			continue
		}
		o.Held = cell.Held[K]{}
		if basis := t.engines[taken].cell.TryTake(key, n, &o.Decision, &o.Held); !o.Allowed || basis != (cell.Basis{}) {
			return false
		}
	}
	return true
}

// takeAny is Take for any key, known or not.
func (t *Tiered[K]) takeAny(key K, n int64) policy.Decision {
	var room [maxTiers]keyRequest[tier[K], cell.Held[K]]
	m := multiTake[tier[K], cell.Held[K]]{keys: room[:len(t.engines)], order: asMade[:len(t.engines)]}
	for i, e := range t.engines {
		k := &m.keys[i]
		k.claim, k.n = tier[K]{e.cell, key}, n
	}
	return decisionOfAll(m.take(), &m)
}

// asMade is the order of a Tiered's engines.
var asMade = []int{0, 1, 2, 3, 4, 5, 6, 7}

// decisionOfAll counts a call and returns the decision of all limits.
func decisionOfAll[K comparable](allowed bool, m *multiTake[tier[K], cell.Held[K]]) policy.Decision {
	m.settle(allowed)
	all := policy.Decision{Allowed: allowed}
	for i := range m.keys {
		combine(&all, &m.keys[i].decision, i == 0)
	}
	return all
}

// combine adds the decision of one limit to that of all.
func combine(all, d *policy.Decision, first bool) {
	if first {
		all.Limit, all.Remaining = d.Limit, d.Remaining
	}
	all.Limit = min(all.Limit, d.Limit)
	all.Remaining = min(all.Remaining, d.Remaining)
	all.ResetAfter = max(all.ResetAfter, d.ResetAfter)
	all.RetryAfter = max(all.RetryAfter, d.RetryAfter)
}

// tier is a key under one limit of a Tiered. It implements claimant without allocating.
type tier[K comparable] struct {
	cell *cell.Cell[K]
	key  K
}

func (t tier[K]) probe(n int64) (d policy.Decision, basis cell.Basis) {
	basis = t.cell.Probe(t.key, n, &d)
	return d, basis
}

func (t tier[K]) tryTake(n int64) (d policy.Decision, h cell.Held[K], basis cell.Basis) {
	basis = t.cell.TryTake(t.key, n, &d, &h)
	return d, h, basis
}

func (t tier[K]) release(held cell.Held[K]) { held.Keep(0) }

func (t tier[K]) count(allowed bool, basis cell.Basis) { t.cell.Count(allowed, basis) }

// Wait blocks until n units can be used under every limit, and takes them. It returns nil
// if it did. The error is one of those of Engine.Wait, and nothing was taken then. It
// stands in line as AcquireAll does.
func (t *Tiered[K]) Wait(ctx context.Context, key K, n int64) error {
	_, err := t.Acquire(ctx, key, n, policy.Never)
	return err
}

// Acquire is Wait for calls that may need less in the end, or that do not wait for ever:
// it waits up to patience, and returns what it has taken, to be given back by Keep or
// Cancel. See AcquireAll. The outcome has one claim for each limit, in the order of
// Engines.
func (t *Tiered[K]) Acquire(ctx context.Context, key K, n int64, patience time.Duration) (Outcome, error) {
	return AcquireAll(ctx, patience, t.Claims(key, n)...)
}

// Refund gives n units back to the key, under every limit: see Engine.Refund. The
// decision is Allowed if all recorded it.
func (t *Tiered[K]) Refund(key K, n int64) policy.Decision {
	all := true
	for _, e := range t.engines {
		all = e.Refund(key, n).Allowed && all
	}
	d := t.Take(key, 0)
	d.Allowed = all
	return d
}

// Reset forgets what the key has used, under every limit, and reports whether there was
// anything.
func (t *Tiered[K]) Reset(key K) bool {
	used := false
	for _, e := range t.engines {
		used = e.Reset(key) || used
	}
	return used
}

// Claims names n units of the key under every limit, for TakeAll.
func (t *Tiered[K]) Claims(key K, n int64) []Claim {
	claims := make([]Claim, len(t.engines))
	for i, e := range t.engines {
		claims[i] = e.Claim(key, n)
	}
	return claims
}

// Engines returns the engines, that of Config.Policy first, for what concerns one limit
// alone: Stats, SetPolicy, ChangeLimit, All.
func (t *Tiered[K]) Engines() []*Engine[K] { return append([]*Engine[K](nil), t.engines...) }

// Health returns nil if all engines are in order, and otherwise their errors: see
// Engine.Health.
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
