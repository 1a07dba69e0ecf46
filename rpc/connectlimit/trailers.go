package connectlimit

import (
	"net/http"
	"strings"
)

// TrailersOnly returns a handler for a server's root that lets gRPC clients retry refused calls of
// connect.Handlers. [Gate.Handler] needs no help.
//
// A gRPC client retries only an answer in a single block of header fields, called Trailers-Only.
// This handler unites header and trailers if a call fails before anything was sent. The trailers
// must have grpc-retry-pushback-ms, or the header no fields except RateLimit. Other protocols, and
// HTTP/1, pass through unchanged.
func TrailersOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		flusher, ok := w.(http.Flusher)
		if !ok || request.ProtoMajor < 2 || !isGRPC(request.Header.Get("Content-Type")) {
			next.ServeHTTP(w, request)
			return
		}
		t := &trailersWriter{ResponseWriter: w, flusher: flusher, before: len(w.Header())}
		next.ServeHTTP(t, request)
		t.unite()
	})
}

func isGRPC(kind string) bool {
	const prefix = "application/grpc"
	return len(kind) >= len(prefix) && strings.EqualFold(kind[:len(prefix)], prefix)
}

// trailersWriter unites header fields and trailers of an answer without a body.
type trailersWriter struct {
	http.ResponseWriter
	flusher http.Flusher
	before  int  // the number of fields set by outer handlers
	begun   bool // whether header fields have been sent
	united  bool
}

func (t *trailersWriter) Unwrap() http.ResponseWriter { return t.ResponseWriter }

func (t *trailersWriter) WriteHeader(status int) {
	t.begun = t.begun || status >= http.StatusOK
	t.ResponseWriter.WriteHeader(status)
}

func (t *trailersWriter) Write(buffer []byte) (int, error) {
	t.begun = true
	return t.ResponseWriter.Write(buffer)
}

// Flush does nothing after unite: it would send a frame that does not end the stream.
func (t *trailersWriter) Flush() {
	if !t.unite() {
		t.begun = true
		t.flusher.Flush()
	}
}

// Fields in every answer of a connect.Handler to a gRPC call, or added by this package.
var notOfHandler = [...]string{"Content-Type", "Grpc-Accept-Encoding", "Grpc-Encoding", policyField, limitField}

// unite turns an error's trailers into header fields, and reports whether nothing had been sent.
func (t *trailersWriter) unite() bool {
	const prefix = http.TrailerPrefix
	header := t.Header()
	if status := header[prefix+"Grpc-Status"]; t.begun || t.united || len(status) == 0 || status[0] == "0" {
		return t.united
	}
	fields, trailers := len(header)-t.before, 0
	for name := range header {
		if strings.HasPrefix(name, prefix) {
			trailers++
		}
	}
	for _, name := range notOfHandler {
		if _, ok := header[name]; ok {
			fields--
		}
	}
	if _, pushback := header[prefix+pushbackField]; !pushback && fields > trailers {
		return false
	}
	for name, values := range header {
		if own, ok := strings.CutPrefix(name, prefix); ok {
			delete(header, name)
			header[own] = append(header[own], values...)
		}
	}
	t.united = true
	return true
}
