// Package engine is what users import: it limits how often each key may act.
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
// [Engine] has every verb on one key. [TakeAll] and [AcquireAll] take from several keys,
// and a [Tiered] holds each key to several limits. Package policy makes the limits. No
// other package is needed to use an engine.
//
// An engine is a table of keys, its one writer, a janitor that asks for idle keys to be
// swept, a supervisor that restarts these two, and a cell that answers calls. [New] puts
// them together. Start reading at [Config].
package engine
