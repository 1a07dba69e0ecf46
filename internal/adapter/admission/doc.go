// Package admission decides about requests of any kind under one or several limits: what middleware
// for HTTP and for remote calls has in common. It knows what a request costs and which limits
// hold for it, and what to do when it is done. What a request is, and what its client is told, are
// the concern of the packages in front: R is their type of requests, and S of what they know when a
// request was served.
//
// Start reading at [Door]. The decision of a single limit is in limit.go, that of several in
// takeall.go.
package admission
