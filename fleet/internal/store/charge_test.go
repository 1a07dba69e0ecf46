package store_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/fleet/internal/redistest"
	"github.com/ral-limiter/ral/fleet/internal/store"
	"github.com/ral-limiter/ral/policy"
)

// One command charges any number of keys, with a second if Redis lacks the script. A log, and a
// hidden cluster, needs one for each key.
func TestChargingIsOneCommand(t *testing.T) {
	redis := redistest.Start(t, redistest.Options{})
	client := redis.Client(t)
	s := store.New(client, store.Options{Name: "n"})
	debts := make([]store.Debt, 64)
	for i := range debts {
		debts[i] = store.Debt{Tail: store.Tail(strconv.Itoa(i)), Units: int64(i%7) + 1}
	}
	scripts := func() int64 {
		all := commands(t, redis, "eval", "evalsha")
		return all["eval"] + all["evalsha"]
	}
	for _, c := range []struct {
		p    policy.Policy
		want int64
	}{
		{policy.Must(policy.Funnel(100, 1, time.Hour)), 1},
		{policy.Must(policy.FixedWindow(100, time.Hour)), 1},
		{policy.Must(policy.SlidingWindow(100, time.Hour)), 1},
		{newLog(t, 100, time.Hour), 64},
	} {
		l := limit(t, s, c.p)
		require.Equal(t, make([]error, len(debts)), s.ChargeEach(t.Context(), l, debts))
		before := scripts()
		require.Equal(t, make([]error, len(debts)), s.ChargeEach(t.Context(), l, debts))
		require.Equal(t, c.want, scripts()-before, c.p)
		got, err := s.Peek(t.Context(), l, "6")
		require.NoError(t, err)
		require.EqualValues(t, c.p.Limit()-14, got.Remaining, c.p)
	}
	require.Empty(t, s.ChargeEach(t.Context(), limit(t, s, policy.Must(policy.Funnel(1, 1, time.Second))), nil))

	redis.Do(t, "CONFIG", "SET", "maxmemory", "1kb")
	l := limit(t, s, policy.Must(policy.Funnel(100, 1, time.Hour)))
	for _, err := range s.ChargeEach(t.Context(), l, debts) {
		require.ErrorIs(t, err, store.ErrFull)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, err := range s.ChargeEach(ended, l, debts) {
		require.ErrorIs(t, err, store.ErrAsking)
	}
}
