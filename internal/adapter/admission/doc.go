// Package admission decides requests of any kind under their limits, for middleware of HTTP and of
// remote calls. It takes from all limits or none, and settles the cost when the request is done. R
// is the type of requests, and S of the facts about a served request.
package admission
