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
// takes a response for a refusal by Options.Answer or else [AnswerOf]. Limits of tokens beside calls are
// Config.Units, and that of calls at once is Config.InFlight. Adapters for other protocols call [Line.Wait], send, and call [Turn.Obey] with an
// [Answer].
//
// The engine enforces the limits, package internal/answer reads responses, and package internal/pacing decides
// how fast calls are sent. Start reading at [Transport.RoundTrip], or at [Line.Wait] in turn.go. Then part.go shows
// how a turn and its answer meet the engine and the decisions.
package outgoing
