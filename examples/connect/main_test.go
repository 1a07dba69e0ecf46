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
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
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

// All protocols share the limit.
func TestPiecesAreLimitedInEveryProtocol(t *testing.T) {
	addr := start(t)
	c := client()
	defer c.CloseIdleConnections()
	orderOf := func(item string, pieces float64) *structpb.Struct {
		return &structpb.Struct{Fields: map[string]*structpb.Value{"item": structpb.NewStringValue(item), "pieces": structpb.NewNumberValue(pieces)}}
	}
	call := func(pieces float64, options ...connect.ClientOption) error {
		shop := connect.NewClient[structpb.Struct, structpb.Struct](c, "http://"+addr+order, options...)
		_, err := shop.CallUnary(t.Context(), connect.NewRequest(orderOf("tea", pieces)))
		return err
	}
	require.NoError(t, call(2))
	require.NoError(t, call(2, connect.WithGRPC()))
	err := call(3, connect.WithGRPCWeb())
	require.Equal(t, connect.CodeResourceExhausted, connect.CodeOf(err))
	assert.Contains(t, err.Error(), `"item"`)

	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer conn.Close()
	byGRPC := func(item string, pieces float64) error {
		return conn.Invoke(t.Context(), order, orderOf(item, pieces), &structpb.Struct{})
	}
	assert.Equal(t, codes.ResourceExhausted, status.Code(byGRPC("tea", 3)))
	assert.Equal(t, codes.ResourceExhausted, status.Code(byGRPC("milk", 6)), "never admitted")
	assert.NoError(t, byGRPC("milk", 5))
}

func TestMessagesOfStreamsAreLimited(t *testing.T) {
	addr := start(t)
	c := client()
	defer c.CloseIdleConnections()
	stream := connect.NewClient[wrapperspb.StringValue, structpb.Struct](c, "http://"+addr+prices, connect.WithGRPC()).CallBidiStream(t.Context())
	answered := 0
	var err error
	for err == nil && answered < 1000 {
		if err = stream.Send(wrapperspb.String("tea")); err != nil {
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
