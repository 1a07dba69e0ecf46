package connectlimit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ral-limiter/ral/internal/testkit/admissiontest"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/internal/testkit/rpctest"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/rpclimit"
)

// retries returns a service config that retries calls with a back-off by itself.
func retries(backoff, code string) grpc.DialOption {
	return grpc.WithDefaultServiceConfig(fmt.Sprintf(`{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 5,
		"initialBackoff": %q, "maxBackoff": %[1]q, "backoffMultiplier": 1, "retryableStatusCodes": [%q]}}]}`, backoff, code))
}

func stock(t testing.TB, addr string, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	c := must.Get(grpc.NewClient(addr, append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))...))
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	return c
}

// readSplit calls split, and returns how many messages came, and the header, the trailer and the error at the end.
func readSplit(t testing.TB, ctx context.Context, conn *grpc.ClientConn, message string) (n int, header, trailer metadata.MD, err error) {
	t.Helper()
	stream := must.Get(conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, split))
	require.NoError(t, stream.SendMsg(wrapperspb.String(message)))
	require.NoError(t, stream.CloseSend())
	for err = stream.RecvMsg(new(text)); err == nil; err = stream.RecvMsg(new(text)) {
		n++
	}
	header, _ = stream.Header()
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return n, header, stream.Trailer(), err
}

// A client retries a stream as long as nothing has come. By itself it would retry later than a test may take.
//
// Promise: A stock gRPC client's first retry, at the pushback, succeeds.
func TestStockClientRetriesAtThePushback(t *testing.T) {
	for name, c := range map[string]struct{ atGate, stream, trailersOnly bool }{
		"interceptor":          {false, false, true},
		"gate":                 {true, false, true},
		"stream":               {false, true, true},
		"without TrailersOnly": {false, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			e := open[netip.Addr](t, policy.Must(policy.Funnel(1, 1, 200*time.Millisecond)))
			var requests atomic.Int64
			o := rpclimit.Options{OnVerdict: func(*rpclimit.Call, rpclimit.Verdict) { requests.Add(1) }}
			l := rpctest.ByAddr(e, o)
			if c.atGate {
				l = rpctest.AtTap(e, o)
			}
			h := limited(t, l, c.atGate)
			if !c.trailersOnly {
				h = service(connect.WithInterceptors(NewInterceptor(l)))
			}
			conn := stock(t, serve(t, h).Listener.Addr().String(), retries("10000s", "RESOURCE_EXHAUSTED"))
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			for {
				requests.Store(0)
				e.Take(rpctest.Local, 1)
				var err error
				if c.stream {
					_, _, _, err = readSplit(t, ctx, conn, "ab")
				} else {
					err = conn.Invoke(ctx, echo, wrapperspb.String("hello"), new(text))
				}
				if requests.Load() == 1 && err == nil {
					// The machine was so busy that the unit had come back.
					continue
				}
				if c.trailersOnly {
					require.NoError(t, err)
					assert.EqualValues(t, 2, requests.Load(), "the first retry is admitted")
				} else {
					assert.Equal(t, codes.ResourceExhausted, status.Code(err))
					assert.EqualValues(t, 1, requests.Load())
				}
				return
			}
		})
	}
}

// It changes only errors that have sent nothing and ask to be retried or have no fields.
func TestTrailersOnlyLeavesOtherAnswersAlone(t *testing.T) {
	for name, c := range map[string]struct {
		field, pushback string
		sent            int
		trailersOnly    bool
	}{
		"a bare error":          {"", "", 0, true},
		"fields":                {"1", "", 0, false},
		"fields and a pushback": {"1", "5", 0, true},
		"a message was sent":    {"", "5", 1, false},
	} {
		inner := TrailersOnly(connect.NewServerStreamHandler(split, func(_ context.Context, r *connect.Request[text], s *connect.ServerStream[text]) error {
			if c.field != "" {
				s.ResponseHeader().Set("X-Field", c.field)
			}
			s.ResponseTrailer().Set("X-Trailer", "1")
			for range c.sent {
				assert.NoError(t, s.Send(r.Msg))
			}
			err := connect.NewError(connect.CodeUnavailable, errors.New("no"))
			if c.pushback != "" {
				err.Meta().Set("Grpc-Retry-Pushback-Ms", c.pushback)
			}
			return err
		}))
		s := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Outer", "1")
			inner.ServeHTTP(w, r)
		}))
		n, header, trailer, err := readSplit(t, t.Context(), stock(t, s.Listener.Addr().String()), "x")
		require.Equal(t, codes.Unavailable, status.Code(err), "%s: %v", name, err)
		assert.Equal(t, c.sent, n, name)
		assert.Equal(t, c.trailersOnly, len(header) == 0, "%s: %v %v", name, header, trailer)
		assert.Equal(t, []string{"1"}, trailer.Get("x-trailer"), name)
		assert.Equal(t, []string{"1"}, metadata.Join(header, trailer).Get("x-outer"), name)
		assert.Equal(t, c.field, strings.Join(metadata.Join(header, trailer).Get("x-field"), ""), name)
	}
}

func TestFieldsKeepNoClientFromRetrying(t *testing.T) {
	limits := connect.WithInterceptors(NewInterceptor(rpctest.ByAddr(admissiontest.Hourly[netip.Addr](t, 10), rpclimit.Options{})))
	calls := 0
	s := serve(t, TrailersOnly(connect.NewUnaryHandler(echo, func(_ context.Context, r *connect.Request[text]) (*connect.Response[text], error) {
		if calls++; calls%2 == 1 {
			return nil, connect.NewError(connect.CodeUnavailable, errors.New("not yet"))
		}
		return connect.NewResponse(r.Msg), nil
	}, limits)))
	addr := s.Listener.Addr().String()
	require.NoError(t, stock(t, addr, retries("0.001s", "UNAVAILABLE")).Invoke(t.Context(), echo, wrapperspb.String("hello"), new(text)))
	assert.Equal(t, 2, calls)
	var header, trailer metadata.MD
	err := stock(t, addr).Invoke(t.Context(), echo, wrapperspb.String("hello"), new(text), grpc.Header(&header), grpc.Trailer(&trailer))
	assert.Equal(t, codes.Unavailable, status.Code(err))
	assert.Empty(t, header)
	assert.Len(t, trailer.Get("ratelimit"), 1)
	assert.Len(t, trailer.Get("ratelimit-policy"), 1)
}
