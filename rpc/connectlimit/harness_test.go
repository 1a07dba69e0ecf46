package connectlimit

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/internal/testkit/admissiontest"
	"github.com/ral-limiter/ral/policy"
)

// The procedures of the service of these tests. Messages are strings.
const (
	echo  = "/test.v1.Text/Echo"  // unary
	split = "/test.v1.Text/Split" // server stream: one message for each letter
	talk  = "/test.v1.Text/Talk"  // bidirectional: echoes each message
)

type text = wrapperspb.StringValue

func service(options ...connect.HandlerOption) *http.ServeMux {
	mux := http.NewServeMux()
	mux.Handle(echo, connect.NewUnaryHandler(echo,
		func(_ context.Context, r *connect.Request[text]) (*connect.Response[text], error) {
			if r.Msg.Value == "fail" {
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

// streams are the protocols that have streams in both directions.
var streams = []protocol{
	{"connect", true, nil},
	{"gRPC", true, []connect.ClientOption{connect.WithGRPC()}},
	{"gRPC-Web", true, []connect.ClientOption{connect.WithGRPCWeb()}},
}

func (p protocol) client(t testing.TB, url, procedure string) *connect.Client[text, text] {
	t.Helper()
	return connect.NewClient[text, text](httpClient(t, p.h2c), url+procedure, p.options...)
}

func call(c *connect.Client[text, text], message string) (*connect.Response[text], error) {
	return c.CallUnary(context.Background(), connect.NewRequest(wrapperspb.String(message)))
}

// letters calls split, and returns how many messages came before the error.
func letters(c *connect.Client[text, text], message string) (n int, header string, err error) {
	s, err := c.CallServerStream(context.Background(), connect.NewRequest(wrapperspb.String(message)))
	if err != nil {
		return 0, "", err
	}
	for s.Receive() {
		n++
	}
	return n, s.ResponseHeader().Get("RateLimit"), errors.Join(s.Err(), s.Close())
}

func open[K comparable](t testing.TB, p policy.Policy) *engine.Engine[K] {
	t.Helper()
	return admissiontest.NewEngine[K](t, p)
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

// quotaIDs returns the limits that an error's QuotaFailure names.
func quotaIDs(t testing.TB, err error) (ids []string) {
	t.Helper()
	for _, m := range messages(t, err) {
		if failure, ok := m.(*errdetails.QuotaFailure); ok {
			for _, v := range failure.GetViolations() {
				ids = append(ids, v.GetQuotaId())
			}
		}
	}
	return ids
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
