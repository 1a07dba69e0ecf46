package grpclimit

import (
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/internal/testkit/admissiontest"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/rpclimit"
)

type service struct {
	pb.UnimplementedTestServiceServer
	// calls counts the calls that reached the handlers.
	calls atomic.Int64
}

func (s *service) UnaryCall(ctx context.Context, r *pb.SimpleRequest) (*pb.SimpleResponse, error) {
	n := s.calls.Add(1)
	switch string(r.GetPayload().GetBody()) {
	case "fail":
		return nil, status.Error(codes.DataLoss, "failed as asked")
	case "fail at first":
		if n == 1 {
			return nil, status.Error(codes.Unavailable, "failed as asked")
		}
	case "header":
		if err := grpc.SendHeader(ctx, metadata.Pairs("own", "1")); err != nil {
			return nil, err
		}
	}
	return &pb.SimpleResponse{Payload: r.GetPayload()}, nil
}

// StreamingInputCall answers once, at the end of the messages.
func (s *service) StreamingInputCall(stream grpc.ClientStreamingServer[pb.StreamingInputCallRequest, pb.StreamingInputCallResponse]) error {
	for {
		if _, err := stream.Recv(); err != nil {
			return stream.SendAndClose(&pb.StreamingInputCallResponse{})
		}
	}
}

// FullDuplexCall answers each message with as many as it asks for, and ends after "end".
func (s *service) FullDuplexCall(stream grpc.BidiStreamingServer[pb.StreamingOutputCallRequest, pb.StreamingOutputCallResponse]) error {
	s.calls.Add(1)
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		for range m.GetResponseParameters() {
			if err := stream.Send(&pb.StreamingOutputCallResponse{}); err != nil {
				return err
			}
		}
		if string(m.GetPayload().GetBody()) == "end" {
			return nil
		}
	}
}

type server struct {
	service
	addr string
	// attempts counts the calls that came, admitted or not.
	attempts atomic.Int64
}

func serve(t testing.TB, guard *rpclimit.Guard, options ...grpc.ServerOption) *server {
	t.Helper()
	s := &server{}
	return serveAs(t, s, s, guard, options...)
}

// serveAs serves the calls of a service.
func serveAs(t testing.TB, s *server, service pb.TestServiceServer, guard *rpclimit.Guard, options ...grpc.ServerOption) *server {
	t.Helper()
	options = append(options,
		grpc.ChainUnaryInterceptor(func(ctx context.Context, r any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			s.attempts.Add(1)
			return next(ctx, r)
		}, UnaryServerInterceptor(guard)),
		grpc.ChainStreamInterceptor(func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			s.attempts.Add(1)
			return next(srv, ss)
		}, StreamServerInterceptor(guard)))
	g := grpc.NewServer(options...)
	pb.RegisterTestServiceServer(g, service)
	healthpb.RegisterHealthServer(g, health.NewServer())
	reflection.Register(g)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s.addr = listener.Addr().String()
	served := make(chan error, 1)
	go func() { served <- g.Serve(listener) }()
	t.Cleanup(func() {
		g.Stop()
		assert.NoError(t, <-served)
	})
	return s
}

func (s *server) client(t testing.TB, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	conn := must.Get(grpc.NewClient(s.addr, append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))...))
	t.Cleanup(func() { assert.NoError(t, conn.Close()) })
	return conn
}

func call(ctx context.Context, conn *grpc.ClientConn, body string, options ...grpc.CallOption) error {
	_, err := pb.NewTestServiceClient(conn).UnaryCall(ctx, &pb.SimpleRequest{Payload: &pb.Payload{Body: []byte(body)}}, options...)
	return err
}

// pieces returns the number that is a unary call's message, or 1.
func pieces(c *rpclimit.Call) int64 {
	m, _ := c.Message.(*pb.SimpleRequest)
	if n, err := strconv.ParseInt(string(m.GetPayload().GetBody()), 10, 64); err == nil {
		return n
	}
	return 1
}

type clock struct{ atomic.Int64 }

func newClock() *clock {
	c := &clock{}
	c.Store(int64(time.Hour))
	return c
}

func (c *clock) now() policy.Instant { return policy.Instant(c.Load()) }

// open opens an engine for a test. Its clock is real if at is nil.
func open[K comparable](t testing.TB, p policy.Policy, hand *clock) *engine.Engine[K] {
	t.Helper()
	if hand == nil {
		return admissiontest.NewEngine[K](t, p)
	}
	e := must.Get(engine.New[K](engine.Config{Policy: p, Clock: hand.now}))
	t.Cleanup(func() { assert.NoError(t, e.Close()) })
	return e
}

// hourly admits n at once, and as many in an hour.
func hourly(n int64) policy.Policy { return policy.Must(policy.Funnel(n, n, time.Hour)) }

// retryDelay returns the delay of an error's RetryInfo, or -1.
func retryDelay(err error) time.Duration {
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.RetryInfo); ok {
			return info.GetRetryDelay().AsDuration()
		}
	}
	return -1
}

func violations(err error) []*errdetails.QuotaFailure_Violation {
	for _, d := range status.Convert(err).Details() {
		if failure, ok := d.(*errdetails.QuotaFailure); ok {
			return failure.GetViolations()
		}
	}
	return nil
}
