package grpclimit

import (
	"context"
	"io"
	"math"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/outgoing"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/rpclimit"
)

func outLine(t testing.TB, c outgoing.Config) *outgoing.Line[string] {
	t.Helper()
	line, err := outgoing.New[string](c)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, line.Close()) })
	return line
}

// behind returns a connection to the server whose calls go by a Client.
func (s *server) behind(t testing.TB, line *outgoing.Line[string], o ClientOptions) *grpc.ClientConn {
	t.Helper()
	c, err := NewClient(line, ByTarget, o)
	require.NoError(t, err)
	return s.client(t, grpc.WithChainUnaryInterceptor(c.Unary), grpc.WithChainStreamInterceptor(c.Stream))
}

// Every call is served at the first attempt, at the pace of the first answer. The calls exceed the
// bucket, which gives back at three times that pace. It holds the calls that come at once when a
// busy machine has stopped for two seconds.
//
// Promise: 100 goroutines behind one connection are not refused.
func TestCrowdBehindOneConnectionIsNotRefused(t *testing.T) {
	e := open[netip.Addr](t, policy.Must(policy.Funnel(400, 200, time.Second)), nil)
	s := serve(t, byAddr(e, rpclimit.Options{}))
	line := outLine(t, outgoing.Config{})
	conn := s.behind(t, line, ClientOptions{})
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() {
			for range 7 {
				assert.NoError(t, call(conn, "x"))
			}
			if i%2 == 0 {
				_, err := duplex(t, t.Context(), conn)
				assert.NoError(t, err)
			}
		})
	}
	all.Wait()
	assert.Equal(t, int64(750), s.attempts.Load())
	stats := line.Stats()
	assert.Equal(t, uint64(750), stats.Turns)
	assert.Zero(t, stats.Refusals)
	assert.Positive(t, stats.Waits)
	limit := line.Limit(conn.Target())
	assert.Equal(t, int64(12), limit.Limit(), "%v", limit)
	word, _ := limit.Take(0, 1, limit.Limit(), 0)
	_, next := limit.Take(word, 1, 1, 0)
	assert.LessOrEqual(t, next.RetryAfter, time.Second*100/(95*200), "the line leaves more than 5%% of the limit unused")
}

// duplex sends a message and returns how many come before the end.
func duplex(t *testing.T, ctx context.Context, conn *grpc.ClientConn) (n int, err error) {
	t.Helper()
	stream, err := pb.NewTestServiceClient(conn).FullDuplexCall(ctx)
	if err != nil {
		return 0, err
	}
	send(t, stream, "end", 2)
	return drain(stream)
}

// Promise: A refusal holds all its key's calls.
func TestRefusalHoldsAllCalls(t *testing.T) {
	for _, streamed := range []bool{false, true} {
		e := open[netip.Addr](t, hourly(2), nil)
		s := serve(t, byAddr(e, rpclimit.Options{}))
		line := outLine(t, outgoing.Config{Policy: policy.Must(policy.Funnel(100, 100, time.Second))})
		conn := s.behind(t, line, ClientOptions{})
		require.NoError(t, call(conn, "x"))
		n, err := duplex(t, t.Context(), conn)
		require.NoError(t, err)
		assert.Equal(t, 2, n)
		assert.Zero(t, line.Held(conn.Target()))
		if streamed {
			_, err = duplex(t, t.Context(), conn)
		} else {
			err = call(conn, "x")
		}
		require.Equal(t, codes.ResourceExhausted, status.Code(err))
		held := line.Held(conn.Target())
		assert.Greater(t, held, 29*time.Minute)
		assert.LessOrEqual(t, held, 30*time.Minute)

		attempts := s.attempts.Load()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for _, err := range []error{callIn(ctx, conn, "x"), errorOf(duplex(t, ctx, conn))} {
			assert.Equal(t, codes.DeadlineExceeded, status.Code(err))
			assert.ErrorIs(t, err, engine.ErrDeadline)
		}
		assert.Equal(t, attempts, s.attempts.Load(), "nothing was sent")
	}
}

func errorOf(_ int, err error) error { return err }

func TestClientRetries(t *testing.T) {
	for name, c := range map[string]struct {
		options ClientOptions
		body    string // its cost, 1 if it is none
		sent    int64
		code    codes.Code
	}{
		"off by default":      {ClientOptions{}, "x", 2, codes.ResourceExhausted},
		"not this method":     {ClientOptions{Retries: 3, Repeatable: func(m string) bool { return m == "/other" }}, "x", 2, codes.ResourceExhausted},
		"as it may be":        {ClientOptions{Retries: 3, Repeatable: func(m string) bool { return m == pb.TestService_UnaryCall_FullMethodName }}, "x", 3, codes.OK},
		"turn comes too late": {ClientOptions{Retries: 3, Repeatable: func(string) bool { return true }}, "x", 2, codes.ResourceExhausted},
		"never":               {ClientOptions{Retries: 3, Repeatable: func(string) bool { return true }}, "3", 2, codes.ResourceExhausted},
	} {
		t.Run(name, func(t *testing.T) {
			period := 100 * time.Millisecond
			if name == "turn comes too late" {
				period = time.Hour
			}
			// The server's time passes when it has refused a call, however busy the machine is.
			at := newClock()
			e := open[netip.Addr](t, policy.Must(policy.Funnel(1, 1, period)), at)
			s := serve(t, byAddr(e, rpclimit.Options{Cost: pieces, OnVerdict: func(_ *rpclimit.Call, v rpclimit.Verdict) {
				if v.Refused() {
					at.Add(int64(2 * period))
				}
			}}))
			line := outLine(t, outgoing.Config{Patience: time.Minute, Policy: policy.Must(policy.Funnel(100, 100, time.Second))})
			conn := s.behind(t, line, c.options)
			require.NoError(t, call(conn, "x"))
			e.Refund(local, -1) // a debt: the retry waits for two periods
			assert.Equal(t, c.code, status.Code(call(conn, c.body)))
			assert.Equal(t, c.sent, s.attempts.Load())
			assert.Equal(t, uint64(c.sent-2), line.Stats().Retries)
			assert.Equal(t, name == "never", line.Held(conn.Target()) == 0 && c.code != codes.OK, "a call that is never admitted holds no other")
		})
	}
}

func exhausted(t testing.TB, code codes.Code, message string, delay time.Duration) error {
	t.Helper()
	s := status.New(code, message)
	if delay != 0 {
		var err error
		s, err = s.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(delay)})
		require.NoError(t, err)
	}
	return s.Err()
}

func TestAnswerOf(t *testing.T) {
	pushback := func(values ...string) metadata.MD { return metadata.MD{pushbackKey: values} }
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		err     error
		trailer metadata.MD
		want    outgoing.Answer
	}{
		"served":                        {nil, nil, outgoing.Answer{}},
		"served, with a pushback":       {nil, pushback("5"), outgoing.Answer{}},
		"end of a stream":               {io.EOF, nil, outgoing.Answer{}},
		"another error":                 {status.Error(codes.Internal, ""), pushback("5"), outgoing.Answer{}},
		"refused":                       {exhausted(t, codes.ResourceExhausted, "", 0), nil, outgoing.Answer{Refused: true}},
		"RetryInfo":                     {exhausted(t, codes.ResourceExhausted, "", 1500*time.Microsecond), nil, outgoing.Answer{Refused: true, RetryAfter: 1500 * time.Microsecond}},
		"negative RetryInfo":            {exhausted(t, codes.ResourceExhausted, "", -5), nil, outgoing.Answer{Refused: true}},
		"RetryInfo of 10,000 years":     {exhausted(t, codes.ResourceExhausted, "", math.MaxInt64), nil, outgoing.Answer{Refused: true, RetryAfter: policy.Never - 1}},
		"pushback":                      {exhausted(t, codes.ResourceExhausted, "", 0), pushback("7"), outgoing.Answer{Refused: true, RetryAfter: 7 * ms}},
		"the longer of both":            {exhausted(t, codes.ResourceExhausted, "", 9*ms), pushback("7"), outgoing.Answer{Refused: true, RetryAfter: 9 * ms}},
		"never":                         {exhausted(t, codes.ResourceExhausted, "", 0), pushback("-1"), outgoing.Answer{Refused: true, RetryAfter: policy.Never}},
		"huge pushback":                 {exhausted(t, codes.ResourceExhausted, "", 0), pushback("9223372036854775807"), outgoing.Answer{Refused: true, RetryAfter: time.Duration(mostPushback) * ms}},
		"garbage":                       {exhausted(t, codes.ResourceExhausted, "", 0), pushback("soon"), outgoing.Answer{Refused: true}},
		"two pushbacks":                 {exhausted(t, codes.ResourceExhausted, "", 0), pushback("1", "2"), outgoing.Answer{Refused: true}},
		"unavailable":                   {exhausted(t, codes.Unavailable, "", 0), nil, outgoing.Answer{}},
		"unavailable, for some time":    {exhausted(t, codes.Unavailable, "", 9*ms), nil, outgoing.Answer{Refused: true, RetryAfter: 9 * ms}},
		"a message received too large":  {exhausted(t, codes.ResourceExhausted, "grpc: received message larger than max (5 vs. 4)", 0), nil, outgoing.Answer{}},
		"a message to send, too large":  {exhausted(t, codes.ResourceExhausted, "trying to send message larger than max (5 vs. 4)", 0), nil, outgoing.Answer{}},
		"one of a server that is large": {exhausted(t, codes.ResourceExhausted, "quota larger than max", 0), nil, outgoing.Answer{Refused: true}},
		"the reset": {exhausted(t, codes.ResourceExhausted, "", 0), metadata.MD{"ratelimit": {`"a";r=0;t=3`}, "ratelimit-policy": {`"a";q=5;w=10`}}, outgoing.Answer{
			Refused: true, RetryAfter: 3 * time.Second, Limit: 5, Window: 10 * time.Second, Told: true, Reset: 3 * time.Second,
		}},
		"other older fields, and a date": {nil, metadata.MD{
			"x-rate-limit-remaining": {"4"}, "x-rate-limit-reset": {"1795521660"}, "date": {"Tue, 24 Nov 2026 12:00:00 GMT"},
		}, outgoing.Answer{Told: true, Remaining: 4, Reset: time.Minute}},
		"older fields": {nil, metadata.MD{"x-ratelimit-remaining": {"4"}, "x-ratelimit-reset": {"3"}}, outgoing.Answer{Told: true, Remaining: 4, Reset: 3 * time.Second}},
	} {
		assert.Equal(t, c.want, answerOf(c.err, nil, c.trailer), name)
		if c.err == nil {
			assert.Equal(t, c.want, answerOf(nil, c.trailer, nil), "%s, in the header", name)
		}
	}
}

// As the first of its key it does not hold the others for outgoing.Config.Probe.
func TestFailedCallTeachesNothing(t *testing.T) {
	line := outLine(t, outgoing.Config{Probe: time.Hour})
	c, err := NewClient(line, ByTarget, ClientOptions{})
	require.NoError(t, err)
	conn, err := grpc.NewClient("passthrough:///nowhere", grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer conn.Close()
	fails := func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error {
		return status.Error(codes.Unavailable, "connection refused")
	}
	before := line.Limit(conn.Target())
	for range 3 {
		err := c.Unary(t.Context(), "/service/method", nil, nil, conn, fails)
		assert.Equal(t, codes.Unavailable, status.Code(err))
		assert.Equal(t, before, line.Limit(conn.Target()), "it is not taken for a server without a limit")
	}
	_, err = c.Stream(t.Context(), &grpc.StreamDesc{}, conn, "/service/method", func(
		context.Context, *grpc.StreamDesc, *grpc.ClientConn, string, ...grpc.CallOption,
	) (grpc.ClientStream, error) {
		return nil, status.Error(codes.Unavailable, "connection refused")
	})
	assert.Equal(t, codes.Unavailable, status.Code(err))
	assert.Equal(t, before, line.Limit(conn.Target()))
}

func TestAbandonedFirstStreamHoldsNoOther(t *testing.T) {
	unanswered := grpc.ChainStreamInterceptor(func(_ any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, _ grpc.StreamHandler) error {
		<-ss.Context().Done()
		return ss.Context().Err()
	})
	s := serve(t, byAddr(open[netip.Addr](t, hourly(100), nil), rpclimit.Options{}), unanswered)
	line := outLine(t, outgoing.Config{Probe: time.Hour})
	conn := s.behind(t, line, ClientOptions{})
	ctx, cancel := context.WithCancel(t.Context())
	_, err := pb.NewTestServiceClient(conn).FullDuplexCall(ctx)
	require.NoError(t, err)
	late, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	assert.Equal(t, codes.DeadlineExceeded, status.Code(callIn(late, conn, "x")), "it waits for the answer")
	cancel()
	require.Eventually(t, func() bool { return callIn(late, conn, "x") == nil }, time.Minute, time.Millisecond)
}

func TestRefusalAtALaterMessageHoldsAllCalls(t *testing.T) {
	e := open[netip.Addr](t, hourly(2), nil)
	s := serve(t, byAddr(e, rpclimit.Options{
		Cost: func(*rpclimit.Call) int64 { return 0 }, CostReceived: func(*rpclimit.Call) int64 { return 1 },
	}))
	line := outLine(t, outgoing.Config{Policy: policy.Must(policy.Funnel(100, 100, time.Second))})
	conn := s.behind(t, line, ClientOptions{})
	st, err := pb.NewTestServiceClient(conn).FullDuplexCall(t.Context())
	require.NoError(t, err)
	for i := range 3 {
		require.NoError(t, st.Send(&pb.StreamingOutputCallRequest{ResponseParameters: []*pb.ResponseParameters{{}}}))
		if _, err = st.Recv(); i < 2 {
			require.NoError(t, err)
			assert.Zero(t, line.Held(conn.Target()))
		}
	}
	require.Equal(t, codes.ResourceExhausted, status.Code(err))
	assert.Greater(t, line.Held(conn.Target()), 29*time.Minute)
	assert.Equal(t, uint64(1), line.Stats().Refusals)
}

func TestTooLargeMessagesHoldNoCalls(t *testing.T) {
	s := serve(t, byAddr(open[netip.Addr](t, hourly(100), nil), rpclimit.Options{}))
	line := outLine(t, outgoing.Config{})
	conn := s.behind(t, line, ClientOptions{})
	for _, option := range []grpc.CallOption{grpc.MaxCallRecvMsgSize(1), grpc.MaxCallSendMsgSize(1)} {
		require.Equal(t, codes.ResourceExhausted, status.Code(call(conn, "more than one byte", option)))
		assert.Zero(t, line.Held(conn.Target()))
	}
	assert.Zero(t, line.Stats().Refusals)
}

func TestErrorsOfCallsWithoutATurn(t *testing.T) {
	s := serve(t, byAddr(open[netip.Addr](t, hourly(100), nil), rpclimit.Options{}))
	line, err := outgoing.New[string](outgoing.Config{MaxWaiting: 1, Policy: policy.Must(policy.Funnel(1, 1, time.Hour))})
	require.NoError(t, err)
	conn := s.behind(t, line, ClientOptions{})
	require.NoError(t, call(conn, "x"))

	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- callIn(ctx, conn, "x") }()
	require.Eventually(t, func() bool { return line.Stats().Waiting == 1 }, time.Minute, time.Millisecond)
	err = call(conn, "x")
	assert.Equal(t, codes.ResourceExhausted, status.Code(err))
	assert.ErrorIs(t, err, engine.ErrCrowded)
	cancel()
	err = <-ended
	assert.Equal(t, codes.Canceled, status.Code(err))
	assert.ErrorIs(t, err, context.Canceled)
	late, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	err = callIn(late, conn, "x")
	assert.Equal(t, codes.DeadlineExceeded, status.Code(err))
	assert.ErrorIs(t, err, engine.ErrDeadline)
	require.NoError(t, line.Close())
	err = call(conn, "x")
	assert.Equal(t, codes.Unavailable, status.Code(err))
	assert.ErrorIs(t, err, engine.ErrClosed)
	assert.Equal(t, int64(1), s.attempts.Load())
}

func TestBadClient(t *testing.T) {
	line := outLine(t, outgoing.Config{})
	for field, c := range map[string]struct {
		line    *outgoing.Line[string]
		key     func(context.Context, string, *grpc.ClientConn) string
		options ClientOptions
	}{
		"line":               {nil, ByTarget, ClientOptions{}},
		"key":                {line, nil, ClientOptions{}},
		"options.Retries":    {line, ByTarget, ClientOptions{Retries: -1}},
		"options.Repeatable": {line, ByTarget, ClientOptions{Retries: 1}},
	} {
		_, err := NewClient(c.line, c.key, c.options)
		var fault *policy.FieldError
		if assert.ErrorAs(t, err, &fault, field) {
			assert.Equal(t, field, fault.Field)
		}
	}
}
