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
	"github.com/ral-limiter/ral/internal/testkit/seeds"
	"github.com/ral-limiter/ral/policy"
)

// Calls take, some for a later turn, and return all or a part in any order, before or after they
// start. The used units never exceed the limit, counted when each call starts.
// Promise: Returns in any order admit nothing beyond the limit.
func TestGivenBackInAnyOrderAdmitsNoMore(t *testing.T) {
	seed := seeds.Of(t)
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
			of := p.(shape.Shaped).Shape()
			var clock int64 = 1_000_000
			s := clocked(t, client, &clock)
			l, key := limit(t, s, p), fmt.Sprint(i)
			type use struct {
				store.Taken
				n, units int64 // taken and used
				start    uint64
			}
			var uses []use
			var open []int // uses that may still return
			for range 8 * oracleSteps {
				switch random.IntN(20) {
				case 0:
					clock += random.Int64N(15_000)
				case 1, 2, 3, 4:
					clock += random.Int64N(2000)
				}
				if at := len(open) - 1 - random.IntN(30); at >= max(len(open)-8, 0) { // a recent use
					u := &uses[open[at]]
					clock++ // Redis's clock advances between scripts
					u.units = max(random.Int64N(2*u.n)-u.n, 0)
					_, err := s.Keep(context.Background(), l, key, u.Taken, u.n, u.units)
					if !assert.NoError(t, err) {
						return
					}
					open = append(open[:at], open[at+1:]...)
					continue
				}
				n := 1 + random.Int64N(min(of.Capacity+1, 5))
				took, err := s.Take(context.Background(), l, key, n, time.Duration(max(random.Int64N(30)-20, 0))*time.Millisecond)
				if !assert.NoError(t, err) {
					return
				}
				if took.Allowed {
					open = append(open, len(uses))
					uses = append(uses, use{took, n, n, uint64(took.At+policy.Instant(took.Wait)) * 16})
				}
			}
			slices.SortStableFunc(uses, func(a, b use) int { return cmp.Compare(a.start, b.start) })
			var drained uint64 // of a bucket of the used units
			for _, u := range uses {
				drained = max(drained, u.start)
				before := drained
				if drained += uint64(u.units) * of.Interval; u.units == 0 {
					continue
				}
				most := drained
				if of.Kind == shape.Bursty { // the last may be owed
					most = before
				}
				if !assert.LessOrEqual(t, most-u.start, of.Depth, "%v, seed %d of %d, at %d", p, seed, i, u.start) {
					return
				}
			}
			assert.Greater(t, len(uses), oracleSteps, "%v", p)
		})
	}
	group.Wait()
}

// Void words are not kept.
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
				assert.Zero(t, integer(t, client, "EXISTS", name(t, s, l, "k")), what)
			}
		})
	}
}
