package rpctest

import (
	"context"
	"math"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/outgoing"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/rpclimit"
)

// Line returns a line that is closed with the test.
func Line(t testing.TB, config outgoing.Config) *outgoing.Line[string] {
	t.Helper()
	line, err := outgoing.New[string](config)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, line.Close()) })
	return line
}

// Calls is what a test asks of a client and its server.
type Calls struct {
	// Guard is the server's.
	Guard      *rpclimit.Guard
	Line       *outgoing.Line[string]
	Retries    int
	Repeatable bool
}

// Client makes calls in a line to a server of its own.
type Client struct {
	// Key is the key of the line.
	Key   string
	Unary func(context.Context) error
	// Stream exchanges messages in both directions, and ends.
	Stream func(context.Context) error
	// Open opens a stream that is not answered.
	Open     func(context.Context)
	Exchange func(context.Context) // opens a stream, exchanges a message, and leaves it open
	// TooLarge are calls with a message that exceeds the client's or the server's limit.
	TooLarge []func(context.Context) error
	Code     func(error) rpclimit.Code
}

// OpenClient starts a server, and returns a client of it.
type OpenClient func(t testing.TB, c Calls) Client

// RunClient checks how clients that wait in a line treat the answers of a server.
func RunClient(t *testing.T, open OpenClient) {
	t.Run("a refusal holds all calls", func(t *testing.T) { refusalHoldsAllCalls(t, open) })
	t.Run("calls are repeated as allowed", func(t *testing.T) { repeatsAsAllowed(t, open) })
	t.Run("calls without a turn are not sent", func(t *testing.T) { withoutTurn(t, open) })
	t.Run("an abandoned first stream holds no call", func(t *testing.T) { abandonedStream(t, open) })
	t.Run("messages that are too large hold no call", func(t *testing.T) { tooLargeMessages(t, open) })
	t.Run("calls are in flight until their end", func(t *testing.T) { callsInFlight(t, open) })
}

// fast is a policy that delays no call of a test.
func fast() policy.Policy { return policy.Must(policy.Funnel(100, 100, time.Second)) }

func newEngine(t testing.TB, config engine.Config) *engine.Engine[netip.Addr] {
	t.Helper()
	e, err := engine.New[netip.Addr](config)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, e.Close()) })
	return e
}

// hourly returns limits of n calls an hour, and the number of calls that arrived at the server.
func hourly(t testing.TB, n int64) (guard *rpclimit.Guard, arrived *atomic.Int64) {
	t.Helper()
	arrived = &atomic.Int64{}
	return ByAddr(newEngine(t, engine.Config{Policy: policy.Must(policy.Funnel(n, n, time.Hour))}), rpclimit.Options{
		OnVerdict: func(*rpclimit.Call, rpclimit.Verdict) { arrived.Add(1) },
	}), arrived
}

func refusalHoldsAllCalls(t *testing.T, open OpenClient) {
	for _, streamed := range []bool{false, true} {
		guard, arrived := hourly(t, 2)
		line := Line(t, outgoing.Config{Policy: fast()})
		client := open(t, Calls{Guard: guard, Line: line})
		require.NoError(t, client.Unary(t.Context()))
		require.NoError(t, client.Stream(t.Context()))
		assert.Zero(t, line.BackoffLeft(client.Key))
		refused := client.Unary
		if streamed {
			refused = client.Stream
		}
		require.Equal(t, rpclimit.CodeResourceExhausted, client.Code(refused(t.Context())))
		held := line.BackoffLeft(client.Key)
		assert.Greater(t, held, 29*time.Minute)
		assert.LessOrEqual(t, held, 30*time.Minute)
		assert.EqualValues(t, 1, line.Stats().Refusals)

		late, cancel := context.WithTimeout(t.Context(), time.Minute)
		for _, call := range []func(context.Context) error{client.Unary, client.Stream} {
			assert.Equal(t, rpclimit.CodeDeadlineExceeded, client.Code(call(late)))
		}
		cancel()
		assert.EqualValues(t, 3, arrived.Load(), "nothing more was sent")
	}
}

func repeatsAsAllowed(t *testing.T, open OpenClient) {
	// second is a moment that is far longer than a call takes.
	const second = 100 * time.Millisecond
	for name, c := range map[string]struct {
		retries    int
		repeatable bool
		cost       int64
		period     time.Duration
		// recovers reports whether the server has units when it is asked again.
		recovers bool
		sent     int64
		code     rpclimit.Code
	}{
		"off":                       {0, true, 1, second, true, 1, rpclimit.CodeResourceExhausted},
		"on":                        {3, true, 1, second, true, 2, rpclimit.CodeOK},
		"not repeatable":            {3, false, 1, second, true, 1, rpclimit.CodeResourceExhausted},
		"as often as allowed":       {2, true, 1, time.Millisecond, false, 3, rpclimit.CodeResourceExhausted},
		"later than the patience":   {3, true, 1, time.Hour, true, 1, rpclimit.CodeResourceExhausted},
		"more than is ever allowed": {3, true, 3, second, true, 1, rpclimit.CodeResourceExhausted},
	} {
		t.Run(name, func(t *testing.T) {
			// The server's time passes when it has refused a call, however busy the machine is.
			var now atomic.Int64
			e := newEngine(t, engine.Config{
				Policy: policy.Must(policy.Funnel(1, 1, c.period)),
				Clock:  func() policy.Instant { return policy.Instant(now.Load()) },
			})
			arrived := int64(0)
			guard := ByAddr(e, rpclimit.Options{Cost: func(*rpclimit.Call) int64 { return c.cost }, OnVerdict: func(_ *rpclimit.Call, verdict rpclimit.Verdict) {
				arrived++
				if c.recovers && verdict.Refused() {
					now.Add(int64(c.period))
				}
			}})
			e.Take(Local, 1)
			line := Line(t, outgoing.Config{Patience: time.Minute, Policy: fast()})
			client := open(t, Calls{Guard: guard, Line: line, Retries: c.retries, Repeatable: c.repeatable})
			assert.Equal(t, c.code, client.Code(client.Unary(t.Context())))
			assert.Equal(t, c.sent, arrived)
			assert.Equal(t, uint64(c.sent-1), line.Stats().Retries)
			if c.cost > 1 {
				assert.Zero(t, line.BackoffLeft(client.Key), "a call that is never admitted holds no other")
			}
		})
	}
}

func withoutTurn(t *testing.T, open OpenClient) {
	guard, arrived := hourly(t, 100)
	line := Line(t, outgoing.Config{MaxWaiting: 1, Policy: policy.Must(policy.Funnel(1, 1, time.Hour))})
	client := open(t, Calls{Guard: guard, Line: line})
	require.NoError(t, client.Unary(t.Context()))
	for _, call := range []func(context.Context) error{client.Unary, client.Stream} {
		failsWith := func(err error, code rpclimit.Code, cause error) {
			t.Helper()
			assert.Equal(t, code, client.Code(err))
			assert.ErrorIs(t, err, cause)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- call(ctx) }()
		require.Eventually(t, func() bool { return line.Stats().Waiting == 1 }, time.Minute, time.Millisecond)
		failsWith(call(t.Context()), rpclimit.CodeResourceExhausted, engine.ErrCrowded)
		cancel()
		failsWith(<-ended, rpclimit.CodeCanceled, context.Canceled)
		late, stop := context.WithTimeout(t.Context(), time.Minute)
		failsWith(call(late), rpclimit.CodeDeadlineExceeded, engine.ErrDeadline)
		stop()
	}
	require.NoError(t, line.Close())
	for _, call := range []func(context.Context) error{client.Unary, client.Stream} {
		err := call(t.Context())
		assert.Equal(t, rpclimit.CodeUnavailable, client.Code(err))
		assert.ErrorIs(t, err, engine.ErrClosed)
	}
	assert.EqualValues(t, 1, arrived.Load())
}

func abandonedStream(t *testing.T, open OpenClient) {
	guard, _ := hourly(t, 100)
	client := open(t, Calls{Guard: guard, Line: Line(t, outgoing.Config{Probe: time.Hour})})
	ctx, cancel := context.WithCancel(t.Context())
	client.Open(ctx)
	late, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	assert.Equal(t, rpclimit.CodeDeadlineExceeded, client.Code(client.Unary(late)), "it waits for the answer")
	cancel()
	require.Eventually(t, func() bool { return client.Unary(late) == nil }, time.Minute, time.Millisecond)
}

func tooLargeMessages(t *testing.T, open OpenClient) {
	guard, _ := hourly(t, 100)
	line := Line(t, outgoing.Config{})
	client := open(t, Calls{Guard: guard, Line: line})
	for range 2 {
		for i, call := range client.TooLarge {
			require.Equal(t, rpclimit.CodeResourceExhausted, client.Code(call(t.Context())), i)
			// A backoff would make the next call wait.
			require.Zero(t, line.BackoffLeft(client.Key), i)
		}
	}
	assert.Zero(t, line.Stats().Refusals)
}

func callsInFlight(t *testing.T, open OpenClient) {
	guard, arrived := hourly(t, 100)
	line := Line(t, outgoing.Config{Policy: fast(), Patience: time.Minute, InFlight: policy.Must(policy.InFlight(1, time.Hour))})
	client := open(t, Calls{Guard: guard, Line: line})
	for range 2 {
		require.NoError(t, client.Unary(t.Context()))
		require.NoError(t, client.Stream(t.Context()))
		for i, call := range client.TooLarge {
			require.Error(t, call(t.Context()), i)
		}
	}
	for _, begin := range []func(context.Context){client.Open, client.Exchange} {
		ctx, cancel := context.WithCancel(t.Context())
		begin(ctx)
		late, stop := context.WithTimeout(t.Context(), 20*time.Millisecond)
		for _, call := range []func(context.Context) error{client.Unary, client.Stream} {
			assert.Equal(t, rpclimit.CodeDeadlineExceeded, client.Code(call(late)), "the stream is in flight")
		}
		stop()
		cancel()
		before := arrived.Load()
		require.NoError(t, client.Unary(t.Context()), "the stream was left")
		assert.Greater(t, arrived.Load(), before)
	}
	assert.Zero(t, line.Stats().Overstayed)
}

// Final is the message of an error that Hook knows as a final refusal.
const Final = "the model is retired"

// Hook returns a hook of a client's options. messageOf returns the message of an error.
func Hook(messageOf func(error) string) func(error) (outgoing.Answer, bool) {
	return func(err error) (outgoing.Answer, bool) {
		return outgoing.Answer{Refused: true, RetryAfter: policy.Never}, messageOf(err) == Final
	}
}

// Strikes checks, in a bubble, how long refusals without a time hold a line. call makes a call that the
// server serves if the message is empty, and otherwise refuses with ResourceExhausted and the message.
func Strikes(t *testing.T, line *outgoing.Line[string], key string, call func(message string) error) {
	const s = time.Second
	for i, step := range []struct {
		message string
		held    time.Duration
	}{
		{"no", s}, {"no", 2 * s}, {"", 0}, {"no", s}, {"message too large (5000 bytes)", 0}, {"no", s}, {"no", 2 * s}, {Final, 0}, {Final, 0}, {"", 0}, {"no", s},
	} {
		time.Sleep(line.BackoffLeft(key))
		assert.Equal(t, step.message == "", call(step.message) == nil, i)
		assert.Equal(t, step.held, line.BackoffLeft(key), "step %d, %q", i, step.message)
	}
	assert.EqualValues(t, 8, line.Stats().Refusals)
	assert.Zero(t, line.Stats().Retries, "no final refusal is repeated")
}

// Answer is an error of a server, and what a client learns from it.
type Answer struct {
	Name    string
	Code    rpclimit.Code
	Message string
	// RetryInfo is 0 for none.
	RetryInfo time.Duration
	Pushback  []string
	// Fields are by names in lower case.
	Fields map[string]string
	Want   outgoing.Answer
}

// Answers returns the answers that all clients read alike.
func Answers() []Answer {
	const internal, ms = rpclimit.CodeInternal, time.Millisecond
	refused := func(after time.Duration) outgoing.Answer { return outgoing.Answer{Refused: true, RetryAfter: after} }
	full := func(name string, retryInfo, want time.Duration, pushback ...string) Answer {
		return Answer{Name: name, Code: rpclimit.CodeResourceExhausted, RetryInfo: retryInfo, Pushback: pushback, Want: refused(want)}
	}
	return []Answer{
		full("refused", 0, 0),
		full("RetryInfo", 1500*time.Microsecond, 1500*time.Microsecond),
		full("negative RetryInfo", -5, 0),
		full("RetryInfo of centuries", math.MaxInt64, policy.Never-1),
		full("pushback", 0, 7*ms, "7"),
		full("never", 0, policy.Never, "-1"),
		full("pushback of centuries", 0, math.MaxInt64/ms*ms, "9223372036854775807"),
		full("garbage", 0, 0, "soon"),
		full("two pushbacks", 0, 0, "1", "2"),
		{Name: "too large", Code: rpclimit.CodeResourceExhausted, Message: "Received message larger than max (5 vs. 4)"},
		{
			Name: "too large, with a time", Code: rpclimit.CodeResourceExhausted, Message: "Received message larger than max (5 vs. 4)",
			RetryInfo: 9 * ms, Want: refused(9 * ms),
		},
		{Name: "a final refusal by the hook", Code: internal, Message: Final, RetryInfo: 9 * ms, Want: refused(policy.Never)},
		{Name: "unavailable", Code: rpclimit.CodeUnavailable},
		{Name: "unavailable for some time", Code: rpclimit.CodeUnavailable, RetryInfo: 9 * ms, Want: refused(9 * ms)},
		{Name: "another error", Code: internal, Pushback: []string{"5"}},
		{Name: "the reset", Code: rpclimit.CodeResourceExhausted, Fields: map[string]string{
			"ratelimit": `"a";r=0;t=3`, "ratelimit-policy": `"a";q=5;w=10`,
		}, Want: outgoing.Answer{
			Refused: true, Limit: 5, Window: 10 * time.Second, HasRemaining: true, Reset: 3 * time.Second,
		}},
	}
}
