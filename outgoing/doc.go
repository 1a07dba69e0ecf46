// Package outgoing keeps outgoing calls within the limits of the servers they call.
//
//	line, err := outgoing.New[string](outgoing.Config{})
//	transport, err := outgoing.NewTransport(line, outgoing.ByHost, outgoing.Options{})
//	client := &http.Client{Transport: transport}
//
// A [Line] queues calls by key, such as a host. A call waits its turn, bounded by its context, is
// sent, and tells the line the answer. A refusal becomes a debt of the key: all its calls wait
// until it ends, also those already in line.
//
// [Transport] is an http.RoundTripper over a Line. It reads Retry-After, RateLimit and
// RateLimit-Policy, RateLimit-Limit and X-RateLimit-Limit with their kin. Adapters for other
// protocols call [Line.Wait], send, and call [Turn.Obey] with an [Answer].
//
// The engine enforces the limits. Start reading at [Line.Wait], then obey.go.
package outgoing
