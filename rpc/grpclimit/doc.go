// Package grpclimit puts Ral's limits in front of the services of a google.golang.org/grpc server.
//
//	limits, err := rpclimit.New(rpclimit.Options{},
//		rpclimit.Limit[netip.Addr]{Name: "address", Limiter: byAddr, Key: rpclimit.ByAddr})
//	server := grpc.NewServer(
//		grpc.ChainUnaryInterceptor(grpclimit.UnaryServerInterceptor(limits)),
//		grpc.ChainStreamInterceptor(grpclimit.StreamServerInterceptor(limits)))
//
// Package rpclimit has the limits, the keys and the options: what a call costs, what is given back when it has ended,
// how long a call may wait for its turn, and which methods are exempt. This package answers calls by its verdicts.
//
// A refusal is ResourceExhausted with the details google.rpc.RetryInfo and google.rpc.QuotaFailure, and with the
// trailer grpc-retry-pushback-ms. A grpc-go client whose service config has a retry policy for ResourceExhausted
// retries by it. The pushback of a call that a limit never admits is -1, by which clients do not retry.
//
// The RateLimit fields are metadata of calls that succeed. If the handler returns an error they are in the trailer,
// as sending a header would keep the client from retrying.
//
// Start reading at [UnaryServerInterceptor].
package grpclimit
