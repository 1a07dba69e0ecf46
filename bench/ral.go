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
		New:     func(s Setup) (Limiter, error) { return onEngine(s, funnel, choke, change) },
	}
}

// ReadsCounter reports whether engines read the processor's counter by default.
func ReadsCounter() bool {
	e, err := newEngine(Setup{Limit: Limit{Capacity: 1, Count: 1, Per: time.Second}, MaxKeys: 1}, funnel, asItIs)
	if err != nil {
		return false
	}
	defer func() { _ = e.Close() }()
	return e.Stats().Clock == "counter"
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

// onEngine returns the calls of a verb on a new engine.
func onEngine(s Setup, limit func(Limit) (policy.Policy, error), verb func(*engine.Engine[string]) Limiter,
	change func(*engine.Config), options ...engine.Option[string]) (Limiter, error) {
	e, err := newEngine(s, limit, change, options...)
	if err != nil {
		return Limiter{}, err
	}
	return counted(verb(e), e, e.Close), nil
}

func asItIs(*engine.Config) {}

func funnel(l Limit) (policy.Policy, error) { return policy.Funnel(l.Capacity, l.Count, l.Per) }

func choke(e *engine.Engine[string]) Limiter {
	return Limiter{Ask: func(keys []string) int {
		return AskEach(keys, func(key string) bool { return e.Choke(key) })
	}}
}

func take(e *engine.Engine[string]) Limiter {
	return Limiter{Ask: func(keys []string) int {
		return AskEach(keys, func(key string) bool { return e.Take(key, 1).Allowed })
	}}
}

// counted returns the limiter with the counts of its engine, whose queue it settles.
func counted(l Limiter, e *engine.Engine[string], free func() error) Limiter {
	l.Free = free
	// Settle waits until the queue is empty for three looks, while the writer files the nursery.
	l.Settle = func() {
		const pause = 100 * time.Microsecond
		deadline := time.Now().Add(time.Second)
		for empty := 0; empty < 3 && time.Now().Before(deadline); time.Sleep(pause) {
			if empty++; e.Stats().QueueDepth > 0 {
				empty = 0
			}
		}
	}
	l.Counts = func() Counts {
		s := e.Stats()
		return Counts{Unavailable: int64(s.Unavailable), Evicted: int64(s.Evicted), Forgiven: int64(s.Forgiven), Restarts: int64(s.Restarts), clock: s.Clock}
	}
	return l
}
