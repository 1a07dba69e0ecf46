// Command connect serves the shop over Connect, gRPC and gRPC-Web, with limits on its calls.
//
//	go run ./examples/connect
//
// It prints commands to try.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"time"

	"connectrpc.com/connect"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/examples/grpc/shop"
	"github.com/ral-limiter/ral/examples/grpc/shop/shopconnect"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/rpc/connectlimit"
	"github.com/ral-limiter/ral/rpclimit"
)

// server is the shop behind its limits.
type server struct {
	http.Handler
	byAddr *engine.Engine[netip.Addr]
	byItem *engine.Engine[string]
}

// newServer returns a shop in which an address may make 10 calls at once and then 1 each second, each message of a
// stream counted, and of each item 5 pieces may be ordered in a minute, by all clients together.
func newServer() (*server, error) {
	byAddr, err := engine.New[netip.Addr](engine.Config{Policy: policy.Must(policy.Funnel(10, 1, time.Second))})
	if err != nil {
		return nil, err
	}
	byItem, err := engine.New[string](engine.Config{Policy: policy.Must(policy.Funnel(5, 5, time.Minute))})
	if err != nil {
		return nil, errors.Join(err, byAddr.Close())
	}
	one := func(*rpclimit.Call) int64 { return 1 }
	limits, err := rpclimit.New(rpclimit.Options{},
		// The gate decides this one, before a message is read.
		rpclimit.Limit[netip.Addr]{Name: "address", Limiter: byAddr, Key: rpclimit.ByAddr, AtTap: true, CostReceived: one},
		// The interceptor decides this one, by the message.
		rpclimit.Limit[string]{
			Name: "item", Limiter: byItem, WhenNoKey: limits.Skip,
			Key: rpclimit.ByMessage(func(r *shop.OrderRequest) string { return r.GetItem() }),
			Cost: func(c *rpclimit.Call) int64 {
				if r, ok := c.Message.(*shop.OrderRequest); ok {
					return max(1, r.GetPieces())
				}
				return 1
			},
		},
	)
	if err != nil {
		return nil, errors.Join(err, byAddr.Close(), byItem.Close())
	}
	gate, err := connectlimit.NewGate(limits)
	if err != nil {
		return nil, errors.Join(err, byAddr.Close(), byItem.Close())
	}
	mux := http.NewServeMux()
	mux.Handle(shopconnect.NewShopHandler(sells{}, connect.WithInterceptors(connectlimit.NewInterceptor(limits))))
	return &server{connectlimit.TrailersOnly(gate.Handler(mux)), byAddr, byItem}, nil
}

// Close closes the limiters.
func (s *server) Close() error { return errors.Join(s.byAddr.Close(), s.byItem.Close()) }

// sells implements the service.
type sells struct{}

const cents = 250 // the price of everything

func (sells) Order(_ context.Context, r *connect.Request[shop.OrderRequest]) (*connect.Response[shop.OrderResponse], error) {
	return connect.NewResponse(&shop.OrderResponse{Cents: cents * max(1, r.Msg.GetPieces())}), nil
}

func (sells) Prices(_ context.Context, s *connect.BidiStream[shop.PriceRequest, shop.PriceResponse]) error {
	for {
		r, err := s.Receive()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = s.Send(&shop.PriceResponse{Item: r.GetItem(), Cents: cents})
		}
		if err != nil {
			return err
		}
	}
}

// serve serves until the context ends, over HTTP/1.1 and, without TLS, HTTP/2.
func serve(ctx context.Context, l net.Listener) (err error) {
	s, err := newServer()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	h := &http.Server{Handler: s, Protocols: new(http.Protocols), ReadHeaderTimeout: 10 * time.Second}
	h.Protocols.SetHTTP1(true)
	h.Protocols.SetUnencryptedHTTP2(true)
	stop := context.AfterFunc(ctx, func() { _ = h.Close() })
	defer stop()
	if err = h.Serve(l); errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

const commands = `The shop is at %[1]s. Of each item it sells 5 pieces a minute:

  curl -i -H 'Content-Type: application/json' -d '{"item": "tea", "pieces": 3}' http://%[1]s/shop.v1.Shop/Order
  curl -i --http2-prior-knowledge -H 'Content-Type: application/json' -d '{"item": "tea", "pieces": 3}' http://%[1]s/shop.v1.Shop/Order
  go run github.com/fullstorydev/grpcurl/cmd/grpcurl@latest -plaintext -v -proto examples/grpc/shop/shop.proto \
      -d '{"item": "tea", "pieces": 3}' %[1]s shop.v1.Shop/Order

`

func main() {
	addr := flag.String("addr", "localhost:8080", "the address to serve")
	flag.Parse()
	if err := run(*addr); err != nil {
		log.Fatal(err)
	}
}

func run(addr string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	fmt.Printf(commands, l.Addr())
	return serve(ctx, l)
}
