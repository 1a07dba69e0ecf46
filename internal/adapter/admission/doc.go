// Package admission decides requests of any kind under their limits, for middleware of HTTP and of
// remote calls. It takes units of all limits or of none, and settles the cost when the request is done.
// R is the type of requests. S is the type of the facts about a served request, from which a Charge
// computes the units that the request used.
//
// Start reading at [Controller.Decide], which calls takeAll in takeall.go, or at [Limit.TakeOne] in
// limit.go, the faster way under a single limit. turns.go tells refused requests when to come back,
// stream.go charges an answer while it is written, fields.go formats the fields RateLimit and
// RateLimit-Policy, and log.go and counters.go log and count the requests.
package admission
