package rpctest

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/ral-limiter/ral/internal/testkit/admissiontest"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/rpclimit"
)

// During is a handler. sent sends a message of a stream, and is nil for a unary call.
type During func(ctx context.Context, send func() error) error

// Open serves calls whose handler is during, over connections. It returns functions by the kind of the call, such
// as a unary call or a stream in both directions, which make a call and return when it has ended.
type Open func(t *testing.T, l *rpclimit.Guard, during During) map[string]func(context.Context) error

// RunInUse checks until when calls have units in use, over connections.
func RunInUse(t *testing.T, code func(error) rpclimit.Code, open Open) {
	limiter := admissiontest.NewEngine[string](t, policy.Must(policy.InFlight(1, time.Hour)))
	left := func() int64 { return limiter.Peek("key", 0).Remaining }
	var during During
	guard := rpclimit.Must(rpclimit.New(rpclimit.Options{}, rpclimit.Limit[string]{
		Limiter: limiter, Key: rpclimit.Key[string]{Of: func(*rpclimit.Call) string { return "key" }},
	}))
	calls := open(t, guard, func(ctx context.Context, send func() error) error { return during(ctx, send) })
	for kind, call := range calls {
		for _, result := range []error{nil, io.ErrUnexpectedEOF} {
			during = func(ctx context.Context, send func() error) error { // of a call that ends by itself
				assert.Zero(t, left(), kind)
				if send != nil {
					assert.NoError(t, send(), kind)
				}
				for other, refused := range calls {
					assert.Equal(t, rpclimit.CodeResourceExhausted, code(refused(t.Context())), "%s beside %s", other, kind)
				}
				return result
			}
			assert.Equal(t, result == nil, call(t.Context()) == nil, kind)
			assert.EqualValues(t, 1, left(), kind)
		}

		ctx, cancel := context.WithCancel(t.Context())
		gone, goOn := make(chan bool), make(chan bool)
		during = func(ctx context.Context, send func() error) error { // of a call that its client cancels
			if send != nil {
				assert.NoError(t, send(), kind)
			}
			cancel()
			<-ctx.Done()
			gone <- true
			<-goOn
			return nil
		}
		assert.Equal(t, rpclimit.CodeCanceled, code(call(ctx)), kind)
		<-gone
		assert.Zero(t, left(), "%s: its handler goes on", kind)
		goOn <- true
		must.Await(t, func() bool { return left() == 1 }, kind+": its handler has returned")
	}
}

// RunLost checks that calls end whose units in use are lost, over connections.
func RunLost(t *testing.T, code func(error) rpclimit.Code, open Open) {
	losing := admissiontest.NewLosing(t)
	key := rpclimit.Key[string]{Of: func(*rpclimit.Call) string { return "key" }}
	ofMessage := key
	ofMessage.OfMessage = true
	for name, c := range map[string]struct {
		key    rpclimit.Key[string]
		shadow bool
	}{"a call": {key: key}, "by a message": {key: ofMessage}, "in shadow": {key: key, shadow: true}} {
		var during During
		guard := rpclimit.Must(rpclimit.New(rpclimit.Options{Shadow: c.shadow}, rpclimit.Limit[string]{Limiter: losing, Key: c.key}))
		for way, call := range open(t, guard, func(ctx context.Context, send func() error) error { return during(ctx, send) }) {
			lost := make(chan struct{})
			losing.Lose(lost)
			ended := make(chan context.Context, 1)
			loses := func() {
				assert.Zero(t, losing.Peek("key", 0).Remaining, "%s, %s", name, way)
				close(lost)
			}
			during = func(ctx context.Context, _ func() error) error { // of a call that loses its unit
				loses()
				if c.shadow {
					return ctx.Err()
				}
				<-ctx.Done()
				ended <- ctx
				return ctx.Err()
			}
			before := losing.Asked()
			err := call(t.Context())
			if c.shadow {
				assert.NoError(t, err, way)
				assert.Equal(t, before, losing.Asked(), "%s: a limit in shadow ends no call", way)
				continue
			}
			assert.Equal(t, rpclimit.CodeUnavailable, code(err), "%s, %s: %v", name, way, err)
			assert.ErrorIs(t, context.Cause(<-ended), limits.ErrLost, "%s, %s", name, way)
			assert.EqualValues(t, 1, losing.Peek("key", 0).Remaining, "%s, %s", name, way)

			losing.Lose(make(chan struct{}))
			during = func(ctx context.Context, _ func() error) error { // of a call that does not
				ended <- ctx
				return ctx.Err()
			}
			assert.NoError(t, call(t.Context()), "%s, %s", name, way)
			<-(<-ended).Done() // so that no goroutine of it is left
			assert.EqualValues(t, 1, losing.Peek("key", 0).Remaining, "%s, %s", name, way)

			lost = make(chan struct{})
			losing.Lose(lost)
			during = func(ctx context.Context, send func() error) error { // that ignores its context
				loses()
				<-ctx.Done()
				if send == nil {
					return nil
				}
				assert.Equal(t, rpclimit.CodeUnavailable, code(send()), name)
				return nil
			}
			want := rpclimit.CodeOK
			if way != "unary" {
				want = rpclimit.CodeUnavailable
			}
			assert.Equal(t, want, code(call(t.Context())), "%s, %s", name, way)
			assert.EqualValues(t, 1, losing.Peek("key", 0).Remaining, "%s, %s", name, way)
		}
	}
}
