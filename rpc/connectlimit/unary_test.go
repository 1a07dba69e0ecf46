package connectlimit

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/rpclimit"
)

// Promise: Connect, gRPC and gRPC-Web carry refusals and admitted calls' state.
func TestEveryProtocolTellsHowACallStands(t *testing.T) {
	for _, p := range protocols {
		t.Run(p.name, func(t *testing.T) {
			e := open[netip.Addr](t, policy.Must(policy.Funnel(2, 1, 10*time.Minute)))
			s := serve(t, TrailersOnly(service(connect.WithInterceptors(NewInterceptor(byAddr(e, rpclimit.Options{}))))))
			c := p.client(t, s.URL, echo)

			response, err := call(c, "hello")
			require.NoError(t, err)
			assert.Equal(t, "hello", response.Msg.Value)
			assert.Equal(t, `"address";q=2;w=1200`, response.Header().Get("RateLimit-Policy"))
			assert.Regexp(t, `^"address";r=1;t=\d+$`, response.Header().Get("RateLimit"))
			_, err = call(c, "fail")
			require.Equal(t, connect.CodeDataLoss, connect.CodeOf(err))
			assert.Regexp(t, `^"address";r=0;t=\d+$`, meta(t, err).Get("RateLimit"), "an error of the handler has the fields, too")

			_, err = call(c, "hello")
			require.Equal(t, connect.CodeResourceExhausted, connect.CodeOf(err), err)
			after := retryInfo(t, err)
			assert.Greater(t, after, 9*time.Minute)
			assert.LessOrEqual(t, after, 10*time.Minute)
			assert.Zero(t, after%time.Millisecond, "whole milliseconds")
			assert.Equal(t, strconv.FormatInt(after.Milliseconds(), 10), meta(t, err).Get("Grpc-Retry-Pushback-Ms"))
			assert.Equal(t, strconv.FormatInt(retrySeconds(after), 10), meta(t, err).Get("Retry-After"))
			assert.Equal(t, `"address";q=2;w=1200`, meta(t, err).Get("RateLimit-Policy"))
			assert.Regexp(t, `^"address";r=0;t=\d+$`, meta(t, err).Get("RateLimit"))
			require.NotNil(t, quotaFailure(t, err))
			violations := quotaFailure(t, err).GetViolations()
			require.Len(t, violations, 1)
			assert.Equal(t, "address", violations[0].GetQuotaId())
		})
	}
}

func TestRetryAfterIsRoundedUp(t *testing.T) {
	for d, want := range map[time.Duration]int64{
		0: 1, 1: 1, time.Second - 1: 1, time.Second: 1, time.Second + 1: 2, 90 * time.Second: 90,
		1<<63 - 1: 9223372037,
	} {
		assert.Equal(t, want, retrySeconds(d), d)
	}
}

func TestNeverIsANegativePushback(t *testing.T) {
	for _, p := range protocols {
		e := open[netip.Addr](t, policy.Must(policy.Funnel(2, 1, time.Hour)))
		options := rpclimit.Options{Cost: func(c *rpclimit.Call) int64 { return int64(len(c.Message.(*text).Value)) }}
		s := serve(t, service(connect.WithInterceptors(NewInterceptor(byAddr(e, options)))))
		c := p.client(t, s.URL, echo)
		_, err := call(c, "abc")
		require.Equal(t, connect.CodeResourceExhausted, connect.CodeOf(err), p.name)
		assert.Equal(t, "-1", meta(t, err).Get("Grpc-Retry-Pushback-Ms"), p.name)
		assert.Empty(t, meta(t, err).Get("Retry-After"), p.name)
		assert.Negative(t, retryInfo(t, err), "%s: no RetryInfo", p.name)
		_, err = call(c, "ab")
		require.NoError(t, err, p.name)
	}
}

func TestKeys(t *testing.T) {
	type user struct{}
	byUser := open[string](t, policy.Must(policy.Funnel(1, 1, time.Hour)))
	byTenant := open[string](t, policy.Must(policy.Funnel(2, 1, time.Hour)))
	byText := open[string](t, policy.Must(policy.Funnel(1, 1, time.Hour)))
	byMethod := open[string](t, policy.Must(policy.Funnel(100, 1, time.Hour)))
	limited := rpclimit.Must(rpclimit.New(rpclimit.Options{},
		rpclimit.Limit[string]{Name: "user", Limiter: byUser, WhenNoKey: limits.Skip, Key: rpclimit.ByContext(func(ctx context.Context) string {
			name, _ := ctx.Value(user{}).(string)
			return name
		})},
		rpclimit.Limit[string]{Name: "tenant", Limiter: byTenant, Key: rpclimit.ByMetadata("x-tenant")},
		rpclimit.Limit[string]{Name: "text", Limiter: byText, Key: rpclimit.ByMessage(func(m *text) string { return m.GetValue() })},
		rpclimit.Limit[string]{Name: "method", Limiter: byMethod, Key: rpclimit.ByProcedure},
	))
	mux := service(connect.WithInterceptors(NewInterceptor(limited)))
	s := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mux.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), user{}, r.Header.Get("X-User"))))
	}))
	ask := func(user, tenant, message string) error {
		r := connect.NewRequest(wrapperspb.String(message))
		r.Header().Set("X-User", user)
		r.Header().Set("X-Tenant", tenant)
		_, err := protocols[0].client(t, s.URL, echo).CallUnary(t.Context(), r)
		return err
	}
	refusedBy := func(err error) string {
		require.Error(t, err)
		require.NotNil(t, quotaFailure(t, err), err)
		return quotaFailure(t, err).GetViolations()[0].GetQuotaId()
	}
	require.NoError(t, ask("alice", "acme", "a"))
	assert.Equal(t, "user", refusedBy(ask("alice", "acme", "b")))
	assert.Equal(t, "text", refusedBy(ask("bob", "acme", "a")))
	require.NoError(t, ask("", "acme", "b"), "refused calls took nothing")
	assert.Equal(t, "tenant", refusedBy(ask("carol", "acme", "c")))
	assert.Equal(t, connect.CodeInvalidArgument, connect.CodeOf(ask("dave", "", "d")))
	assert.EqualValues(t, 98, byMethod.Peek(echo, 0).Remaining, "2 calls were admitted")
}

func TestCancelledCallsTakeNothing(t *testing.T) {
	for _, p := range protocols {
		e := open[netip.Addr](t, policy.Must(policy.Funnel(1, 1, time.Hour)))
		limited := byAddr(e, rpclimit.Options{WaitUpTo: 10 * time.Hour})
		s := serve(t, service(connect.WithInterceptors(NewInterceptor(limited))))
		c := p.client(t, s.URL, echo)
		_, err := call(c, "first")
		require.NoError(t, err)

		// The turn would come after the deadline: refused at once, with the true time.
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		_, err = c.CallUnary(ctx, connect.NewRequest(wrapperspb.String("second")))
		cancel()
		assert.Equal(t, connect.CodeResourceExhausted, connect.CodeOf(err), p.name)

		// The client leaves while its calls wait in line.
		ctx, cancel = context.WithCancel(t.Context())
		var calls sync.WaitGroup
		for range 5 {
			calls.Go(func() {
				_, err := c.CallUnary(ctx, connect.NewRequest(wrapperspb.String("third")))
				assert.Equal(t, connect.CodeCanceled, connect.CodeOf(err), p.name)
			})
		}
		require.Eventually(t, func() bool { return e.Stats().Waiting == 5 }, time.Minute, time.Millisecond, p.name)
		cancel()
		calls.Wait()
		require.Eventually(t, func() bool { return e.Stats().Waiting == 0 }, time.Minute, time.Millisecond, p.name)
		d := e.Peek(local, 0)
		assert.LessOrEqual(t, d.ResetAfter, time.Hour, "%s: nothing beside the first call", p.name)
	}
}

// expiring ends as by a deadline, when the test says so.
type expiring struct {
	context.Context
	over chan struct{}
}

func (e expiring) Done() <-chan struct{} { return e.over }

func (e expiring) Err() error {
	select {
	case <-e.over:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

func TestCallsAreChargedByHowTheyEnded(t *testing.T) {
	e := open[netip.Addr](t, policy.Must(policy.Funnel(100, 1, 24*time.Hour)))
	var ended []string
	options := rpclimit.Options{
		Cost: func(*rpclimit.Call) int64 { return 10 },
		Charge: func(_ *rpclimit.Call, served rpclimit.Served) int64 {
			ended = append(ended, fmt.Sprint(served.Code, served.Panicked))
			if served.Code == rpclimit.CodeOK && !served.Panicked {
				return 1
			}
			return 5
		},
	}
	mux := service(connect.WithInterceptors(NewInterceptor(byAddr(e, options))))
	s := serve(t, mux)
	c := protocols[1].client(t, s.URL, echo)
	_, err := call(c, "fine")
	require.NoError(t, err)
	assert.EqualValues(t, 1, taken(e, local, 100))
	_, err = call(c, "fail")
	require.Error(t, err)
	assert.EqualValues(t, 6, taken(e, local, 100))
	_, err = call(c, "panic")
	require.Error(t, err)
	require.EqualValues(t, 11, taken(e, local, 100))
	ctx := expiring{t.Context(), make(chan struct{})}
	go func() {
		for taken(e, local, 100) != 21 { // its cost, while it is served
			time.Sleep(time.Millisecond) // wall: between two looks, of any number
		}
		close(ctx.over)
	}()
	_, err = c.CallUnary(ctx, connect.NewRequest(wrapperspb.String("wait")))
	require.Equal(t, connect.CodeDeadlineExceeded, connect.CodeOf(err))
	require.Eventually(t, func() bool { return taken(e, local, 100) == 16 }, time.Minute, time.Millisecond)
	require.Len(t, ended, 4)
	assert.Equal(t, []string{"ok false", "data_loss false", "ok true"}, ended[:3])
	assert.Contains(t, []string{"deadline_exceeded false", "canceled false"}, ended[3])
}

func TestCodes(t *testing.T) {
	for c := connect.CodeCanceled; c <= connect.CodeUnauthenticated; c++ {
		assert.Equal(t, c.String(), codeOf(connect.NewError(c, nil)).String())
		assert.Equal(t, rpclimit.Code(c), codeOf(fmt.Errorf("wrapped: %w", connect.NewError(c, nil))))
	}
	assert.Equal(t, rpclimit.CodeOK, codeOf(nil))
	assert.Equal(t, rpclimit.CodeCanceled, codeOf(context.Canceled))
	assert.Equal(t, rpclimit.CodeDeadlineExceeded, codeOf(fmt.Errorf("wrapped: %w", context.DeadlineExceeded)))
	assert.Equal(t, rpclimit.Code(connect.CodeUnknown), codeOf(errors.New("any other")))
}

func TestFieldsOfSeveralInterceptors(t *testing.T) {
	outer := open[netip.Addr](t, policy.Must(policy.Funnel(5, 1, time.Hour)))
	inner := open[string](t, policy.Must(policy.Funnel(7, 1, time.Hour)))
	s := serve(t, service(connect.WithInterceptors(
		NewInterceptor(byAddr(outer, rpclimit.Options{})),
		NewInterceptor(rpclimit.Must(rpclimit.New(rpclimit.Options{}, rpclimit.Limit[string]{Name: "method", Limiter: inner, Key: rpclimit.ByProcedure}))),
	)))
	for _, p := range protocols[:1] {
		response, err := call(p.client(t, s.URL, echo), "hello")
		require.NoError(t, err)
		assert.Equal(t, []string{`"address";q=5;w=18000`, `"method";q=7;w=25200`}, response.Header().Values("RateLimit-Policy"))
		assert.Len(t, response.Header().Values("RateLimit"), 2)
	}
}

func TestClientsAreNotLimitedByAServersInterceptor(t *testing.T) {
	e := open[netip.Addr](t, policy.Must(policy.Funnel(1, 1, time.Hour)))
	s := serve(t, service())
	limited := connect.WithInterceptors(NewInterceptor(byAddr(e, rpclimit.Options{WaitUpTo: 0})))
	c := connect.NewClient[text, text](httpClient(t, true), s.URL+echo, limited)
	for range 3 {
		_, err := call(c, "hello")
		require.NoError(t, err)
	}
	talk := connect.NewClient[text, text](httpClient(t, true), s.URL+talk, limited).CallBidiStream(t.Context())
	require.NoError(t, talk.Send(wrapperspb.String("hello")))
	_, err := talk.Receive()
	require.NoError(t, err)
	require.NoError(t, talk.CloseRequest())
	require.NoError(t, talk.CloseResponse())
	assert.Zero(t, e.Stats().Keys)
}

func TestNilLimitsPanicAtOnce(t *testing.T) {
	assert.PanicsWithValue(t, "connectlimit.NewInterceptor: limits are nil: want Limits from rpclimit.New", func() { NewInterceptor(nil) })
}
