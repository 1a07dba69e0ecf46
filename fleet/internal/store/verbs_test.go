package store_test

import (
	"context"
	"math"
	"strconv"
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

// wordPolicies has a policy of each kind with words.
func wordPolicies() []policy.Policy {
	return []policy.Policy{
		policy.Must(policy.Funnel(10, 7, time.Second)),
		policy.Must(policy.Queue(5, 7, time.Second)),
		policy.Must(policy.Bursty(7, time.Second, 3)),
		policy.Must(policy.FixedWindow(10, time.Second)),
		policy.Must(policy.SlidingWindow(10, time.Second)),
		aligned(10, time.Second),
	}
}

// aligned returns an AlignedWindow of the default epoch.
func aligned(limit int64, per time.Duration) policy.Policy {
	return policy.Must(policy.AlignedWindow(limit, per)).(policy.Anchored).Anchor(store.DefaultEpoch)
}

func TestLeaseRefuses(t *testing.T) {
	var clock int64
	s := clocked(t, connect(t, shared), &clock)
	funnel := limit(t, s, policy.Must(policy.Funnel(10, 1, time.Second)))
	queue := limit(t, s, policy.Must(policy.Queue(10, 1, time.Second)))
	log := limit(t, s, newLog(t, 10, time.Second))
	replies := s.Lease(context.Background(), []store.LeaseAsk{
		{Limit: queue, Key: "a", Need: 1, Most: 1},
		{Limit: log, Key: "a", Need: 1, Most: 1},
		{Limit: funnel, Key: "a", Need: 0, Most: 1},
		{Limit: funnel, Key: "a", Need: 11, Most: 20},
		{Limit: funnel, Key: string(make([]byte, 1<<16+1)), Need: 1, Most: 1},
		{Limit: funnel, Key: "a", Need: 1, Most: 20},
	})
	assert.ErrorContains(t, replies[0].Err, "a Funnel, FixedWindow or SlidingWindow")
	assert.ErrorContains(t, replies[1].Err, "a Funnel, FixedWindow or SlidingWindow")
	assert.ErrorContains(t, replies[2].Err, "Need is 0, want between 1 and 1")
	assert.ErrorContains(t, replies[3].Err, "Need is 11, want between 1 and 10")
	assert.ErrorIs(t, replies[4].Err, store.ErrKeyTooLong)
	require.NoError(t, replies[5].Err)
	assert.EqualValues(t, 10, replies[5].Granted)
}

func TestLimitRefusesPolicies(t *testing.T) {
	s := store.New(connect(t, shared), store.Options{Name: own(t)})
	for _, p := range []policy.Policy{
		nil,
		policy.Must(policy.AtMost(10, time.Second)),
		policy.Must(policy.WarmingUp(10, time.Second, time.Second, 3)),
		policy.Must(policy.SlidingWindow(10, time.Second/3)),
		policy.Must(policy.SlidingWindow(10, 999*time.Microsecond)),
		struct{ policy.Policy }{policy.Must(policy.Funnel(1, 1, time.Second))},
	} {
		_, err := s.Limit(p)
		var field *policy.FieldError
		if assert.ErrorAs(t, err, &field, "%v", p) {
			assert.Equal(t, "Policy", field.Field)
		}
	}
}

// Promise: Redis counts the longest aligned windows exactly.
func TestLongestAlignedWindowIsCountedExactly(t *testing.T) {
	const most, counted = 1 << 52, 1<<53 - 1
	ctx := context.Background()
	s := store.New(connect(t, shared), store.Options{Name: own(t)})
	l := limit(t, s, aligned(most, 366*24*time.Hour))
	taken := must.Get(s.Take(ctx, l, "k", most, 0))
	require.True(t, taken.Allowed)
	for range 3 {
		must.Get(s.Refund(ctx, l, "k", math.MinInt64))
	}
	for _, c := range []struct{ back, left int64 }{{counted - most, 0}, {1, 1}, {most - 2, most - 1}, {1, most}} {
		taken = must.Get(s.Refund(ctx, l, "k", c.back))
		assert.Equal(t, c.left, taken.Remaining)
	}
	_, err := s.Limit(aligned(most+1, 366*24*time.Hour))
	assert.ErrorContains(t, err, "at most 4503599627370496 units")
	_, err = s.Limit(policy.Must(policy.FixedWindow(1_000_001, time.Minute)))
	assert.ErrorContains(t, err, "a window of at most 1000000 units, or an aligned window of more")
}

func TestRewriteAllGoesOnPastForeignValues(t *testing.T) {
	ctx, client, clock := context.Background(), connect(t, shared), int64(1_000_000)
	s := clocked(t, client, &clock)
	l := limit(t, s, policy.Must(policy.FixedWindow(10, time.Second)))
	refund := func(word uint64, now policy.Instant) uint64 { return l.Policy().(policy.Refunder).Refund(word, now, 2) }
	must.Get(s.Take(ctx, l, "good", 8, 0))
	all := []store.Rewrite{{Tail: store.Tail("bad"), Next: refund}, {Tail: store.Tail("good"), Next: refund}}
	put(t, client, name(t, s, l, "bad"), "nonsense")
	assert.ErrorIs(t, s.RewriteAll(ctx, l, all, 0), store.ErrForeignValue)
	assert.Equal(t, "nonsense", get(t, client, name(t, s, l, "bad")))
	d := must.Get(s.Peek(ctx, l, "good"))
	assert.EqualValues(t, 4, d.Remaining, "the others are rewritten all the same")

	log := policy.Must(slidinglog.New(5, time.Second))
	var field *policy.FieldError
	assert.ErrorAs(t, s.RewriteAll(ctx, limit(t, s, log), all, 0), &field)
}

// A word computed too long ago is not written: its base may have recurred.
func TestRewriteAllComesInTimeOrNotAtAll(t *testing.T) {
	ctx, clock := context.Background(), int64(1_000_000)
	s := clocked(t, connect(t, shared), &clock)
	l := limit(t, s, policy.Must(policy.Funnel(10, 1, time.Second)))
	for _, late := range []int64{10_000, 10_001} {
		must.Get(s.Take(ctx, l, "key", 5, 0))
		called := 0
		err := s.RewriteAll(ctx, l, []store.Rewrite{{Tail: store.Tail("key"), Next: func(word uint64, now policy.Instant) uint64 {
			called++
			clock += late
			return l.Policy().(policy.Refunder).Refund(word, now, 5)
		}}}, 10*time.Millisecond)
		d, peeked := s.Peek(ctx, l, "key")
		require.NoError(t, peeked)
		if late == 10_000 {
			assert.NoError(t, err)
			assert.Equal(t, 1, called)
			assert.EqualValues(t, 10, d.Remaining)
		} else {
			assert.ErrorIs(t, err, store.ErrContended)
			assert.Greater(t, called, 1)
			assert.EqualValues(t, 5, d.Remaining)
		}
	}
}

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

func TestChargeTellsTheExcess(t *testing.T) {
	s := store.New(connect(t, shared), store.Options{Name: own(t)})
	for _, p := range []policy.Policy{
		policy.Must(policy.Funnel(10, 1, time.Hour)), policy.Must(policy.FixedWindow(10, time.Hour)),
		policy.Must(policy.SlidingWindow(10, time.Hour)), newLog(t, 10, time.Hour),
	} {
		l, used := limit(t, s, p), int64(0)
		for _, units := range []int64{7, 3, 2, 5} {
			debts := []store.Debt{{Tail: store.Tail("a"), Units: units}}
			require.Equal(t, []error{nil}, s.ChargeEach(t.Context(), l, debts))
			used += units
			require.Equal(t, min(max(used-10, 0), units), debts[0].Excess, "%v, %d used", p, used)
		}
	}
	l := limit(t, s, policy.Must(policy.Bursty(1, time.Hour, 9)))
	debts := []store.Debt{{Tail: store.Tail("a"), Units: 20}}
	require.Equal(t, []error{nil}, s.ChargeEach(t.Context(), l, debts))
	require.Zero(t, debts[0].Excess, "they are on credit")
}

// MGET shows a key of another type like a key without a value.
// Promise: A charge leaves values of any other type as they are, and charges the other keys.
func TestChargeLeavesOtherTypes(t *testing.T) {
	client := connect(t, shared)
	s := store.New(client, store.Options{Name: own(t)})
	for _, p := range []policy.Policy{policy.Must(policy.Funnel(10, 1, time.Hour)), policy.Must(policy.FixedWindow(10, time.Hour))} {
		l := limit(t, s, p)
		list := name(t, s, l, "list")
		require.NoError(t, ask(t, client, "RPUSH", list, "a").Error())
		var debts []store.Debt
		for _, key := range []string{"before", "list", "after"} {
			debts = append(debts, store.Debt{Tail: store.Tail(key), Units: 3})
		}
		errs := s.ChargeEach(t.Context(), l, debts)
		require.NoError(t, errs[0])
		require.ErrorIs(t, errs[1], store.ErrForeignValue)
		require.NoError(t, errs[2])
		require.EqualValues(t, 1, integer(t, client, "LLEN", list))
		for _, key := range []string{"before", "after"} {
			require.EqualValues(t, 7, must.Get(s.Peek(t.Context(), l, key)).Remaining)
		}
	}
}
