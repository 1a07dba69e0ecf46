package grpclimit

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/ral-limiter/ral/rpclimit"
)

func TestLimiterOfTheMiddleware(t *testing.T) {
	e := open[string](t, hourly(10), nil)
	ten := func(*rpclimit.Call) int64 { return 10 }
	l := NewLimiter(rpclimit.Must(rpclimit.New(rpclimit.Options{
		Cost: ten, Charge: func(*rpclimit.Call, rpclimit.Served) int64 { return 0 },
	}, rpclimit.Limit[string]{Name: "method", Limiter: e, Key: rpclimit.ByProcedure})))
	ctx := grpc.NewContextWithServerTransportStream(context.Background(), quiet{})
	require.NoError(t, l.Limit(ctx))
	assert.Equal(t, int64(10), taken(e, info.FullMethod, 10), "a call keeps what it took")
	assert.ErrorContains(t, l.Limit(ctx), `the limit "method" is exceeded: try again in`)
	assert.ErrorContains(t, l.Limit(context.Background()), `lacks the key`)
	assert.Panics(t, func() { NewLimiter(nil) })
}
