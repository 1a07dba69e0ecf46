package grpclimit

import (
	"context"
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

	"github.com/ral-limiter/ral/internal/testkit/admissiontest"
	"github.com/ral-limiter/ral/internal/testkit/rpctest"
	"github.com/ral-limiter/ral/internal/testkit/testenv"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/rpclimit"
)

// Promise: A refusal has the limit, a rounded-up delay and no key.
func TestRefusalTellsTheClientAll(t *testing.T) {
	now := newClock()
	s := serve(t, rpctest.ByAddr(open[netip.Addr](t, policy.Must(policy.Funnel(2, 7, time.Second)), now), rpclimit.Options{}))
	conn := s.client(t)

	var header, trailer metadata.MD
	require.NoError(t, call(t.Context(), conn, "", grpc.Header(&header), grpc.Trailer(&trailer)))
	assert.Equal(t, []string{`"address";r=1;t=1`}, header["ratelimit"])
	assert.Len(t, header["ratelimit-policy"], 1)
	assert.Empty(t, trailer["ratelimit"])

	require.NoError(t, call(t.Context(), conn, ""))
	err := call(t.Context(), conn, "", grpc.Trailer(&trailer))
	assert.Equal(t, codes.ResourceExhausted, status.Code(err))
	// A unit comes back in 142.857142... ms, told as 143.
	assert.Equal(t, 143*time.Millisecond, retryDelay(err))
	assert.Equal(t, []string{"143"}, trailer["grpc-retry-pushback-ms"])
	assert.Len(t, trailer["ratelimit"], 1)
	require.Len(t, violations(err), 1)
	assert.Equal(t, "address", violations(err)[0].GetQuotaId())
	assert.NotContains(t, fmt.Sprint(status.Convert(err).Proto()), "127.0.0.1", "a key is told")
	assert.Equal(t, int64(2), s.calls.Load())

	// True, and rounded up by less than a millisecond.
	now.Add(int64(142 * time.Millisecond))
	assert.Equal(t, codes.ResourceExhausted, status.Code(call(t.Context(), conn, "")))
	now.Add(int64(time.Millisecond))
	assert.NoError(t, call(t.Context(), conn, ""))
}

var info = &grpc.UnaryServerInfo{FullMethod: "/test.v1.Test/Call"}

func direct(ctx context.Context, intercept grpc.UnaryServerInterceptor) error {
	_, err := intercept(ctx, nil, info, func(context.Context, any) (any, error) { return struct{}{}, nil })
	return err
}

// serviceConfig returns a config of a stock client that retries with a back-off by itself.
func serviceConfig(backoff, code string) grpc.DialOption {
	return grpc.WithDefaultServiceConfig(fmt.Sprintf(`{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 5,
		"initialBackoff": %q, "maxBackoff": %[1]q, "backoffMultiplier": 1, "retryableStatusCodes": [%q]}}]}`, backoff, code))
}

// Its own backoff is far longer than the call may take.
//
// Promise: Stock clients' first retry succeeds.
func TestStockClientSucceedsAtItsFirstRetry(t *testing.T) {
	s := serve(t, rpctest.ByAddr(open[netip.Addr](t, policy.Must(policy.Funnel(1, 1, 150*time.Millisecond)), nil), rpclimit.Options{Cost: pieces}))
	conn := s.client(t, serviceConfig("1000s", "RESOURCE_EXHAUSTED"))
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Second)
	defer cancel()
	for kind, call := range map[string]func() error{
		"unary":  func() error { return call(ctx, conn, "") },
		"stream": func() error { return talk(t, ctx, conn, "end") },
	} {
		// The loop goes on until a call had to be repeated.
		for attempts := int64(0); attempts != 2; {
			before, served := s.attempts.Load(), s.calls.Load()
			require.NoError(t, call(), kind)
			attempts = s.attempts.Load() - before
			require.LessOrEqual(t, attempts, int64(2), "%s: the retry was refused: it came too early", kind)
			require.Equal(t, served+1, s.calls.Load(), kind)
		}
	}
	var trailer metadata.MD
	before := s.attempts.Load()
	// The call costs more than there is at once.
	err := call(ctx, conn, "2", grpc.Trailer(&trailer))
	assert.Equal(t, codes.ResourceExhausted, status.Code(err))
	assert.Equal(t, []string{"-1"}, trailer["grpc-retry-pushback-ms"])
	assert.Equal(t, time.Duration(-1), retryDelay(err))
	assert.Equal(t, before+1, s.attempts.Load(), "the call was repeated")
}

func TestFieldsOfACall(t *testing.T) {
	s := serve(t, rpctest.ByAddr(open[netip.Addr](t, hourly(100), nil), rpclimit.Options{}))
	require.NoError(t, call(t.Context(), s.client(t, serviceConfig("0.001s", "UNAVAILABLE")), "fail at first"))
	assert.Equal(t, int64(2), s.attempts.Load(), "fields keep no client from retrying")
	conn := s.client(t)
	for body, inHeader := range map[string]bool{"": true, "header": false, "fail": false} {
		var header, trailer metadata.MD
		assert.Equal(t, body == "fail", call(t.Context(), conn, body, grpc.Header(&header), grpc.Trailer(&trailer)) != nil)
		in, out := header, trailer
		if !inHeader {
			in, out = trailer, header
		}
		assert.Len(t, in["ratelimit"], 1, body)
		assert.Len(t, in["ratelimit-policy"], 1, body)
		assert.Empty(t, out["ratelimit"], body)
	}
}

func TestLimitsAreRequired(t *testing.T) {
	for function, call := range map[string]func(){
		"UnaryServerInterceptor":  func() { UnaryServerInterceptor(nil) },
		"StreamServerInterceptor": func() { StreamServerInterceptor(nil) },
		"TapHandle":               func() { TapHandle(nil) },
	} {
		assert.PanicsWithValue(t, "grpclimit."+function+": guard is nil: want a Guard from rpclimit.New", call)
	}
	withoutTap := rpctest.ByAddr(open[netip.Addr](t, hourly(1), nil), rpclimit.Options{})
	assert.Panics(t, func() { TapHandle(withoutTap) })
}

func TestInterceptorKeepsTheAdmissionContract(t *testing.T) {
	admissiontest.Run(t, func(t testing.TB, o admissiontest.Options, all []admissiontest.Limit) admissiontest.Door {
		guard := rpctest.New(t, o, all)
		intercept := UnaryServerInterceptor(guard)
		serve := func(ctx context.Context) {
			_, _ = intercept(ctx, nil, &grpc.UnaryServerInfo{FullMethod: "/a.B/C"}, func(ctx context.Context, _ any) (any, error) {
				admissiontest.Of(ctx).Served()
				return nil, nil
			})
		}
		return admissiontest.Door{Serve: serve, Stats: rpctest.StatsOf(guard)}
	})
}

// quiet is a call's stream that allocates nothing. A server's would copy the metadata.
type quiet struct{}

func (quiet) Method() string               { return info.FullMethod }
func (quiet) SetHeader(metadata.MD) error  { return nil }
func (quiet) SendHeader(metadata.MD) error { return nil }
func (quiet) SetTrailer(metadata.MD) error { return nil }

// Promise: Admitted unary calls allocate at most 3 times, refused calls 16 times.
func TestCallsAllocateLittle(t *testing.T) {
	if testenv.Race {
		t.Skip("the race detector allocates")
	}
	ctx := grpc.NewContextWithServerTransportStream(from("203.0.113.9:4711"), quiet{})
	for want, c := range map[codes.Code]struct {
		limit int64
		most  float64
	}{
		// The allocations are the call, and the two parts of a map.
		codes.OK: {1_000_000_000, 3},
		// Half of the allocations are the copy that package status makes of a status.
		codes.ResourceExhausted: {1, 16},
	} {
		intercept := UnaryServerInterceptor(rpctest.ByAddr(open[netip.Addr](t, hourly(c.limit), nil), rpclimit.Options{}))
		_ = direct(ctx, intercept)
		assert.Equal(t, want, status.Code(direct(ctx, intercept)))
		assert.LessOrEqual(t, testing.AllocsPerRun(1000, func() { _ = direct(ctx, intercept) }), c.most, want)
	}
}
