// Package outgoing keeps outgoing calls within the limits of the servers they call.
//
//	line, err := outgoing.New[string](outgoing.Config{})
//	transport, err := outgoing.NewTransport(line, outgoing.ByHost, outgoing.Options{})
//	client := &http.Client{Transport: transport}
//
// A [Line] queues calls by key, such as a host. A call waits its turn, bounded by its context, is
// sent, and tells the line the answer. After a refusal all calls of the key, also those already in
// line, wait for the time that the server gave, or for a back-off.
//
// [Transport] is an http.RoundTripper over a Line. It reads the fields listed at [FieldsOf], and
// decides by Options.Answer, or else by [AnswerOf], whether a response is a refusal. Config.Units adds
// limits of tokens and other units to the limit of calls, and Config.InFlight limits the calls in
// flight. Adapters for other protocols call [Line.Wait], send, and call [Turn.Obey] with an [Answer].
//
// The engine enforces the limits, package internal/answer reads responses, and package internal/pacing decides
// how fast calls are sent. Start reading at [Transport.RoundTrip], or at [Line.Wait] in turn.go. Then read
// part.go, which takes a turn's units of the engine, and applies the decisions of package pacing to it.
package outgoing
