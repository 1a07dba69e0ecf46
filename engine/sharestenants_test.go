package engine

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTenantsTellTheirUse(t *testing.T) {
	clock := newHandClock()
	s := newShares(t, twoTenants(clock))
	require.True(t, s.Take("a", 10).Allowed)
	for range 3 {
		require.True(t, s.Take("a", 10).Borrowed)
	}
	require.True(t, s.Take("b", 1).Allowed)
	require.True(t, s.Take("stranger", 20).Borrowed)
	for range 2 {
		require.False(t, s.Take("stranger", 60).Allowed)
	}
	s.Peek("nobody", 1)
	s.Take("nobody", 0)
	want := []TenantUse[string]{
		{Tenant: "stranger", Borrowed: 1, Refused: 2},
		{Tenant: "a", Used: 10, Guarantee: 10, Borrowed: 3},
		{Tenant: "b", Used: 1, Guarantee: 20},
	}
	assert.Equal(t, want, s.Tenants(5))
	assert.Equal(t, want[:2], s.Tenants(2))
	assert.Empty(t, s.Tenants(-1))

	clock.Advance(time.Minute)
	require.True(t, s.Take("a", 10).Allowed)
	require.True(t, s.Take("a", 10).Borrowed)
	assert.EqualValues(t, 4, s.Tenants(2)[1].Borrowed, "in this minute and the one before")
	clock.Advance(time.Minute)
	require.Equal(t, "a", s.Tenants(1)[0].Tenant)
	assert.EqualValues(t, 1, s.Tenants(1)[0].Borrowed)
	clock.Advance(3 * time.Minute)
	assert.Zero(t, s.Tenants(1)[0].Borrowed)
}

func TestTenantsAreEstimatedFromASample(t *testing.T) {
	clock := newHandClock()
	config := twoTenants(clock)
	config.Config.MaxKeys = 10_000
	s := newShares(t, config)
	const calls = 200_000
	for i := range calls {
		tenant := "greedy"
		if i%4 == 0 {
			tenant = fmt.Sprint("once ", i)
		}
		require.False(t, s.Take(tenant, 71).Allowed)
	}
	all := s.Tenants(5000)
	assert.LessOrEqual(t, len(all), maxTenantUses)
	assert.Equal(t, "greedy", all[0].Tenant)
	assert.InEpsilon(t, calls*3/4, all[0].Refused, .2)
	assert.Less(t, all[1].Refused, uint64(calls/20))
}
