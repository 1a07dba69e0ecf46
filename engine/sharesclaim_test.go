package engine

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/policy"
)

func TestClaimsOnSharesTakeBorrowAndGiveBack(t *testing.T) {
	clock := newHandClock()
	// a has 10 guaranteed, b 20, and 70 of 100 are lent.
	s := newShares(t, twoTenants(clock))
	e := open[string](t, Config{Policy: funnel(100, 1, time.Second), Clock: clock.Now})
	out := TakeAll(s.Claim("a", 6), e.Claim("k", 50), s.Claim("a", 4).Brief(), s.Claim("b", 20))
	require.True(t, out.Allowed, "claims on a tenant are met together")
	assert.Equal(t, policy.Decision{Allowed: true, Limit: 10}, withoutReset(out.Decisions[0]))
	assert.Equal(t, out.Decisions[0], out.Decisions[2])
	assert.EqualValues(t, 30, s.Stats().Used)
	refused := TakeAll(s.Claim("a", 5), e.Claim("k", 51))
	assert.Equal(t, []any{false, 1}, []any{refused.Allowed, refused.Binding})
	borrowed := TakeAll(s.Claim("a", 40), e.Claim("k", 50))
	require.True(t, borrowed.Allowed)
	assert.EqualValues(t, 70, s.Stats().Used)
	refused = TakeAll(e.Claim("l", 1), s.Claim("stranger", 1))
	assert.Equal(t, []any{false, 1, 100 * time.Millisecond}, []any{refused.Allowed, refused.Binding, refused.RetryAfter})
	assert.Equal(t, SharesStats{Name: "ral", Guaranteed: 2, Borrowed: 1, Refused: 1, Tenants: 2, Used: 70, Reserved: 30}, s.Stats(), "a call counts once for a tenant")
	assert.EqualValues(t, 1, s.Tenants(1)[0].Refused)

	borrowed.Keep(10, 50)
	assert.EqualValues(t, 40, s.Stats().Used)
	assert.Zero(t, s.Peek("a", 0).Remaining, "a loan gives nothing back to the guarantee")
	out.Keep(1, 50, 0, 20)
	assert.EqualValues(t, 31, s.Stats().Used)
	assert.EqualValues(t, 9, s.Peek("a", 0).Remaining)
	borrowed.Release()
	out.Cancel()
	assert.EqualValues(t, 31, s.Stats().Used, "an outcome ends once")

	x := ExplainClaims(e.Claim("k", 1), s.Claim("a", 10))
	assert.Equal(t, []any{false, 0}, []any{x.Allowed, x.Binding})
	assert.Equal(t, []any{true, 1}, []any{x.Each[1].Allowed, x.Each[1].Binding}, "10 units would be borrowed")
	require.NoError(t, s.Close())
	assert.False(t, TakeAll(s.Claim("a", 1)).Allowed)
	_, err := AcquireAll(t.Context(), time.Hour, s.Claim("a", 1), e.Claim("l", 1))
	require.ErrorIs(t, err, ErrClosed)
}

func TestClaimsWaitInTheLineOfTheirTenant(t *testing.T) {
	inBubble(t, waitingTenants(1, 1), func(t *testing.T, s *Shares[int]) {
		e := open[string](t, Config{Policy: funnel(10, 10, time.Second), PackageTime: true})
		require.True(t, s.Take(1, 20).Borrowed)
		out, err := AcquireAll(t.Context(), time.Minute, e.Claim("k", 5), s.Claim(0, 10))
		require.NoError(t, err)
		assert.Equal(t, []any{true, 100 * time.Millisecond}, []any{out.Allowed, out.Waited})
		assert.EqualValues(t, 2, s.Stats().Borrowed)
		out.Cancel()
		assert.True(t, s.Take(0, 10).Borrowed)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, err = AcquireAll(ctx, policy.Never, e.Claim("k", 5), s.Claim(0, 20))
		require.ErrorIs(t, err, ErrDeadline, "the call would be too late, as is known at once")
		assert.EqualValues(t, 10, e.Peek("k", 0).Remaining)
	})
}

// Tenants of one group that have no room together end, and hold nothing.
func TestClaimsThatRefuseEachOtherEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShares(t, twoTenants(newHandClock()))
		for _, patience := range []time.Duration{0, policy.Never} {
			out, err := AcquireAll(t.Context(), patience, s.Claim("x", 40), s.Claim("y", 40))
			require.ErrorIs(t, err, ErrDeadline)
			assert.False(t, out.Allowed)
			assert.Zero(t, s.Stats().Used)
		}
		assert.False(t, TakeAll(s.Claim("x", 40), s.Claim("y", 40)).Allowed)
		assert.True(t, TakeAll(s.Claim("x", 30), s.Claim("y", 40)).Allowed)
	})
}
