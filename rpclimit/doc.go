// Package rpclimit holds remote procedure calls to Ral's limits: what middleware for gRPC and
// for Connect has in common. It imports neither. Programs take a limit from here and the
// interceptor from the module of their framework.
//
//	limits, err := rpclimit.New(rpclimit.Options{},
//		rpclimit.Limit[netip.Addr]{Name: "address", Limiter: byAddr, Key: rpclimit.ByAddr},
//		rpclimit.Limit[string]{Name: "tenant", Limiter: byTenant, Key: rpclimit.ByMetadata("x-tenant")})
//
// A call passes if all limits admit it, and is then charged to all. A refused call is charged
// to none. A [Verdict] has all that a client is told: the exact time until a retry is
// admitted, which limits refused, and the values of the RateLimit fields.
//
// A stream takes once as it opens and, by Options.CostReceived and Options.CostSent, for each
// message. [Session.End] settles what a call has taken, once it is known how it ended.
//
// # Writing an adapter
//
// Fill in a [Call], and call [Limits.Begin] before the handler. If the verdict refuses, answer
// with its Code and Message. Otherwise run the handler, tell the Session of each message of a
// stream, and End it, also if the handler panics. Start reading at [Limits.Begin].
package rpclimit
