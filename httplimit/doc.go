// Package httplimit is middleware that limits requests, for any router that takes a
// func(http.Handler) http.Handler.
//
//	limiter, err := engine.New[netip.Addr](engine.Config{Policy: policy.Must(policy.Funnel(100, 10, time.Second))})
//	limit, err := httplimit.New(limiter, httplimit.ByAddr, httplimit.Options{})
//	err = http.ListenAndServe("localhost:8080", limit.Handler(mux))
//
// Each request is decided once, before the handler runs. The answer to an admitted request has
// header fields that tell the remaining quota. A request over its limit is answered with 429 and a
// true Retry-After. A client that waits that long is admitted, unless other requests of its key
// come first. [NewAll] holds each request to several limits, all or nothing.
//
// A key function finds a comparable key in each request: see [ByAddr], [ClientAddr], [ByHeader],
// [ByPattern], [ByContext], [Both] and [Join]. No header is trusted unless [AddrConfig] says so.
package httplimit
