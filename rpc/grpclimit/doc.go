// Package grpclimit puts limits in front of the services of a google.golang.org/grpc server.
// Package rpclimit has the limits, the keys and the options.
//
//	guard, err := rpclimit.New(rpclimit.Options{},
//		rpclimit.Limit[netip.Addr]{Name: "address", Limiter: byAddr, Key: rpclimit.ByAddr})
//	server := grpc.NewServer(
//		grpc.ChainUnaryInterceptor(grpclimit.UnaryServerInterceptor(guard)),
//		grpc.ChainStreamInterceptor(grpclimit.StreamServerInterceptor(guard)))
//
// A refusal is ResourceExhausted with google.rpc.RetryInfo and google.rpc.QuotaFailure, and the
// trailer grpc-retry-pushback-ms, -1 if a limit never admits the call. A grpc-go client obeys the
// trailer if its service config has a retry policy for ResourceExhausted. The RateLimit fields are
// in the header, or with an error in the trailer, as a header would keep the client from retrying.
package grpclimit
