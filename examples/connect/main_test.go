package main

import (
	"context"
	"net"
	"net/http"
	"testing"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/ral-limiter/ral/examples/grpc/shop"
	"github.com/ral-limiter/ral/examples/grpc/shop/shopconnect"
)

// start serves the shop, and returns its address.
func start(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		assert.NoError(t, <-ended)
	})
	return l.Addr().String()
}

func client() *http.Client {
	p := new(http.Protocols)
	p.SetUnencryptedHTTP2(true)
	return &http.Client{Transport: &http.Transport{Protocols: p}}
}

// The pieces of an item are limited over all protocols together.
func TestPiecesAreLimitedInEveryProtocol(t *testing.T) {
	addr := start(t)
	c := client()
	defer c.CloseIdleConnections()
	order := func(pieces int64, options ...connect.ClientOption) error {
		_, err := shopconnect.NewShopClient(c, "http://"+addr, options...).Order(t.Context(),
			connect.NewRequest(&shop.OrderRequest{Item: "tea", Pieces: pieces}))
		return err
	}
	require.NoError(t, order(2))
	require.NoError(t, order(2, connect.WithGRPC()))
	err := order(3, connect.WithGRPCWeb())
	require.Equal(t, connect.CodeResourceExhausted, connect.CodeOf(err))
	assert.Contains(t, err.Error(), `"item"`)

	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer conn.Close()
	_, err = shop.NewShopClient(conn).Order(t.Context(), &shop.OrderRequest{Item: "tea", Pieces: 3})
	assert.Equal(t, codes.ResourceExhausted, status.Code(err))
	_, err = shop.NewShopClient(conn).Order(t.Context(), &shop.OrderRequest{Item: "milk", Pieces: 6})
	assert.Equal(t, codes.ResourceExhausted, status.Code(err), "never admitted")
	_, err = shop.NewShopClient(conn).Order(t.Context(), &shop.OrderRequest{Item: "milk", Pieces: 5})
	assert.NoError(t, err)
}

// Each message of a stream counts for its address.
func TestMessagesOfStreamsAreLimited(t *testing.T) {
	addr := start(t)
	c := client()
	defer c.CloseIdleConnections()
	stream := shopconnect.NewShopClient(c, "http://"+addr, connect.WithGRPC()).Prices(t.Context())
	answered := 0
	var err error
	for err == nil && answered < 1000 {
		if err = stream.Send(&shop.PriceRequest{Item: "tea"}); err != nil {
			_, err = stream.Receive()
		} else if _, err = stream.Receive(); err == nil {
			answered++
		}
	}
	assert.Equal(t, connect.CodeResourceExhausted, connect.CodeOf(err), err)
	assert.GreaterOrEqual(t, answered, 9, "one unit was for the stream itself")
	_ = stream.CloseRequest()
	_ = stream.CloseResponse()
}
