package connectlimit

import (
	"net/http"
	"strings"
)

// TrailersOnly returns a handler for the root of a server that lets gRPC clients retry what is refused.
//
// A gRPC client retries a call, and reads when it may, only if the answer is a single block of header fields, which
// the gRPC protocol calls Trailers-Only. A connect.Handler sends two. This handler makes one of them, if a call fails
// before anything was sent, and if its trailers have grpc-retry-pushback-ms or the call has set no header fields except
// those of RateLimit. The fields that were set as headers are among the trailers then. Other protocols, and HTTP/1, pass
// through unchanged.
//
// [Gate.Handler] needs no help: its refusals are Trailers-Only.
func TrailersOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		flusher, ok := w.(http.Flusher)
		if !ok || r.ProtoMajor < 2 || !isGRPC(r.Header.Get("Content-Type")) {
			next.ServeHTTP(w, r)
			return
		}
		t := &trailersWriter{ResponseWriter: w, flusher: flusher, before: len(w.Header())}
		next.ServeHTTP(t, r)
		t.unite()
	})
}

// isGRPC reports whether a content type is one of gRPC or gRPC-Web, of which the latter has no trailers.
func isGRPC(kind string) bool {
	const prefix = "application/grpc"
	return len(kind) >= len(prefix) && strings.EqualFold(kind[:len(prefix)], prefix)
}

// trailersWriter unites the header fields and the trailers of an answer that consists of nothing else.
type trailersWriter struct {
	http.ResponseWriter
	flusher http.Flusher
	before  int  // the number of fields that outer handlers have set
	begun   bool // whether header fields have been sent
	united  bool
}

// Unwrap is for http.ResponseController.
func (t *trailersWriter) Unwrap() http.ResponseWriter { return t.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (t *trailersWriter) WriteHeader(status int) {
	t.begun = t.begun || status >= http.StatusOK
	t.ResponseWriter.WriteHeader(status)
}

// Write implements io.Writer.
func (t *trailersWriter) Write(b []byte) (int, error) {
	t.begun = true
	return t.ResponseWriter.Write(b)
}

// Flush implements http.Flusher. What has been united is sent when the handler returns: a flush would send the fields
// in a frame that does not end the stream.
func (t *trailersWriter) Flush() {
	if !t.unite() {
		t.begun = true
		t.flusher.Flush()
	}
}

// The fields that every answer of a connect.Handler has to a call of gRPC, and those that an interceptor of this
// package adds.
var notOfHandler = [...]string{"Content-Type", "Grpc-Accept-Encoding", "Grpc-Encoding", policyField, limitField}

// unite makes header fields of the trailers of an error, if nothing has been sent. It reports whether it did.
func (t *trailersWriter) unite() bool {
	const prefix = http.TrailerPrefix
	h := t.Header()
	if status := h[prefix+"Grpc-Status"]; t.begun || t.united || len(status) == 0 || status[0] == "0" {
		return t.united
	}
	fields, trailers := len(h)-t.before, 0
	for name := range h {
		if strings.HasPrefix(name, prefix) {
			trailers++
		}
	}
	for _, name := range notOfHandler {
		if _, ok := h[name]; ok {
			fields--
		}
	}
	if _, pushback := h[prefix+pushbackField]; !pushback && fields > trailers {
		return false
	}
	for name, values := range h {
		if own, ok := strings.CutPrefix(name, prefix); ok {
			delete(h, name)
			h[own] = append(h[own], values...)
		}
	}
	t.united = true
	return true
}
