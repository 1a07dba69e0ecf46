package grpclimit

import (
	"context"
	"testing"

	"google.golang.org/grpc"

	"github.com/ral-limiter/ral/internal/testkit/admissiontest"
	"github.com/ral-limiter/ral/internal/testkit/rpctest"
)

func TestAdmission(t *testing.T) {
	admissiontest.Run(t, func(t testing.TB, o admissiontest.Options, all []admissiontest.Limit) admissiontest.Door {
		limits := rpctest.New(t, o, all)
		intercept := UnaryServerInterceptor(limits)
		serve := func(ctx context.Context) {
			_, _ = intercept(ctx, nil, &grpc.UnaryServerInfo{FullMethod: "/a.B/C"}, func(ctx context.Context, _ any) (any, error) {
				admissiontest.Of(ctx).Served()
				return nil, nil
			})
		}
		return admissiontest.Door{Serve: serve, Stats: rpctest.StatsOf(limits)}
	})
}
