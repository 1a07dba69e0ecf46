package bench

import (
	"time"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/policy"
)

// Ral returns Ral as a contender, as it is by default.
func Ral() Contender {
	return Contender{
		Name:  "Ral Exact",
		About: "callers advance a key's word in place",
		Exact: true,
		Idles: true,
		New: func(s Setup) (Limiter, error) {
			config, err := configFor(s)
			if err != nil {
				return nil, err
			}
			e, err := engine.New[string](config)
			if err != nil {
				return nil, err
			}
			return ral{limiter: e, engine: e}, nil
		},
	}
}

// RalQueued returns Ral by the protocol of the design that it comes from.
func RalQueued() Contender {
	return Contender{
		Name:  "Ral Queued",
		About: "the original's protocol: callers decide, one writer records",
		Note:  "lets too many pass by design, when callers meet at a key",
		Idles: true,
		New: func(s Setup) (Limiter, error) {
			config, err := configFor(s)
			if err != nil {
				return nil, err
			}
			q, err := engine.NewQueued[string](config)
			if err != nil {
				return nil, err
			}
			return ral{limiter: q}, nil
		},
	}
}

// configFor returns an engine's configuration for a run.
func configFor(s Setup) (engine.Config, error) {
	p, err := policy.Funnel(s.Limit.Capacity, s.Limit.Count, s.Limit.Per)
	return engine.Config{Policy: p, MaxKeys: s.MaxKeys, Idle: s.Idle}, err
}

// limiter is what an engine.Engine and an engine.Queued have in common.
type limiter interface {
	Choke(key string) bool
	Len() int
	Stats() engine.Stats
	Close() error
}

// ral is an engine as a Limiter.
type ral struct {
	limiter
	engine *engine.Engine[string] // nil for an engine.Queued
}

// ChokeAll implements Limiter.
func (r ral) ChokeAll(keys []string) (passed int) {
	if r.engine == nil {
		for _, key := range keys {
			if r.limiter.Choke(key) {
				passed++
			}
		}
		return passed
	}
	e := r.engine
	for _, key := range keys {
		if e.Choke(key) {
			passed++
		}
	}
	return passed
}

// Settle implements Settler: the queue is empty, and stays so for a moment in
// which the writer files what it finds in the nursery.
func (r ral) Settle() {
	const pause = 100 * time.Microsecond
	deadline := time.Now().Add(time.Second)
	for empty := 0; empty < 3 && time.Now().Before(deadline); time.Sleep(pause) {
		if r.Stats().QueueDepth == 0 {
			empty++
		} else {
			empty = 0
		}
	}
}

// Counts implements Counter.
func (r ral) Counts() Counts {
	s := r.Stats()
	return Counts{
		Overadmitted: int64(s.Overadmitted),
		Unavailable:  int64(s.Unavailable),
		Evicted:      int64(s.Evicted),
		Forgiven:     int64(s.Forgiven),
		Restarts:     int64(s.Restarts),
	}
}
