package fleet

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/fleet/internal/storetest"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// acquired is what a call of Acquire returned, and when.
type acquired struct {
	tenant string
	ShareReservation
	err error
	at  time.Duration
}

// acquireAll has calls wait in their order, and returns a channel of their results.
func acquireAll(t *testing.T, s *Shares, n int64, tenants ...string) <-chan acquired {
	begun, results := time.Now(), make(chan acquired, len(tenants))
	for _, tenant := range tenants {
		go func() {
			r, err := s.Acquire(t.Context(), tenant, n, time.Hour)
			results <- acquired{tenant, r, err, time.Since(begun)}
		}()
		synctest.Wait()
	}
	return results
}

// Promise: A call of fleet.Shares waits until its tenant's guarantee has room or it can borrow, and calls of a tenant are served in order.
func TestSharesOverAFleetWait(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		s := openShares(t, tenantsOf(on(redis, nil)))
		// The group lends 70, and its 10 a second drain.
		require.True(t, must.Get(s.Take(t.Context(), "stranger", 70)).Borrowed)
		require.True(t, must.Get(s.Take(t.Context(), "a", 10)).Allowed)
		require.False(t, must.Get(s.Take(t.Context(), "a", 1)).Allowed)
		results := acquireAll(t, s, 1, "a", "a")
		first, second := <-results, <-results
		require.NoError(t, first.err)
		require.NoError(t, second.err)
		assert.GreaterOrEqual(t, first.at, time.Second, "the tenant's guarantee drains a unit a second, so its call must wait for a second")
		assert.Less(t, first.at, 1200*time.Millisecond)
		assert.False(t, first.Borrowed)
		assert.GreaterOrEqual(t, second.at, 1100*time.Millisecond, "80 units are in the group, so a loan must wait for 1.2 s")
		assert.Less(t, second.at, 1500*time.Millisecond)

		require.True(t, must.Get(s.Take(t.Context(), "b", 20)).Allowed)
		for _, c := range []struct {
			tenant   string
			n        int64
			patience time.Duration
			err      error
		}{{"stranger", 71, time.Hour, engine.ErrNever}, {"stranger", 70, time.Second, engine.ErrDeadline}, {"stranger", -1, time.Second, engine.ErrNever}, {"a", 5, 0, engine.ErrDeadline}} {
			r, err := s.Acquire(t.Context(), c.tenant, c.n, c.patience)
			assert.ErrorIs(t, err, c.err, "%+v", c)
			assert.False(t, r.Allowed)
		}
		stats := s.Stats()
		assert.EqualValues(t, 5, stats.Refused, "each call must be counted once")
		assert.EqualValues(t, 5, stats.Guaranteed+stats.Borrowed)
	})
}

// Calls that do not wait borrow nothing meanwhile, and have their guarantees.
//
// Promise: While a call of fleet.Shares waits for the group on a server, calls there that do not wait do not borrow.
func TestNoLoanPassesTheLineOfAServer(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		s := openShares(t, tenantsOf(on(redis, nil)))
		require.True(t, must.Get(s.Take(t.Context(), "stranger", 40)).Allowed)
		results := acquireAll(t, s, 50, "stranger")
		look := must.Get(s.Take(t.Context(), "other", 1))
		assert.False(t, look.Allowed, "a call that does not wait must not borrow, although 30 units are left")
		assert.Equal(t, askAgain, look.RetryAfter)
		assert.False(t, look.Exact())
		assert.Equal(t, policy.Never, must.Get(s.Take(t.Context(), "other", 71)).RetryAfter)
		assert.True(t, must.Get(s.Take(t.Context(), "a", 1)).Allowed)
		r := <-results
		require.NoError(t, r.err)
		assert.Less(t, r.at, 3*time.Second)
		time.Sleep(time.Second)
		assert.True(t, must.Get(s.Take(t.Context(), "other", 1)).Allowed)

		// A call that its ceiling holds does not keep others from borrowing.
		time.Sleep(time.Minute)
		require.True(t, must.Get(s.Take(t.Context(), "c", 5)).Allowed)
		results = acquireAll(t, s, 1, "c")
		assert.True(t, must.Get(s.Take(t.Context(), "other", 1)).Borrowed)
		require.NoError(t, (<-results).err)
	})
}

func TestWaitForSharesEnds(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		c := tenantsOf(on(redis, nil))
		c.Config.MaxWaiting = 1
		s := must.Get(NewShares(c))
		eventually(t, func() bool { return s.Health() == nil }, "Redis is there")
		require.True(t, must.Get(s.Take(t.Context(), "stranger", 70)).Allowed)
		ctx, cancel := context.WithCancel(t.Context())
		errs := make(chan error)
		wait := func(ctx context.Context) {
			_, err := s.Acquire(ctx, "stranger", 10, time.Hour)
			errs <- err
		}
		go wait(ctx)
		synctest.Wait()
		_, err := s.Acquire(t.Context(), "stranger", 1, time.Hour)
		assert.ErrorIs(t, err, engine.ErrCrowded)
		cancel()
		assert.ErrorIs(t, <-errs, engine.ErrCancelled)
		assert.Zero(t, s.waiting.Load(), "others must borrow again")
		go wait(t.Context())
		synctest.Wait()
		assert.EqualValues(t, 1, s.waiting.Load())
		assert.Equal(t, 1, s.Stats().Waiting)
		require.NoError(t, s.Close())
		assert.ErrorIs(t, <-errs, engine.ErrClosed)
	})
}

// Promise: Adapters take fleet.Shares as any limiter: they show the tenant's guarantee, and settle a grant with its real units.
func TestSharesOverAFleetAreALimiter(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		s := openShares(t, tenantsOf(on(redis, nil)))
		var l limits.Limiter[string] = s
		assert.Equal(t, "funnel 10, 1/s", l.LimitFor("a").String())
		assert.Equal(t, "funnel 70, 10/s", l.LimitFor("stranger").String())
		a, err := l.Admit(t.Context(), "a", 4)
		require.NoError(t, err)
		assert.Equal(t, []int64{10, 6}, []int64{a.Limit, a.Remaining})
		hold := func(tenant string, n, used int64) {
			t.Helper()
			g, err := l.Hold(t.Context(), limits.Call[string]{Key: tenant, N: n, Patience: time.Minute})
			require.NoError(t, err)
			require.True(t, g.Allowed)
			require.NoError(t, g.Settle(t.Context(), used))
		}
		hold("a", 6, 1)
		assert.EqualValues(t, 5, must.Get(s.Take(t.Context(), "a", 0)).Remaining)
		hold("a", 1, 4)
		assert.EqualValues(t, 1, must.Get(s.Take(t.Context(), "a", 0)).Remaining)
		hold("c", 2, 4)
		assert.Equal(t, time.Second, must.Get(s.Take(t.Context(), "c", 2)).RetryAfter, "the ceiling has 1 unit left, so 2 must wait for a second")
		assert.EqualValues(t, 13, s.Stats().Used)
		g, err := l.Hold(t.Context(), limits.Call[string]{Key: "a", N: 1, Limit: funnel(1, 1, time.Second)})
		require.NoError(t, err)
		assert.Equal(t, policy.Never, g.RetryAfter)
		assert.ErrorContains(t, g.Err(), "none can come with the call")
		x, err := limits.Explain(t.Context(), l, "a")
		require.NoError(t, err)
		assert.Len(t, x.Each, 2)
	})
}
