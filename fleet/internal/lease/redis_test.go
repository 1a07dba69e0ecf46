package lease

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/fleet/internal/store"
	"github.com/ral-limiter/ral/fleet/internal/storetest"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/policy"
)

// onStore returns leases of a bank in a store, with a call that returns the units left there.
func onStore(t *testing.T, limit policy.Policy) (l *Leases, bank *OnStore, remaining func(key string) int64) {
	t.Helper()
	plan := must.Get(NewPlan(limit, 0))
	kept := must.Get(store.New(nil, store.Options{}).Limit(plan.Policy))
	redis := storetest.New().Store(store.Options{})
	bank = NewOnStore(redis, plan, kept)
	l = must.Get(New(Config{Plan: plan, Bank: bank, Name: store.Short, Timeout: time.Second}))
	return l, bank, func(key string) int64 { return must.Get(redis.Peek(t.Context(), kept, key)).Remaining }
}

// Units of a window come back at once, whatever the key's length.
func TestCloseGivesBackToRedis(t *testing.T) {
	for i, limit := range []policy.Policy{policy.Must(policy.FixedWindow(500, time.Hour)), policy.Must(policy.SlidingWindow(500, time.Hour))} {
		synctest.Test(t, func(t *testing.T) {
			key, used := [...]string{"key", strings.Repeat("key", 20_000)}[i], int64(0)
			l, _, remaining := onStore(t, limit)
			for ; l.Held(key) < 10; used++ {
				require.True(t, must.Get(takeFrom(l, key, 1, budget)).Allowed)
			}
			require.NoError(t, l.Close(t.Context()))
			assert.Equal(t, l.Limit()-used, remaining(key))
			assert.Positive(t, l.Stats().Returned)
		})
	}
}

// The delay that Redis may have counts as age.
func TestFunnelGivesBackTheUndrainedUnits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, bank, remaining := onStore(t, policy.Must(policy.Funnel(400, 2000, time.Second)))
		g := bank.Lease(t.Context(), []Ask{{Key: "key", Need: 200, Most: 200}})[0]
		require.NoError(t, g.Err)
		require.EqualValues(t, 200, g.Units)
		require.NoError(t, bank.Return(t.Context(), []Back{{Name: "key", Units: 200, Word: g.Word, At: g.At}}))
		assert.Equal(t, l.Limit()-int64(inTime)*2000/int64(time.Second), remaining("key"))
		require.NoError(t, l.Close(t.Context()))
	})
}
