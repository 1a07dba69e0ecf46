package connectlimit

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/ral-limiter/ral/outgoing"
	"github.com/ral-limiter/ral/rpc/internal/calls"
	"github.com/ral-limiter/ral/rpclimit"
)

// ClientOptions configures [NewClientInterceptor]. The zero ClientOptions is a good choice.
type ClientOptions struct {
	// Retries is how often a refused unary call, not a stream, is sent again at most. It waits in
	// line, and for the server's back-off. If the turn comes later than the context or
	// outgoing.Config.Patience allows, the refusal is returned.
	Retries int

	// Repeatable reports whether a call may be sent more than once. By default, its schema declares
	// it idempotent or without side effects.
	Repeatable func(request connect.AnyRequest) bool

	// Answer, if not nil, is asked about an error of the server. If known is true, the answer replaces
	// what the error says, as by outgoing.Answer.With. With RetryAfter policy.Never the refusal is
	// final: the call is not sent again, and holds no other.
	Answer func(err error) (a outgoing.Answer, known bool)
}

// ByServer is the key of calls by their server, its host with its port.
func ByServer(_ connect.Spec, server connect.Peer) string { return server.Addr }

// NewClientInterceptor returns an interceptor for clients. A call, and a stream as it opens, waits
// its turn in its key's line, bounded by its context. It tells the line the answer: the RateLimit
// fields, and of a refusal the pushback, google.rpc.RetryInfo or Retry-After. A refusal is the
// server's CodeResourceExhausted, or CodeUnavailable with a time to retry. Without a time it is none if
// it names a message's size: see rpcstatus.TooLarge. Refusals after the first message of a stream are
// not told.
//
// A call without a turn is not sent. Its error wraps the error of outgoing.Line.Wait. The code is
// CodeDeadlineExceeded if the turn would come too late, and CodeCanceled if the context was. It is
// CodeResourceExhausted if too many calls wait, and CodeUnavailable if the line is closed.
//
// Any number of clients may share a line. key returns the key of a call, such as [ByServer]. An
// error is a *policy.FieldError. A stream that is abandoned before its answer holds up no other
// call. Under outgoing.Config.InFlight a stream is in flight until its end is received, its response is closed or its
// context ends. The interceptor passes on the calls of handlers.
func NewClientInterceptor[K comparable](
	line *outgoing.Line[K], key func(spec connect.Spec, server connect.Peer) K, options ClientOptions,
) (connect.Interceptor, error) {
	err := calls.CheckClient("connectlimit.NewClientInterceptor", "connectlimit.ByServer", line != nil, key != nil, options.Retries)
	if err != nil {
		return nil, err
	}
	if options.Repeatable == nil {
		options.Repeatable = repeatable
	}
	return &waiting[K]{line, key, options}, nil
}

func repeatable(request connect.AnyRequest) bool {
	return request.Spec().IdempotencyLevel != connect.IdempotencyUnknown
}

type waiting[K comparable] struct {
	line    *outgoing.Line[K]
	key     func(connect.Spec, connect.Peer) K
	options ClientOptions
}

func (w *waiting[K]) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}

func (w *waiting[K]) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, request connect.AnyRequest) (response connect.AnyResponse, err error) {
		spec := request.Spec()
		if !spec.IsClient {
			return next(ctx, request)
		}
		unsent := w.line.Send(ctx, w.key(spec, request.Peer()), w.options.Retries, func(turn *outgoing.Turn[K]) (again bool) {
			response, err = next(ctx, request)
			var header http.Header
			if err == nil {
				header = response.Header()
			}
			answer, told := answerOf(w.options.Answer, header, err)
			if told {
				turn.Obey(answer)
			} else {
				turn.Abandon()
			}
			return answer.MayRetry() && w.options.Retries > 0 && w.options.Repeatable(request)
		})
		if unsent != nil {
			return nil, notSent(unsent)
		}
		return response, err
	}
}

func notSent(err error) error { return connect.NewError(connect.Code(calls.Unsent(err)), err) }

// answerOf returns a server's answer to a call. told is false if the error is the client's own. The
// header belongs to a call without an error. hook may be nil.
func answerOf(hook func(error) (outgoing.Answer, bool), header http.Header, err error) (answer outgoing.Answer, told bool) {
	if err == nil {
		answer = outgoing.FieldsOf(header, time.Now())
		answer.RetryAfter = 0
		return answer, true
	}
	refusal := new(connect.Error)
	if !errors.As(err, &refusal) || !connect.IsWireError(err) {
		return answer, false
	}
	answer = outgoing.FieldsOf(refusal.Meta(), time.Now())
	if duration := delayOf(refusal); duration != 0 {
		answer.RetryAfter = duration
	}
	return calls.Judge(answer, rpclimit.Code(refusal.Code()), refusal.Message(), answer.RetryAfter > 0, hook, err), true
}

// delayOf returns a refusal's pushback or RetryInfo. 0 is none, and policy.Never forbids a retry.
func delayOf(refusal *connect.Error) time.Duration {
	if pushback, ok := calls.Pushback(refusal.Meta()[pushbackField]); ok {
		return max(1, pushback)
	}
	for _, detail := range refusal.Details() {
		if detail.Type() != retryInfoType {
			continue
		}
		if message, err := detail.Value(); err == nil {
			if delay, ok := calls.RetryInfo(message); ok {
				return delay
			}
		}
	}
	return 0
}

const retryInfoType = "google.rpc.RetryInfo"

func (w *waiting[K]) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return func(ctx context.Context, spec connect.Spec) connect.StreamingClientConn {
		conn := next(ctx, spec)
		turn, err := w.line.Wait(ctx, w.key(spec, conn.Peer()))
		if err != nil {
			return &unsentConn{conn, notSent(err)}
		}
		c := &turnConn[K]{StreamingClientConn: conn, turn: turn, hook: w.options.Answer}
		c.stop = context.AfterFunc(ctx, c.lost)
		return c
	}
}

type turnConn[K comparable] struct {
	connect.StreamingClientConn
	hook func(error) (outgoing.Answer, bool)
	told bool        // for the goroutine that receives
	stop func() bool // ends the wait for the context's end

	mu   sync.Mutex
	turn outgoing.Turn[K] // with mu held
}

// lost ends the turn of a stream that is abandoned.
func (c *turnConn[K]) lost() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.turn.Abandon()
}

func (c *turnConn[K]) CloseResponse() error {
	c.stop()
	c.lost() // after an answer it only releases the turn
	return c.StreamingClientConn.CloseResponse()
}

func (c *turnConn[K]) Receive(message any) error {
	err := c.StreamingClientConn.Receive(message)
	if c.told && err == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.stop()
		defer c.turn.Release()
	}
	if c.told {
		return err
	}
	c.told = true
	if err == nil || errors.Is(err, io.EOF) {
		answer, _ := answerOf(nil, c.ResponseHeader(), nil)
		c.turn.Obey(answer)
	} else if answer, told := answerOf(c.hook, nil, err); told {
		c.turn.Obey(answer)
	} else {
		c.turn.Abandon()
	}
	return err
}

// unsentConn is a stream without a turn. Closing the stream within would send.
type unsentConn struct {
	connect.StreamingClientConn
	err error
}

func (c *unsentConn) Send(any) error               { return c.err }
func (c *unsentConn) Receive(any) error            { return c.err }
func (c *unsentConn) CloseRequest() error          { return nil }
func (c *unsentConn) CloseResponse() error         { return nil }
func (c *unsentConn) ResponseHeader() http.Header  { return http.Header{} }
func (c *unsentConn) ResponseTrailer() http.Header { return http.Header{} }
