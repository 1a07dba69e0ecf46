package engine

import (
	"fmt"

	"github.com/ral-limiter/ral/policy"
)

// Queued limits by the protocol of the design that Ral comes from: a call decides on
// what it reads and sends the take to the writer, and the writer alone writes the key's
// word. It admits more than the limit by what is in flight, and counts by how much in
// Stats.Overadmitted. It is kept so that the two protocols can be measured side by side:
// use an [Engine] for anything else.
//
// Call NewQueued to make one; the zero value is of no use. Its methods may be called by
// any number of goroutines.
type Queued[K comparable] struct{ engine *Engine[K] }

// NewQueued checks the configuration and starts the engine of a Queued. The error, if
// any, is a *policy.FieldError that names the field. Config.MaxWaiting is not used, and
// Config.State and Config.Penalty are refused.
func NewQueued[K comparable](config Config) (*Queued[K], error) {
	if config.State != (State{}) {
		return nil, &policy.FieldError{Of: "engine.NewQueued", Field: "Config.State", Value: fmt.Sprintf("%+v", config.State), Want: "none: a Queued keeps no state"}
	}
	if config.Penalty != (Penalty{}) {
		return nil, &policy.FieldError{Of: "engine.NewQueued", Field: "Config.Penalty", Value: fmt.Sprintf("%+v", config.Penalty), Want: "none: a Queued blocks no keys"}
	}
	e, err := New[K](config)
	if err != nil {
		return nil, err
	}
	return &Queued[K]{e}, nil
}

// Choke reports whether the key may act now, and has the writer record it if so. It
// waits for a place in the writer's queue up to Config.OpenTimeout, and for room in a
// full table as long again.
func (q *Queued[K]) Choke(key K) bool { return q.Take(key, 1).Allowed }

// Take asks for n units for the key now, and has the writer record them if they are
// allowed. n == 0 looks without taking. It waits as Choke does. A writer that was given
// up is not asked: known keys are limited in place then, as by an [Engine].
func (q *Queued[K]) Take(key K, n int64) policy.Decision { return q.engine.cell.TakeQueued(key, n) }

// Len returns the number of keys in the table, never above Config.MaxKeys.
func (q *Queued[K]) Len() int { return q.engine.Len() }

// Stats returns the counters.
func (q *Queued[K]) Stats() Stats { return q.engine.Stats() }

// Health returns nil while it is in order: see Engine.Health.
func (q *Queued[K]) Health() error { return q.engine.Health() }

// Close ends the goroutines and waits for them: see Engine.Close.
func (q *Queued[K]) Close() error { return q.engine.Close() }
