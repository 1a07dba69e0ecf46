package connectlimit_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/outgoing"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/rpc/connectlimit"
	"github.com/ral-limiter/ral/rpclimit"
)

const procedure = "/example.v1.Example/Echo"

// echo returns a handler like generated code.
func echo(options ...connect.HandlerOption) http.Handler {
	return connect.NewUnaryHandler(procedure,
		func(_ context.Context, r *connect.Request[wrapperspb.StringValue]) (*connect.Response[wrapperspb.StringValue], error) {
			return connect.NewResponse(r.Msg), nil
		}, options...)
}

func call(url string, options ...connect.ClientOption) error {
	client := connect.NewClient[wrapperspb.StringValue, wrapperspb.StringValue](http.DefaultClient, url+procedure, options...)
	_, err := client.CallUnary(context.Background(), connect.NewRequest(wrapperspb.String("hello")))
	return err
}

func ExampleNewInterceptor() {
	byAddr, _ := engine.New[netip.Addr](engine.Config{Policy: policy.Must(policy.Funnel(2, 1, time.Hour))})
	defer byAddr.Close()
	guard, _ := rpclimit.New(rpclimit.Options{},
		rpclimit.Limit[netip.Addr]{Name: "address", Limiter: byAddr, Key: rpclimit.ByAddr})

	server := httptest.NewServer(connectlimit.TrailersOnly(echo(connect.WithInterceptors(connectlimit.NewInterceptor(guard)))))
	defer server.Close()
	for range 3 {
		if err := call(server.URL); err != nil {
			fmt.Println(connect.CodeOf(err))
			continue
		}
		fmt.Println("ok")
	}
	// Output:
	// ok
	// ok
	// resource_exhausted
}

func ExampleNewClientInterceptor() {
	server := httptest.NewServer(echo())
	defer server.Close()
	line, _ := outgoing.New[string](outgoing.Config{})
	defer line.Close()
	waits, err := connectlimit.NewClientInterceptor(line, connectlimit.ByServer, connectlimit.ClientOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(call(server.URL, connect.WithInterceptors(waits)))
	// Output: <nil>
}
