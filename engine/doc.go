// Package engine is the door by which users come in. [New] puts the parts
// together: a table of keys, its one writer, a janitor that asks for idle keys to
// be swept, a supervisor that restarts these two, and the [cell.Cell] that
// answers callers, which the [Engine] embeds.
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
// Start reading at [Config].
package engine
