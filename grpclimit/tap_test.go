package grpclimit

import (
	"context"
	"net/netip"
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

	// What the interceptor refuses is given back at the tap's limit.
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

// The tap's limits are settled when the stream ends.
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

func TestTapNeedsALimitThatItCanDecide(t *testing.T) {
	limits := byAddr(open[netip.Addr](t, hourly(1), nil), rpclimit.Options{})
	assert.Panics(t, func() { TapHandle(limits) })
}
