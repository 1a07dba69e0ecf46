package bench

import (
	"strings"
	"time"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/policy"
)

const ralName = "Ral"

// Ral returns Ral as a contender, with the engine's defaults.
func Ral() Contender {
	return ralCall("", "callers advance a key's word in place", onEngine(funnel, choke, nil))
}

// RalPackageTime returns Ral with package time's clock. Elsewhere Ral reads the processor's counter, if it may.
func RalPackageTime() Contender {
	return ralCall("package time", "the same without the processor's counter", func(setup Setup) (Limiter, error) {
		setup.packageTime = true
		return onEngine(funnel, choke, nil)(setup)
	})
}

// RalTake returns the engine's Take under a funnel.
func RalTake() Contender { return ralCall("Take", "Take under a funnel", onEngine(funnel, take, nil)) }

// ralCall returns a call of Ral as a contender, for these workloads only unless there are none.
func ralCall(name, about string, open func(Setup) (Limiter, error), workloads ...string) Contender {
	return Contender{
		Name: strings.TrimSpace(ralName + " " + name), About: about, For: workloads, New: open,
		Promise: LeakyBucket, Exact: true, Idles: true,
	}
}

func newEngine(setup Setup, limit policyOf, options ...engine.Option[string]) (*engine.Engine[string], error) {
	p, err := limit(setup.Limit)
	if err != nil {
		return nil, err
	}
	return engine.New(engine.Config{Policy: p, MaxKeys: setup.MaxKeys, Idle: setup.Idle, PackageTime: setup.packageTime}, options...)
}

// verb asks an engine for each key in order and returns how many passed.
type verb func(e *engine.Engine[string], keys []string) (passed int)

func choke(limiter *engine.Engine[string], keys []string) int {
	return AskEach(keys, func(key string) bool { return limiter.Choke(key) })
}

func take(limiter *engine.Engine[string], keys []string) int {
	return AskEach(keys, func(key string) bool { return limiter.Take(key, 1).Allowed })
}

// onEngine makes the calls of a verb on a new engine. prepare, unless nil, gets all keys first.
func onEngine(limit policyOf, ask, prepare verb, options ...engine.Option[string]) func(Setup) (Limiter, error) {
	return func(setup Setup) (Limiter, error) {
		e, err := newEngine(setup, limit, options...)
		if err != nil {
			return Limiter{}, err
		}
		limiter := counted(e, e.Close, func(keys []string) int { return ask(e, keys) })
		if prepare != nil {
			limiter.Prepare = func(keys []string) { prepare(e, keys) }
		}
		return limiter, nil
	}
}

// policyOf returns the policy that comes nearest to a limit.
type policyOf func(Limit) (policy.Policy, error)

func funnel(limit Limit) (policy.Policy, error) {
	return policy.Funnel(limit.Capacity, limit.Count, limit.Per)
}

// counted returns a limiter with the counts of an engine, whose queue it settles.
func counted(e *engine.Engine[string], free func() error, ask func(keys []string) int) Limiter {
	limiter := Limiter{Ask: ask, Free: free}
	// Settle waits until the queue is empty for three looks, while the writer files the nursery.
	limiter.Settle = func() {
		const pause = 100 * time.Microsecond
		deadline := time.Now().Add(time.Second)
		for empty := 0; empty < 3 && time.Now().Before(deadline); time.Sleep(pause) {
			if empty++; e.Stats().QueueDepth > 0 {
				empty = 0
			}
		}
	}
	limiter.Counts = func() Counts {
		stats := e.Stats()
		return Counts{Unavailable: int64(stats.Unavailable), Evicted: int64(stats.Evicted), Forgiven: int64(stats.Forgiven), Restarts: int64(stats.Restarts), clock: stats.Clock}
	}
	return limiter
}
