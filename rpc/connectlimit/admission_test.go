package connectlimit

import (
	"context"
	"testing"

	"connectrpc.com/connect"

	"github.com/ral-limiter/ral/internal/testkit/admissiontest"
	"github.com/ral-limiter/ral/internal/testkit/rpctest"
)

func TestAdmission(t *testing.T) {
	admissiontest.Run(t, func(t testing.TB, o admissiontest.Options, all []admissiontest.Limit) admissiontest.Door {
		limits := rpctest.New(t, o, all)
		call := NewInterceptor(limits).WrapUnary(func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
			admissiontest.Of(ctx).Served()
			return connect.NewResponse(&text{}), nil
		})
		serve := func(ctx context.Context) { _, _ = call(ctx, connect.NewRequest(&text{})) }
		return admissiontest.Door{Serve: serve, Stats: rpctest.StatsOf(limits)}
	})
}
