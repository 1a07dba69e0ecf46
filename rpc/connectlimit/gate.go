package connectlimit

import (
	"io"
	"net/http"
	"time"

	"connectrpc.com/connect"

	"github.com/ral-limiter/ral/rpc/internal/calls"
	"github.com/ral-limiter/ral/rpclimit"
)

// Gate refuses requests before a message is read or decoded, by the limits with
// rpclimit.Limit.AtTap. Call [NewGate] to make one. It is safe for concurrent use.
type Gate struct {
	guard  *rpclimit.Guard
	errors *connect.ErrorWriter
}

// NewGate returns a gate for a guard, at least one of whose limits has AtTap. An error is a
// *policy.FieldError. Give it the handlers' options: connect.WithRequireConnectProtocolHeader and
// WithCodec matter for refusals.
func NewGate(guard *rpclimit.Guard, options ...connect.HandlerOption) (*Gate, error) {
	switch {
	case guard == nil:
		return nil, calls.FieldFault("connectlimit.NewGate", "guard", "nil", "the result of rpclimit.New")
	case !guard.Taps():
		return nil, calls.FieldFault("connectlimit.NewGate", "guard", "without AtTap", "at least one limit with rpclimit.Limit.AtTap, which a gate can decide")
	}
	return &Gate{guard, connect.NewErrorWriter(options...)}, nil
}

// Handler returns a handler that passes admitted requests on to next, and answers the others in the
// request's protocol, with Trailers-Only for gRPC. An interceptor of the same limits behind it
// decides those without AtTap, and settles all. Without it, as for an unknown procedure, units
// stay taken.
//
// Every request counts, whatever its method and content type. An unknown protocol is answered as a
// unary call of Connect. So put the gate around the services' mux alone, inside middleware that
// answers CORS preflight requests. Call.Procedure is the path, and Call.Message is nil.
func (g *Gate) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		verdict, session := g.guard.Tap(&rpclimit.Call{
			Context:   request.Context(),
			Procedure: request.URL.Path,
			Peer:      rpclimit.ParsePeer(request.RemoteAddr),
			Header:    (*requestHeader)(request),
		})
		if verdict.Refused() {
			g.refuse(w, request, &verdict)
			return
		}
		if session == nil {
			next.ServeHTTP(w, request)
			return
		}
		ctx, pass := calls.Carry(request.Context(), g.guard, session)
		// End does nothing with a session that an interceptor has taken over.
		defer func() { pass.Take().End(rpclimit.Served{Code: rpclimit.Code(connect.CodeUnimplemented)}) }()
		next.ServeHTTP(w, request.WithContext(ctx))
	})
}

// requestHeader is metadata before connect.Handler, which adds the host.
type requestHeader http.Request

func (r *requestHeader) Values(_, canonical string) []string {
	if canonical == "Host" {
		return []string{r.Host}
	}
	return r.Header[canonical]
}

// refuse ignores write errors, which mean that the client has left.
func (g *Gate) refuse(w http.ResponseWriter, request *http.Request, verdict *rpclimit.Verdict) {
	if request.ProtoMajor < 2 {
		_ = g.errors.Write(w, request, refusal(verdict))
		return
	}
	united := &headerWriter{ResponseWriter: w}
	_ = g.errors.Write(united, request, refusal(verdict))
	if !united.trailers {
		discard(w, request)
	}
}

const (
	maxDiscarded  = 64 << 10
	discardWithin = time.Second
)

// discard reads a short body of HTTP/2 after the answer. Otherwise the server resets the stream,
// which some clients, such as curl, take for an error while they send.
func discard(w http.ResponseWriter, request *http.Request) {
	if request.ContentLength <= 0 || request.ContentLength > maxDiscarded {
		return
	}
	controller := http.NewResponseController(w)
	if controller.SetReadDeadline(time.Now().Add(discardWithin)) == nil && controller.Flush() == nil {
		_, _ = io.Copy(io.Discard, request.Body)
	}
}

// headerWriter turns trailers into header fields, for a gRPC answer without body. The server sends
// them as the handler returns, in a block that ends the answer.
type headerWriter struct {
	http.ResponseWriter
	trailers bool
}

func (w *headerWriter) WriteHeader(status int) {
	if _, w.trailers = w.Header()["Trailer"]; w.trailers {
		w.Header().Del("Trailer")
		return
	}
	w.ResponseWriter.WriteHeader(status)
}
