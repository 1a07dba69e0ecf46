// Package admission decides whether a request of any kind is admitted under its limits: it takes from
// all of them or from none, and settles the cost when the request is done. Middleware for HTTP and for
// remote calls is built on it. R is the type of requests there, and S the type of what is known when a
// request was served. Neither the contents of a request nor the answer to its client are known here.
//
// Start reading at [Controller]. The decision of a single limit is in limit.go, that of several in
// takeall.go.
package admission
