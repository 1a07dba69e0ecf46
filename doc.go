// Package ral is the front page of Ral, a rate limiter for Go servers that check
// every request. It holds no code: users start at package engine.
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
//	single                                 one limit without keys
//	fleet                                  several servers that share a limit, in Redis or Valkey
//	httplimit                              a server of HTTP
//	rpc/grpclimit, rpc/connectlimit        servers and clients of gRPC and of Connect
//	outgoing                               calls to servers of others, whose limits they obey
//	observe/ralprom, observe/ralotel       metrics for Prometheus and OpenTelemetry
//	observe/inspect, observe/eventlog      a page and logs for operators
//	limits                                 an adapter to write
//
// Programs in other languages, Envoy, nginx and Caddy ask the server cmd/rald. The modules
// fleet, rpc, observe/ralprom and observe/ralotel have a go.mod of their own.
//
// The README says what Ral promises, and ARCHITECTURE.md how it works.
package ral
