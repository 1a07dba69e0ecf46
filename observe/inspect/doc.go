// Package inspect shows operators the state of limiters over HTTP: a page and its JSON.
//
//	handler, err := inspect.New(inspect.Config{}, inspect.Limit[string]{Name: "api", Limiter: limiter})
//	if err != nil {
//		return err
//	}
//	defer handler.Close()
//	admin.Handle("/debug/ral/", handler)
//
// The page shows each limit with its load over the last minutes, the keys that owe most and the
// most refused keys. The page explains a key: its usage, when that comes back and which limit binds
// it. Only with a token can an operator reset a key, charge it or block it.
//
// # Access
//
// Mount the handler where operators come and clients do not: it answers every request that reaches
// it, except that changes need a token of [Config.Tokens]. Keys are shown as hashes unless
// [Config.ShowKeys] is set. The hashes are made with a secret of the process, so that no key can be
// guessed by its hash. A search is by the key itself.
//
// Requests that another site makes in an operator's browser are refused, even if a name of that
// site leads to this server: see [Config.Hosts]. Changes are POST requests with the token in a
// header field, which a browser sends for no other site. The page's Content-Security-Policy allows
// only its own files.
//
// # Cost
//
// Calls of the limiters pay nothing. Every two seconds the handler reads their counters for the
// charts. A list looks at each word of a table at most once, and concurrent requests share it.
//
// # Start reading
//
// Start at [New] and Handler.ServeHTTP in handler.go. Then guard.go refuses requests, limit.go
// shows any limiter, history.go has the charts' points, and text.go keys as text.
package inspect
