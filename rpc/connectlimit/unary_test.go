package connectlimit

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/wrapperspb"

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

func TestCallsAreChargedByHowTheyEnded(t *testing.T) {
	e := open[string](t, policy.Must(policy.Funnel(100, 1, 24*time.Hour)))
	var ended string
	intercept := NewInterceptor(rpclimit.Must(rpclimit.New(rpclimit.Options{
		Cost: func(*rpclimit.Call) int64 { return 10 },
		Charge: func(_ *rpclimit.Call, served rpclimit.Served) int64 {
			ended = fmt.Sprint(served.Code, served.Panicked)
			return int64(served.Code)
		},
	}, rpclimit.Limit[string]{Limiter: e, Key: rpclimit.ByContext(func(context.Context) string { return "key" })})))
	charged := func(handler connect.UnaryFunc) int64 {
		e.Reset("key")
		_, _ = intercept.WrapUnary(handler)(t.Context(), connect.NewRequest(&text{}))
		return 100 - e.Peek("key", 0).Remaining
	}
	for want, err := range map[string]error{
		"ok false":                nil,
		"data_loss false":         connect.NewError(connect.CodeDataLoss, nil),
		"deadline_exceeded false": context.DeadlineExceeded,
	} {
		n := charged(func(context.Context, connect.AnyRequest) (connect.AnyResponse, error) {
			assert.Equal(t, int64(90), e.Peek("key", 0).Remaining, "its cost, while it is served")
			return nil, err
		})
		assert.Equal(t, want, ended)
		assert.Equal(t, int64(codeOf(err)), n, want)
	}
	assert.Panics(t, func() {
		charged(func(context.Context, connect.AnyRequest) (connect.AnyResponse, error) { panic("as asked") })
	})
	assert.Equal(t, "ok true", ended)
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
