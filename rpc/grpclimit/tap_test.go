package grpclimit

import (
	"bytes"
	"context"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/ral-limiter/ral/internal/testkit/rpctest"
	"github.com/ral-limiter/ral/rpclimit"
)

// Promise: Tap handles refuse before any interceptor runs.
func TestTapRefusesBeforeAnyInterceptor(t *testing.T) {
	byAddr, byProcedure := open[netip.Addr](t, hourly(4), nil), open[string](t, hourly(2), nil)
	guard := rpclimit.Must(rpclimit.New(rpclimit.Options{},
		rpclimit.Limit[netip.Addr]{Name: "address", Limiter: byAddr, Key: rpclimit.ByAddr, AtTap: true},
		rpclimit.Limit[string]{Name: "method", Limiter: byProcedure, Key: rpclimit.ByProcedure, Cost: pieces}))
	s := serve(t, guard, grpc.InTapHandle(TapHandle(guard)))
	conn := s.client(t)
	refusedBy := func(err error, limit string) {
		t.Helper()
		assert.Equal(t, codes.ResourceExhausted, status.Code(err))
		require.Len(t, violations(err), 1)
		assert.Equal(t, limit, violations(err)[0].GetQuotaId())
	}

	var header metadata.MD
	require.NoError(t, call(t.Context(), conn, "", grpc.Header(&header)))
	assert.Contains(t, header["ratelimit-policy"][0], `"address"`)
	assert.Contains(t, header["ratelimit-policy"][0], `"method"`)
	require.NoError(t, talk(t, t.Context(), conn, "end"))
	assert.Equal(t, int64(2), rpctest.Taken(byAddr, rpctest.Local, 4), "a call took its units twice")
	assert.Equal(t, int64(1), rpctest.Taken(byProcedure, "/grpc.testing.TestService/UnaryCall", 2))

	refusedBy(call(t.Context(), conn, "2"), "method")
	assert.Equal(t, int64(2), rpctest.Taken(byAddr, rpctest.Local, 4), "the refused call's units did not come back")

	require.NoError(t, call(t.Context(), conn, "0"))
	require.NoError(t, call(t.Context(), conn, "0"))
	require.Equal(t, int64(5), s.attempts.Load())
	err := call(t.Context(), conn, "0")
	refusedBy(err, "address")
	assert.Greater(t, retryDelay(err), time.Minute)
	assert.Equal(t, int64(5), s.attempts.Load(), "an interceptor saw it")
}

// Promise: A panic at the tap refuses only its call and takes nothing.
func TestPanicAtTheTapEndsThere(t *testing.T) {
	boom := func(c *rpclimit.Call) bool { return len(c.Header.Values("boom", "Boom")) > 0 }
	explode := func(c *rpclimit.Call) {
		if boom(c) {
			panic("boom")
		}
	}
	type limit = rpclimit.Limit[netip.Addr]
	for name, set := range map[string]func(o *rpclimit.Options, l *limit){
		"Key": func(_ *rpclimit.Options, l *limit) {
			l.Key.Of = func(c *rpclimit.Call) netip.Addr { explode(c); return rpctest.Local }
		},
		// The verdict is about a call that is never admitted.
		"OnVerdict": func(o *rpclimit.Options, l *limit) {
			l.Cost = func(c *rpclimit.Call) int64 {
				if boom(c) {
					return 11
				}
				return 1
			}
			o.OnVerdict = func(c *rpclimit.Call, _ rpclimit.Verdict) { explode(c) }
		},
		"Shadow": func(o *rpclimit.Options, l *limit) {
			o.Shadow = true
			l.Cost = func(c *rpclimit.Call) int64 { explode(c); return 1 }
		},
	} {
		t.Run(name, func(t *testing.T) {
			var lines bytes.Buffer
			e, beside := open[netip.Addr](t, hourly(10), nil), open[string](t, hourly(10), nil)
			o := rpclimit.Options{Logger: slog.New(slog.NewTextHandler(&lines, &slog.HandlerOptions{Level: slog.LevelError}))}
			l := limit{Name: "address", Limiter: e, Key: rpclimit.ByAddr, AtTap: true}
			set(&o, &l)
			guard := rpclimit.Must(rpclimit.New(o, rpclimit.Limit[string]{
				Name: "method", Limiter: beside, Key: rpclimit.ByProcedure, AtTap: true,
			}, l))
			conn := serve(t, guard, grpc.InTapHandle(TapHandle(guard))).client(t)
			// Without a deadline the call would hang.
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			for range 2 {
				err := call(metadata.AppendToOutgoingContext(ctx, "boom", "1"), conn, "x")
				require.Equal(t, codes.Internal, status.Code(err), err)
				assert.NotContains(t, err.Error(), "boom")
			}
			require.NoError(t, call(ctx, conn, "x"), "the connection goes on")
			assert.Equal(t, int64(1), rpctest.Taken(e, rpctest.Local, 10))
			assert.Equal(t, int64(1), rpctest.Taken(beside, "/grpc.testing.TestService/UnaryCall", 10))
			stats := guard.Stats()
			assert.Equal(t, uint64(1), stats.Admitted)
			assert.Equal(t, uint64(2), stats.Misconfigured+stats.NeverAdmitted)
			assert.Equal(t, 1, strings.Count(lines.String(), "cause=boom"), lines.String())
		})
	}
}
