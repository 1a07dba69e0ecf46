// Command grpc shows a limit in front of a gRPC service: a server and clients, in one process. From the root of the
// repository:
//
//	go run ./examples/grpc
//
// The function serve has what a server of yours needs, and retryPolicy what a client of yours needs to repeat refused
// calls at the time that it is told.
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
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/examples/grpc/shop"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/rpc/grpclimit"
	"github.com/ral-limiter/ral/rpclimit"
)

func main() {
	if err := run(os.Stdout, limit); err != nil {
		log.Fatal(err)
	}
}

// Each address may buy 3 pieces at once, and 2 a second in the long run. Each price that is told costs 1 as well.
var limit = policy.Must(policy.Parse("funnel 3, 2/s"))

// serve serves the shop behind its limits.
func serve(listener net.Listener, addresses *engine.Engine[netip.Addr]) (*grpc.Server, error) {
	limits, err := rpclimit.New(rpclimit.Options{Cost: pieces, CostSent: each},
		rpclimit.Limit[netip.Addr]{Name: "address", Limiter: addresses, Key: rpclimit.ByAddr})
	if err != nil {
		return nil, err
	}
	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor(grpclimit.UnaryServerInterceptor(limits)),
		grpc.ChainStreamInterceptor(grpclimit.StreamServerInterceptor(limits)))
	shop.RegisterShopServer(server, goods{})
	reflection.Register(server) // so that grpcurl can call it; it is exempt
	go func() {
		if err := server.Serve(listener); err != nil {
			log.Print(err)
		}
	}()
	return server, nil
}

// pieces is the cost of a call: an order costs its pieces, and a stream nothing as it opens.
func pieces(c *rpclimit.Call) int64 {
	if order, ok := c.Message.(*shop.OrderRequest); ok {
		return max(1, order.GetPieces())
	}
	return 0
}

func each(*rpclimit.Call) int64 { return 1 }

// retryPolicy has clients repeat what a limit refuses. They wait for as long as the server says, and by the backoff
// only if it says nothing.
const retryPolicy = `{"methodConfig": [{
	"name": [{"service": "shop.v1.Shop"}],
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
	p.order(ctx, plain, "an order of 2 pieces", 2)
	p.order(ctx, plain, "an order of 3 more", 3)
	p.order(ctx, plain, "an order of more pieces than the limit ever admits", 100)
	p.order(ctx, patient, "an order of 3 by a client that repeats it when it is told to", 3)
	time.Sleep(time.Second) // in which 2 come back
	p.prices(ctx, plain)
	return nil
}

// printer prints what a client sees.
type printer struct {
	out   io.Writer
	began time.Time
}

func (p printer) line(format string, values ...any) {
	_, _ = fmt.Fprintf(p.out, "%6.2fs  %s\n", time.Since(p.began).Seconds(), fmt.Sprintf(format, values...))
}

func (p printer) order(ctx context.Context, conn *grpc.ClientConn, what string, pieces int64) {
	var header, trailer metadata.MD
	_, err := shop.NewShopClient(conn).Order(ctx, &shop.OrderRequest{Item: "tea", Pieces: pieces}, grpc.Header(&header), grpc.Trailer(&trailer))
	if err != nil {
		p.refusal(what, err, trailer)
		return
	}
	p.line("%s: admitted; ratelimit %s", what, header["ratelimit"])
}

// prices asks for prices until the limit ends the stream.
func (p printer) prices(ctx context.Context, conn *grpc.ClientConn) {
	stream, err := shop.NewShopClient(conn).Prices(ctx)
	told := 0
	for err == nil {
		if err = stream.Send(&shop.PriceRequest{Item: "tea"}); err != nil && !errors.Is(err, io.EOF) {
			break
		}
		if _, err = stream.Recv(); err == nil {
			told++
		}
	}
	p.refusal(fmt.Sprintf("a stream that was told prices %d times", told), err, nil)
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

// goods is the shop.
type goods struct{ shop.UnimplementedShopServer }

const cents = 499

// Order implements shop.ShopServer.
func (goods) Order(_ context.Context, r *shop.OrderRequest) (*shop.OrderResponse, error) {
	return &shop.OrderResponse{Cents: cents * r.GetPieces()}, nil
}

// Prices implements shop.ShopServer.
func (goods) Prices(stream grpc.BidiStreamingServer[shop.PriceRequest, shop.PriceResponse]) error {
	for {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := stream.Send(&shop.PriceResponse{Item: r.GetItem(), Cents: cents}); err != nil {
			return err
		}
	}
}
