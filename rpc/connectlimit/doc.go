// Package connectlimit puts Ral's limits in front of handlers of Connect (connectrpc.com/connect), which speak the
// protocols of Connect, gRPC and gRPC-Web.
//
//	limits, err := rpclimit.New(rpclimit.Options{},
//		rpclimit.Limit[netip.Addr]{Name: "address", Limiter: byAddr, Key: rpclimit.ByAddr})
//	limited := connect.WithInterceptors(connectlimit.NewInterceptor(limits))
//	mux.Handle(shopconnect.NewShopHandler(shop, limited))
//	err = http.ListenAndServe("localhost:8080", connectlimit.TrailersOnly(mux))
//
// A refusal is CodeResourceExhausted with the details google.rpc.RetryInfo and google.rpc.QuotaFailure. Over the
// Connect protocol a unary call is answered with status 429, a true Retry-After and the RateLimit fields. Over gRPC and
// gRPC-Web the trailer grpc-retry-pushback-ms has the same time in milliseconds; [TrailersOnly] sends it so that gRPC
// clients retry by it.
//
// A [Gate] refuses before the body of a request is read. Package rpclimit has the keys, the limits and the options.
// Start reading at [NewInterceptor].
package connectlimit
