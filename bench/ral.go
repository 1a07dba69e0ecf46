package bench

import (
	"time"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/policy"
)

// ralName is the name of Ral as a contender.
const ralName = "Ral"

// Ral returns Ral as a contender, with the engine's defaults.
func Ral() Contender {
	return Contender{
		Name:    ralName,
		About:   "callers advance a key's word in place",
		Promise: LeakyBucket,
		Exact:   true,
		Idles:   true,
		New: func(s Setup) (Limiter, error) {
			config, err := configOf(s)
			if err != nil {
				return nil, err
			}
			e, err := engine.New[string](config)
			if err != nil {
				return nil, err
			}
			return ral{e, counted{e}}, nil
		},
	}
}

// RalQueued returns Ral by the protocol of the design that it ports.
func RalQueued() Contender {
	return Contender{
		Name:    "Ral Queued",
		About:   "the original's protocol: callers decide, one writer records",
		Note:    "admits too many by design when callers meet at a key",
		Promise: LeakyBucket,
		Idles:   true,
		New: func(s Setup) (Limiter, error) {
			config, err := configOf(s)
			if err != nil {
				return nil, err
			}
			q, err := engine.NewQueued[string](config)
			if err != nil {
				return nil, err
			}
			return ralQueued{q, counted{q}}, nil
		},
	}
}

// configOf returns the engine's configuration for a setup.
func configOf(s Setup) (engine.Config, error) {
	p, err := funnel(s.Limit)
	return engine.Config{Policy: p, MaxKeys: s.MaxKeys, Idle: s.Idle}, err
}

func funnel(l Limit) (policy.Policy, error) { return policy.Funnel(l.Capacity, l.Count, l.Per) }

// ral is an engine as a Limiter.
type ral struct {
	*engine.Engine[string]
	counted
}

// ChokeAll implements Limiter.
func (r ral) ChokeAll(keys []string) (passed int) {
	e := r.Engine
	for _, key := range keys {
		if e.Choke(key) {
			passed++
		}
	}
	return passed
}

// ralQueued is an engine of the original's protocol as a Limiter.
type ralQueued struct {
	*engine.Queued[string]
	counted
}

// ChokeAll implements Limiter.
func (r ralQueued) ChokeAll(keys []string) (passed int) {
	q := r.Queued
	for _, key := range keys {
		if q.Choke(key) {
			passed++
		}
	}
	return passed
}

// counted is an engine whose statistics can be read.
type counted struct {
	of interface{ Stats() engine.Stats }
}

// Settle implements Settler. It waits until the queue has been empty for three
// looks in a row, in which the writer files what it finds in the nursery.
func (c counted) Settle() {
	const pause = 100 * time.Microsecond
	deadline := time.Now().Add(time.Second)
	for empty := 0; empty < 3 && time.Now().Before(deadline); time.Sleep(pause) {
		if c.of.Stats().QueueDepth == 0 {
			empty++
		} else {
			empty = 0
		}
	}
}

// Counts implements Counter.
func (c counted) Counts() Counts {
	s := c.of.Stats()
	return Counts{
		Overadmitted: int64(s.Overadmitted),
		Unavailable:  int64(s.Unavailable),
		Evicted:      int64(s.Evicted),
		Forgiven:     int64(s.Forgiven),
		Restarts:     int64(s.Restarts),
	}
}
