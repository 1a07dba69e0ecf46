package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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
	keep(1500, 1234+1222) // more came back before
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
func TestLogInProcess(t *testing.T) {
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
