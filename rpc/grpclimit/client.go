package grpclimit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/ral-limiter/ral/outgoing"
	"github.com/ral-limiter/ral/rpc/internal/calls"
	"github.com/ral-limiter/ral/rpclimit"
)

// ClientOptions configures a [Client]. The zero ClientOptions is a good choice.
type ClientOptions struct {
	// Retries is how often a refused unary call, not a stream, is sent again at most. It waits in
	// line, and for the server's back-off. If the turn comes later than the context or
	// outgoing.Config.Patience allows, the refusal is returned. Attempts by a service config's
	// retry policy take no turn: do not use both.
	Retries int

	// Repeatable reports whether calls of a method, such as "/package.Service/Method", may be sent
	// more than once. It is required if Retries is not 0.
	Repeatable func(method string) bool

	// Answer, if not nil, is asked about the error of a call. If known is true, the answer replaces what
	// the status says, as by outgoing.Answer.With. With RetryAfter policy.Never the refusal is final:
	// the call is not sent again, and holds no other.
	Answer func(err error) (a outgoing.Answer, known bool)
}

// Client has gRPC calls wait their turn in an outgoing.Line, and obeys the answers. It is safe for
// concurrent use by any number of connections. Call [NewClient] to make one, and install it:
//
//	conn, err := grpc.NewClient(target,
//		grpc.WithChainUnaryInterceptor(client.Unary),
//		grpc.WithChainStreamInterceptor(client.Stream))
//
// A call is refused if its status is ResourceExhausted, or Unavailable with a RetryInfo or a
// grpc-retry-pushback-ms. All calls of its key then wait for the longer, or without a time for
// outgoing.Config.Backoff. A pushback below 0 means that the call is never admitted, and holds no
// other. A ResourceExhausted without a time is no refusal if it names a message's size: see
// rpcstatus.TooLarge. RateLimit fields are read as by outgoing.FieldsOf.
type Client[K comparable] struct {
	line    *outgoing.Line[K]
	key     func(ctx context.Context, method string, conn *grpc.ClientConn) K
	options ClientOptions
}

// NewClient returns a Client over a line. key returns the key of a call, such as [ByTarget]. An
// error is a *policy.FieldError.
func NewClient[K comparable](
	line *outgoing.Line[K], key func(ctx context.Context, method string, conn *grpc.ClientConn) K, options ClientOptions,
) (*Client[K], error) {
	err := calls.CheckClient("grpclimit.NewClient", "grpclimit.ByTarget", line != nil, key != nil, options.Retries)
	if err == nil && options.Retries > 0 && options.Repeatable == nil {
		err = calls.FieldFault("grpclimit.NewClient", "options.Repeatable", "nil", "a function, as options.Retries is not 0")
	}
	if err != nil {
		return nil, err
	}
	return &Client[K]{line, key, options}, nil
}

// ByTarget is the key of calls by their connection's target.
func ByTarget(_ context.Context, _ string, conn *grpc.ClientConn) string { return conn.Target() }

// Unary is a grpc.UnaryClientInterceptor. The status of a call without a turn is DeadlineExceeded
// if the turn would come too late, and Canceled if the context was. It is ResourceExhausted if too
// many calls wait, and Unavailable if the line is closed. errors.Is finds the engine's error in it.
func (c *Client[K]) Unary(
	ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoker grpc.UnaryInvoker, options ...grpc.CallOption,
) error {
	var err error
	unsent := c.line.Send(ctx, c.key(ctx, method, conn), c.options.Retries, func(turn *outgoing.Turn[K]) (again bool) {
		var header, trailer metadata.MD
		err = invoker(ctx, method, request, reply, conn, append(slices.Clip(options), grpc.Header(&header), grpc.Trailer(&trailer))...)
		answer := answerOf(c.options.Answer, err, header, trailer)
		settle(turn, answer, err, header, trailer)
		return answer.MayRetry() && c.options.Retries > 0 && c.options.Repeatable(method)
	})
	if unsent != nil {
		return noTurn(unsent)
	}
	return err
}

// Stream is a grpc.StreamClientInterceptor. A stream takes a turn, when it begins. The errors are
// as of Unary. If ctx ends before an answer, no other call waits for it. Under outgoing.Config.InFlight a stream is
// in flight until its end is received or ctx ends.
func (c *Client[K]) Stream(
	ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, streamer grpc.Streamer, options ...grpc.CallOption,
) (grpc.ClientStream, error) {
	turn, err := c.line.Wait(ctx, c.key(ctx, method, conn))
	if err != nil {
		return nil, noTurn(err)
	}
	stream := &clientStream[K]{turn: turn, hook: c.options.Answer}
	begun := false
	defer func() {
		if !begun {
			// The streamer panicked.
			stream.turn.Abandon()
		}
	}()
	if stream.ClientStream, err = streamer(ctx, desc, conn, method, options...); err != nil {
		settle(&stream.turn, answerOf(stream.hook, err, nil, nil), err, nil, nil)
		return nil, err
	}
	begun, stream.single, stream.stop = true, !desc.ServerStreams, context.AfterFunc(ctx, stream.lost)
	return stream, nil
}

// clientStream obeys a stream's header, at its first message, and its end.
type clientStream[K comparable] struct {
	grpc.ClientStream
	single   bool // whether the server sends a single message
	answered bool
	ended    bool
	// stop ends the wait for the context's end.
	stop func() bool
	hook func(error) (outgoing.Answer, bool)

	mu sync.Mutex
	// turn is used with mu held.
	turn outgoing.Turn[K]
}

// lost ends the turn of a stream that is abandoned.
func (s *clientStream[K]) lost() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turn.Abandon()
}

func (s *clientStream[K]) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if s.ended || err == nil && s.answered {
		return err
	}
	// The header has come.
	header, _ := s.Header()
	var trailer metadata.MD
	if s.answered, s.ended = true, err != nil || s.single; s.ended {
		trailer = s.Trailer()
		s.stop()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	settle(&s.turn, answerOf(s.hook, err, header, trailer), err, header, trailer)
	if s.ended {
		s.turn.Release()
	}
	return err
}

// settle tells the line of an answer. An error without metadata is local unless it is a refusal.
func settle[K comparable](turn *outgoing.Turn[K], answer outgoing.Answer, err error, header, trailer metadata.MD) {
	if err != nil && !errors.Is(err, io.EOF) && !answer.Refused && len(header)+len(trailer) == 0 {
		turn.Abandon()
		return
	}
	turn.Obey(answer)
}

// answerOf reads the answer to a call that ended with err, io.EOF or nil. hook may be nil.
func answerOf(hook func(error) (outgoing.Answer, bool), err error, header, trailer metadata.MD) outgoing.Answer {
	answer := outgoing.FieldsOf(fieldsOf(header, trailer), time.Now())
	answer.RetryAfter = 0
	s := status.Convert(err)
	told := false
	for _, detail := range s.Details() {
		if delay, ok := calls.RetryInfo(detail); ok {
			told, answer.RetryAfter = true, max(answer.RetryAfter, delay)
		}
	}
	if pushback, ok := calls.Pushback(trailer[pushbackKey]); ok {
		told, answer.RetryAfter = true, max(answer.RetryAfter, pushback)
	}
	if err == nil || errors.Is(err, io.EOF) {
		hook = nil
	}
	return calls.Judge(answer, rpclimit.Code(s.Code()), s.Message(), told, hook, err)
}

// limitKeys are the metadata that outgoing.FieldsOf reads, except retry-after.
var limitKeys = [...]string{
	policyKey, limitKey, "date",
	"ratelimit-limit", "ratelimit-remaining", "ratelimit-reset",
	"x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset",
	"x-rate-limit-limit", "x-rate-limit-remaining", "x-rate-limit-reset",
}

func fieldsOf(header, trailer metadata.MD) (headers http.Header) {
	for _, key := range limitKeys {
		values := header[key]
		if len(values) == 0 {
			values = trailer[key]
		}
		if len(values) == 0 {
			continue
		}
		if headers == nil {
			headers = make(http.Header, 2)
		}
		headers[http.CanonicalHeaderKey(key)] = values
	}
	return headers
}

// turnError is the engine's error of a call without a turn, with a status.
type turnError struct {
	error
	code codes.Code
}

func (e *turnError) Unwrap() error { return e.error }

// GRPCStatus is for status.FromError.
func (e *turnError) GRPCStatus() *status.Status { return status.New(e.code, e.Error()) }

func noTurn(err error) error {
	return &turnError{fmt.Errorf("grpclimit: %w", err), codes.Code(calls.Unsent(err))}
}
