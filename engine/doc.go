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
// [Engine] has every verb on one key. [TakeAll] and [AcquireAll] take from several keys, and a
// [Tiered] holds each key to several limits. Package policy makes the limits. Start at [Config].
//
// Inside, an engine is a table of keys, its only writer, a janitor that sweeps idle keys, a
// supervisor that restarts these two, and a cell that answers calls. [New] puts them together.
package engine
