package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/fleet/internal/redistest"
	"github.com/ral-limiter/ral/fleet/internal/slidinglog"
	"github.com/ral-limiter/ral/fleet/internal/store"
	"github.com/ral-limiter/ral/internal/testkit/must"
)

// No script on a log runs more than some hundred commands, for any number of units.
// Promise: `SlidingLog` calls run at most a few hundred commands.
func TestLogScriptsAreShort(t *testing.T) {
	const most = 300
	redis := redistest.Start(t, redistest.Options{})
	client := redis.Client(t)
	var clock int64 = 1e12
	s := clocked(t, client, &clock)
	l := limit(t, s, newLog(t, slidinglog.Most, time.Second))
	key := name(t, s, l, "k")
	ctx := context.Background()
	entries := func() int64 { return integer(t, client, "ZCARD", key) }
	var last store.Taken
	work := func() (n int64) {
		for name, calls := range commands(t, redis) {
			if name != "info" {
				n += calls
			}
		}
		return n
	}
	does := func(what string, do func() (store.Taken, error)) {
		t.Helper()
		before := work()
		taken, err := do()
		require.NoError(t, err, what)
		assert.LessOrEqual(t, work()-before, int64(most), what)
		last = taken
	}
	take := func(n int64) func() (store.Taken, error) {
		return func() (store.Taken, error) { return s.Take(ctx, l, "k", n, 0) }
	}
	refund := func(n int64) func() (store.Taken, error) {
		return func() (store.Taken, error) { return s.Refund(ctx, l, "k", n) }
	}
	later := func() { clock += 1_000_000 }
	singles := func(n int) {
		for range n {
			clock++
			must.Get(s.Take(ctx, l, "k", 1, 0))
		}
	}
	_, err := s.Take(ctx, l, "other", 1, 0) // loads the scripts
	require.NoError(t, err)
	must.Get(s.Refund(ctx, l, "other", 1))

	does("take all", take(slidinglog.Most))
	assert.LessOrEqual(t, entries(), int64(46))
	require.True(t, last.Allowed)
	all := last
	does("refused", take(1))
	require.False(t, last.Allowed)
	does("cancel all", func() (store.Taken, error) { return s.Cancel(ctx, l, "k", all, slidinglog.Most) })
	require.EqualValues(t, slidinglog.Most, last.Remaining)
	assert.Zero(t, entries())
	does("take the most entries", take(9999))
	later()
	does("the same, when those leave", take(9999))
	require.True(t, last.Allowed)
	does("charge as much again", refund(-20_000))
	does("a bit back", refund(1))
	does("all back", refund(20_000))
	require.EqualValues(t, slidinglog.Most, last.Remaining)

	singles(5000)
	clock++
	does("some more", take(4321))
	require.True(t, last.Allowed)
	does("refused by entries of all sizes", take(777))
	require.False(t, last.Allowed)
	does("half of it back", refund(7000))
	require.EqualValues(t, slidinglog.Most-2321, last.Remaining)
	later()
	// Expired entries go gradually, faster than new ones come.
	before := entries()
	rounds := before/128 + 1
	for i := range rounds {
		does("when all leave", take(1))
		assert.GreaterOrEqual(t, entries(), before-128*(i+1), "a script forgot too many")
	}
	assert.Equal(t, rounds, entries(), "entries that no longer count stay")

	// Single units make the most entries.
	later()
	singles(slidinglog.Most)
	require.GreaterOrEqual(t, entries(), int64(slidinglog.Most))
	does("nearly all single units back", refund(slidinglog.Most-1))
	require.EqualValues(t, slidinglog.Most-1, last.Remaining)
	does("the last one back", refund(1))
	require.EqualValues(t, slidinglog.Most, last.Remaining)
}
