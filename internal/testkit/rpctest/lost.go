package rpctest

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/ral-limiter/ral/internal/testkit/admissiontest"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/rpclimit"
)

// During is a handler. sent sends a message of a stream, and is nil for a unary call.
type During func(ctx context.Context, send func() error) error

// RunLost checks that calls end whose units in use are lost, over connections. open serves calls whose handler is
// during, and returns functions that make a unary call, and a stream's that ends with the answer.
func RunLost(t *testing.T, code func(error) rpclimit.Code, open func(t *testing.T, l *rpclimit.Guard, during During) (unary, stream func(context.Context) error)) {
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
		unary, stream := open(t, guard, func(ctx context.Context, send func() error) error { return during(ctx, send) })
		for way, call := range map[string]func(context.Context) error{"unary": unary, "stream": stream} {
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
			if way == "stream" {
				want = rpclimit.CodeUnavailable
			}
			assert.Equal(t, want, code(call(t.Context())), "%s, %s", name, way)
			assert.EqualValues(t, 1, losing.Peek("key", 0).Remaining, "%s, %s", name, way)
		}
	}
}
