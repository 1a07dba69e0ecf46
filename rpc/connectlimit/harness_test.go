package connectlimit

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/internal/testkit/admissiontest"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/rpclimit"
)

// The procedures of the service of these tests. Messages are strings.
const (
	echo  = "/test.v1.Text/Echo"  // unary
	split = "/test.v1.Text/Split" // server stream: one message for each letter
	join  = "/test.v1.Text/Join"  // client stream
	talk  = "/test.v1.Text/Talk"  // bidirectional: echoes each message
)

type text = wrapperspb.StringValue

func service(options ...connect.HandlerOption) *http.ServeMux {
	mux := http.NewServeMux()
	mux.Handle(echo, connect.NewUnaryHandler(echo,
		func(_ context.Context, r *connect.Request[text]) (*connect.Response[text], error) {
			switch r.Msg.Value {
			case "fail":
				return nil, connect.NewError(connect.CodeDataLoss, errors.New("failed as asked"))
			}
			return connect.NewResponse(r.Msg), nil
		}, append(options, connect.WithIdempotency(connect.IdempotencyNoSideEffects))...))
	mux.Handle(split, connect.NewServerStreamHandler(split,
		func(_ context.Context, r *connect.Request[text], s *connect.ServerStream[text]) error {
			for _, letter := range r.Msg.Value {
				if err := s.Send(wrapperspb.String(string(letter))); err != nil {
					return err
				}
			}
			return nil
		}, options...))
	mux.Handle(join, connect.NewClientStreamHandler(join,
		func(_ context.Context, s *connect.ClientStream[text]) (*connect.Response[text], error) {
			all := ""
			for s.Receive() {
				all += s.Msg().Value
			}
			return connect.NewResponse(wrapperspb.String(all)), nil // whatever s.Err is
		}, options...))
	mux.Handle(talk, connect.NewBidiStreamHandler(talk,
		func(_ context.Context, s *connect.BidiStream[text, text]) error {
			for {
				m, err := s.Receive()
				if errors.Is(err, io.EOF) {
					return nil
				}
				if err != nil {
					return err
				}
				if err := s.Send(m); err != nil {
					return err
				}
			}
		}, options...))
	return mux
}

// serve serves a handler over HTTP/1.1 and h2c.
func serve(t testing.TB, h http.Handler) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(s.Close)
	return s
}

func httpClient(t testing.TB, h2c bool) *http.Client {
	t.Helper()
	p := new(http.Protocols)
	p.SetHTTP1(!h2c)
	p.SetUnencryptedHTTP2(h2c)
	transport := &http.Transport{Protocols: p, DialContext: (&net.Dialer{}).DialContext}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// protocol is a way to call the service.
type protocol struct {
	name    string
	h2c     bool
	options []connect.ClientOption
}

var protocols = []protocol{
	{"connect", false, nil},
	{"connect, JSON", true, []connect.ClientOption{connect.WithProtoJSON()}},
	{"connect, GET", false, []connect.ClientOption{connect.WithHTTPGet(), connect.WithIdempotency(connect.IdempotencyNoSideEffects)}},
	{"gRPC", true, []connect.ClientOption{connect.WithGRPC()}},
	{"gRPC-Web", false, []connect.ClientOption{connect.WithGRPCWeb()}},
	{"gRPC-Web, h2c", true, []connect.ClientOption{connect.WithGRPCWeb()}},
}

func (p protocol) client(t testing.TB, url, procedure string) *connect.Client[text, text] {
	t.Helper()
	return connect.NewClient[text, text](httpClient(t, p.h2c), url+procedure, p.options...)
}

func call(c *connect.Client[text, text], message string) (*connect.Response[text], error) {
	return c.CallUnary(context.Background(), connect.NewRequest(wrapperspb.String(message)))
}

func open[K comparable](t testing.TB, p policy.Policy) *engine.Engine[K] {
	t.Helper()
	return admissiontest.NewEngine[K](t, p)
}

func byAddr(e *engine.Engine[netip.Addr], o rpclimit.Options) *rpclimit.Limits {
	return rpclimit.Must(rpclimit.New(o, rpclimit.Limit[netip.Addr]{Name: "address", Limiter: e, Key: rpclimit.ByAddr}))
}

var local = netip.MustParseAddr("127.0.0.1")

func taken(e *engine.Engine[netip.Addr], key netip.Addr, limit int64) int64 {
	return limit - e.Peek(key, 0).Remaining
}

// retryInfo returns the delay of an error's RetryInfo, or -1.
func retryInfo(t testing.TB, err error) time.Duration {
	t.Helper()
	for _, m := range messages(t, err) {
		if info, ok := m.(*errdetails.RetryInfo); ok {
			return info.GetRetryDelay().AsDuration()
		}
	}
	return -1
}

func quotaFailure(t testing.TB, err error) *errdetails.QuotaFailure {
	t.Helper()
	for _, m := range messages(t, err) {
		if failure, ok := m.(*errdetails.QuotaFailure); ok {
			return failure
		}
	}
	return nil
}

func messages(t testing.TB, err error) (all []any) {
	t.Helper()
	coded := new(connect.Error)
	require.ErrorAs(t, err, &coded)
	for _, d := range coded.Details() {
		m, err := d.Value()
		require.NoError(t, err)
		all = append(all, m)
	}
	return all
}

func meta(t testing.TB, err error) http.Header {
	t.Helper()
	coded := new(connect.Error)
	require.ErrorAs(t, err, &coded)
	return coded.Meta()
}
