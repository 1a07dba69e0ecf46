package connectlimit

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ral-limiter/ral/internal/testkit/admissiontest"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/internal/testkit/rpctest"
	"github.com/ral-limiter/ral/internal/testkit/testenv"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/rpclimit"
)

func serveUnary(ctx context.Context, l *rpclimit.Guard, handler func(context.Context) error) error {
	_, err := NewInterceptor(l).WrapUnary(func(ctx context.Context, _ connect.AnyRequest) (connect.AnyResponse, error) {
		return connect.NewResponse(&text{}), handler(ctx)
	})(ctx, connect.NewRequest(&text{}))
	return err
}

func TestInterceptorKeepsTheAdmissionContract(t *testing.T) {
	admissiontest.Run(t, func(t testing.TB, o admissiontest.Options, all []admissiontest.Limit) admissiontest.Door {
		guard := rpctest.New(t, o, all)
		serve := func(ctx context.Context) {
			_ = serveUnary(ctx, guard, func(ctx context.Context) error { admissiontest.Of(ctx).Served(); return nil })
		}
		return admissiontest.Door{Serve: serve, Stats: rpctest.StatsOf(guard)}
	})
}

type fakeConn struct {
	connect.StreamingHandlerConn
	rpctest.Messages
}

func (*fakeConn) Spec() connect.Spec          { return connect.Spec{Procedure: talk} }
func (*fakeConn) Peer() connect.Peer          { return connect.Peer{} }
func (*fakeConn) RequestHeader() http.Header  { return http.Header{} }
func (*fakeConn) ResponseHeader() http.Header { return http.Header{} }
func (c *fakeConn) Receive(any) error         { c.Received++; return nil }
func (c *fakeConn) Send(any) error            { c.Sent++; return nil }

// Promise: A refused message ends its stream, whatever the handler returns.
//
// Promise: A stream returns unused units, however it ends.
func TestStreamEndsAtRefusalAndReturnsUnits(t *testing.T) {
	rpctest.RunServer(t, rpctest.Server{
		Unary: func(l *rpclimit.Guard, handler func() error) error {
			return serveUnary(t.Context(), l, func(context.Context) error { return handler() })
		},
		Stream: func(l *rpclimit.Guard, handler func(receive, send func() error) error) (rpctest.Messages, error) {
			c := &fakeConn{}
			err := NewInterceptor(l).WrapStreamingHandler(func(_ context.Context, c connect.StreamingHandlerConn) error {
				return handler(func() error { return c.Receive(nil) }, func() error { return c.Send(nil) })
			})(t.Context(), c)
			return c.Messages, err
		},
		Error: func(code rpclimit.Code) error { return connect.NewError(connect.Code(code), nil) },
		Code:  codeOf,
	})
	for _, p := range streams {
		rpctest.StreamEnds(t, func(t *testing.T, ctx context.Context, l *rpclimit.Guard, n int) func() {
			stream := p.client(t, serve(t, limited(t, l, false)).URL, talk).CallBidiStream(ctx)
			for range n {
				require.NoError(t, stream.Send(wrapperspb.String("x")), p.name)
				_, err := stream.Receive()
				require.NoError(t, err, p.name)
			}
			return func() { _ = stream.CloseResponse() }
		})
	}
}

// limited returns the service under limits, behind a gate or not.
func limited(t testing.TB, l *rpclimit.Guard, atGate bool) http.Handler {
	t.Helper()
	h := TrailersOnly(service(connect.WithInterceptors(NewInterceptor(l))))
	if atGate {
		h = newGate(t, l).Handler(h)
	}
	return h
}

// Promise: Connect, gRPC and gRPC-Web carry refusals and admitted calls' state.
func TestEveryProtocolTellsHowACallStands(t *testing.T) {
	for _, atGate := range []bool{false, true} {
		e := open[netip.Addr](t, policy.Must(policy.Funnel(2, 1, 10*time.Minute)))
		cost := func(c *rpclimit.Call) int64 {
			if m, ok := c.Message.(*text); ok && m.Value == "never" {
				return 3
			}
			return 1
		}
		l := rpctest.ByAddr(e, rpclimit.Options{Cost: cost})
		if atGate {
			l = rpctest.AtTap(e, rpclimit.Options{Cost: cost})
		}
		s := serve(t, limited(t, l, atGate))
		tellsWhen := func(t *testing.T, err error) {
			t.Helper()
			require.Equal(t, connect.CodeResourceExhausted, connect.CodeOf(err), err)
			after := retryInfo(t, err)
			assert.Greater(t, after, 9*time.Minute)
			assert.LessOrEqual(t, after, 10*time.Minute)
			assert.Zero(t, after%time.Millisecond, "whole milliseconds")
			assert.Equal(t, strconv.FormatInt(after.Milliseconds(), 10), meta(t, err).Get("Grpc-Retry-Pushback-Ms"))
			assert.Equal(t, strconv.FormatInt(retrySeconds(after), 10), meta(t, err).Get("Retry-After"))
			assert.Equal(t, `"address";q=2;w=1200`, meta(t, err).Get("RateLimit-Policy"))
			assert.Regexp(t, `^"address";r=0;t=\d+$`, meta(t, err).Get("RateLimit"))
			assert.Equal(t, []string{"address"}, quotaIDs(t, err))
		}
		for _, p := range protocols {
			t.Run(p.name, func(t *testing.T) {
				e.Reset(rpctest.Local)
				c := p.client(t, s.URL, echo)
				response := must.Get(call(c, "hello"))
				assert.Equal(t, "hello", response.Msg.Value)
				assert.Equal(t, `"address";q=2;w=1200`, response.Header().Get("RateLimit-Policy"))
				assert.Regexp(t, `^"address";r=1;t=\d+$`, response.Header().Get("RateLimit"))
				_, err := call(c, "fail")
				require.Equal(t, connect.CodeDataLoss, connect.CodeOf(err))
				assert.Regexp(t, `^"address";r=0;t=\d+$`, meta(t, err).Get("RateLimit"), "an error of the handler has the fields, too")
				_, err = call(c, "hello")
				tellsWhen(t, err)
				if _, err = call(c, "never"); !atGate {
					require.Equal(t, connect.CodeResourceExhausted, connect.CodeOf(err))
					assert.Equal(t, "-1", meta(t, err).Get("Grpc-Retry-Pushback-Ms"))
					assert.Empty(t, meta(t, err).Get("Retry-After"))
					assert.Negative(t, retryInfo(t, err), "no RetryInfo")
				}
			})
		}
		for _, p := range streams {
			t.Run("stream, "+p.name, func(t *testing.T) {
				e.Reset(rpctest.Local)
				c := p.client(t, s.URL, split)
				for range 2 {
					n, header, err := letters(c, "abc")
					require.NoError(t, err)
					assert.Equal(t, 3, n)
					assert.Regexp(t, `^"address";r=\d;t=\d+$`, header)
				}
				n, _, err := letters(c, "abc")
				assert.Zero(t, n)
				tellsWhen(t, err)
			})
		}
	}
}

// A message that is refused after others tells when to try again.
func TestRefusedMessageTellsWhen(t *testing.T) {
	l := rpctest.ByAddr(open[netip.Addr](t, policy.Must(policy.FixedWindow(4, time.Hour))),
		rpclimit.Options{CostSent: func(*rpclimit.Call) int64 { return 1 }})
	n, _, err := letters(streams[1].client(t, serve(t, limited(t, l, false)).URL, split), "abcdef")
	assert.Equal(t, 3, n)
	require.Equal(t, connect.CodeResourceExhausted, connect.CodeOf(err))
	assert.Positive(t, retryInfo(t, err))
}

func TestRetryAfterIsRoundedUp(t *testing.T) {
	for d, want := range map[time.Duration]int64{0: 1, 1: 1, time.Second: 1, time.Second + 1: 2, 1<<63 - 1: 9223372037} {
		assert.Equal(t, want, retrySeconds(d), d)
	}
}

func TestFieldsOfSeveralInterceptors(t *testing.T) {
	inner := rpclimit.Limit[string]{Name: "method", Limiter: open[string](t, policy.Must(policy.Funnel(7, 1, time.Hour))), Key: rpclimit.ByProcedure}
	s := serve(t, service(connect.WithInterceptors(
		NewInterceptor(rpctest.ByAddr(open[netip.Addr](t, policy.Must(policy.Funnel(5, 1, time.Hour))), rpclimit.Options{})),
		NewInterceptor(rpclimit.Must(rpclimit.New(rpclimit.Options{}, inner))),
	)))
	response := must.Get(call(protocols[0].client(t, s.URL, echo), "hello"))
	assert.Equal(t, []string{`"address";q=5;w=18000`, `"method";q=7;w=25200`}, response.Header().Values("RateLimit-Policy"))
	assert.Len(t, response.Header().Values("RateLimit"), 2)
}

func TestClientsAreNotLimitedByAServersInterceptor(t *testing.T) {
	e := admissiontest.Hourly[netip.Addr](t, 1)
	p := protocols[3]
	p.options = append(p.options[:1:1], connect.WithInterceptors(NewInterceptor(rpctest.ByAddr(e, rpclimit.Options{}))))
	url := serve(t, service()).URL
	for range 2 {
		must.Get(call(p.client(t, url, echo), "hello"))
		_, _, err := letters(p.client(t, url, split), "abc")
		require.NoError(t, err)
	}
	assert.Zero(t, e.Stats().Keys)
}

func TestNilLimitsPanicAtOnce(t *testing.T) {
	assert.PanicsWithValue(t, "connectlimit.NewInterceptor: guard is nil: want a Guard from rpclimit.New", func() { NewInterceptor(nil) })
}

type quiet struct {
	h      http.Header
	status int
}

func (q *quiet) Header() http.Header         { return q.h }
func (q *quiet) Write(b []byte) (int, error) { return len(b), nil }
func (q *quiet) WriteHeader(status int)      { q.status = status }

// repeated is a unary request of the Connect protocol that is sent again and again.
func repeated(t testing.TB, h http.Handler) (send func()) {
	t.Helper()
	body, err := proto.Marshal(wrapperspb.String("hello"))
	require.NoError(t, err)
	reader := bytes.NewReader(body)
	r := httptest.NewRequest(http.MethodPost, echo, nil)
	r.Header.Set("Content-Type", "application/proto")
	r.Body = io.NopCloser(reader)
	w := &quiet{h: http.Header{}}
	return func() {
		clear(w.h)
		w.status = 0
		reader.Reset(body)
		h.ServeHTTP(w, r)
		if w.status != 0 && w.status != http.StatusOK {
			t.Fatal(w.status)
		}
	}
}

// The interceptor allocates the limits' call, the value of RateLimit, and connect's map of fields.
func TestAdmittedPathAllocatesLittle(t *testing.T) {
	if testenv.Race {
		t.Skip("the race detector allocates")
	}
	e := open[netip.Addr](t, policy.Must(policy.Funnel(1_000_000, 1, time.Second)))
	atGate := rpctest.AtTap(e, rpclimit.Options{})
	bare := testing.AllocsPerRun(1000, repeated(t, service()))
	for _, c := range []struct {
		name string
		h    http.Handler
		most float64
	}{
		{"interceptor", service(connect.WithInterceptors(NewInterceptor(rpctest.ByAddr(e, rpclimit.Options{})))), 6},
		{"shadow", service(connect.WithInterceptors(NewInterceptor(rpctest.ByAddr(e, rpclimit.Options{Shadow: true})))), 2},
		{"gate and interceptor", newGate(t, atGate).Handler(service(connect.WithInterceptors(NewInterceptor(atGate)))), 14},
	} {
		send := repeated(t, c.h)
		send()
		more := testing.AllocsPerRun(1000, send) - bare
		t.Logf("%-24s %v allocations more than the %v of the bare handler", c.name, more, bare)
		assert.LessOrEqual(t, more, c.most, c.name)
	}
}

// serveDuring serves calls of a protocol by a function of the test: see rpctest.Open.
func (p protocol) serveDuring(t *testing.T, l *rpclimit.Guard, during rpctest.During) map[string]func(context.Context) error {
	guarded := connect.WithInterceptors(NewInterceptor(l))
	mux := http.NewServeMux()
	mux.Handle(echo, connect.NewUnaryHandler(echo, func(ctx context.Context, r *connect.Request[text]) (*connect.Response[text], error) {
		return connect.NewResponse(r.Msg), during(ctx, nil)
	}, guarded))
	mux.Handle(talk, connect.NewBidiStreamHandler(talk, func(ctx context.Context, s *connect.BidiStream[text, text]) error {
		m, err := s.Receive()
		if err != nil {
			return err
		}
		return during(ctx, func() error { return s.Send(m) })
	}, guarded))
	mux.Handle(split, connect.NewServerStreamHandler(split, func(ctx context.Context, r *connect.Request[text], s *connect.ServerStream[text]) error {
		return during(ctx, func() error { return s.Send(r.Msg) })
	}, guarded))
	url := serve(t, mux).URL
	return map[string]func(context.Context) error{
		"unary": func(ctx context.Context) error {
			_, err := p.client(t, url, echo).CallUnary(ctx, connect.NewRequest(wrapperspb.String("")))
			return err
		},
		"stream": func(ctx context.Context) error {
			s := p.client(t, url, talk).CallBidiStream(ctx)
			// Receive has the reason if Send meets the end.
			err := s.Send(wrapperspb.String(""))
			if err = errors.Join(err, s.CloseRequest()); errors.Is(err, io.EOF) {
				err = nil
			}
			for err == nil {
				_, err = s.Receive()
			}
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return errors.Join(err, s.CloseResponse())
		},
		"server stream": func(ctx context.Context) error {
			s, err := p.client(t, url, split).CallServerStream(ctx, connect.NewRequest(wrapperspb.String("")))
			if err != nil {
				return err
			}
			for s.Receive() {
			}
			return errors.Join(s.Err(), s.Close())
		},
	}
}

func TestLostUnitsEndACall(t *testing.T) {
	for _, p := range streams {
		rpctest.RunLost(t, codeOf, p.serveDuring)
	}
}

func TestCallIsInUseUntilItsHandlerReturns(t *testing.T) {
	for _, p := range streams {
		rpctest.RunInUse(t, codeOf, p.serveDuring)
	}
}
