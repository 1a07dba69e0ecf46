package engine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/ral-limiter/ral/cell"
	"github.com/ral-limiter/ral/policy"
)

// Tiered holds several limits on each key at once, such as 10 a second and 1,000 an
// hour: a call passes if all of them let it pass, and then counts for all; a refused
// one counts for none, as with cell.TakeAll. Call NewTiered to make one; the zero value
// has no limits, and lets everything pass. Its methods may be called by any number of
// goroutines.
//
// Each limit has an engine of its own, so that a key costs as much as one in each.
type Tiered[K comparable] struct {
	engines []*Engine[K]
	cells   []*cell.Cell[K]
}

// NewTiered starts an engine for Config.Policy and one for each further policy, all
// with that configuration otherwise. There may be 8 in all, cell.MaxEach. The error, if
// any, is a *policy.FieldError that names the field.
func NewTiered[K comparable](config Config, further ...policy.Policy) (*Tiered[K], error) {
	if len(further) >= cell.MaxEach {
		return nil, &policy.FieldError{Of: "engine.NewTiered", Field: "further", Value: len(further), Want: "7 policies at the most"}
	}
	t := &Tiered[K]{}
	for i := -1; i < len(further); i++ {
		if i >= 0 {
			if config.Policy = further[i]; !policy.Given(config.Policy) {
				_ = t.Close() // nobody has used it
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
		t.cells = append(t.cells, e.Cell)
	}
	return t, nil
}

// Choke tells whether the key may act now under every limit, and if so, records
// that it did.
func (t *Tiered[K]) Choke(key K) bool { return t.Take(key, 1).Allowed }

// Take asks every limit for n units, and records them if all allow it. The decision
// is that of all limits together: Limit and Remaining are the smallest of each,
// RetryAfter and ResetAfter the longest. Refused calls learn when all would let them
// pass.
func (t *Tiered[K]) Take(key K, n int64) policy.Decision { return cell.TakeEach(key, n, t.cells...) }

// Wait blocks until n units can be used under every limit, and takes them. It returns nil
// if it did; the error is one of those of [cell.Cell.Wait], and nothing was taken then. Who
// waits stands in line as by [cell.AcquireAll].
func (t *Tiered[K]) Wait(ctx context.Context, key K, n int64) error {
	_, err := t.Acquire(ctx, key, n, math.MaxInt64)
	return err
}

// Acquire is Wait for those who may need less in the end, or do not wait for ever: it
// returns what it has taken, to be given back by Keep, and waits up to patience. See
// [cell.AcquireAll]; the outcome's decisions are in the order of Engines.
func (t *Tiered[K]) Acquire(ctx context.Context, key K, n int64, patience time.Duration) (cell.Outcome, error) {
	return cell.AcquireAll(ctx, n, patience, t.Claims(key)...)
}

// Peek tells how the key stands, under all limits together.
func (t *Tiered[K]) Peek(key K) policy.Decision { return t.Take(key, 0) }

// Refund gives n units back to the key, under every limit: see cell.Cell.Refund. The
// decision is Allowed if all recorded it.
func (t *Tiered[K]) Refund(key K, n int64) policy.Decision {
	all := true
	for _, c := range t.cells {
		all = c.Refund(key, n).Allowed && all
	}
	d := t.Peek(key)
	d.Allowed = all
	return d
}

// Reset forgets what the key has used, under every limit, and tells whether there
// was anything.
func (t *Tiered[K]) Reset(key K) bool {
	used := false
	for _, c := range t.cells {
		used = c.Reset(key) || used
	}
	return used
}

// Claims names the key under every limit, for cell.TakeAll.
func (t *Tiered[K]) Claims(key K) []cell.Claim {
	claims := make([]cell.Claim, len(t.cells))
	for i, c := range t.cells {
		claims[i] = c.Claim(key)
	}
	return claims
}

// Engines returns the engines, that of Config.Policy first, for what concerns one
// limit alone: Stats, SetPolicy, All.
func (t *Tiered[K]) Engines() []*Engine[K] { return append([]*Engine[K](nil), t.engines...) }

// Health returns nil if all engines are in order, and otherwise what is wrong with
// them: see Engine.Health.
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
