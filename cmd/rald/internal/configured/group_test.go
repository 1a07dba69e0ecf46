package configured

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/cmd/rald/internal/families"
	"github.com/ral-limiter/ral/cmd/rald/internal/redistest"
	"github.com/ral-limiter/ral/fleet"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

const sharedLimit = `{limit: 'funnel 100, 10/s', reserved: 'funnel 30, 5/s', share gold: 'funnel 20, 2/s', share silver: 'funnel 10, 1/s', ceiling silver: 'funnel 5, 1/s'}`

// use calls do with the Use of a tenant of the limit api.
func (o *opened) use(t *testing.T, tenant string, do func(u Use)) {
	t.Helper()
	call := o.Begin()
	defer call.End()
	u, ok := call.Find([]byte("api"), []byte(tenant))
	require.True(t, ok)
	do(u)
}

func (o *opened) share(t *testing.T, tenant string, n int64) (d policy.Decision) {
	t.Helper()
	o.use(t, tenant, func(u Use) {
		var err error
		d, err = u.Take(t.Context(), n)
		require.NoError(t, err)
	})
	return d
}

// Promise: rald serves the `share` and `ceiling` lines of a limit: a tenant's guarantee stands while others borrow, and follows the file.
func TestTenantsShareALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, t.TempDir())
		o.set(sharedLimit)
		defer func() { require.NoError(t, o.Limits.Close()) }()
		require.True(t, o.share(t, "greedy", 70).Allowed)
		require.False(t, o.share(t, "greedy", 1).Allowed)
		require.EqualValues(t, 20, o.share(t, "gold", 0).Limit)
		require.True(t, o.share(t, "gold", 20).Allowed, "its guarantee")
		require.False(t, o.share(t, "gold", 1).Allowed)
		a, err := o.Admit(t.Context(), Prefix("api")+"silver", 10)
		require.NoError(t, err)
		require.True(t, a.Allowed, "by an adapter")

		time.Sleep(time.Minute)
		require.True(t, o.share(t, "silver", 10).Allowed)
		require.False(t, o.share(t, "silver", 6).Allowed, "its ceiling")
		require.True(t, o.share(t, "gold", 20).Allowed)
		o.set(`{limit: 'funnel 100, 10/s', reserved: 'funnel 30, 5/s', share gold: 'funnel 15, 2/s', share silver: 'funnel 10, 1/s', share new: 'funnel 5, 1/s', ceiling silver: 'funnel 9, 1/s'}`)
		require.ErrorContains(t, o.Share(), "limits.yaml:2: api: share new: ", "what gold leaves is still owed")
		err = o.Share()
		for range 20 {
			if err == nil {
				break
			}
			time.Sleep(time.Minute)
			err = o.Share()
		}
		require.NoError(t, err)
		require.EqualValues(t, 15, o.share(t, "gold", 0).Limit)
		require.EqualValues(t, 5, o.share(t, "new", 0).Limit)
		require.True(t, o.share(t, "silver", 10).Allowed)
		require.True(t, o.share(t, "silver", 9).Allowed)

		// The total stays until the next start.
		o.set(`{limit: 'funnel 50, 10/s', share gold: 'funnel 15, 2/s'}`)
		time.Sleep(time.Minute)
		require.True(t, o.share(t, "greedy", 70).Allowed)
		for _, text := range []string{"funnel 100, 10/s", "window 5/h"} {
			require.ErrorContains(t, o.Set(t.Context(), file(text), nil), "limits.yaml:2: api: keys count under")
		}
		require.NoError(t, o.Set(t.Context(), warnFile(t, "limits: {}\n"), nil))
		o.set("window 5/h")
		require.True(t, o.call("k"))
		require.ErrorContains(t, o.Set(t.Context(), file(sharedLimit), nil), "limits.yaml:2: api: a limit with shares takes the place of one without")
	})
}

// Promise: A reservation under a limit with shares is settled with its real units, and each other command says what is accepted.
func TestCommandsOfTenants(t *testing.T) {
	o := open(t, "")
	o.set(sharedLimit)
	defer func() { require.NoError(t, o.Limits.Close()) }()
	o.use(t, "gold", func(u Use) {
		hold := func(n, used int64) {
			g, err := u.Limiter().Hold(t.Context(), limits.Call[string]{Key: u.Key, N: n, Limit: u.Limit, NoWait: true})
			require.NoError(t, err)
			require.True(t, g.Allowed)
			require.NoError(t, g.Settle(t.Context(), used))
		}
		remaining := func() int64 {
			d, err := u.Take(t.Context(), 0)
			require.NoError(t, err)
			return d.Remaining
		}
		hold(10, 4)
		assert.InDelta(t, 16, remaining(), 1)
		_, err := u.Refund(t.Context(), -6)
		require.NoError(t, err)
		assert.InDelta(t, 10, remaining(), 1)
		x, err := u.Family.ExplainWith(t.Context(), u.Limit, u.Key)
		require.NoError(t, err)
		assert.Len(t, x.Each, 2)
		_, err = u.Refund(t.Context(), 1)
		require.ErrorIs(t, err, errShared)
		_, err = u.Reset(t.Context())
		require.ErrorIs(t, err, errShared)
		require.ErrorIs(t, u.Family.Block(t.Context(), u.Key, time.Second), errShared)
		claim := families.Claim{Family: u.Family, Limit: u.Limit, Key: u.Key}
		require.ErrorIs(t, families.Change(t.Context(), claim, claim), errShared)
		assert.NotZero(t, u.Shares().Counts().Guaranteed)
	})
}

// Promise: With `-redis` tenants share a limit over all servers; leased limits refuse shares.
func TestTenantsShareALimitInRedis(t *testing.T) {
	database, _ := redistest.Open(t, fleet.FallbackShare)
	o, other := openIn(t, database, ""), openIn(t, database, "")
	for _, one := range []*opened{o, other} {
		one.set(`{limit: 'funnel 100, 1/h', reserved: 'funnel 30, 1/2h', share gold: 'funnel 20, 1/4h', ceiling silver: 'funnel 5, 1/h'}`)
		defer func() { require.NoError(t, one.Limits.Close()) }()
	}
	require.True(t, o.share(t, "greedy", 70).Allowed)
	require.False(t, other.share(t, "silver", 1).Allowed)
	require.True(t, other.share(t, "gold", 20).Allowed)
	require.False(t, o.share(t, "gold", 1).Allowed)
	file := warnFile(t, "limits:\n  api: "+`{limit: 'funnel 100, 1/h', reserved: 'funnel 30, 1/2h', ceiling silver: 'funnel 5, 1/h'}`+"\n")
	require.NoError(t, o.Set(t.Context(), file, nil))
	require.ErrorContains(t, o.Share(), "api: share gold: with -redis the guarantee holds until all servers have started again")
	leased := *database.Fleet
	leased.Leased = true
	require.ErrorContains(t, Room(families.Config{Fleet: &leased}, file), "limits.yaml:2: api: shares are accepted without -fleet leased")
}
