package store_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/fleet/internal/store"
	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/internal/testkit/seeds"
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

func TestTakeAll(t *testing.T) {
	client := connect(t, shared)
	var group sync.WaitGroup
	for i := range uint64(24) {
		group.Go(func() {
			seed := seeds.Of(t) + i
			random := rand.New(rand.NewPCG(seed, 1))
			var clock int64
			s := clocked(t, client, &clock)
			policies := wordPolicies()
			words := make([]uint64, len(policies))
			log := &logModel{limit: 6, per: int64(time.Second)}
			logLimit, err := s.Limit(newLog(t, log.limit, time.Duration(log.per)))
			if !assert.NoError(t, err) {
				return
			}
			var limits []*store.Limit
			for _, p := range policies {
				l, _ := s.Limit(p)
				limits = append(limits, l)
			}
			for step := range 150 {
				clock += random.Int64N(400_000)
				now := policy.Instant(clock) * 1000
				units := func() int64 { return []int64{1, 1, 1, 2, 3, 5, 7, 0, 0, 0, -1, 11, math.MaxInt64}[random.IntN(13)] }
				var asks []store.Ask
				var want []policy.Decision
				var before, after []uint64 // expected
				pending := map[int]uint64{}
				allowed, claims := true, []int{}
				for range 1 + random.IntN(4) {
					i, n := random.IntN(len(policies)), units() // may repeat
					word, twice := pending[i]
					if !twice {
						word = words[i]
					}
					next, d := policies[i].Take(word, now, n, 0)
					if d.Wait > 0 { // a queue that would make it wait
						_, standing := policies[i].Take(word, now, 0, 0)
						standing.Allowed, standing.RetryAfter = false, d.Wait
						next, d = word, standing
					}
					pending[i] = next
					asks, claims, want = append(asks, store.Ask{Limit: limits[i], Key: "k", N: n}), append(claims, i), append(want, d)
					before, after = append(before, word), append(after, next)
					allowed = allowed && d.Allowed
				}
				withLog := random.IntN(2) == 0
				copied := *log
				if withLog {
					n := units()
					asks = append(asks, store.Ask{Limit: logLimit, Key: "k", N: n})
					d := log.take(int64(now), n, 0)
					want, claims = append(want, d), append(claims, -1)
					before, after = append(before, 0), append(after, 0)
					allowed = allowed && d.Allowed
				}
				if allowed {
					for i, word := range pending {
						words[i] = word
					}
				} else {
					*log = copied
					for j, i := range claims {
						if !want[j].Allowed {
							continue
						}
						if after[j] = before[j]; i >= 0 { // nothing was taken
							before[j], after[j] = words[i], words[i]
							_, want[j] = policies[i].Take(words[i], now, 0, 0)
						} else {
							want[j] = log.take(int64(now), 0, 0)
						}
					}
				}
				at := fmt.Sprintf("seed %d, step %d, claims %v, %v", seed, step, claims, asks)
				got, err := s.TakeAll(context.Background(), asks)
				if !assert.NoError(t, err, at) || !assert.Len(t, got, len(want), at) {
					return
				}
				for j := range want {
					if !assert.Equal(t, want[j], got[j].Decision, "%s: claim %d", at, j) {
						return
					}
					if claims[j] >= 0 && (!assert.Equal(t, before[j], got[j].Before, at) || !assert.Equal(t, after[j], got[j].After, at)) {
						return
					}
				}
			}
			for i, word := range words {
				if word != 0 {
					assert.Equal(t, strconv.FormatUint(word, 10), get(t, client, name(t, s, limits[i], "k")), "seed %d", seed)
				}
			}
		})
	}
	group.Wait()
}

// Both takes are charged, if both fit.
func TestTakeAllOfALogTwice(t *testing.T) {
	var clock int64
	s := clocked(t, connect(t, shared), &clock)
	ctx := context.Background()
	l := limit(t, s, newLog(t, 5, time.Second))
	a := func(n int64) store.Ask { return store.Ask{Limit: l, Key: "a", N: n} }
	all, err := s.TakeAll(ctx, []store.Ask{a(1), {Limit: l, Key: "b", N: 1}, a(1), a(0), a(1), a(0)})
	require.NoError(t, err)
	var left []int64
	for _, d := range all {
		assert.True(t, d.Allowed)
		left = append(left, d.Remaining)
	}
	assert.Equal(t, []int64{4, 4, 3, 3, 2, 2}, left, "each knows of those before it")

	clock = 600_000
	for n, wait := range map[int64]time.Duration{
		2:             400 * time.Millisecond, // one fits, two do not
		3:             policy.Never,           // nor ever
		math.MaxInt64: policy.Never,
	} {
		all, err = s.TakeAll(ctx, []store.Ask{a(n), a(n)})
		require.NoError(t, err)
		assert.False(t, all[1].Allowed)
		assert.Equal(t, wait, all[1].RetryAfter)
		assert.EqualValues(t, 2, all[1].Remaining)
	}
	d, err := s.Peek(ctx, l, "a")
	require.NoError(t, err)
	assert.EqualValues(t, 2, d.Remaining, "nothing was taken")
	all, err = s.TakeAll(ctx, []store.Ask{a(0), a(0)})
	require.NoError(t, err)
	assert.True(t, all[0].Allowed && all[1].Allowed)
	all, err = s.TakeAll(ctx, nil)
	assert.NoError(t, err)
	assert.Empty(t, all)

	// Together they make larger entries than alone.
	many := store.Ask{Limit: limit(t, s, newLog(t, 100, time.Second)), Key: "many", N: 17}
	all, err = s.TakeAll(ctx, []store.Ask{many, many, many})
	require.NoError(t, err)
	assert.EqualValues(t, 49, all[2].Remaining)
	d, err = s.Peek(ctx, many.Limit, "many")
	require.NoError(t, err)
	assert.EqualValues(t, 49, d.Remaining)
}

// A lease is like a take of the most units that fit up to Most, or none if fewer than Need fit.
func TestLease(t *testing.T) {
	client := connect(t, shared)
	var group sync.WaitGroup
	policies := []policy.Policy{
		policy.Must(policy.Funnel(10, 7, time.Second)),
		policy.Must(policy.Funnel(100_000, 99_991, time.Second)),
		policy.Must(policy.Funnel(5_000_000, 16_000_000, time.Second)),
		policy.Must(policy.Funnel(3, 1, 24*time.Hour)),
		policy.Must(policy.FixedWindow(1_000_000, time.Minute)),
		policy.Must(policy.FixedWindow(10, time.Second/3)),
		policy.Must(policy.SlidingWindow(10, time.Second)),
		policy.Must(policy.SlidingWindow(8_000_000, time.Hour)),
	}
	any := rand.New(rand.NewPCG(seeds.Of(t), 0))
	for len(policies) < 24 {
		p := anyPolicy(any)
		switch p.(shape.Shaped).Shape().Kind {
		case shape.Funnel, shape.FixedWindow, shape.SlidingWindow:
			policies = append(policies, p)
		}
	}
	for i, p := range policies {
		group.Go(func() {
			seed := seeds.Of(t) + uint64(i)
			random := rand.New(rand.NewPCG(seed, 1))
			var clock int64
			s := clocked(t, client, &clock)
			l, err := s.Limit(p)
			if !assert.NoError(t, err) {
				return
			}
			var words [3]uint64
			_, d := p.Take(0, 1, 0, 0)
			for step := range 120 {
				clock = nextInstant(random, p, clock, words[0], d)
				clock = min(clock, 1<<48)
				now := policy.Instant(clock) * 1000
				var asks []store.LeaseAsk
				for i := range words {
					most := 1 + random.Int64N(min(d.Limit, 1<<22))
					asks = append(asks, store.LeaseAsk{Limit: l, Key: strconv.Itoa(i), Need: 1 + random.Int64N(most), Most: most})
				}
				for i, got := range s.Lease(context.Background(), asks) {
					at := fmt.Sprintf("%v, seed %d, step %d: %+v of word %d at %d", p, seed, step, asks[i], words[i], now)
					if !assert.NoError(t, got.Err, at) {
						return
					}
					granted := asks[i].Most
					if _, d = p.Take(words[i], now, granted, 0); !d.Allowed {
						granted = d.Remaining
					}
					n := granted
					if granted < asks[i].Need {
						granted, n = 0, asks[i].Need
					}
					next, want := p.Take(words[i], now, n, 0)
					if !assert.Equal(t, granted, got.Granted, at) || !assert.Equal(t, want, got.Decision, at) || !assert.Equal(t, next, got.After, at) {
						return
					}
					words[i], d = next, want
				}
			}
			for i, word := range words {
				if word != 0 {
					assert.Equal(t, strconv.FormatUint(word, 10), get(t, client, name(t, s, l, strconv.Itoa(i))), "%v, seed %d", p, seed)
				}
			}
		})
	}
	group.Wait()
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

func TestRefundCancelDelete(t *testing.T) {
	client := connect(t, shared)
	ctx := context.Background()
	for _, p := range wordPolicies() {
		t.Run(p.String(), func(t *testing.T) {
			var clock int64 = 5_000_000
			s := clocked(t, client, &clock)
			l := limit(t, s, p)
			refunder := p.(policy.Refunder)
			word := uint64(0)
			for step := range 60 {
				now := policy.Instant(clock) * 1000
				n := int64(step%4) + 1
				before := word
				taken, err := s.Take(ctx, l, "k", n, math.MaxInt64)
				require.NoError(t, err)
				word, _ = p.Take(word, now, n, math.MaxInt64)
				require.Equal(t, word, taken.After)
				var got store.Taken
				switch step % 5 {
				case 0: // at once
					got, err = s.Cancel(ctx, l, "k", taken, n)
					word = before
				case 1: // after another take
					word, _ = p.Take(word, now, 1, math.MaxInt64)
					_, err = s.Take(ctx, l, "k", 1, math.MaxInt64)
					require.NoError(t, err)
					got, err = s.Cancel(ctx, l, "k", taken, n)
					word = min(refunder.Cancel(word, taken.After, taken.At, now, n, math.MaxInt64), withoutTake(p, word, taken, now, n))
				case 2:
					got, err = s.Refund(ctx, l, "k", n+1)
					word = refunder.Refund(word, now, n+1)
				case 3:
					got, err = s.Refund(ctx, l, "k", -n)
					word = refunder.Refund(word, now, -n)
				default:
					there, failed := s.Delete(ctx, l, "k")
					require.NoError(t, failed)
					require.True(t, there)
					there, failed = s.Delete(ctx, l, "k")
					require.NoError(t, failed)
					require.False(t, there)
					word = 0
					got, err = s.Peek(ctx, l, "k")
				}
				require.NoError(t, err)
				_, want := p.Take(word, now, 0, 0)
				require.Equal(t, want, got.Decision, "step %d", step)
				peeked, err := s.Peek(ctx, l, "k")
				require.NoError(t, err)
				require.Equal(t, want, peeked.Decision, "step %d", step)
				clock += int64(step) * 20_000
			}
		})
	}
}

func TestLimitRefusesPolicies(t *testing.T) {
	s := store.New(connect(t, shared), store.Options{Name: own(t)})
	for _, p := range []policy.Policy{
		nil,
		policy.Must(policy.AtMost(10, time.Second)),
		policy.Must(policy.WarmingUp(10, time.Second, time.Second, 3)),
		policy.Must(policy.SlidingWindow(10, time.Second/3)),
		policy.Must(policy.SlidingWindow(10, 999*time.Microsecond)),
		struct{ policy.Policy }{policy.Must(policy.Funnel(1, 1, 1))},
	} {
		_, err := s.Limit(p)
		var field *policy.FieldError
		if assert.ErrorAs(t, err, &field, "%v", p) {
			assert.Equal(t, "Policy", field.Field)
		}
	}
}

// The longest windows count more bits than a script's number. Charges stop there, and returns are
// exact from there.
func TestLongestAlignedWindowIsCountedExactly(t *testing.T) {
	const most, counted = 1 << 52, 1<<53 - 1
	ctx := context.Background()
	s := store.New(connect(t, shared), store.Options{Name: own(t)})
	l := limit(t, s, aligned(most, 366*24*time.Hour))
	taken, err := s.Take(ctx, l, "k", most, 0)
	require.NoError(t, err)
	require.True(t, taken.Allowed)
	for range 3 {
		_, err = s.Refund(ctx, l, "k", math.MinInt64)
		require.NoError(t, err)
	}
	for _, c := range []struct{ back, left int64 }{{counted - most, 0}, {1, 1}, {most - 2, most - 1}, {1, most}} {
		taken, err = s.Refund(ctx, l, "k", c.back)
		require.NoError(t, err)
		assert.Equal(t, c.left, taken.Remaining)
	}
	_, err = s.Limit(aligned(most+1, 366*24*time.Hour))
	assert.ErrorContains(t, err, "at most 4503599627370496 units")
}
