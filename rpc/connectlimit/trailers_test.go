package connectlimit

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
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

	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/rpclimit"
)

// retries is a service config that retries refused calls, by itself later than a test may take.
const retries = `{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 5, "initialBackoff": "10000s",
	"maxBackoff": "10000s", "backoffMultiplier": 1, "retryableStatusCodes": ["RESOURCE_EXHAUSTED"]}}]}`

func stock(t testing.TB, addr string, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	c, err := grpc.NewClient(addr, append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	return c
}

func counted(n *atomic.Int64, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n.Add(1)
		next.ServeHTTP(w, r)
	})
}

// Without TrailersOnly it does not retry.
//
// Promise: A stock gRPC client's first retry, at the pushback, succeeds.
func TestStockClientRetriesAtThePushback(t *testing.T) {
	for _, c := range []struct {
		name    string
		limits  func(*rpclimit.Limits) http.Handler
		tap     bool
		retries bool
	}{
		{"interceptor", func(l *rpclimit.Limits) http.Handler {
			return TrailersOnly(service(connect.WithInterceptors(NewInterceptor(l))))
		}, false, true},
		{"gate", func(l *rpclimit.Limits) http.Handler {
			gate, err := NewGate(l)
			require.NoError(t, err)
			return gate.Handler(service(connect.WithInterceptors(NewInterceptor(l))))
		}, true, true},
		{"without", func(l *rpclimit.Limits) http.Handler {
			return service(connect.WithInterceptors(NewInterceptor(l)))
		}, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := open[netip.Addr](t, policy.Must(policy.Funnel(1, 1, 200*time.Millisecond)))
			limited := rpclimit.Must(rpclimit.New(rpclimit.Options{}, rpclimit.Limit[netip.Addr]{
				Limiter: e, Key: rpclimit.ByAddr, AtTap: c.tap,
			}))
			var requests atomic.Int64
			s := serve(t, counted(&requests, c.limits(limited)))
			conn := stock(t, s.Listener.Addr().String(), grpc.WithDefaultServiceConfig(retries))
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			for {
				requests.Store(0)
				e.Take(local, 1)
				var out text
				err := conn.Invoke(ctx, echo, wrapperspb.String("hello"), &out)
				if c.retries {
					require.NoError(t, err)
					assert.Equal(t, "hello", out.Value)
				}
				if requests.Load() == 1 && err == nil {
					continue // the machine was so busy that the unit had come back
				}
				if c.retries {
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

// They retry as long as nothing has come.
func TestStockClientRetriesStreams(t *testing.T) {
	e := open[netip.Addr](t, policy.Must(policy.Funnel(1, 1, 100*time.Millisecond)))
	var requests atomic.Int64
	s := serve(t, counted(&requests, TrailersOnly(service(connect.WithInterceptors(NewInterceptor(byAddr(e, rpclimit.Options{})))))))
	conn := stock(t, s.Listener.Addr().String(), grpc.WithDefaultServiceConfig(retries))
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	for requests.Load() != 2 {
		requests.Store(0)
		e.Take(local, 1)
		stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, split)
		require.NoError(t, err)
		require.NoError(t, stream.SendMsg(wrapperspb.String("ab")))
		require.NoError(t, stream.CloseSend())
		for range 2 {
			var out text
			require.NoError(t, stream.RecvMsg(&out))
		}
		require.LessOrEqual(t, requests.Load(), int64(2), "the first retry is admitted")
	}
}

// It changes only errors that have sent nothing and ask to be retried or have no fields.
func TestTrailersOnlyLeavesOtherAnswersAlone(t *testing.T) {
	handler := func(fields bool, pushback string, sent int) http.Handler {
		return connect.NewServerStreamHandler(split,
			func(_ context.Context, _ *connect.Request[text], s *connect.ServerStream[text]) error {
				if fields {
					s.ResponseHeader().Set("X-Field", "1")
				}
				s.ResponseTrailer().Set("X-Trailer", "1")
				for range sent {
					if err := s.Send(wrapperspb.String("x")); err != nil {
						return err
					}
				}
				err := connect.NewError(connect.CodeUnavailable, errors.New("no"))
				if pushback != "" {
					err.Meta().Set("Grpc-Retry-Pushback-Ms", pushback)
				}
				return err
			})
	}
	for _, c := range []struct {
		name         string
		fields       bool
		pushback     string
		sent         int
		trailersOnly bool
	}{
		{"a bare error", false, "", 0, true},
		{"fields", true, "", 0, false},
		{"fields and a pushback", true, "5", 0, true},
		{"a message was sent", false, "5", 1, false},
	} {
		outer := func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("X-Outer", "1")
				next.ServeHTTP(w, r)
			})
		}
		s := serve(t, outer(TrailersOnly(handler(c.fields, c.pushback, c.sent))))
		stream, err := stock(t, s.Listener.Addr().String()).NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true}, split)
		require.NoError(t, err)
		require.NoError(t, stream.SendMsg(wrapperspb.String("x")))
		require.NoError(t, stream.CloseSend())
		for range c.sent {
			require.NoError(t, stream.RecvMsg(new(text)), c.name)
		}
		err = stream.RecvMsg(new(text))
		require.Equal(t, codes.Unavailable, status.Code(err), "%s: %v", c.name, err)
		header, _ := stream.Header()
		trailer := stream.Trailer()
		assert.Equal(t, c.trailersOnly, len(header) == 0, "%s: %v %v", c.name, header, trailer)
		assert.Equal(t, []string{"1"}, trailer.Get("x-trailer"), c.name)
		assert.Equal(t, []string{"1"}, metadata.Join(header, trailer).Get("x-outer"), c.name)
		if c.fields {
			assert.Equal(t, []string{"1"}, metadata.Join(header, trailer).Get("x-field"), c.name)
		}
	}
}

func TestFieldsKeepNoClientFromRetrying(t *testing.T) {
	e := open[netip.Addr](t, policy.Must(policy.FixedWindow(10, time.Hour)))
	var calls atomic.Int64
	mux := http.NewServeMux()
	mux.Handle(echo, connect.NewUnaryHandler(echo, func(_ context.Context, r *connect.Request[text]) (*connect.Response[text], error) {
		if calls.Add(1) == 1 {
			return nil, connect.NewError(connect.CodeUnavailable, errors.New("not yet"))
		}
		return connect.NewResponse(r.Msg), nil
	}, connect.WithInterceptors(NewInterceptor(byAddr(e, rpclimit.Options{})))))
	s := serve(t, TrailersOnly(mux))
	const policy = `{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 2, "initialBackoff": "0.001s",
		"maxBackoff": "0.001s", "backoffMultiplier": 1, "retryableStatusCodes": ["UNAVAILABLE"]}}]}`
	conn := stock(t, s.Listener.Addr().String(), grpc.WithDefaultServiceConfig(policy))
	require.NoError(t, conn.Invoke(t.Context(), echo, wrapperspb.String("hello"), new(text)))
	assert.EqualValues(t, 2, calls.Load())

	calls.Store(0)
	var header, trailer metadata.MD
	err := stock(t, s.Listener.Addr().String()).Invoke(t.Context(), echo, wrapperspb.String("hello"), new(text), grpc.Header(&header), grpc.Trailer(&trailer))
	assert.Equal(t, codes.Unavailable, status.Code(err))
	assert.Empty(t, header)
	assert.Len(t, trailer.Get("ratelimit"), 1)
	assert.Len(t, trailer.Get("ratelimit-policy"), 1)
}
