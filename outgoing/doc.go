// Package outgoing holds calls that go out to the limit of the server that they go to.
//
//	line, err := outgoing.New[string](outgoing.Config{})
//	transport, err := outgoing.NewTransport(line, outgoing.ByHost, outgoing.Options{})
//	client := &http.Client{Transport: transport}
//
// A [Line] has one line of calls for each key, such as a host. A call waits its turn, bounded
// by its context, is sent, and tells the line what the other side answered. What the other
// side says becomes a debt of the key: calls that are refused until an instant keep all calls
// of the key waiting until then, those in line too.
//
// [Transport] is an http.RoundTripper over a Line. It reads Retry-After, RateLimit and
// RateLimit-Policy, RateLimit-Limit and X-RateLimit-Limit with their kin. Adapters for other
// protocols call [Line.Wait], send, and call [Turn.Obey] with an [Answer].
//
// The package knows what a client is told. How a limit is kept is the engine's concern. Start
// reading at [Line.Wait], then obey.go.
package outgoing
