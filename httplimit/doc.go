// Package httplimit puts Ral's limits in front of HTTP handlers, as middleware for any
// router that takes a func(http.Handler) http.Handler.
//
//	limiter, err := engine.New[netip.Addr](engine.Config{Policy: policy.Must(policy.Funnel(100, 10, time.Second))})
//	limit, err := httplimit.New(limiter, httplimit.ByAddr, httplimit.Options{})
//	err = http.ListenAndServe("localhost:8080", limit.Handler(mux))
//
// Each request is decided once, before the handler runs. One that passes reaches the
// handler with the ResponseWriter that the server made, and with header fields that
// tell what remains; one that does not is answered with 429 and a Retry-After that is
// true: a client which waits exactly so long is admitted, if nobody else takes what is
// its own.
//
// A key is whatever comparable value a function finds in a request: see [ByAddr] and
// [ClientAddr] for addresses, [ByHeader], [ByPattern] and [ByContext], and [Both] and
// [Join] for their combination. No header is trusted unless [AddrConfig] says so.
//
// [NewAll] holds several limits on each request, all or nothing.
//
// The package knows HTTP and nothing of how a limit works, which is the engine's. Start
// reading at [New].
package httplimit
