// Package engine limits how often each key may act.
//
//	limiter, err := engine.New[string](engine.Config{
//		Policy: policy.Must(policy.Funnel(100, 10, time.Second)),
//	})
//	...
//	defer limiter.Close()
//	if !limiter.Choke(client) {
//		// too many requests
//	}
//
// [Engine] has the calls on one key. [TakeAll] and [AcquireAll] take from several keys, and a
// [Tiered] holds each key to several limits. Package policy makes the limits. Start at [Config].
//
// A call takes units of its key, usually one. A key owes until none of its units count any more. A
// known key is in the engine's table, a new key is not.
//
// Inside, an engine is a table of keys, a writer (the goroutine that adds and removes keys), a
// janitor that sweeps idle keys, a supervisor that restarts both goroutines, and a cell that
// answers calls. [New] puts them together.
package engine
