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

	"github.com/ral-limiter/ral/rpclimit"
)

// Promise: Tap handles refuse before any interceptor runs.
func TestTapRefusesBeforeAnyInterceptor(t *testing.T) {
	byAddr, byProcedure := open[netip.Addr](t, hourly(3), nil), open[string](t, hourly(2), nil)
	limits := rpclimit.Must(rpclimit.New(rpclimit.Options{},
		rpclimit.Limit[netip.Addr]{Name: "address", Limiter: byAddr, Key: rpclimit.ByAddr, AtTap: true},
		rpclimit.Limit[string]{Name: "method", Limiter: byProcedure, Key: rpclimit.ByProcedure, Cost: pieces}))
	s := serve(t, limits, grpc.InTapHandle(TapHandle(limits)))
	conn := s.client(t)

	var header metadata.MD
	require.NoError(t, call(conn, "", grpc.Header(&header)))
	assert.Contains(t, header["ratelimit-policy"][0], `"address"`)
	assert.Contains(t, header["ratelimit-policy"][0], `"method"`)
	assert.Equal(t, int64(1), taken(byAddr, local, 3), "it is not taken twice")
	assert.Equal(t, int64(1), taken(byProcedure, "/grpc.testing.TestService/UnaryCall", 2))

	// Units of a call that the interceptor refuses are given back at the tap's limit.
	err := call(conn, "2")
	assert.Equal(t, codes.ResourceExhausted, status.Code(err))
	require.Len(t, violations(err), 1)
	assert.Equal(t, "method", violations(err)[0].GetQuotaId())
	assert.Equal(t, int64(1), taken(byAddr, local, 3))

	require.NoError(t, call(conn, "0"))
	require.NoError(t, call(conn, "0"))
	require.Equal(t, int64(4), s.attempts.Load())
	err = call(conn, "0")
	assert.Equal(t, codes.ResourceExhausted, status.Code(err))
	assert.Greater(t, retryDelay(err), time.Minute)
	require.Len(t, violations(err), 1)
	assert.Equal(t, "address", violations(err)[0].GetQuotaId())
	assert.Equal(t, int64(4), s.attempts.Load(), "an interceptor saw it")
}

func TestTapIsSettled(t *testing.T) {
	e := open[netip.Addr](t, hourly(10), nil)
	limits := rpclimit.Must(rpclimit.New(rpclimit.Options{
		Cost:   func(*rpclimit.Call) int64 { return 5 },
		Charge: func(_ *rpclimit.Call, s rpclimit.Served) int64 { return s.Received },
	}, rpclimit.Limit[netip.Addr]{Name: "address", Limiter: e, Key: rpclimit.ByAddr, AtTap: true}))
	s := serve(t, limits, grpc.InTapHandle(TapHandle(limits)))
	talk(t, context.Background(), s.client(t), "end")
	require.Eventually(t, func() bool { return taken(e, local, 10) == 1 }, time.Minute, time.Millisecond)
	require.NoError(t, call(s.client(t), ""))
	require.Eventually(t, func() bool { return taken(e, local, 10) == 2 }, time.Minute, time.Millisecond)
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
			l.Key.Of = func(c *rpclimit.Call) netip.Addr { explode(c); return local }
		},
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
			limits := rpclimit.Must(rpclimit.New(o, rpclimit.Limit[string]{
				Name: "method", Limiter: beside, Key: rpclimit.ByProcedure, AtTap: true,
			}, l))
			s := serve(t, limits, grpc.InTapHandle(TapHandle(limits)))
			conn := s.client(t)
			require.NoError(t, call(conn, "x"))
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // it would hang
			defer cancel()
			for range 2 {
				err := callIn(metadata.AppendToOutgoingContext(ctx, "boom", "1"), conn, "x")
				require.Equal(t, codes.Internal, status.Code(err), err)
				assert.NotContains(t, err.Error(), "boom")
			}
			require.NoError(t, callIn(ctx, conn, "x"), "the connection goes on")
			assert.Equal(t, int64(2), taken(e, local, 10))
			assert.Equal(t, int64(2), taken(beside, "/grpc.testing.TestService/UnaryCall", 10))
			stats := limits.Stats()
			assert.Equal(t, uint64(2), stats.Admitted)
			assert.Equal(t, uint64(2), stats.Misconfigured+stats.NeverAdmitted)
			assert.Equal(t, 1, strings.Count(lines.String(), "cause=boom"), lines.String())
		})
	}
}

func TestTapNeedsALimitThatItCanDecide(t *testing.T) {
	limits := byAddr(open[netip.Addr](t, hourly(1), nil), rpclimit.Options{})
	assert.Panics(t, func() { TapHandle(limits) })
}
