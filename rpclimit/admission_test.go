package rpclimit_test

import (
	"context"
	"testing"

	"github.com/ral-limiter/ral/internal/testkit/admissiontest"
	"github.com/ral-limiter/ral/internal/testkit/rpctest"
	"github.com/ral-limiter/ral/rpclimit"
)

// Promise: No call waits to its deadline or beyond.
func TestGuardKeepsTheAdmissionContract(t *testing.T) {
	admissiontest.Run(t, func(t testing.TB, o admissiontest.Options, all []admissiontest.Limit) admissiontest.Door {
		g := rpctest.New(t, o, all)
		serve := func(ctx context.Context) {
			v, s := g.Begin(&rpclimit.Call{Context: ctx, Procedure: "/shop.Orders/Place"})
			if v.Refused() {
				return
			}
			admissiontest.Of(ctx).Served()
			s.End(rpclimit.Served{})
		}
		return admissiontest.Door{Serve: serve, Stats: rpctest.StatsOf(g)}
	})
}
