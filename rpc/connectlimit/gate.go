package connectlimit

import (
	"context"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/rpclimit"
)

// Gate refuses requests before a message is read or decoded: the cheapest refusal. It decides the limits with
// rpclimit.Limit.AtTap. Call [NewGate] to make one. Any number of goroutines may call its methods.
type Gate struct {
	limits *rpclimit.Limits
	errors *connect.ErrorWriter
}

// NewGate returns a gate for limits of which some have AtTap. An error is a *policy.FieldError.
//
// The options are those of the handlers behind the gate, of which connect.WithRequireConnectProtocolHeader and
// connect.WithCodec matter for how refusals are written.
func NewGate(limits *rpclimit.Limits, options ...connect.HandlerOption) (*Gate, error) {
	bad := func(value, want string) error {
		return &policy.FieldError{Of: "connectlimit.NewGate", Field: "limits", Value: value, Want: want}
	}
	switch {
	case limits == nil:
		return nil, bad("nil", "the result of rpclimit.New")
	case !limits.Taps():
		return nil, bad("without AtTap", "at least one limit with rpclimit.Limit.AtTap, which a gate can decide")
	}
	return &Gate{limits, connect.NewErrorWriter(options...)}, nil
}

// Handler returns a handler that passes admitted requests on to next, and answers the others in the protocol that the
// request speaks. A gRPC client is sent Trailers-Only, so that it can retry.
//
// An interceptor of the same limits behind the gate decides those without AtTap, and settles all. What a request has
// taken at the gate is kept if no interceptor sees it, as a request for a procedure that there is not.
//
// Every request counts that reaches the gate, whatever its method and content type: what no protocol knows is answered
// as a unary call of Connect. So put the gate around the mux of the services alone, and inside of middleware that
// answers CORS preflight requests. Call.Procedure is the request's path, and Call.Message is nil.
func (g *Gate) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		verdict, session := g.limits.Tap(&rpclimit.Call{
			Context:   r.Context(),
			Procedure: r.URL.Path,
			Peer:      rpclimit.ParsePeer(r.RemoteAddr),
			Header:    (*requestHeader)(r),
		})
		if verdict.Refused() {
			g.refuse(w, r, &verdict)
			return
		}
		if session == nil {
			next.ServeHTTP(w, r)
			return
		}
		pass := &pass{of: g.limits}
		pass.session.Store(session)
		defer func() {
			if session := pass.session.Swap(nil); session != nil {
				session.End(rpclimit.Served{Code: rpclimit.Code(connect.CodeUnimplemented)})
			}
		}()
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), passKey{g.limits}, pass)))
	})
}

// pass is what a request has taken at a gate, until an interceptor takes it over.
type pass struct {
	of      *rpclimit.Limits
	session atomic.Pointer[rpclimit.Session]
}

type passKey struct{ of *rpclimit.Limits }

// tapped returns what the call has taken at a gate of the same limits, once.
func (i *interceptor) tapped(ctx context.Context) *rpclimit.Session {
	if !i.taps {
		return nil
	}
	if pass, ok := ctx.Value(passKey{i.limits}).(*pass); ok {
		return pass.session.Swap(nil)
	}
	return nil
}

// requestHeader is the metadata of a request that no connect.Handler has seen yet, which would put the host there.
type requestHeader http.Request

// Values implements rpclimit.Header.
func (r *requestHeader) Values(_, canonical string) []string {
	if canonical == "Host" {
		return []string{r.Host}
	}
	return r.Header[canonical]
}

// refuse answers a request. An error of writing means that the client has left.
func (g *Gate) refuse(w http.ResponseWriter, r *http.Request, v *rpclimit.Verdict) {
	if r.ProtoMajor < 2 {
		_ = g.errors.Write(w, r, refusal(v))
		return
	}
	united := &headerWriter{ResponseWriter: w}
	_ = g.errors.Write(united, r, refusal(v))
	if !united.trailers {
		discard(w, r)
	}
}

const (
	mostDiscarded = 64 << 10
	discardWithin = time.Second
)

// discard reads a short body of HTTP/2 off the connection, once the answer is on its way. Otherwise the server resets the
// stream, and some clients, curl among them, take that for an error while they still send.
func discard(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength <= 0 || r.ContentLength > mostDiscarded {
		return
	}
	c := http.NewResponseController(w)
	if c.SetReadDeadline(time.Now().Add(discardWithin)) == nil && c.Flush() == nil {
		_, _ = io.Copy(io.Discard, r.Body)
	}
}

// headerWriter makes header fields of the trailers of an answer that has no body, which is one of gRPC. The server sends
// them when the handler returns, in a block that ends the answer.
type headerWriter struct {
	http.ResponseWriter
	trailers bool // whether there are trailers
}

// WriteHeader implements http.ResponseWriter.
func (w *headerWriter) WriteHeader(status int) {
	if _, w.trailers = w.Header()["Trailer"]; w.trailers {
		w.Header().Del("Trailer")
		return
	}
	w.ResponseWriter.WriteHeader(status)
}
