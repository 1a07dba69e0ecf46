package grpclimit

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/ral-limiter/ral/internal/testkit/rpctest"
	"github.com/ral-limiter/ral/rpclimit"
)

type bidi = grpc.BidiStreamingClient[pb.StreamingOutputCallRequest, pb.StreamingOutputCallResponse]

func openStream(t testing.TB, ctx context.Context, conn *grpc.ClientConn) bidi {
	t.Helper()
	stream, err := pb.NewTestServiceClient(conn).FullDuplexCall(ctx)
	require.NoError(t, err)
	return stream
}

// exchange sends a message and receives its answer.
func exchange(stream bidi, body string) error {
	m := &pb.StreamingOutputCallRequest{Payload: &pb.Payload{Body: []byte(body)}, ResponseParameters: []*pb.ResponseParameters{{}}}
	// Recv has the reason.
	if err := stream.Send(m); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	_, err := stream.Recv()
	return err
}

// talk opens a stream, sends a message, and reads it to its end.
func talk(t testing.TB, ctx context.Context, conn *grpc.ClientConn, body string) error {
	t.Helper()
	stream, err := pb.NewTestServiceClient(conn).FullDuplexCall(ctx)
	if err != nil {
		return err
	}
	if err = exchange(stream, body); err == nil {
		_, err = stream.Recv()
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

type fakeStream struct {
	grpc.ServerStream
	header, trailer metadata.MD
	rpctest.Messages
}

func (f *fakeStream) Context() context.Context { return context.Background() }
func (f *fakeStream) SetHeader(md metadata.MD) error {
	f.header = metadata.Join(f.header, md)
	return nil
}
func (f *fakeStream) SendHeader(md metadata.MD) error { return f.SetHeader(md) }
func (f *fakeStream) SetTrailer(md metadata.MD)       { f.trailer = metadata.Join(f.trailer, md) }
func (f *fakeStream) RecvMsg(any) error               { f.Received++; return nil }
func (f *fakeStream) SendMsg(any) error               { f.Sent++; return nil }

func (f *fakeStream) serve(l *rpclimit.Guard, handler func(grpc.ServerStream) error) error {
	return StreamServerInterceptor(l)(nil, f, &grpc.StreamServerInfo{FullMethod: "/a/b"}, func(_ any, s grpc.ServerStream) error { return handler(s) })
}

// Promise: A stream returns unused units, however it ends.
func TestStreamEndsAtRefusalAndReturnsUnits(t *testing.T) {
	rpctest.RunServer(t, rpctest.Server{
		Unary: func(l *rpclimit.Guard, handler func() error) error {
			_, err := UnaryServerInterceptor(l)(context.Background(), nil, info, func(context.Context, any) (any, error) { return nil, handler() })
			return err
		},
		Stream: func(l *rpclimit.Guard, handler func(receive, send func() error) error) (rpctest.Messages, error) {
			f := &fakeStream{}
			err := f.serve(l, func(s grpc.ServerStream) error {
				return handler(func() error { return s.RecvMsg(nil) }, func() error { return s.SendMsg(nil) })
			})
			return f.Messages, err
		},
		Error: func(code rpclimit.Code) error { return status.Error(codes.Code(code), "") },
		Code:  codeOf,
	})
	rpctest.StreamEnds(t, func(t *testing.T, ctx context.Context, l *rpclimit.Guard, n int) func() {
		stream := openStream(t, ctx, serve(t, l).client(t))
		for range n {
			require.NoError(t, exchange(stream, ""))
		}
		return func() {}
	})
}

func TestFieldsOfAStream(t *testing.T) {
	limit := rpclimit.Limit[string]{Limiter: open[string](t, hourly(100), nil), Key: rpclimit.ByProcedure}
	l := rpclimit.Must(rpclimit.New(rpclimit.Options{}, limit))
	messages := rpclimit.Must(rpclimit.New(rpclimit.Options{CostSent: func(*rpclimit.Call) int64 { return 100 }}, limit))
	for name, c := range map[string]struct {
		limits   *rpclimit.Guard
		handler  func(s grpc.ServerStream) error
		inHeader bool
	}{
		"sends twice":          {l, func(s grpc.ServerStream) error { return errors.Join(s.SendMsg(nil), s.SendMsg(nil)) }, true},
		"sends header":         {l, func(s grpc.ServerStream) error { return s.SendHeader(metadata.Pairs("own", "1")) }, true},
		"sends none":           {l, func(grpc.ServerStream) error { return nil }, false},
		"fails":                {l, func(grpc.ServerStream) error { return status.Error(codes.Unavailable, "") }, false},
		"a message is refused": {messages, func(s grpc.ServerStream) error { return s.SendMsg(nil) }, false},
	} {
		f := &fakeStream{}
		_ = f.serve(c.limits, c.handler)
		in, out := f.header, f.trailer
		if !c.inHeader {
			in, out = out, in
		}
		assert.Len(t, in["ratelimit"], 1, name)
		assert.Empty(t, out["ratelimit"], "%s: a header keeps the client from retrying", name)
		assert.Equal(t, c.limits == messages, len(f.trailer[pushbackKey]) == 1, name)
	}
}

// duringService serves calls by a function of the test.
type duringService struct {
	pb.UnimplementedTestServiceServer
	during rpctest.During
}

func (s *duringService) UnaryCall(ctx context.Context, _ *pb.SimpleRequest) (*pb.SimpleResponse, error) {
	return &pb.SimpleResponse{}, s.during(ctx, nil)
}

func (s *duringService) FullDuplexCall(stream grpc.BidiStreamingServer[pb.StreamingOutputCallRequest, pb.StreamingOutputCallResponse]) error {
	if _, err := stream.Recv(); err != nil {
		return err
	}
	return s.during(stream.Context(), func() error { return stream.Send(&pb.StreamingOutputCallResponse{}) })
}

func (s *duringService) StreamingOutputCall(_ *pb.StreamingOutputCallRequest, stream grpc.ServerStreamingServer[pb.StreamingOutputCallResponse]) error {
	return s.during(stream.Context(), func() error { return stream.Send(&pb.StreamingOutputCallResponse{}) })
}

func serveDuring(t *testing.T, l *rpclimit.Guard, during rpctest.During) map[string]func(context.Context) error {
	conn := serveAs(t, &server{}, &duringService{during: during}, l).client(t)
	return map[string]func(context.Context) error{
		"unary":  func(ctx context.Context) error { return call(ctx, conn, "") },
		"stream": func(ctx context.Context) error { return talk(t, ctx, conn, "") },
		"server stream": func(ctx context.Context) error {
			stream, err := pb.NewTestServiceClient(conn).StreamingOutputCall(ctx, &pb.StreamingOutputCallRequest{})
			for err == nil {
				_, err = stream.Recv()
			}
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		},
	}
}

// Promise: The context of a call of gRPC or Connect ends if its server loses the call's units in flight.
func TestLostUnitsEndACall(t *testing.T) { rpctest.RunLost(t, codeOf, serveDuring) }

// Promise: A call of gRPC or Connect, unary or a stream, is in use until its handler returns, also if its client cancels it.
func TestCallIsInUseUntilItsHandlerReturns(t *testing.T) { rpctest.RunInUse(t, codeOf, serveDuring) }
