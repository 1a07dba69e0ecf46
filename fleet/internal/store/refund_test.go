package store_test

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/fleet/internal/store"
	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/internal/testkit/testenv"
	"github.com/ral-limiter/ral/policy"
)

// Calls take, some for a later turn, and return all or a part in any order, before or after they
// start. The used units never exceed the limit, counted when each call starts.
// Promise: Returns in any order admit nothing beyond the limit.
func TestGivenBackInAnyOrderAdmitsNoMore(t *testing.T) {
	seed := testenv.Seed(t)
	client := connect(t, shared)
	var group sync.WaitGroup
	policies := []policy.Policy{
		policy.Must(policy.Funnel(1, 1, time.Millisecond)), policy.Must(policy.Funnel(5, 1, time.Millisecond)),
		policy.Must(policy.Funnel(20, 7, time.Millisecond)), policy.Must(policy.Bursty(1, time.Millisecond, 0)),
		policy.Must(policy.Bursty(3, time.Millisecond, 5)), policy.Must(policy.Bursty(1, time.Millisecond, 20)),
	}
	for i := range 4 * len(policies) {
		group.Go(func() {
			p, random := policies[i/4], rand.New(rand.NewPCG(seed, uint64(i)+1))
			form := p.(shape.Shaped).Shape()
			var clock int64 = 1_000_000
			s := clocked(t, client, &clock)
			l, key := limit(t, s, p), fmt.Sprint(i)
			type use struct {
				store.Taken
				// n is the taken units, and units is the used units.
				n, units int64
				start    uint64
			}
			var uses []use
			// open has the uses that may still return.
			var open []int
			for range 8 * oracleSteps {
				switch random.IntN(20) {
				case 0:
					clock += random.Int64N(15_000)
				case 1, 2, 3, 4:
					clock += random.Int64N(2000)
				}
				// The use is recent.
				if index := len(open) - 1 - random.IntN(30); index >= max(len(open)-8, 0) {
					u := &uses[open[index]]
					// Redis's clock advances between scripts.
					clock++
					u.units = max(random.Int64N(2*u.n)-u.n, 0)
					_, err := s.Keep(context.Background(), l, key, u.Taken, u.n, u.units)
					if !assert.NoError(t, err) {
						return
					}
					open = append(open[:index], open[index+1:]...)
					continue
				}
				n := 1 + random.Int64N(min(form.Capacity+1, 5))
				took, err := s.TakeOne(context.Background(), store.TakeAsk{
					Limit: l, Key: key, N: n, Patience: time.Duration(max(random.Int64N(30)-20, 0)) * time.Millisecond,
					Returns: random.IntN(4) > 0,
				})
				if !assert.NoError(t, err) {
					return
				}
				if took.Allowed {
					open = append(open, len(uses))
					uses = append(uses, use{took, n, n, uint64(took.At+policy.Instant(took.Wait)) * 16})
				}
			}
			slices.SortStableFunc(uses, func(a, b use) int { return cmp.Compare(a.start, b.start) })
			// drained is the level of a bucket of the used units.
			var drained uint64
			for _, u := range uses {
				drained = max(drained, u.start)
				before := drained
				if drained += uint64(u.units) * form.Interval; u.units == 0 {
					continue
				}
				most := drained
				// The last use may be owed.
				if form.Kind == shape.Bursty {
					most = before
				}
				if !assert.LessOrEqual(t, most-u.start, form.Depth, "%v, seed %d of %d, at %d", p, seed, i, u.start) {
					return
				}
			}
			assert.Greater(t, len(uses), oracleSteps, "%v", p)
		})
	}
	group.Wait()
}

// A take that waits for a later window keeps a part. The kept unit counts in that window, although a
// take of one unit would have had its turn at once.
func TestPartOfATakeHasItsTurn(t *testing.T) {
	client := connect(t, shared)
	for _, p := range []policy.Policy{
		policy.Must(policy.FixedWindow(10, time.Second)), policy.Must(policy.SlidingWindow(10, time.Second)), aligned(10, time.Second),
	} {
		var clock int64 = 5_000_000
		s := clocked(t, client, &clock)
		l := limit(t, s, p)
		must.Get(s.Take(t.Context(), l, "k", 9, 0))
		took := must.Get(s.Take(t.Context(), l, "k", 3, math.MaxInt64))
		require.Positive(t, took.Wait, "%v", p)
		sooner, d := p.Take(took.Before, took.At, 1, 0)
		require.True(t, d.Allowed, "%v", p)
		got := must.Get(s.Keep(t.Context(), l, "k", took, 3, 1))
		want := p.(policy.Refunder).Cancel(took.After, took.After, took.At, took.At, 2, 0)
		require.Equal(t, want, got.After, "%v", p)
		require.NotEqual(t, sooner, got.After, "%v", p)
	}
}

// Takes are returned in whole or part, in any order, beside charges and refunds. Each word is as if
// the returned units had never been taken.
// Promise: Over a fleet, a grant settled with 0 leaves no trace under a `Funnel` or `Bursty`.
func TestSettleLeavesNoTrace(t *testing.T) {
	client := connect(t, shared)
	for i, p := range []policy.Policy{
		policy.Must(policy.Funnel(40, 10, time.Second)), policy.Must(policy.Funnel(1000, 1, time.Hour)),
		policy.Must(policy.Bursty(10, time.Second, 40)), policy.Must(policy.Funnel(5000, 999_983, time.Second)),
	} {
		random := rand.New(rand.NewPCG(testenv.Seed(t), uint64(i)))
		// No store is full yet at that instant.
		var clock int64 = 1000
		s := clocked(t, client, &clock)
		l := limit(t, s, p)
		key := name(t, s, l, "k")
		type change struct {
			store.Taken
			// n and kept are of a take, or of a refund of -kept units.
			n, kept int64
			open    bool
		}
		var all []change
		word := func() (word uint64) {
			for _, c := range all {
				if c.n == 0 {
					word = p.(policy.Refunder).Refund(word, c.At, -c.kept)
				} else if c.kept > 0 {
					word, _ = p.Take(word, c.At, c.kept, 0)
				}
			}
			return word
		}
		settled := 0
		settle := func(c *change, kept int64) {
			before := c.kept
			want := must.Get(s.Peek(t.Context(), l, "k")).Remaining
			got := must.Get(s.Keep(t.Context(), l, "k", c.Taken, c.n, kept))
			c.kept, c.open = kept, false
			if kept < before {
				settled++
			}
			require.GreaterOrEqual(t, got.Remaining, want, "%v", p)
			if p.FreshAt(max(word(), got.After)) > got.At {
				require.Equal(t, word(), got.After, "%v: %d of %d kept", p, kept, c.n)
			}
		}
		for range 4 * oracleSteps {
			// Redis's clock advances between scripts.
			if clock++; random.IntN(3) == 0 {
				clock += random.Int64N(300_000)
			}
			switch n := 1 + random.Int64N(p.Limit()/4%50+1); random.IntN(12) {
			case 0, 1, 2, 3:
				took := must.Get(s.TakeOne(t.Context(), store.TakeAsk{Limit: l, Key: "k", N: n, Returns: true}))
				if took.Allowed {
					all = append(all, change{took, n, n, true})
				}
			case 4:
				n *= []int64{1, -1}[random.IntN(2)]
				t := must.Get(s.Refund(t.Context(), l, "k", n))
				all = append(all, change{store.Taken{At: t.At}, 0, -n, false})
			default:
				if at := len(all) - 1 - random.IntN(60); at >= 0 && all[at].open {
					settle(&all[at], random.Int64N(all[at].n+1))
				}
			}
			require.LessOrEqual(t, integer(t, client, "STRLEN", key+":takes"), int64(160*56+16))
		}
		// The log holds these takes.
		for i := max(len(all)-100, 0); i < len(all); i++ {
			if clock++; all[i].open {
				settle(&all[i], 0)
			}
		}
		require.Greater(t, settled, oracleSteps/4, "%v", p)
	}
}

// A log of takes holds 160, and ends with its word or its last take that can return. What it has
// forgotten comes back as without it.
func TestLogOfTakesIsBounded(t *testing.T) {
	// 240 forgotten takes lose that many units if they come back within half a minute.
	const lost = 2
	client := connect(t, shared)
	s := store.New(client, store.Options{Name: own(t)})
	l := limit(t, s, policy.Must(policy.Funnel(100_000, 1, time.Hour)))
	key := name(t, s, l, "k")
	var all []store.Taken
	for range 400 {
		all = append(all, must.Get(s.TakeOne(t.Context(), store.TakeAsk{Limit: l, Key: "k", N: 100, Returns: true})))
		require.LessOrEqual(t, integer(t, client, "STRLEN", key+":takes"), int64(160*56+16))
		require.Equal(t, integer(t, client, "PEXPIRETIME", key), integer(t, client, "PEXPIRETIME", key+":takes"))
	}
	for i, took := range all {
		got := must.Get(s.Cancel(t.Context(), l, "k", took, 100))
		require.GreaterOrEqual(t, got.Remaining, 100_000-100*int64(len(all)-i)-lost, "%d", i)
	}
	left := must.Get(s.Peek(t.Context(), l, "k"))
	require.GreaterOrEqual(t, left.Remaining, int64(100_000-lost), "each lost what would have drained since")
	require.Zero(t, integer(t, client, "EXISTS", key+":takes"))
	must.Get(s.Take(t.Context(), l, "plain", 100, 0))
	require.Zero(t, integer(t, client, "EXISTS", name(t, s, l, "plain")+":takes"), "a take that cannot return is not noted")
}

// Void words are not kept. A fixed window stays where it opened.
func TestReturnedUnitsAreForgotten(t *testing.T) {
	client := connect(t, shared)
	ctx := context.Background()
	for _, p := range wordPolicies() {
		t.Run(p.String(), func(t *testing.T) {
			var clock int64 = 5_000_000
			s := clocked(t, client, &clock)
			l := limit(t, s, p)
			for what, giveBack := range map[string]func(store.Taken) (store.Taken, error){
				"refund":         func(store.Taken) (store.Taken, error) { return s.Refund(ctx, l, "k", 3) },
				"more than used": func(store.Taken) (store.Taken, error) { return s.Refund(ctx, l, "k", math.MaxInt64) },
				"cancel":         func(taken store.Taken) (store.Taken, error) { return s.Cancel(ctx, l, "k", taken, 3) },
				"less than none": func(taken store.Taken) (store.Taken, error) { return s.Keep(ctx, l, "k", taken, 3, -1) },
			} {
				taken, err := s.Take(ctx, l, "k", 3, math.MaxInt64)
				require.NoError(t, err)
				require.True(t, taken.Allowed)
				require.EqualValues(t, 1, integer(t, client, "EXISTS", name(t, s, l, "k")))
				d, err := giveBack(taken)
				require.NoError(t, err, what)
				assert.Equal(t, d.Limit > 0, d.Remaining > 0, what)
				kept := 0
				if window, ok := p.(policy.Restorer); ok && window.Restore(taken.After, taken.Before, taken.At) != taken.Before {
					kept = 1
				}
				assert.EqualValues(t, kept, integer(t, client, "EXISTS", name(t, s, l, "k")), what)
				clock += int64(48 * time.Hour / time.Microsecond)
			}
		})
	}
}
