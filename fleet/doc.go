// Package fleet keeps one limit over many servers. A [Limiter] has the calls of package engine,
// with a context and an error, and gives the same decisions. The state of its keys is in a Redis or
// Valkey that all servers ask, and goes by its clock. In [Exact] mode an atomic script in Redis
// decides each call. In [Leased] mode each server takes units ahead of need and decides by itself.
//
//	limiter, err := fleet.New(fleet.Config{
//		Name:   "api",
//		Redis:  rueidis.ClientOption{InitAddress: []string{"redis:6379"}},
//		Policy: policy.Must(policy.Funnel(100, 10, time.Second)),
//	})
//	answer, err := limiter.Take(ctx, client, 1)
//
// Redis may be slow, or gone. No call waits for Redis longer than [Config.Budget]. After a few
// failures only an occasional probe asks Redis, and calls are answered as [Config.Outage] says. By
// default each server keeps its share of the limit, and charges Redis later for the units it let
// pass. Every answer names its source, and [Limiter.Stats] counts the answers. Start reading at
// [Limiter].
package fleet
