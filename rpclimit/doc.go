// Package rpclimit holds remote procedure calls to limits. Programs take a limit from here and the
// interceptor from the module for gRPC or Connect.
//
//	guard, err := rpclimit.New(rpclimit.Options{},
//		rpclimit.Limit[netip.Addr]{Name: "address", Limiter: byAddr, Key: rpclimit.ByAddr},
//		rpclimit.Limit[string]{Name: "tenant", Limiter: byTenant, Key: rpclimit.ByMetadata("x-tenant")})
//
// A call passes, and is charged, only if all limits admit it. A stream takes units as it opens and,
// with Options.CostReceived and Options.CostSent, for each message.
//
// # Writing an adapter
//
// Fill in a [Call], and call [Guard.Begin] before the handler. If the [Verdict] refuses, answer
// with its Code and Message. Otherwise run the handler, tell the Session of each message of a
// stream, and End it, also if the handler panics.
package rpclimit
