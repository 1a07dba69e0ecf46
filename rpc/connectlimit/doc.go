// Package connectlimit limits calls of connectrpc.com/connect handlers, over Connect, gRPC and
// gRPC-Web. Package rpclimit has the keys, the limits and the options.
//
//	guard, err := rpclimit.New(rpclimit.Options{},
//		rpclimit.Limit[netip.Addr]{Name: "address", Limiter: byAddr, Key: rpclimit.ByAddr})
//	limited := connect.WithInterceptors(connectlimit.NewInterceptor(guard))
//	mux.Handle(shopconnect.NewShopHandler(shop, limited))
//	err = http.ListenAndServe("localhost:8080", connectlimit.TrailersOnly(mux))
//
// A refusal is CodeResourceExhausted with google.rpc.RetryInfo and google.rpc.QuotaFailure. Over
// Connect a unary call is answered with status 429, a true Retry-After and the RateLimit fields.
// Over gRPC and gRPC-Web the trailer grpc-retry-pushback-ms has the same time. gRPC clients obey it
// if the handlers are behind [TrailersOnly]. A [Gate] refuses before a request's body is read.
package connectlimit
