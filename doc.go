// Package ral is the front page of Ral, a rate limiter for Go servers. Start at package engine.
//
//	limiter, err := engine.New[string](engine.Config{
//		Policy: policy.Must(policy.Funnel(100, 10, time.Second)),
//	})
//	...
//	if !limiter.Allow(client) {
//		// too many requests
//	}
//
// Import, below github.com/ral-limiter/ral:
//
//	engine, policy                         a key for each user, address or tenant, in one process
//	single                                 a limit without keys
//	fleet                                  several servers that share a limit, in Redis or Valkey
//	httplimit                              a server of HTTP
//	rpc/grpclimit, rpc/connectlimit        servers and clients of gRPC and of Connect
//	outgoing                               calls that obey the limits of other servers
//	observe/ralprom, observe/ralotel       metrics for Prometheus and OpenTelemetry
//	observe/inspect, observe/eventlog      a page and logs for operators
//	limits                                 an adapter to write
//
// Programs in other languages, Envoy, nginx and Caddy ask the server cmd/rald. Modules with their
// own go.mod are fleet, rpc, observe/ralprom and observe/ralotel. The README has Ral's promises,
// ARCHITECTURE.md its design.
package ral
