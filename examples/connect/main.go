// Command connect serves a shop over Connect, gRPC and gRPC-Web, with limits on its calls. It
// prints commands to try. Its messages are JSON objects in place of generated code, which limits
// read in the same way.
//
//	go run ./examples/connect
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
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/rpc/connectlimit"
	"github.com/ral-limiter/ral/rpclimit"
)

type server struct {
	http.Handler
	byAddr *engine.Engine[netip.Addr]
	byItem *engine.Engine[string]
}

// newServer returns a shop. An address may make 10 calls at once, then 1 a second; messages of
// streams count. All clients together may order 5 pieces of an item a minute.
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
	guard, err := rpclimit.New(rpclimit.Options{},
		// The gate decides this limit, before a message is read.
		rpclimit.Limit[netip.Addr]{Name: "address", Limiter: byAddr, Key: rpclimit.ByAddr, AtTap: true, CostReceived: one},
		// The interceptor decides this limit, by the message.
		rpclimit.Limit[string]{
			Name: "item", Limiter: byItem, WhenNoKey: limits.Skip,
			Key: rpclimit.ByMessage(func(r *structpb.Struct) string { return r.GetFields()["item"].GetStringValue() }),
			Cost: func(call *rpclimit.Call) int64 {
				if r, ok := call.Message.(*structpb.Struct); ok {
					return max(1, pieces(r))
				}
				return 1
			},
		},
	)
	if err != nil {
		return nil, errors.Join(err, byAddr.Close(), byItem.Close())
	}
	gate, err := connectlimit.NewGate(guard)
	if err != nil {
		return nil, errors.Join(err, byAddr.Close(), byItem.Close())
	}
	mux := http.NewServeMux()
	limited := connect.WithInterceptors(connectlimit.NewInterceptor(guard))
	mux.Handle(order, connect.NewUnaryHandler(order, sell, limited))
	mux.Handle(prices, connect.NewBidiStreamHandler(prices, tell, limited))
	return &server{connectlimit.TrailersOnly(gate.Handler(mux)), byAddr, byItem}, nil
}

func (s *server) Close() error { return errors.Join(s.byAddr.Close(), s.byItem.Close()) }

const (
	order  = "/shop.v1.Shop/Order"
	prices = "/shop.v1.Shop/Prices"
)

const cents = 250 // the price of each item

func pieces(order *structpb.Struct) int64 { return int64(order.GetFields()["pieces"].GetNumberValue()) }

func priced(cents int64) *structpb.Struct {
	return &structpb.Struct{Fields: map[string]*structpb.Value{"cents": structpb.NewNumberValue(float64(cents))}}
}

func sell(_ context.Context, request *connect.Request[structpb.Struct]) (*connect.Response[structpb.Struct], error) {
	return connect.NewResponse(priced(cents * max(1, pieces(request.Msg)))), nil
}

func tell(_ context.Context, bidiStream *connect.BidiStream[wrapperspb.StringValue, structpb.Struct]) error {
	for {
		_, err := bidiStream.Receive()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = bidiStream.Send(priced(cents))
		}
		if err != nil {
			return err
		}
	}
}

// serve serves HTTP/1.1 and HTTP/2 without TLS until the context ends.
func serve(ctx context.Context, listener net.Listener) (err error) {
	server, err := newServer()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	h := &http.Server{Handler: server, Protocols: new(http.Protocols), ReadHeaderTimeout: 10 * time.Second}
	h.Protocols.SetHTTP1(true)
	h.Protocols.SetUnencryptedHTTP2(true)
	stop := context.AfterFunc(ctx, func() { _ = h.Close() })
	defer stop()
	if err = h.Serve(listener); errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

const commands = `The shop is at %[1]s. Of each item it sells 5 pieces a minute:

  curl -i -H 'Content-Type: application/json' -d '{"item": "tea", "pieces": 3}' http://%[1]s/shop.v1.Shop/Order
  curl -i --http2-prior-knowledge -H 'Content-Type: application/json' -d '{"item": "tea", "pieces": 3}' http://%[1]s/shop.v1.Shop/Order

`

func main() {
	addr := flag.String("addr", "localhost:8084", "the address to serve")
	flag.Parse()
	if err := run(*addr); err != nil {
		log.Fatal(err)
	}
}

func run(addr string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return fmt.Errorf("%w (-addr says where to listen)", err)
	}
	fmt.Printf(commands, listener.Addr())
	return serve(ctx, listener)
}
