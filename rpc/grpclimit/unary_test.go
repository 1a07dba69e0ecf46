package grpclimit

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/rpclimit"
)

// Promise: A refusal has the limit, a rounded-up delay and no key.
func TestRefusalTellsTheClientAll(t *testing.T) {
	at := newClock()
	e := open[netip.Addr](t, policy.Must(policy.Funnel(2, 7, time.Second)), at)
	s := serve(t, byAddr(e, rpclimit.Options{}))
	conn := s.client(t)

	var header, trailer metadata.MD
	require.NoError(t, call(conn, "", grpc.Header(&header), grpc.Trailer(&trailer)))
	assert.Equal(t, []string{`"address";r=1;t=1`}, header["ratelimit"])
	assert.Len(t, header["ratelimit-policy"], 1)
	assert.Empty(t, trailer["ratelimit"])

	require.NoError(t, call(conn, ""))
	header, trailer = nil, nil
	err := call(conn, "", grpc.Header(&header), grpc.Trailer(&trailer))
	assert.Equal(t, codes.ResourceExhausted, status.Code(err))
	// A unit comes back in 142.857142... ms, told as 143.
	assert.Equal(t, 143*time.Millisecond, retryDelay(err))
	assert.Equal(t, []string{"143"}, trailer["grpc-retry-pushback-ms"])
	assert.Len(t, trailer["ratelimit"], 1)
	require.Len(t, violations(err), 1)
	v := violations(err)[0]
	assert.Equal(t, "address", v.GetSubject())
	assert.Equal(t, "address", v.GetQuotaId())
	assert.Equal(t, int64(2), v.GetQuotaValue())
	assert.Equal(t, map[string]string{"by": "address"}, v.GetQuotaDimensions())
	assert.Contains(t, v.GetDescription(), "allows funnel 2, 7/s")
	assert.NotContains(t, fmt.Sprint(status.Convert(err).Proto()), "127.0.0.1", "a key is told")
	assert.Equal(t, int64(2), s.calls.Load())

	// True, and rounded up by less than a millisecond.
	at.Add(int64(142 * time.Millisecond))
	assert.Equal(t, codes.ResourceExhausted, status.Code(call(conn, "")))
	at.Add(int64(time.Millisecond))
	assert.NoError(t, call(conn, ""))
}

var info = &grpc.UnaryServerInfo{FullMethod: "/test.v1.Test/Call"}

func direct(ctx context.Context, intercept grpc.UnaryServerInterceptor) error {
	_, err := intercept(ctx, nil, info, func(context.Context, any) (any, error) { return struct{}{}, nil })
	return err
}

// Its own backoff is far longer than the call may take.
//
// Promise: Stock clients' first retry succeeds.
func TestStockClientSucceedsAtItsFirstRetry(t *testing.T) {
	const config = `{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 5, "initialBackoff": "1000s",
		"maxBackoff": "1000s", "backoffMultiplier": 1, "retryableStatusCodes": ["RESOURCE_EXHAUSTED", "UNAVAILABLE"]}}]}`
	open := func(t *testing.T) (*server, *grpc.ClientConn) {
		e := open[netip.Addr](t, policy.Must(policy.Funnel(1, 1, 150*time.Millisecond)), nil)
		s := serve(t, byAddr(e, rpclimit.Options{Cost: pieces}))
		return s, s.client(t, grpc.WithDefaultServiceConfig(config))
	}
	patient := func(t *testing.T) context.Context {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Second)
		t.Cleanup(cancel)
		return ctx
	}

	t.Run("unary", func(t *testing.T) {
		s, conn := open(t)
		for calls := int64(1); ; calls++ {
			before := s.attempts.Load()
			require.NoError(t, callIn(patient(t), conn, ""))
			n := s.attempts.Load() - before
			require.LessOrEqual(t, n, int64(2), "the retry was refused: it came too early")
			require.Equal(t, calls, s.calls.Load())
			if n == 2 {
				return // the first call that had to be repeated
			}
		}
	})
	t.Run("stream", func(t *testing.T) {
		s, conn := open(t)
		for calls := int64(1); ; calls++ {
			before := s.attempts.Load()
			talk(t, patient(t), conn, "end")
			n := s.attempts.Load() - before
			require.LessOrEqual(t, n, int64(2))
			require.Equal(t, calls, s.calls.Load())
			if n == 2 {
				return
			}
		}
	})
	t.Run("never", func(t *testing.T) {
		s, conn := open(t)
		var trailer metadata.MD
		err := callIn(patient(t), conn, "2", grpc.Trailer(&trailer)) // costs more than there is at once
		assert.Equal(t, codes.ResourceExhausted, status.Code(err))
		assert.Equal(t, []string{"-1"}, trailer["grpc-retry-pushback-ms"])
		assert.Equal(t, time.Duration(-1), retryDelay(err))
		assert.Len(t, violations(err), 1)
		assert.Equal(t, int64(1), s.attempts.Load(), "it was repeated")
	})
}

func TestFieldsKeepNoClientFromRetrying(t *testing.T) {
	const config = `{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 2, "initialBackoff": "0.001s",
		"maxBackoff": "0.001s", "backoffMultiplier": 1, "retryableStatusCodes": ["UNAVAILABLE"]}}]}`
	s := serve(t, byAddr(open[netip.Addr](t, hourly(100), nil), rpclimit.Options{}))
	require.NoError(t, call(s.client(t, grpc.WithDefaultServiceConfig(config)), "fail at first"))
	assert.Equal(t, int64(2), s.attempts.Load())
}

func TestFieldsOfACall(t *testing.T) {
	s := serve(t, byAddr(open[netip.Addr](t, hourly(100), nil), rpclimit.Options{}))
	conn := s.client(t)
	for body, inHeader := range map[string]bool{"": true, "header": false, "fail": false} {
		var header, trailer metadata.MD
		assert.Equal(t, body == "fail", call(conn, body, grpc.Header(&header), grpc.Trailer(&trailer)) != nil)
		in, out := header, trailer
		if !inHeader {
			in, out = trailer, header
		}
		assert.Len(t, in["ratelimit"], 1, body)
		assert.Len(t, in["ratelimit-policy"], 1, body)
		assert.Empty(t, out["ratelimit"], body)
	}
}

func TestUnaryCallsAreSettled(t *testing.T) {
	e := open[string](t, hourly(100), nil)
	var served rpclimit.Served
	intercept := UnaryServerInterceptor(rpclimit.Must(rpclimit.New(rpclimit.Options{
		Cost: func(*rpclimit.Call) int64 { return 10 },
		Charge: func(_ *rpclimit.Call, s rpclimit.Served) int64 {
			served = s
			return int64(s.Code)
		},
	}, rpclimit.Limit[string]{Limiter: e, Key: rpclimit.ByProcedure})))
	for _, c := range []struct {
		err  error
		code rpclimit.Code
	}{
		{nil, rpclimit.CodeOK},
		{status.Error(codes.NotFound, ""), rpclimit.Code(codes.NotFound)},
		{fmt.Errorf("wrapped: %w", status.Error(codes.NotFound, "")), rpclimit.Code(codes.NotFound)},
		{context.DeadlineExceeded, rpclimit.CodeDeadlineExceeded},
		{errors.New("other"), rpclimit.Code(codes.Unknown)},
	} {
		before := taken(e, info.FullMethod, 100)
		_, err := intercept(context.Background(), nil, info, func(context.Context, any) (any, error) { return nil, c.err })
		assert.Equal(t, c.err, err)
		assert.Equal(t, c.code, served.Code)
		assert.False(t, served.Panicked)
		assert.Equal(t, int64(c.code), taken(e, info.FullMethod, 100)-before, "%v", c.err)
	}
	assert.Panics(t, func() {
		_, _ = intercept(context.Background(), nil, info, func(context.Context, any) (any, error) { panic("as asked") })
	})
	assert.True(t, served.Panicked)
}

func TestLimitsAreRequired(t *testing.T) {
	assert.PanicsWithValue(t, "grpclimit.UnaryServerInterceptor: limits are nil: want Limits from rpclimit.New", func() { UnaryServerInterceptor(nil) })
	assert.PanicsWithValue(t, "grpclimit.StreamServerInterceptor: limits are nil: want Limits from rpclimit.New", func() { StreamServerInterceptor(nil) })
	assert.PanicsWithValue(t, "grpclimit.TapHandle: limits are nil: want Limits from rpclimit.New", func() { TapHandle(nil) })
}
