package connectlimit

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/internal/testkit/rpctest"
	"github.com/ral-limiter/ral/internal/testkit/testenv"
	"github.com/ral-limiter/ral/outgoing"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/rpclimit"
)

func waitingFor(t testing.TB, line *outgoing.Line[string], options ClientOptions) connect.ClientOption {
	t.Helper()
	i := must.Get(NewClientInterceptor(line, ByServer, options))
	return connect.WithInterceptors(i)
}

// talkOnce sends a message on a stream and receives all answers.
func talkOnce(s *connect.BidiStreamForClient[text, text]) error {
	err := s.Send(wrapperspb.String("x"))
	closed := s.CloseRequest()
	for {
		if _, received := s.Receive(); received != nil {
			_ = s.CloseResponse()
			if _, _ = s.ResponseHeader(), s.ResponseTrailer(); errors.Is(received, io.EOF) {
				return errors.Join(err, closed)
			}
			return received
		}
	}
}

// Streams tell the line by a message, an end or a refusal.
func TestClientObeysRefusals(t *testing.T) {
	for _, p := range streams {
		t.Run(p.name, func(t *testing.T) {
			rpctest.RunClient(t, func(t testing.TB, c rpctest.Calls) rpctest.Client {
				s := serve(t, TrailersOnly(service(connect.WithInterceptors(NewInterceptor(c.Guard)), connect.WithReadMaxBytes(1000))))
				level := connect.IdempotencyUnknown
				if c.Repeatable {
					level = connect.IdempotencyIdempotent
				}
				p := p
				p.options = append(slices.Clip(p.options), connect.WithIdempotency(level), waitingFor(t, c.Line, ClientOptions{Retries: c.Retries}))
				unary := func(p protocol) func(context.Context) error {
					return func(ctx context.Context) error {
						_, err := p.client(t, s.URL, echo).CallUnary(ctx, connect.NewRequest(wrapperspb.String("hello")))
						return err
					}
				}
				small := p
				small.options = append(slices.Clip(p.options), connect.WithSendMaxBytes(2))
				return rpctest.Client{
					Key: strings.TrimPrefix(s.URL, "http://"), Code: codeOf,
					Unary: unary(p),
					TooLarge: []func(context.Context) error{
						unary(small),
						func(context.Context) error {
							_, err := call(p.client(t, s.URL, echo), strings.Repeat("x", 2000))
							return err
						},
						func(context.Context) error {
							_, _, err := letters(p.client(t, s.URL, split), strings.Repeat("x", 2000))
							return err
						},
					},
					Stream: func(ctx context.Context) error { return talkOnce(p.client(t, s.URL, talk).CallBidiStream(ctx)) },
					Open:   func(ctx context.Context) { p.client(t, s.URL, talk).CallBidiStream(ctx) },
					Exchange: func(ctx context.Context) {
						stream := p.client(t, s.URL, talk).CallBidiStream(ctx)
						require.NoError(t, stream.Send(wrapperspb.String("x")))
						_, err := stream.Receive()
						require.NoError(t, err)
						context.AfterFunc(ctx, func() { _ = stream.CloseResponse() }) // so that the server learns of it
					},
				}
			})
		})
	}
}

// inProcess is an HTTP client of a handler in this process, with a delay each way. It counts the
// refusals of requests sent after the first answer.
type inProcess struct {
	handler  http.Handler
	rtt      time.Duration
	answered atomic.Bool
	late     atomic.Int64 // refusals of requests sent after the first answer
	admitted atomic.Int64
}

func (c *inProcess) Do(r *http.Request) (*http.Response, error) {
	late := c.answered.Load()
	time.Sleep(rand.N(1 + c.rtt/2)) // wall: mixes the calls, and nothing depends on its length
	in := r.Clone(r.Context())
	in.RequestURI, in.RemoteAddr = r.URL.RequestURI(), "127.0.0.1:1"
	in.Proto, in.ProtoMajor, in.ProtoMinor = "HTTP/2.0", 2, 0
	w := httptest.NewRecorder()
	c.handler.ServeHTTP(w, in)
	time.Sleep(rand.N(1 + c.rtt/2)) // wall: as above
	c.answered.Store(true)
	resp := w.Result()
	switch {
	case resp.StatusCode != http.StatusTooManyRequests && resp.Header.Get("Grpc-Status") != "8":
		c.admitted.Add(1)
	case late:
		c.late.Add(1)
	}
	return resp, nil
}

// Promise: 100 goroutines behind one client use 95% of the limit without further refusals.
func TestNoRefusalAfterTheFirstAnswer(t *testing.T) {
	minutes := 5.0
	if testenv.Race {
		minutes = 2
	}
	for _, p := range []protocol{protocols[0], protocols[3]} {
		for _, limit := range []policy.Policy{policy.Must(policy.Funnel(10, 10, time.Second)), policy.Must(policy.FixedWindow(600, time.Minute))} {
			synctest.Test(t, func(t *testing.T) {
				e := open[netip.Addr](t, limit)
				to := &inProcess{rtt: 20 * time.Millisecond, handler: limited(t, rpctest.ByAddr(e, rpclimit.Options{}), false)}
				client := connect.NewClient[text, text](to, "http://there"+echo, append(p.options, waitingFor(t, rpctest.Line(t, outgoing.Config{}), ClientOptions{}))...)
				ctx, cancel := context.WithCancel(t.Context())
				defer time.AfterFunc(time.Duration(minutes)*time.Minute, cancel).Stop()
				var all sync.WaitGroup
				for range 100 {
					all.Go(func() {
						for ctx.Err() == nil {
							_, _ = client.CallUnary(ctx, connect.NewRequest(wrapperspb.String("hello")))
						}
					})
				}
				all.Wait()
				assert.Zero(t, to.late.Load(), "%s, %v: refusals after the first answer", p.name, limit)
				assert.GreaterOrEqual(t, float64(to.admitted.Load()), 0.95*600*minutes, "%s, %v", p.name, limit)
			})
		}
	}
}

// wireError returns an error as clients have it from a server.
func wireError(t testing.TB, a rpctest.Answer) *connect.Error {
	t.Helper()
	err := connect.NewWireError(connect.Code(a.Code), errors.New(a.Message))
	if a.RetryInfo != 0 {
		detail, bad := connect.NewErrorDetail(&errdetails.RetryInfo{RetryDelay: durationpb.New(a.RetryInfo)})
		require.NoError(t, bad)
		err.AddDetail(detail)
	}
	for name, value := range a.Fields {
		err.Meta().Set(name, value)
	}
	err.Meta()["Grpc-Retry-Pushback-Ms"] = a.Pushback
	return err
}

func TestErrorTellsTheServersAnswer(t *testing.T) {
	refusedFor := func(d time.Duration) outgoing.Answer { return outgoing.Answer{Refused: true, RetryAfter: d} }
	const full = rpclimit.CodeResourceExhausted
	for _, a := range append(rpctest.Answers(),
		rpctest.Answer{Name: "Retry-After", Code: full, Fields: map[string]string{"retry-after": "3"}, Want: refusedFor(3 * time.Second)},
		rpctest.Answer{Name: "pushback before others", Code: full, RetryInfo: time.Hour, Pushback: []string{"7"},
			Fields: map[string]string{"retry-after": "3"}, Want: refusedFor(7 * time.Millisecond)},
	) {
		got, told := answerOf(hook, nil, wireError(t, a))
		assert.True(t, told, a.Name)
		assert.Equal(t, a.Want, got, a.Name)
	}
	for _, err := range []error{errors.New("no"), connect.NewError(connect.CodeResourceExhausted, errors.New("too large"))} {
		_, told := answerOf(hook, nil, err)
		assert.False(t, told, "%v is no server's word", err)
	}
	got, _ := answerOf(hook, http.Header{"X-Ratelimit-Remaining": {"4"}, "X-Ratelimit-Reset": {"3"}}, nil)
	assert.Equal(t, outgoing.Answer{HasRemaining: true, Remaining: 4, Reset: 3 * time.Second}, got)
}

var hook = rpctest.Hook(func(err error) string {
	var refusal *connect.Error
	if errors.As(err, &refusal) {
		return refusal.Message()
	}
	return ""
})

// Promise: Connect refusals without a time back off; a served call begins anew.
func TestRefusalsInARow(t *testing.T) {
	refuse := func(message string) error {
		if message == "" {
			return nil
		}
		return connect.NewError(connect.CodeResourceExhausted, errors.New(message))
	}
	for _, p := range []protocol{protocols[0], protocols[3], protocols[4]} {
		for _, procedure := range []string{echo, split} {
			synctest.Test(t, func(t *testing.T) {
				mux := http.NewServeMux()
				mux.Handle(echo, connect.NewUnaryHandler(echo, func(_ context.Context, r *connect.Request[text]) (*connect.Response[text], error) {
					return connect.NewResponse(r.Msg), refuse(r.Msg.Value)
				}))
				mux.Handle(split, connect.NewServerStreamHandler(split, func(_ context.Context, r *connect.Request[text], _ *connect.ServerStream[text]) error {
					return refuse(r.Msg.Value)
				}))
				line := rpctest.Line(t, outgoing.Config{})
				options := append(slices.Clip(p.options), waitingFor(t, line, ClientOptions{Answer: hook}))
				client := connect.NewClient[text, text](&inProcess{handler: mux}, "http://there"+procedure, options...)
				rpctest.Strikes(t, line, "there", func(message string) (err error) {
					if procedure == echo {
						_, err = call(client, message)
					} else {
						_, _, err = letters(client, message)
					}
					return err
				})
			})
		}
	}
}

// It waits to the millisecond, with all calls of the server.
//
// Promise: Clients wait as long as servers say.
func TestClientObeysTheServer(t *testing.T) {
	const said = 1234 * time.Millisecond
	for _, p := range []protocol{protocols[0], protocols[3], protocols[4]} {
		synctest.Test(t, func(t *testing.T) {
			n := 0
			to := &inProcess{handler: connect.NewUnaryHandler(echo, func(_ context.Context, r *connect.Request[text]) (*connect.Response[text], error) {
				if n++; n == 1 {
					err := connect.NewError(connect.CodeResourceExhausted, errors.New("no"))
					err.Meta().Set("Grpc-Retry-Pushback-Ms", "1234")
					return nil, err
				}
				return connect.NewResponse(r.Msg), nil
			})}
			line := rpctest.Line(t, outgoing.Config{})
			client := connect.NewClient[text, text](to, "http://there"+echo, append(p.options, waitingFor(t, line, ClientOptions{}))...)
			_, err := call(client, "hello")
			require.Equal(t, connect.CodeResourceExhausted, connect.CodeOf(err), p.name)
			assert.True(t, connect.IsWireError(err), "%s: what the server said", p.name)
			began := time.Now()
			assert.Equal(t, said, line.BackoffLeft("there"), p.name)
			must.Get(call(client, "hello"))
			assert.GreaterOrEqual(t, time.Since(began), said, p.name)
			assert.Less(t, time.Since(began), said+6*time.Second, "%s: nothing but the back-off and the probe", p.name)
		})
	}
}

func TestNewClientInterceptorRefuses(t *testing.T) {
	line := rpctest.Line(t, outgoing.Config{})
	for field, make := range map[string]func() error{
		"line":            func() error { _, err := NewClientInterceptor(nil, ByServer, ClientOptions{}); return err },
		"key":             func() error { _, err := NewClientInterceptor(line, nil, ClientOptions{}); return err },
		"options.Retries": func() error { _, err := NewClientInterceptor(line, ByServer, ClientOptions{Retries: -1}); return err },
	} {
		var bad *policy.FieldError
		require.ErrorAs(t, make(), &bad)
		assert.Equal(t, field, bad.Field)
	}
}
