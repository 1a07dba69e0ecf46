package rpctest

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/internal/testkit/admissiontest"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/rpclimit"
)

// Local is the address of clients in this process.
var Local = netip.MustParseAddr("127.0.0.1")

// ByAddr returns a limit named "address" for each client address.
func ByAddr(engine *engine.Engine[netip.Addr], options rpclimit.Options) *rpclimit.Guard {
	return rpclimit.Must(rpclimit.New(options, rpclimit.Limit[netip.Addr]{Name: "address", Limiter: engine, Key: rpclimit.ByAddr}))
}

// AtTap is ByAddr for a limit that is decided before a message is read.
func AtTap(engine *engine.Engine[netip.Addr], options rpclimit.Options) *rpclimit.Guard {
	return rpclimit.Must(rpclimit.New(options, rpclimit.Limit[netip.Addr]{Name: "address", Limiter: engine, Key: rpclimit.ByAddr, AtTap: true}))
}

// Taken returns how many of n units of a key are taken.
func Taken[K comparable](limiter *engine.Engine[K], key K, n int64) int64 {
	return n - limiter.Peek(key, 0).Remaining
}

// Server serves calls of one client in this process, without a network.
type Server struct {
	Unary  func(l *rpclimit.Guard, handler func() error) error
	Stream func(l *rpclimit.Guard, handler func(receive, send func() error) error) (n Messages, err error)

	// Error returns an error of the protocol.
	Error func(rpclimit.Code) error
	Code  func(error) rpclimit.Code
}

// Messages counts messages of a stream that went over its connection.
type Messages struct{ Received, Sent int }

// RunServer checks that calls are settled by how they end, and that a refused message ends its stream.
func RunServer(t *testing.T, server Server) {
	t.Run("calls are settled by how they end", server.settles)
	t.Run("a refused message ends its stream", server.endsAtRefusal)
	t.Run("units in use end with the call", server.unitsInUse)
}

func (s Server) unitsInUse(t *testing.T) {
	limiter := admissiontest.NewEngine[string](t, policy.Must(policy.InFlight(1, time.Hour)))
	guard := forAnyCall(limiter, rpclimit.Options{})
	ways := map[string]func(handler func() error) error{
		"unary": func(handler func() error) error { return s.Unary(guard, handler) },
		"stream": func(handler func() error) error {
			_, err := s.Stream(guard, func(receive, send func() error) error {
				return errors.Join(receive(), send(), handler(), send())
			})
			return err
		},
	}
	for way, serve := range ways {
		for _, want := range []error{nil, context.Canceled} {
			for range 2 {
				got := serve(func() error {
					for _, other := range ways {
						refused := other(func() error { t.Error("a second call at once"); return nil })
						assert.Equal(t, rpclimit.CodeResourceExhausted, s.Code(refused), way)
					}
					return want
				})
				assert.ErrorIs(t, got, want, way)
				assert.Zero(t, Taken(limiter, "key", 1), way)
			}
		}
		assert.Panics(t, func() { _ = serve(func() error { panic("as asked") }) })
		assert.Zero(t, Taken(limiter, "key", 1), "%s: a panic", way)
	}
}

// forAnyCall returns limits under which all calls have the key "key".
func forAnyCall(limiter *engine.Engine[string], options rpclimit.Options) *rpclimit.Guard {
	return rpclimit.Must(rpclimit.New(options, rpclimit.Limit[string]{
		Limiter: limiter, Key: rpclimit.ByContext(func(context.Context) string { return "key" }),
	}))
}

func (s Server) settles(t *testing.T) {
	const notFound, unknown rpclimit.Code = 5, 2
	limiter := admissiontest.Hourly[string](t, 100)
	var served rpclimit.Served
	guard := forAnyCall(limiter, rpclimit.Options{
		Cost: func(*rpclimit.Call) int64 { return 50 },
		Charge: func(_ *rpclimit.Call, s rpclimit.Served) int64 {
			served = s
			return int64(s.Code) + s.Received + s.Sent
		},
	})
	ways := map[string]func(handler func() error) error{
		"unary": func(handler func() error) error { return s.Unary(guard, handler) },
		"stream": func(handler func() error) error {
			_, err := s.Stream(guard, func(receive, send func() error) error {
				return errors.Join(receive(), send(), send(), handler())
			})
			return err
		},
	}
	for way, serve := range ways {
		for want, err := range map[rpclimit.Code]error{
			rpclimit.CodeOK:               nil,
			notFound:                      fmt.Errorf("wrapped: %w", s.Error(notFound)),
			rpclimit.CodeCanceled:         context.Canceled,
			rpclimit.CodeDeadlineExceeded: fmt.Errorf("wrapped: %w", context.DeadlineExceeded),
			unknown:                       errors.New("another error"),
		} {
			limiter.Reset("key")
			got := serve(func() error {
				assert.EqualValues(t, 50, Taken(limiter, "key", 100), "its cost, while it is served")
				return err
			})
			assert.ErrorIs(t, got, err, way)
			assert.Equal(t, want, served.Code, "%s, %v", way, err)
			assert.False(t, served.Panicked)
			assert.Equal(t, int64(want)+served.Received+served.Sent, Taken(limiter, "key", 100), "%s, %v", way, err)
		}
		assert.Equal(t, way == "stream", served.Received == 1 && served.Sent == 2, "%s: %+v", way, served)
		assert.Panics(t, func() { _ = serve(func() error { panic("as asked") }) })
		assert.True(t, served.Panicked, way)
	}
}

// A handler that goes on after a refusal gets it again, and cannot hide it.
func (s Server) endsAtRefusal(t *testing.T) {
	one := func(*rpclimit.Call) int64 { return 1 }
	for first, others := range map[string]int{"a received message": 0, "a sent message": 1} {
		guard := forAnyCall(admissiontest.Hourly[string](t, 3), rpclimit.Options{CostReceived: one, CostSent: one})
		messages, err := s.Stream(guard, func(receive, send func() error) error {
			last := receive
			if others == 1 {
				last = send
			}
			require.NoError(t, receive())
			require.NoError(t, send())
			refused := last()
			require.Equal(t, rpclimit.CodeResourceExhausted, s.Code(refused), first)
			assert.Equal(t, refused, send(), first)
			assert.Equal(t, refused, receive(), first)
			return nil
		})
		assert.Equal(t, rpclimit.CodeResourceExhausted, s.Code(err), first)
		assert.Equal(t, Messages{Received: 2 - others, Sent: 1}, messages, "%s: nothing is read or sent after it", first)
	}
}

// StreamEnds checks that a stream whose client leaves returns unused units. open opens a stream and
// exchanges n messages each way. What it returns is called when the context has ended.
func StreamEnds(t *testing.T, open func(t *testing.T, ctx context.Context, guard *rpclimit.Guard, n int) (leave func())) {
	engine := admissiontest.Hourly[netip.Addr](t, 100)
	guard := ByAddr(engine, rpclimit.Options{
		Cost:   func(*rpclimit.Call) int64 { return 50 },
		Charge: func(_ *rpclimit.Call, served rpclimit.Served) int64 { return served.Received + served.Sent },
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	leave := open(t, ctx, guard, 3)
	assert.EqualValues(t, 50, Taken(engine, Local, 100), "while the stream is open")
	cancel()
	leave()
	assert.Eventually(t, func() bool { return Taken(engine, Local, 100) == 6 }, time.Minute, time.Millisecond)
}
