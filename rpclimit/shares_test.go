package rpclimit

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// A tenant's answers tell of its guarantee, and of its own loans, whatever others use. A share and another limit are taken
// all or nothing.
//
// Promise: `rpclimit` takes `engine.Shares`, and tells no tenant a figure of others.
func TestSharesOverRPC(t *testing.T) {
	var clock atomic.Int64
	clock.Store(int64(time.Hour))
	guarantee := policy.Must(policy.Funnel(10, 1, time.Second))
	shares := must.Get(engine.NewShares(engine.SharesConfig[string]{
		Config:  engine.Config{Clock: func() policy.Instant { return policy.Instant(clock.Load()) }},
		Total:   policy.Must(policy.Funnel(50, 10, time.Second)),
		Tenants: []string{"a", "b"},
		Guarantee: func(tenant string) policy.Policy {
			if tenant == "stranger" {
				return nil
			}
			return guarantee
		},
	}))
	defer shares.Close()
	tenant := Limit[string]{Name: "tenant", Limiter: shares, Key: ByMetadata("tenant")}
	single := Must(New(Options{}, tenant))
	want := func(g *Guard, tenant string, reason limits.Reason, standing string, retry int64) {
		t.Helper()
		v, s := g.Begin(from(alice, "tenant", tenant))
		s.End(Served{})
		policies, got := rateLimit(&v)
		if g == single {
			assert.Equal(t, map[bool]string{true: `"tenant";q=30;w=3`, false: `"tenant";q=10;w=10`}[tenant == "stranger"], policies)
		}
		ms, _ := v.Pushback()
		assert.Equal(t, []any{reason, standing, retry}, []any{v.Reason, got, ms}, tenant)
		if reason == limits.OverLimit {
			assert.Equal(t, CodeResourceExhausted, v.Code())
			assert.EqualValues(t, shares.LimitFor(tenant).Limit(), v.AppendViolations(nil)[0].Max, "the tenant's own limit")
		}
	}
	for i := range 10 {
		want(single, "a", limits.Admitted, fmt.Sprintf(`"tenant";r=%d;t=%d`, 9-i, i+1), 0)
	}
	// Loans of 20 units besides a's 10 fill the 30 that the group lends.
	for range 20 {
		want(single, "a", limits.Admitted, `"tenant";r=0;t=10`, 0)
	}
	// a could borrow after 0.1 s, and its guarantee has a unit after 1 s.
	want(single, "a", limits.OverLimit, `"tenant";r=0;t=1`, 100)
	want(single, "stranger", limits.OverLimit, `"tenant";r=0;t=1`, 100)
	for range 10 {
		v, _ := single.Begin(from(alice, "tenant", "b"))
		assert.Equal(t, limits.Admitted, v.Reason, "a guaranteed unit")
	}
	// b could borrow after 1.1 s, and its guarantee has a unit after 1 s.
	want(single, "b", limits.OverLimit, `"tenant";r=0;t=1`, 1000)

	calls := must.Get(engine.New[string](engine.Config{Policy: policy.Must(policy.FixedWindow(1, time.Hour)), PackageTime: true}))
	defer calls.Close()
	clock.Add(int64(2 * time.Second))
	both := Must(New(Options{}, tenant, Limit[string]{Name: "calls", Limiter: calls, Key: ByMetadata("tenant")}))
	before := shares.Stats().Used
	want(both, "b", limits.Admitted, `"calls";r=0;t=3600`, 0)
	v, _ := both.Begin(from(alice, "tenant", "b"))
	assert.Equal(t, []any{limits.OverLimit, "calls"}, []any{v.Reason, v.Limit})
	assert.Equal(t, before+1, shares.Stats().Used, "a refused call leaves the group as it was")
	assert.EqualValues(t, 1, shares.Peek("b", 0).Remaining)
}
