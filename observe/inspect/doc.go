// Package inspect shows operators what limiters do, over HTTP: a page, and the JSON that it
// is made of.
//
//	handler, err := inspect.New(inspect.Config{}, inspect.Limit[string]{Name: "api", Limiter: limiter})
//	if err != nil {
//		return err
//	}
//	defer handler.Close()
//	admin.Handle("/debug/ral/", handler)
//
// The page shows each limit with its load over the last minutes, the keys that owe most and
// those that are refused most. It explains a key: what it has used, when that comes back and
// what binds it. With a token, and only then, an operator can reset a key, charge it or block
// it.
//
// # Access
//
// Nothing is served until the handler is mounted. Mount it where operators come and clients
// do not: it answers every request that reaches it, except that changes need a token of
// [Config.Tokens]. Keys are shown as hashes unless [Config.ShowKeys] is set. The hashes are
// keyed by a secret of the process, so a key cannot be found outside it by trying. A search
// is by the key itself then.
//
// Requests that another site makes in an operator's browser are refused, also if a name of
// that site leads to this server: see [Config.Hosts]. Changes are POST requests with the
// token in a header field, which a browser sends for no other site. The page runs under a
// Content-Security-Policy that allows its own files and nothing else.
//
// # What it costs
//
// Calls of the limiters cost nothing: the handler reads counters that exist. Every two
// seconds it notes them for the charts. A list looks at each word of a table once at most,
// and requests that come meanwhile share it.
//
// # Start reading
//
// Start at [New] and Handler.ServeHTTP in handler.go. Then guard.go has what is refused,
// limit.go how a limiter of any kind is shown, history.go the charts'
// points, and text.go keys as text.
package inspect
