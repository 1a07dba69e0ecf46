package grpclimit

import (
	"context"
	"errors"
	"io"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/internal/testkit/rpctest"
	"github.com/ral-limiter/ral/outgoing"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/rpclimit"
)

// behind returns a connection to the server whose calls go by a Client.
func (s *server) behind(t testing.TB, line *outgoing.Line[string], o ClientOptions) *grpc.ClientConn {
	t.Helper()
	c := must.Get(NewClient(line, ByTarget, o))
	return s.client(t, grpc.WithChainUnaryInterceptor(c.Unary), grpc.WithChainStreamInterceptor(c.Stream))
}

// Promise: A refusal holds all its key's calls.
func TestClientObeysRefusals(t *testing.T) {
	rpctest.RunClient(t, func(t testing.TB, c rpctest.Calls) rpctest.Client {
		conn := serve(t, c.Guard, grpc.MaxRecvMsgSize(1000)).behind(t, c.Line, ClientOptions{
			Retries: c.Retries, Repeatable: func(method string) bool { return c.Repeatable && method == pb.TestService_UnaryCall_FullMethodName },
		})
		unary := func(options ...grpc.CallOption) func(context.Context) error {
			return func(ctx context.Context) error { return call(ctx, conn, "more than one byte", options...) }
		}
		return rpctest.Client{
			Key: conn.Target(), Unary: unary(), Code: codeOf,
			TooLarge: []func(context.Context) error{
				unary(grpc.MaxCallRecvMsgSize(1)), unary(grpc.MaxCallSendMsgSize(1)),
				func(ctx context.Context) error { return call(ctx, conn, strings.Repeat("x", 2000)) },
				func(ctx context.Context) error { return talk(t, ctx, conn, strings.Repeat("x", 2000)) },
			},
			Stream: func(ctx context.Context) error { return talk(t, ctx, conn, "end") },
			Open:   func(ctx context.Context) { openStream(t, ctx, conn) },
			Exchange: func(ctx context.Context) {
				require.NoError(t, exchange(openStream(t, ctx, conn), ""))
			},
		}
	})
}

// Every call is served at the first attempt, at the pace of the first answer. The calls exceed the
// bucket, which gives back at three times that pace. It holds the calls that come at once when a
// busy machine has stopped for two seconds.
//
// Promise: 100 goroutines behind one connection are not refused.
func TestCrowdBehindOneConnectionIsNotRefused(t *testing.T) {
	s := serve(t, rpctest.ByAddr(open[netip.Addr](t, policy.Must(policy.Funnel(400, 200, time.Second)), nil), rpclimit.Options{}))
	line := rpctest.Line(t, outgoing.Config{Pace: outgoing.Even})
	conn := s.behind(t, line, ClientOptions{})
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() {
			for range 7 {
				assert.NoError(t, call(t.Context(), conn, "x"))
			}
			if i%2 == 0 {
				assert.NoError(t, talk(t, t.Context(), conn, "end"))
			}
		})
	}
	all.Wait()
	assert.Equal(t, int64(750), s.attempts.Load())
	stats := line.Stats()
	assert.Equal(t, uint64(750), stats.Turns)
	assert.Zero(t, stats.Refusals)
	assert.Positive(t, stats.Waits)
	limit := line.Limit(conn.Target())
	assert.Equal(t, int64(12), limit.Limit(), "%v", limit)
	word, _ := limit.Take(0, 1, limit.Limit(), 0)
	_, next := limit.Take(word, 1, 1, 0)
	assert.LessOrEqual(t, next.RetryAfter, time.Second*100/(95*200), "the line leaves more than 5%% of the limit unused")
}

func errorOf(t testing.TB, code codes.Code, message string, delay time.Duration) error {
	t.Helper()
	s := status.New(code, message)
	if delay != 0 {
		s = must.Get(s.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(delay)}))
	}
	return s.Err()
}

func TestStatusAndTrailerTellTheAnswer(t *testing.T) {
	for _, a := range rpctest.Answers() {
		err, trailer := errorOf(t, codes.Code(a.Code), a.Message, a.RetryInfo), metadata.New(a.Fields)
		trailer[pushbackKey] = a.Pushback
		assert.Equal(t, a.Want, answerOf(hook, err, nil, trailer), a.Name)
	}
	pushback := metadata.MD{pushbackKey: {"7"}}
	refused := outgoing.Answer{Refused: true}
	older := metadata.MD{"x-ratelimit-remaining": {"4"}, "x-ratelimit-reset": {"3"}}
	dated := metadata.MD{"x-rate-limit-remaining": {"4"}, "x-rate-limit-reset": {"1795521660"}, "date": {"Tue, 24 Nov 2026 12:00:00 GMT"}}
	for name, c := range map[string]struct {
		err             error
		header, trailer metadata.MD
		want            outgoing.Answer
	}{
		"served, with a pushback":       {nil, nil, pushback, outgoing.Answer{}},
		"end of a stream":               {io.EOF, nil, nil, outgoing.Answer{}},
		"the longer of both":            {errorOf(t, codes.ResourceExhausted, "", 9*time.Millisecond), nil, pushback, outgoing.Answer{Refused: true, RetryAfter: 9 * time.Millisecond}},
		"a message received too large":  {errorOf(t, codes.ResourceExhausted, "grpc: received message larger than max (5 vs. 4)", 0), nil, nil, outgoing.Answer{}},
		"a message to send, too large":  {errorOf(t, codes.ResourceExhausted, "trying to send message larger than max (5 vs. 4)", 0), nil, nil, outgoing.Answer{}},
		"one of a server that is large": {errorOf(t, codes.ResourceExhausted, "quota larger than max", 0), nil, nil, refused},
		"older fields":                  {nil, nil, older, outgoing.Answer{HasRemaining: true, Remaining: 4, Reset: 3 * time.Second}},
		"older fields, in the header":   {nil, older, nil, outgoing.Answer{HasRemaining: true, Remaining: 4, Reset: 3 * time.Second}},
		"other fields, and a date":      {nil, nil, dated, outgoing.Answer{HasRemaining: true, Remaining: 4, Reset: time.Minute}},
	} {
		assert.Equal(t, c.want, answerOf(hook, c.err, c.header, c.trailer), name)
	}
}

var hook = rpctest.Hook(func(err error) string { return status.Convert(err).Message() })

// Promise: gRPC refusals without a time back off; a served call begins anew.
func TestRefusalsInARow(t *testing.T) {
	conn := must.Get(grpc.NewClient("passthrough:///nowhere", grpc.WithTransportCredentials(insecure.NewCredentials())))
	defer conn.Close()
	for _, streamed := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			line := rpctest.Line(t, outgoing.Config{})
			final := false
			c := must.Get(NewClient(line, ByTarget, ClientOptions{Retries: 3, Repeatable: func(string) bool { return final }, Answer: hook}))
			rpctest.Strikes(t, line, conn.Target(), func(message string) (err error) {
				if final = message == rpctest.Final; message != "" {
					err = status.Error(codes.ResourceExhausted, message)
				}
				if !streamed {
					return c.Unary(t.Context(), "/service/method", nil, nil, conn, func(_ context.Context, _ string, _, _ any, _ *grpc.ClientConn, options ...grpc.CallOption) error {
						for _, option := range options {
							if header, ok := option.(grpc.HeaderCallOption); ok {
								// The answer is the server's.
								*header.HeaderAddr = metadata.Pairs("a", "b")
							}
						}
						return err
					})
				}
				s, bad := c.Stream(t.Context(), &grpc.StreamDesc{}, conn, "/service/method", func(context.Context, *grpc.StreamDesc, *grpc.ClientConn, string, ...grpc.CallOption) (grpc.ClientStream, error) {
					return answeredStream{err: err}, nil
				})
				require.NoError(t, bad)
				return s.RecvMsg(nil)
			})
		})
	}
}

// answeredStream is a stream with an answer.
type answeredStream struct {
	grpc.ClientStream
	err error
}

func (s answeredStream) RecvMsg(any) error            { return s.err }
func (s answeredStream) Header() (metadata.MD, error) { return metadata.Pairs("a", "b"), nil }
func (s answeredStream) Trailer() metadata.MD         { return nil }

// As the first of its key it does not hold the others for outgoing.Config.Probe.
func TestFailedCallTeachesNothing(t *testing.T) {
	line := rpctest.Line(t, outgoing.Config{Probe: time.Hour})
	c := must.Get(NewClient(line, ByTarget, ClientOptions{}))
	conn, err := grpc.NewClient("passthrough:///nowhere", grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer conn.Close()
	refused := status.Error(codes.Unavailable, "connection refused")
	before := line.Limit(conn.Target()).String()
	for range 2 {
		err := c.Unary(t.Context(), "/service/method", nil, nil, conn, func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error { return refused })
		assert.Equal(t, refused, err)
		_, err = c.Stream(t.Context(), &grpc.StreamDesc{}, conn, "/service/method", func(context.Context, *grpc.StreamDesc, *grpc.ClientConn, string, ...grpc.CallOption) (grpc.ClientStream, error) {
			return nil, refused
		})
		assert.Equal(t, refused, err)
		assert.Equal(t, before, line.Limit(conn.Target()).String(), "it is not taken for a server without a limit")
	}
}

func TestRefusalAtALaterMessageHoldsAllCalls(t *testing.T) {
	s := serve(t, rpctest.ByAddr(open[netip.Addr](t, hourly(2), nil), rpclimit.Options{
		Cost: func(*rpclimit.Call) int64 { return 0 }, CostReceived: func(*rpclimit.Call) int64 { return 1 },
	}))
	line := rpctest.Line(t, outgoing.Config{})
	conn := s.behind(t, line, ClientOptions{})
	stream := openStream(t, t.Context(), conn)
	for range 2 {
		require.NoError(t, exchange(stream, ""))
		assert.Zero(t, line.BackoffLeft(conn.Target()))
	}
	require.Equal(t, codes.ResourceExhausted, status.Code(exchange(stream, "")))
	assert.Greater(t, line.BackoffLeft(conn.Target()), 29*time.Minute)
	assert.Equal(t, uint64(1), line.Stats().Refusals)
}

func TestNewClientNamesTheBadArgument(t *testing.T) {
	line := rpctest.Line(t, outgoing.Config{})
	for field, c := range map[string]struct {
		line    *outgoing.Line[string]
		key     func(context.Context, string, *grpc.ClientConn) string
		options ClientOptions
	}{
		"line":               {nil, ByTarget, ClientOptions{}},
		"key":                {line, nil, ClientOptions{}},
		"options.Retries":    {line, ByTarget, ClientOptions{Retries: -1}},
		"options.Repeatable": {line, ByTarget, ClientOptions{Retries: 1}},
	} {
		_, err := NewClient(c.line, c.key, c.options)
		var fault *policy.FieldError
		require.True(t, errors.As(err, &fault), field)
		assert.Equal(t, field, fault.Field)
	}
}

// Promise: A stream with a single answer is in flight until that answer.
func TestStreamWithASingleAnswerIsInFlightUntilItComes(t *testing.T) {
	s := serve(t, rpctest.ByAddr(open[netip.Addr](t, hourly(100), nil), rpclimit.Options{}))
	line := rpctest.Line(t, outgoing.Config{InFlight: policy.Must(policy.InFlight(1, time.Hour)), Patience: time.Minute})
	conn := s.behind(t, line, ClientOptions{})
	for range 3 {
		stream := must.Get(pb.NewTestServiceClient(conn).StreamingInputCall(t.Context()))
		require.NoError(t, stream.Send(&pb.StreamingInputCallRequest{}))
		_, err := stream.CloseAndRecv()
		require.NoError(t, err)
	}
}
