package connectlimit

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/netip"
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

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/internal/testkit/race"
	"github.com/ral-limiter/ral/outgoing"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/rpclimit"
)

func newLine(t testing.TB, config outgoing.Config) *outgoing.Line[string] {
	t.Helper()
	line, err := outgoing.New[string](config)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, line.Close()) })
	return line
}

func waitingFor(t testing.TB, line *outgoing.Line[string], options ClientOptions) connect.ClientOption {
	t.Helper()
	i, err := NewClientInterceptor(line, ByServer, options)
	require.NoError(t, err)
	return connect.WithInterceptors(i)
}

// inProcess is an HTTP client of a handler in this process, with a delay each way. It counts the
// refusals of requests sent after the first answer.
type inProcess struct {
	handler http.Handler
	rtt     time.Duration

	answered atomic.Bool
	sent     atomic.Int64
	late     atomic.Int64 // refusals of requests sent after the first answer
	admitted atomic.Int64
}

func (c *inProcess) Do(r *http.Request) (*http.Response, error) {
	c.sent.Add(1)
	late := c.answered.Load()
	pause := func() {
		if c.rtt > 0 {
			time.Sleep(rand.N(c.rtt / 2)) // wall: mixes the calls, and nothing depends on its length
		}
	}
	pause()
	in := r.Clone(r.Context())
	in.RequestURI, in.RemoteAddr = r.URL.RequestURI(), "127.0.0.1:1"
	in.Proto, in.ProtoMajor, in.ProtoMinor = "HTTP/2.0", 2, 0
	if in.Body == nil {
		in.Body = http.NoBody
	}
	w := httptest.NewRecorder()
	c.handler.ServeHTTP(w, in)
	pause()
	c.answered.Store(true)
	resp := w.Result()
	refused := resp.StatusCode == http.StatusTooManyRequests ||
		resp.Trailer.Get("Grpc-Status") == "8" || resp.Header.Get("Grpc-Status") == "8"
	switch {
	case !refused:
		c.admitted.Add(1)
	case late:
		c.late.Add(1)
	}
	return resp, nil
}

// Promise: 100 goroutines behind one client use 95% of the limit without further refusals.
func TestNoRefusalAfterTheFirstAnswer(t *testing.T) {
	minutes := 5.0
	if race.Enabled {
		minutes = 2
	}
	for _, p := range []protocol{protocols[0], protocols[3]} {
		for _, c := range []struct {
			limit policy.Policy
			count float64 // calls that the limit admits in a minute
		}{
			{policy.Must(policy.Funnel(10, 10, time.Second)), 10 * 60},
			{policy.Must(policy.FixedWindow(600, time.Minute)), 600},
		} {
			synctest.Test(t, func(t *testing.T) {
				e := open[netip.Addr](t, c.limit)
				to := &inProcess{rtt: 20 * time.Millisecond,
					handler: TrailersOnly(service(connect.WithInterceptors(NewInterceptor(byAddr(e, rpclimit.Options{})))))}
				line := newLine(t, outgoing.Config{})
				client := connect.NewClient[text, text](to, "http://there"+echo, append(p.options, waitingFor(t, line, ClientOptions{}))...)
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
				assert.Zero(t, to.late.Load(), "%s, %v: refusals after the first answer, of %d calls", p.name, c.limit, to.sent.Load())
				assert.GreaterOrEqual(t, float64(to.admitted.Load()), 0.95*c.count*minutes, "%s, %v", p.name, c.limit)
			})
		}
	}
}

// script is a server that answers with errors in turn, and then with success.
func script(errs ...*connect.Error) (http.Handler, *atomic.Int64) {
	n := new(atomic.Int64)
	return connect.NewUnaryHandler(echo, func(_ context.Context, r *connect.Request[text]) (*connect.Response[text], error) {
		if i := n.Add(1); int(i) <= len(errs) {
			return nil, errs[i-1]
		}
		return connect.NewResponse(r.Msg), nil
	}), n
}

func exhausted(change func(*connect.Error)) *connect.Error {
	err := connect.NewError(connect.CodeResourceExhausted, errors.New("no"))
	change(err)
	return err
}

func pushback(value string) *connect.Error {
	return exhausted(func(e *connect.Error) { e.Meta().Set("Grpc-Retry-Pushback-Ms", value) })
}

func retryIn(d time.Duration) *connect.Error {
	return exhausted(func(e *connect.Error) {
		detail, _ := connect.NewErrorDetail(&errdetails.RetryInfo{RetryDelay: durationpb.New(d)})
		e.AddDetail(detail)
	})
}

// It waits to the millisecond, with all calls of the server.
//
// Promise: Clients wait as long as servers say.
func TestClientObeysTheServer(t *testing.T) {
	for _, c := range []struct {
		name string
		err  *connect.Error
		held time.Duration
	}{
		{"pushback", pushback("1234"), 1234 * time.Millisecond},
		{"RetryInfo", retryIn(2345 * time.Millisecond), 2345 * time.Millisecond},
		{"Retry-After", exhausted(func(e *connect.Error) { e.Meta().Set("Retry-After", "3") }), 3 * time.Second},
		{"pushback before Retry-After", exhausted(func(e *connect.Error) {
			e.Meta().Set("Retry-After", "3")
			e.Meta().Set("Grpc-Retry-Pushback-Ms", "2001")
		}), 2001 * time.Millisecond},
		{"nothing", exhausted(func(*connect.Error) {}), time.Second},
		{"never", pushback("-1"), 0},
		{"garbage", pushback("soon"), time.Second},
		{"unavailable, and when", func() *connect.Error {
			err := connect.NewError(connect.CodeUnavailable, errors.New("no"))
			err.Meta().Set("Grpc-Retry-Pushback-Ms", "500")
			return err
		}(), 500 * time.Millisecond},
		{"unavailable", connect.NewError(connect.CodeUnavailable, errors.New("no")), 0},
		{"not found", connect.NewError(connect.CodeNotFound, errors.New("no")), 0},
		{"negative RetryInfo", retryIn(-time.Hour), time.Second},
		{"huge pushback", pushback("9223372036854775807"), time.Hour},
		{"huge RetryInfo", retryIn(1<<63 - 1), time.Hour},
	} {
		for _, p := range []protocol{protocols[0], protocols[3], protocols[4]} {
			synctest.Test(t, func(t *testing.T) {
				h, n := script(c.err)
				line := newLine(t, outgoing.Config{})
				client := connect.NewClient[text, text](&inProcess{handler: h}, "http://there"+echo, append(p.options, waitingFor(t, line, ClientOptions{}))...)
				_, err := call(client, "hello")
				require.Equal(t, c.err.Code(), connect.CodeOf(err), "%s, %s", c.name, p.name)
				assert.EqualValues(t, 1, n.Load(), "no retry unless asked for")
				began := time.Now()
				assert.Equal(t, c.held, line.Held("there"), "%s, %s", c.name, p.name)
				_, err = call(client, "hello")
				require.NoError(t, err)
				assert.GreaterOrEqual(t, time.Since(began), c.held, "%s, %s", c.name, p.name)
				assert.Less(t, time.Since(began), c.held+6*time.Second, "%s, %s: nothing but the back-off and the probe", c.name, p.name)
			})
		}
	}
}

func TestErrorsOfTheClientHoldNothing(t *testing.T) {
	line := newLine(t, outgoing.Config{})
	client := connect.NewClient[text, text](&inProcess{handler: service()}, "http://there"+echo,
		connect.WithSendMaxBytes(2), waitingFor(t, line, ClientOptions{}))
	_, err := call(client, "hello")
	require.Equal(t, connect.CodeResourceExhausted, connect.CodeOf(err))
	assert.Zero(t, line.Held("there"))
	assert.Zero(t, line.Stats().Refusals)
}

// A negative pushback is never retried.
func TestClientRetriesCallsThatMayBeRepeated(t *testing.T) {
	for _, c := range []struct {
		name    string
		retries int
		level   connect.IdempotencyLevel
		errs    []*connect.Error
		sent    int64
		fine    bool
	}{
		{"off", 0, connect.IdempotencyIdempotent, []*connect.Error{pushback("100")}, 1, false},
		{"on", 1, connect.IdempotencyIdempotent, []*connect.Error{pushback("100")}, 2, true},
		{"not repeatable", 1, connect.IdempotencyUnknown, []*connect.Error{pushback("100")}, 1, false},
		{"never", 3, connect.IdempotencyIdempotent, []*connect.Error{pushback("-1")}, 1, false},
		{"as often as allowed", 2, connect.IdempotencyIdempotent, []*connect.Error{pushback("1"), pushback("1"), pushback("1")}, 3, false},
		{"another error", 2, connect.IdempotencyIdempotent, []*connect.Error{connect.NewError(connect.CodeInternal, nil)}, 1, false},
		{"later than patience", 2, connect.IdempotencyIdempotent, []*connect.Error{pushback("60000")}, 1, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			h, n := script(c.errs...)
			line := newLine(t, outgoing.Config{Patience: 10 * time.Second})
			client := connect.NewClient[text, text](&inProcess{handler: h}, "http://there"+echo,
				connect.WithIdempotency(c.level), waitingFor(t, line, ClientOptions{Retries: c.retries}))
			_, err := call(client, "hello")
			assert.Equal(t, c.fine, err == nil, "%s: %v", c.name, err)
			assert.Equal(t, c.sent, n.Load(), c.name)
			if !c.fine {
				assert.Equal(t, c.errs[0].Code(), connect.CodeOf(err), c.name)
				assert.True(t, connect.IsWireError(err), "%s: what the server said", c.name)
			}
			assert.EqualValues(t, c.sent-1, line.Stats().Retries, c.name)
		})
	}
}

func TestCallsWithoutATurnAreNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := &inProcess{handler: service()}
		line := newLine(t, outgoing.Config{Policy: policy.Must(policy.Funnel(1, 1, time.Hour)), Patience: 2 * time.Hour})
		waits := waitingFor(t, line, ClientOptions{})
		unary := connect.NewClient[text, text](to, "http://there"+echo, waits)
		_, err := call(unary, "hello")
		require.NoError(t, err)

		for want, contexts := range map[connect.Code]func() (context.Context, context.CancelFunc){
			connect.CodeDeadlineExceeded: func() (context.Context, context.CancelFunc) {
				return context.WithTimeout(t.Context(), time.Minute) // refused at once
			},
			connect.CodeCanceled: func() (context.Context, context.CancelFunc) {
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(time.Minute, cancel)
				return ctx, cancel
			},
		} {
			ctx, cancel := contexts()
			_, err = unary.CallUnary(ctx, connect.NewRequest(wrapperspb.String("hello")))
			assert.Equal(t, want, connect.CodeOf(err), err)
			assert.False(t, connect.IsWireError(err))
			cancel()

			ctx, cancel = contexts()
			_, err = connect.NewClient[text, text](to, "http://there"+split, waits).CallServerStream(ctx, connect.NewRequest(wrapperspb.String("abc")))
			assert.Equal(t, want, connect.CodeOf(err), err)
			cancel()

			ctx, cancel = contexts()
			stream := connect.NewClient[text, text](to, "http://there"+join, waits).CallClientStream(ctx)
			assert.Equal(t, want, connect.CodeOf(stream.Send(wrapperspb.String("abc"))))
			_, err = stream.CloseAndReceive()
			assert.Equal(t, want, connect.CodeOf(err), err)
			assert.Empty(t, stream.RequestHeader().Get("X-None"))
			cancel()

			ctx, cancel = contexts()
			talking := connect.NewClient[text, text](to, "http://there"+talk, append(protocols[3].options, waits)...).CallBidiStream(ctx)
			_, err = talking.Receive()
			assert.Equal(t, want, connect.CodeOf(err), err)
			assert.NoError(t, talking.CloseRequest())
			assert.NoError(t, talking.CloseResponse())
			assert.Empty(t, talking.ResponseHeader())
			assert.Empty(t, talking.ResponseTrailer())
			cancel()
		}
		assert.EqualValues(t, 1, to.sent.Load())
	})
}

func TestCodesOfCallsThatAreNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		line, err := outgoing.New[string](outgoing.Config{Policy: policy.Must(policy.Funnel(1, 1, time.Hour)), MaxWaiting: 1})
		require.NoError(t, err)
		client := connect.NewClient[text, text](&inProcess{handler: service()}, "http://there"+echo, waitingFor(t, line, ClientOptions{}))
		_, err = call(client, "hello")
		require.NoError(t, err)
		ended := make(chan error, 1)
		go func() {
			_, err := call(client, "hello")
			ended <- err
		}()
		synctest.Wait()
		_, err = call(client, "hello")
		assert.Equal(t, connect.CodeResourceExhausted, connect.CodeOf(err))
		assert.ErrorIs(t, err, engine.ErrCrowded)
		require.NoError(t, line.Close())
		err = <-ended
		assert.Equal(t, connect.CodeUnavailable, connect.CodeOf(err))
		assert.ErrorIs(t, err, engine.ErrClosed)
	})
}

func TestAbandonedFirstStreamHoldsNoOther(t *testing.T) {
	s := serve(t, service())
	line := newLine(t, outgoing.Config{Probe: time.Hour})
	p := streams[0]
	p.options = append(p.options, waitingFor(t, line, ClientOptions{}))
	ctx, cancel := context.WithCancel(t.Context())
	p.client(t, s.URL, talk).CallBidiStream(ctx)
	cancel()
	waits, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	require.Eventually(t, func() bool { // a turn that is later than its context is refused at once
		_, err := line.Wait(waits, strings.TrimPrefix(s.URL, "http://"))
		return err == nil
	}, time.Minute, time.Millisecond)
}

// It may be a message, an end or a refusal.
func TestStreamsTellTheLine(t *testing.T) {
	for _, p := range streams {
		e := open[netip.Addr](t, policy.Must(policy.Funnel(2, 2, time.Hour)))
		s := serve(t, service(connect.WithInterceptors(NewInterceptor(byAddr(e, rpclimit.Options{})))))
		line := newLine(t, outgoing.Config{MaxBackoff: time.Millisecond})
		p.options = append(p.options, waitingFor(t, line, ClientOptions{}))
		host := strings.TrimPrefix(s.URL, "http://")
		_, _, err := letters(p.client(t, s.URL, split), "")
		require.NoError(t, err, p.name)
		assert.EqualValues(t, 1, line.Limit(host).Limit(), p.name)
		assert.Contains(t, line.Limit(host).String(), "3750s", "%s: 2 an hour, at 96 %%", p.name)
		assert.Zero(t, line.Stats().Refusals)
		e.Take(local, 1)
		line.Reset(host)
		_, _, err = letters(p.client(t, s.URL, split), "abc")
		require.Equal(t, connect.CodeResourceExhausted, connect.CodeOf(err), p.name)
		assert.EqualValues(t, 1, line.Stats().Refusals, p.name)
	}
}

func TestNewClientInterceptorRefuses(t *testing.T) {
	line := newLine(t, outgoing.Config{})
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
