package bench

import (
	"time"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/policy"
)

const ralName = "Ral"

// Ral returns Ral as a contender, with the engine's defaults.
func Ral() Contender {
	return ralBy(ralName, "callers advance a key's word in place", asItIs)
}

// RalPackageTime returns Ral with package time's clock, if the default is the processor's counter.
func RalPackageTime() Contender {
	return ralBy("Ral package time", "the same without the processor's counter", func(c *engine.Config) { c.PackageTime = true })
}

func ralBy(name, about string, change func(*engine.Config)) Contender {
	return Contender{
		Name:    name,
		About:   about,
		Promise: LeakyBucket,
		Exact:   true,
		Idles:   true,
		New: func(s Setup) (Limiter, error) {
			e, err := newEngine(s, funnel, change)
			if err != nil {
				return nil, err
			}
			return ral{e, counted{e}}, nil
		},
	}
}

// ReadsCounter reports whether engines read the processor's counter by default.
func ReadsCounter() bool {
	l, err := Ral().New(Setup{Limit: Limit{Capacity: 1, Count: 1, Per: time.Second}, MaxKeys: 1})
	if err != nil {
		return false
	}
	defer func() { _ = l.Close() }()
	return l.(ral).Stats().Clock == "counter"
}

func newEngine(s Setup, limit func(Limit) (policy.Policy, error), change func(*engine.Config), options ...engine.Option[string]) (*engine.Engine[string], error) {
	p, err := limit(s.Limit)
	if err != nil {
		return nil, err
	}
	config := engine.Config{Policy: p, MaxKeys: s.MaxKeys, Idle: s.Idle}
	change(&config)
	return engine.New(config, options...)
}

func asItIs(*engine.Config) {}

func funnel(l Limit) (policy.Policy, error) { return policy.Funnel(l.Capacity, l.Count, l.Per) }

type ral struct {
	*engine.Engine[string]
	counted
}

func (r ral) ChokeAll(keys []string) int {
	e := r.Engine
	return AskEach(keys, func(key string) bool { return e.Choke(key) })
}

type counted struct {
	of interface{ Stats() engine.Stats }
}

// Settle waits until the queue is empty for three looks, while the writer files the nursery.
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

func (c counted) Counts() Counts {
	s := c.of.Stats()
	return Counts{
		Unavailable: int64(s.Unavailable),
		Evicted:     int64(s.Evicted),
		Forgiven:    int64(s.Forgiven),
		Restarts:    int64(s.Restarts),
	}
}
