// Package httplimit puts Ral's limits in front of HTTP handlers, as middleware for any
// router that takes a func(http.Handler) http.Handler.
//
//	limiter, err := engine.New[netip.Addr](engine.Config{Policy: policy.Must(policy.Funnel(100, 10, time.Second))})
//	limit, err := httplimit.New(limiter, httplimit.ByAddr, httplimit.Options{})
//	err = http.ListenAndServe("localhost:8080", limit.Handler(mux))
//
// Each request is decided once, before the handler runs. An admitted request reaches the
// handler with the server's own ResponseWriter, and with header fields that tell what
// remains. A request over its limit is answered with 429 and a true Retry-After: a client
// that waits that long is admitted, unless other requests of its key come first.
//
// A key function finds a key in each request, a comparable value: see [ByAddr] and
// [ClientAddr] for addresses, [ByHeader], [ByPattern] and [ByContext], and [Both] and
// [Join] for combinations. No header is trusted unless [AddrConfig] says so.
//
// [NewAll] holds each request to several limits, all or nothing.
//
// The limiter is an engine, or any other limits.Limiter, such as a fleet: limits in process and
// over a fleet can be mixed. The package knows HTTP. How a limit works is the limiter's
// concern. Start reading at [New].
package httplimit
