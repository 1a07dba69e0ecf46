// Command grpc shows a limit in front of a gRPC service, with server and clients in one process:
//
//	go run ./examples/grpc
//
// The service is gRPC's test service. Copy serve into your server, and retryPolicy into your
// client, which then repeats refused calls when the server says.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/netip"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/rpc/grpclimit"
	"github.com/ral-limiter/ral/rpclimit"
)

func main() {
	if err := run(os.Stdout, limit); err != nil {
		log.Fatal(err)
	}
}

// Each address may ask for 3 bytes at once, then 2 a second. A message of a stream costs 1 too.
var limit = policy.Must(policy.Parse("funnel 3, 2/s"))

// serve serves the service behind its limits.
func serve(listener net.Listener, addresses *engine.Engine[netip.Addr]) (*grpc.Server, error) {
	guard, err := rpclimit.New(rpclimit.Options{Cost: size, CostSent: each},
		rpclimit.Limit[netip.Addr]{Name: "address", Limiter: addresses, Key: rpclimit.ByAddr})
	if err != nil {
		return nil, err
	}
	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor(grpclimit.UnaryServerInterceptor(guard)),
		grpc.ChainStreamInterceptor(grpclimit.StreamServerInterceptor(guard)))
	testgrpc.RegisterTestServiceServer(server, service{})
	reflection.Register(server) // for grpcurl; exempt from limits
	go func() {
		if err := server.Serve(listener); err != nil {
			log.Print(err)
		}
	}()
	return server, nil
}

// size is the cost of a call: the bytes that it asks for. The start of a stream costs nothing.
func size(call *rpclimit.Call) int64 {
	if request, ok := call.Message.(*testgrpc.SimpleRequest); ok {
		return max(1, int64(request.GetResponseSize()))
	}
	return 0
}

func each(*rpclimit.Call) int64 { return 1 }

// retryPolicy makes clients repeat refused calls after the server's delay, or else the backoff.
const retryPolicy = `{"methodConfig": [{
	"name": [{"service": "grpc.testing.TestService"}],
	"retryPolicy": {"maxAttempts": 3, "initialBackoff": "1s", "maxBackoff": "10s", "backoffMultiplier": 2,
		"retryableStatusCodes": ["RESOURCE_EXHAUSTED"]}}]}`

func run(out io.Writer, limit policy.Policy) error {
	addresses, err := engine.New[netip.Addr](engine.Config{Policy: limit})
	if err != nil {
		return err
	}
	defer func() { _ = addresses.Close() }()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server, err := serve(listener, addresses)
	if err != nil {
		return err
	}
	defer server.Stop()
	connect := func(options ...grpc.DialOption) (*grpc.ClientConn, error) {
		return grpc.NewClient(listener.Addr().String(), append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	}
	plain, err := connect()
	if err != nil {
		return err
	}
	defer func() { _ = plain.Close() }()
	patient, err := connect(grpc.WithDefaultServiceConfig(retryPolicy))
	if err != nil {
		return err
	}
	defer func() { _ = patient.Close() }()

	p := printer{out, time.Now()}
	ctx := context.Background()
	p.line("the limit: %v", policy.Describe(limit))
	p.ask(ctx, plain, "a call for 2 bytes", 2)
	p.ask(ctx, plain, "a call for 3 more", 3)
	p.ask(ctx, plain, "a call for more than the limit ever admits", 100)
	p.ask(ctx, patient, "a call for 3 by a client that repeats it when it is told to", 3)
	time.Sleep(time.Second) // 2 units come back
	p.stream(ctx, plain)
	return nil
}

type printer struct {
	out   io.Writer
	began time.Time
}

func (p printer) line(format string, values ...any) {
	_, _ = fmt.Fprintf(p.out, "%6.2fs  %s\n", time.Since(p.began).Seconds(), fmt.Sprintf(format, values...))
}

func (p printer) ask(ctx context.Context, conn *grpc.ClientConn, what string, size int32) {
	var header, trailer metadata.MD
	_, err := testgrpc.NewTestServiceClient(conn).UnaryCall(ctx, &testgrpc.SimpleRequest{ResponseSize: size}, grpc.Header(&header), grpc.Trailer(&trailer))
	if err != nil {
		p.refusal(what, err, trailer)
		return
	}
	p.line("%s: admitted; ratelimit %s", what, header["ratelimit"])
}

// stream sends messages until the limit ends the stream.
func (p printer) stream(ctx context.Context, conn *grpc.ClientConn) {
	stream, err := testgrpc.NewTestServiceClient(conn).FullDuplexCall(ctx)
	answered := 0
	for err == nil {
		if err = stream.Send(&testgrpc.StreamingOutputCallRequest{}); err != nil && !errors.Is(err, io.EOF) {
			break
		}
		if _, err = stream.Recv(); err == nil {
			answered++
		}
	}
	p.refusal(fmt.Sprintf("a stream that was answered %d times", answered), err, nil)
}

func (p printer) refusal(what string, err error, trailer metadata.MD) {
	s := status.Convert(err)
	p.line("%s: %v: %s", what, s.Code(), s.Message())
	for _, detail := range s.Details() {
		p.line("    %T %v", detail, detail)
	}
	if pushback := trailer["grpc-retry-pushback-ms"]; len(pushback) > 0 {
		p.line("    grpc-retry-pushback-ms: %s", pushback[0])
	}
}

// service answers with as many bytes as a call asks for.
type service struct {
	testgrpc.UnimplementedTestServiceServer
}

func (service) UnaryCall(_ context.Context, request *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
	return &testgrpc.SimpleResponse{Payload: &testgrpc.Payload{Body: make([]byte, request.GetResponseSize())}}, nil
}

func (service) FullDuplexCall(stream testgrpc.TestService_FullDuplexCallServer) error {
	for {
		if _, err := stream.Recv(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := stream.Send(&testgrpc.StreamingOutputCallResponse{}); err != nil {
			return err
		}
	}
}
