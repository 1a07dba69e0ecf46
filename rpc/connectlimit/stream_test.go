package connectlimit

import (
	"context"
	"errors"
	"io"
	"net/netip"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/rpclimit"
)

// streams are the protocols that have streams in both directions.
var streams = []protocol{
	{"connect", true, nil},
	{"gRPC", true, []connect.ClientOption{connect.WithGRPC()}},
	{"gRPC-Web", true, []connect.ClientOption{connect.WithGRPCWeb()}},
}

// letters calls split, and returns how many messages came before the error.
func letters(c *connect.Client[text, text], message string) (n int, header string, err error) {
	s, err := c.CallServerStream(context.Background(), connect.NewRequest(wrapperspb.String(message)))
	if err != nil {
		return 0, "", err
	}
	for s.Receive() {
		n++
	}
	header = s.ResponseHeader().Get("RateLimit")
	return n, header, errors.Join(s.Err(), s.Close())
}

func TestStreamsTakeAsTheyOpen(t *testing.T) {
	for _, p := range streams {
		e := open[netip.Addr](t, policy.Must(policy.Funnel(2, 1, time.Hour)))
		s := serve(t, TrailersOnly(service(connect.WithInterceptors(NewInterceptor(byAddr(e, rpclimit.Options{}))))))
		c := p.client(t, s.URL, split)
		for range 2 {
			n, header, err := letters(c, "abc")
			require.NoError(t, err, p.name)
			assert.Equal(t, 3, n)
			assert.Regexp(t, `^"address";r=\d;t=\d+$`, header, p.name)
		}
		n, _, err := letters(c, "abc")
		assert.Zero(t, n, p.name)
		require.Equal(t, connect.CodeResourceExhausted, connect.CodeOf(err), p.name)
		assert.Positive(t, retryInfo(t, err), p.name)
		assert.NotNil(t, quotaFailure(t, err), p.name)
		assert.NotEmpty(t, meta(t, err).Get("Retry-After"), p.name)
		assert.NotEmpty(t, meta(t, err).Get("Grpc-Retry-Pushback-Ms"), p.name)
	}
}

// perMessage are options under which each message takes 1, and opening a stream nothing.
func perMessage(sent, received int64) rpclimit.Options {
	return rpclimit.Options{
		Cost:         func(*rpclimit.Call) int64 { return 0 },
		CostSent:     func(*rpclimit.Call) int64 { return sent },
		CostReceived: func(*rpclimit.Call) int64 { return received },
	}
}

func TestSentMessagesTake(t *testing.T) {
	for _, p := range streams {
		e := open[netip.Addr](t, policy.Must(policy.Funnel(3, 1, time.Hour)))
		s := serve(t, service(connect.WithInterceptors(NewInterceptor(byAddr(e, perMessage(1, 0))))))
		n, _, err := letters(p.client(t, s.URL, split), "abcdef")
		assert.Equal(t, 3, n, p.name)
		require.Equal(t, connect.CodeResourceExhausted, connect.CodeOf(err), p.name)
		assert.Positive(t, retryInfo(t, err), p.name)
		assert.EqualValues(t, 3, taken(e, local, 3), p.name)
	}
}

// The handler answers as if the client had been done.
func TestReceivedMessagesTake(t *testing.T) {
	for _, p := range streams {
		e := open[netip.Addr](t, policy.Must(policy.Funnel(3, 1, time.Hour)))
		s := serve(t, service(connect.WithInterceptors(NewInterceptor(byAddr(e, perMessage(0, 1))))))
		stream := p.client(t, s.URL, join).CallClientStream(t.Context())
		for range 5 {
			if err := stream.Send(wrapperspb.String("x")); err != nil {
				require.ErrorIs(t, err, io.EOF, p.name)
				break
			}
		}
		_, err := stream.CloseAndReceive()
		require.Equal(t, connect.CodeResourceExhausted, connect.CodeOf(err), p.name)
		assert.Positive(t, retryInfo(t, err), p.name)

		require.True(t, e.Reset(local))
		stream = p.client(t, s.URL, join).CallClientStream(t.Context())
		for range 3 {
			require.NoError(t, stream.Send(wrapperspb.String("x")))
		}
		response, err := stream.CloseAndReceive()
		require.NoError(t, err, p.name)
		assert.Equal(t, "xxx", response.Msg.Value)
	}
}

// Promise: A refused message ends its stream, whatever the handler returns.
func TestRefusalIsNotSwallowed(t *testing.T) {
	e := open[netip.Addr](t, policy.Must(policy.Funnel(1, 1, time.Hour)))
	s := serve(t, connect.NewBidiStreamHandler(talk, func(_ context.Context, s *connect.BidiStream[text, text]) error {
		for {
			if _, err := s.Receive(); err != nil {
				return nil
			}
		}
	}, connect.WithInterceptors(NewInterceptor(byAddr(e, perMessage(0, 1))))))
	for _, p := range streams {
		stream := p.client(t, s.URL, talk).CallBidiStream(t.Context())
		for range 2 {
			_ = stream.Send(wrapperspb.String("x"))
		}
		_, err := stream.Receive()
		assert.Equal(t, connect.CodeResourceExhausted, connect.CodeOf(err), "%s: %v", p.name, err)
		_ = stream.CloseRequest()
		_ = stream.CloseResponse()
	}
}

// Promise: A stream returns unused units, however it ends.
func TestStreamsThatEndEarlyGiveBack(t *testing.T) {
	for _, p := range streams {
		e := open[netip.Addr](t, policy.Must(policy.Funnel(100, 1, 24*time.Hour)))
		var panicked bool
		options := rpclimit.Options{
			Cost: func(*rpclimit.Call) int64 { return 40 },
			Charge: func(_ *rpclimit.Call, served rpclimit.Served) int64 {
				panicked = served.Panicked
				return served.Sent + served.Received
			},
		}
		s := serve(t, service(connect.WithInterceptors(NewInterceptor(byAddr(e, options)))))
		n, _, err := letters(p.client(t, s.URL, split), "abc")
		require.NoError(t, err, p.name)
		require.Equal(t, 3, n)
		assert.Eventually(t, func() bool { return taken(e, local, 100) == 4 }, time.Minute, time.Millisecond, "%s: 1 received and 3 sent", p.name)
		assert.False(t, panicked)

		// The client leaves after one message.
		ctx, cancel := context.WithCancel(t.Context())
		stream := p.client(t, s.URL, talk).CallBidiStream(ctx)
		require.NoError(t, stream.Send(wrapperspb.String("x")))
		_, err = stream.Receive()
		require.NoError(t, err, p.name)
		assert.EqualValues(t, 44, taken(e, local, 100), "%s: while the stream is open", p.name)
		cancel()
		_ = stream.CloseResponse()
		assert.Eventually(t, func() bool { return taken(e, local, 100) == 6 }, time.Minute, time.Millisecond, p.name)
	}
}

type countingConn struct {
	connect.StreamingHandlerConn
	received, sent int
}

func (c *countingConn) Receive(any) error { c.received++; return nil }
func (c *countingConn) Send(any) error    { c.sent++; return nil }

func TestNothingIsReadOrSentAfterARefusal(t *testing.T) {
	refused := connect.NewError(connect.CodeResourceExhausted, nil)
	of := &countingConn{}
	c := &limitedConn{StreamingHandlerConn: of}
	c.refused.Store(refused)
	for range 2 {
		assert.Same(t, refused, c.Receive(nil))
		assert.Same(t, refused, c.Send(nil))
	}
	assert.Equal(t, 0, of.received+of.sent)
}
