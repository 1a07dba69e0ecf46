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
	"github.com/ral-limiter/ral/policy"
)

func newLog(t testing.TB, limit int64, per time.Duration) *slidinglog.Log {
	return must.Get(slidinglog.New(limit, per))
}

// The rest of an entry keeps its time to live, even alone.
func TestRestOfAnEntryLasts(t *testing.T) {
	client := connect(t, shared)
	s := store.New(client, store.Options{Name: own(t)})
	l := limit(t, s, newLog(t, 10_000, time.Hour))
	for what, giveBack := range map[string]func(store.Taken) (store.Taken, error){
		"kept":     func(mine store.Taken) (store.Taken, error) { return s.Keep(t.Context(), l, "k", mine, 1000, 123) },
		"refunded": func(store.Taken) (store.Taken, error) { return s.Refund(t.Context(), l, "k", 877) },
	} {
		mine := must.Get(s.Take(t.Context(), l, "k", 1000, 0))
		require.EqualValues(t, 10_000-123, must.Get(giveBack(mine)).Remaining, what)
		require.Positive(t, integer(t, client, "PTTL", name(t, s, l, "k")), what)
		must.Get(s.Delete(t.Context(), l, "k"))
	}
}

// Of units that a return without a take removed, none come back again, nor any of other takes.
func TestKeepOfALog(t *testing.T) {
	var clock int64 = 1
	s := clocked(t, connect(t, shared), &clock)
	l := limit(t, s, newLog(t, 5000, time.Hour))
	take := func(n int64) store.Taken {
		clock += 10_000
		got := must.Get(s.Take(t.Context(), l, "k", n, 0))
		require.True(t, got.Allowed)
		return got
	}
	take(1234)
	mine, n := take(2222), int64(2222)
	refund := func(units, used int64) {
		t.Helper()
		got := must.Get(s.Refund(t.Context(), l, "k", units))
		require.Equal(t, used, got.Limit-got.Remaining)
	}
	keep := func(kept, used int64) {
		t.Helper()
		got := must.Get(s.Keep(t.Context(), l, "k", mine, n, kept))
		require.Equal(t, used, got.Limit-got.Remaining)
	}
	refund(1000, 1234+1222)
	// More units came back before.
	keep(1500, 1234+1222)
	keep(1000, 1234+1000)
	refund(1000, 1234)
	take(500)
	keep(0, 1234+500)
}

func TestLogRefusesLimitsThatItCannotKeep(t *testing.T) {
	_, err := slidinglog.New(slidinglog.Most+1, time.Hour)
	var field *policy.FieldError
	require.ErrorAs(t, err, &field)
	assert.Equal(t, "SlidingLog", field.Of)
	_, err = slidinglog.New(0, time.Hour)
	assert.EqualError(t, err, "ral: SlidingLog: limit is 0, want 1 or more")
	_, err = slidinglog.New(1, time.Microsecond)
	assert.ErrorContains(t, err, "SlidingLog: per")
}

// Promise: In process a `SlidingLog` is an `AtMost`.
func TestLogInProcessIsAnAtMost(t *testing.T) {
	log, atMost := newLog(t, 10, time.Second), policy.Must(policy.AtMost(10, time.Second))
	word, d := log.Take(0, 1, 3, 0)
	same, want := atMost.Take(0, 1, 3, 0)
	assert.Equal(t, same, word)
	assert.Equal(t, want, d)
	assert.True(t, log.Reads(newLog(t, 5, time.Second)))
	assert.True(t, log.Reads(atMost))
	carried, ok := newLog(t, 10, time.Minute).Carry(log, word, 1)
	assert.True(t, ok)
	assert.NotZero(t, carried)
	assert.Equal(t, time.Second, log.Window())
}

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
	// The call loads the scripts.
	_, err := s.Take(ctx, l, "other", 1, 0)
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
