package grpclimit

import (
	"context"
	"errors"
	"io"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/ral-limiter/ral/rpclimit"
)

type bidi = grpc.BidiStreamingClient[pb.StreamingOutputCallRequest, pb.StreamingOutputCallResponse]

func openStream(t *testing.T, ctx context.Context, conn *grpc.ClientConn) bidi {
	t.Helper()
	stream, err := pb.NewTestServiceClient(conn).FullDuplexCall(ctx)
	require.NoError(t, err)
	return stream
}

func send(t *testing.T, stream bidi, body string, answers int) {
	t.Helper()
	m := &pb.StreamingOutputCallRequest{Payload: &pb.Payload{Body: []byte(body)}}
	for range answers {
		m.ResponseParameters = append(m.ResponseParameters, &pb.ResponseParameters{})
	}
	if err := stream.Send(m); err != nil {
		require.ErrorIs(t, err, io.EOF) // Recv has the reason
	}
}

// drain returns how many messages came, and the error that ended the stream.
func drain(stream bidi) (n int, err error) {
	for {
		if _, err = stream.Recv(); errors.Is(err, io.EOF) {
			return n, nil
		} else if err != nil {
			return n, err
		}
		n++
	}
}

// talk opens a stream, sends a message, and reads it to its end.
func talk(t *testing.T, ctx context.Context, conn *grpc.ClientConn, body string) {
	t.Helper()
	stream := openStream(t, ctx, conn)
	send(t, stream, body, 1)
	n, err := drain(stream)
	require.NoError(t, err)
	require.Equal(t, 1, n)
}

func one(*rpclimit.Call) int64 { return 1 }

func TestStreamsTakeForEachMessage(t *testing.T) {
	for name, c := range map[string]struct {
		options  rpclimit.Options
		answers  int // to each message
		admitted int // of the answers, before the limit of 10 is reached
	}{
		"received":  {rpclimit.Options{CostReceived: one}, 1, 9}, // 1 for the stream
		"sent":      {rpclimit.Options{CostSent: one}, 1, 9},
		"both ways": {rpclimit.Options{CostReceived: one, CostSent: one}, 1, 4},
		"many sent": {rpclimit.Options{CostSent: one}, 5, 9},
	} {
		t.Run(name, func(t *testing.T) {
			e := open[netip.Addr](t, hourly(10), nil)
			s := serve(t, byAddr(e, c.options))
			stream := openStream(t, context.Background(), s.client(t))
			for range 20 {
				send(t, stream, "", c.answers)
			}
			n, err := drain(stream)
			assert.Equal(t, c.admitted, n)
			assert.Equal(t, codes.ResourceExhausted, status.Code(err), "%v", err)
			assert.Positive(t, retryDelay(err))
			assert.Len(t, violations(err), 1)
			assert.Len(t, stream.Trailer()["grpc-retry-pushback-ms"], 1)
			assert.Equal(t, int64(10), taken(e, local, 10))
		})
	}
}

// A stream pays for 50 messages as it opens.
//
// Promise: A stream returns unused units, however it ends.
func TestStreamsThatEndEarlyGiveBack(t *testing.T) {
	const limit = 100
	e := open[netip.Addr](t, hourly(limit), nil)
	s := serve(t, byAddr(e, rpclimit.Options{
		Cost:   func(*rpclimit.Call) int64 { return 50 },
		Charge: func(_ *rpclimit.Call, s rpclimit.Served) int64 { return s.Received },
	}))
	conn := s.client(t)
	streams, used := int64(0), int64(0)
	end := func(how string, by func(stream bidi, cancel func())) {
		t.Helper()
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		stream := openStream(t, ctx, conn)
		for range 3 {
			send(t, stream, "", 1)
			_, err := stream.Recv()
			require.NoError(t, err)
		}
		assert.Equal(t, used+50, taken(e, local, limit), how)
		by(stream, cancel)
		streams++
		require.Eventually(t, func() bool { return s.streams.Load() == streams }, time.Minute, time.Millisecond)
		require.Eventually(t, func() bool { return taken(e, local, limit) < used+50 }, time.Minute, time.Millisecond, how)
	}
	end("the client is done", func(stream bidi, _ func()) {
		require.NoError(t, stream.CloseSend())
		_, err := drain(stream)
		require.NoError(t, err)
	})
	used += 3
	assert.Equal(t, used, taken(e, local, limit))
	end("the client leaves", func(_ bidi, cancel func()) { cancel() })
	used += 3
	assert.Equal(t, used, taken(e, local, limit))
	end("the handler ends", func(stream bidi, _ func()) {
		send(t, stream, "end", 0)
		_, err := drain(stream)
		require.NoError(t, err)
	})
	used += 4
	assert.Equal(t, used, taken(e, local, limit))
	end("the handler fails", func(stream bidi, _ func()) {
		send(t, stream, "fail", 0)
		_, err := drain(stream)
		require.Equal(t, codes.DataLoss, status.Code(err))
	})
	used += 4
	assert.Equal(t, used, taken(e, local, limit))
}

type fakeStream struct {
	grpc.ServerStream
	header, trailer metadata.MD
	received, sent  int
}

func (f *fakeStream) Context() context.Context { return context.Background() }
func (f *fakeStream) SetHeader(md metadata.MD) error {
	f.header = metadata.Join(f.header, md)
	return nil
}
func (f *fakeStream) SendHeader(md metadata.MD) error { return f.SetHeader(md) }
func (f *fakeStream) SetTrailer(md metadata.MD)       { f.trailer = metadata.Join(f.trailer, md) }
func (f *fakeStream) RecvMsg(any) error               { f.received++; return nil }
func (f *fakeStream) SendMsg(any) error               { f.sent++; return nil }

func TestStreamGivesBackAfterAPanicOfItsHandler(t *testing.T) {
	e := open[string](t, hourly(100), nil)
	var panicked bool
	intercept := StreamServerInterceptor(rpclimit.Must(rpclimit.New(rpclimit.Options{
		Charge: func(_ *rpclimit.Call, s rpclimit.Served) int64 { panicked = s.Panicked; return 0 },
	}, rpclimit.Limit[string]{Limiter: e, Key: rpclimit.ByProcedure})))
	assert.Panics(t, func() {
		_ = intercept(nil, &fakeStream{}, &grpc.StreamServerInfo{FullMethod: "/a/b"}, func(any, grpc.ServerStream) error { panic("as asked") })
	})
	assert.True(t, panicked)
	assert.Zero(t, taken(e, "/a/b", 100))
}

// A handler that goes on after a refusal gets it again, and cannot hide it.
func TestARefusedMessageEndsTheStream(t *testing.T) {
	e := open[string](t, hourly(3), nil)
	intercept := StreamServerInterceptor(rpclimit.Must(rpclimit.New(rpclimit.Options{CostReceived: one, CostSent: one},
		rpclimit.Limit[string]{Limiter: e, Key: rpclimit.ByProcedure})))
	f := &fakeStream{}
	err := intercept(nil, f, &grpc.StreamServerInfo{FullMethod: "/a/b"}, func(_ any, s grpc.ServerStream) error {
		for range 2 {
			require.NoError(t, s.RecvMsg(nil))
		}
		err := s.SendMsg(nil)
		require.Equal(t, codes.ResourceExhausted, status.Code(err))
		assert.Equal(t, err, s.SendMsg(nil))
		assert.Equal(t, err, s.RecvMsg(nil))
		return nil
	})
	assert.Equal(t, codes.ResourceExhausted, status.Code(err))
	assert.Equal(t, 2, f.received, "a message was read after the end")
	assert.Zero(t, f.sent, "a refused message was sent")
	assert.Empty(t, f.header, "a header keeps the client from retrying")
	assert.Len(t, f.trailer["ratelimit"], 1)
	assert.Len(t, f.trailer["grpc-retry-pushback-ms"], 1)
}

func TestFieldsOfAStream(t *testing.T) {
	intercept := StreamServerInterceptor(rpclimit.Must(rpclimit.New(rpclimit.Options{},
		rpclimit.Limit[string]{Limiter: open[string](t, hourly(100), nil), Key: rpclimit.ByProcedure})))
	for name, c := range map[string]struct {
		handler  func(s grpc.ServerStream) error
		inHeader bool
	}{
		"sends":        {func(s grpc.ServerStream) error { return s.SendMsg(nil) }, true},
		"sends twice":  {func(s grpc.ServerStream) error { return errors.Join(s.SendMsg(nil), s.SendMsg(nil)) }, true},
		"sends header": {func(s grpc.ServerStream) error { return s.SendHeader(metadata.Pairs("own", "1")) }, true},
		"sends none":   {func(grpc.ServerStream) error { return nil }, false},
		"fails":        {func(grpc.ServerStream) error { return status.Error(codes.Unavailable, "") }, false},
	} {
		f := &fakeStream{}
		_ = intercept(nil, f, &grpc.StreamServerInfo{FullMethod: "/a/b"}, func(_ any, s grpc.ServerStream) error { return c.handler(s) })
		in, out := f.header, f.trailer
		if !c.inHeader {
			in, out = out, in
		}
		assert.Len(t, in["ratelimit"], 1, name)
		assert.Empty(t, out["ratelimit"], name)
	}
}
