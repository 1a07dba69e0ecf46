package store_test

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
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

// Returns, charges and cancels change words to the bit like the policy. Void words are not kept.
func TestGivingBackAgreesWithThePolicy(t *testing.T) {
	seed := seeds.Of(t)
	policies := oraclePolicies(seed)
	client := connect(t, shared)
	var group sync.WaitGroup
	for i, p := range policies {
		group.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(i)+1))
			var clock int64
			s := clocked(t, client, &clock)
			l, err := s.Limit(p)
			if !assert.NoError(t, err) {
				return
			}
			redisName, _ := s.Name(l, "k")
			refunder := p.(policy.Refunder)
			type take struct {
				store.Taken
				n int64
			}
			var takes []take // some recent takes, also expired
			var word uint64
			_, hint := p.Take(0, 1, 0, 0)
			for step := range oracleSteps {
				if random.IntN(6) == 0 { // any word may be there
					word = anyWord(random, p, refunder, word, clock)
					put(t, client, redisName, strconv.FormatUint(word, 10))
					_, hint = p.Take(word, policy.Instant(clock)*1000, 0, 0)
				}
				clock = nextInstant(random, p, clock, word, hint)
				now := policy.Instant(clock) * 1000
				n := anyUnits(random, hint.Limit, hint.Remaining)
				at := fmt.Sprintf("%v, seed %d of %d, step %d: word %d at %d, %d units", p, seed, i, step, word, now, n)

				if random.IntN(3) == 0 { // another call
					got, err := s.Take(context.Background(), l, "k", n, math.MaxInt64)
					if !assert.NoError(t, err, at) {
						return
					}
					if got.Allowed && n > 0 {
						takes = append(takes, take{got, n})
					}
					word, hint = got.After, got.Decision
					continue
				}
				var next uint64
				var got store.Taken
				if of := random.IntN(len(takes) + 2); of < len(takes) {
					c := takes[of]
					if random.IntN(8) == 0 { // it may have left any word
						c.After = anyWord(random, p, refunder, word, clock) | 1
					}
					kept := max(random.Int64N(2*c.n)-c.n, 0)
					at += fmt.Sprintf(", of %+v, %d kept", c, kept)
					sooner, d := p.Take(c.Before, c.At, kept, math.MaxInt64)
					switch {
					case c.After != word:
						next = min(refunder.Cancel(word, c.After, c.At, now, c.n-kept, math.MaxInt64), withoutTake(p, word, c.Taken, now, c.n-kept))
					case kept == 0:
						next = c.Before
					case d.Allowed && d.Wait == c.Wait:
						next = sooner
					default:
						next = refunder.Cancel(word, c.After, c.At, now, c.n-kept, 0)
					}
					got, err = s.Keep(context.Background(), l, "k", c.Taken, c.n, kept)
					takes = append(takes[:of], takes[of+1:]...)
				} else {
					if random.IntN(2) == 0 && n > math.MinInt64 {
						n = -n
					}
					next = refunder.Refund(word, now, n)
					got, err = s.Refund(context.Background(), l, "k", n)
				}
				if !assert.NoError(t, err, at) || !assert.Equal(t, word, got.Before, at) ||
					!assert.Equal(t, next, got.After, at) || !assert.Equal(t, now, got.At, at) {
					return
				}
				if _, want := p.Take(next, now, 0, 0); !assert.Equal(t, want, got.Decision, at) {
					return
				}
				there := integer(t, client, "EXISTS", redisName) == 1
				switch {
				case there:
					if next != word && !assert.Equal(t, strconv.FormatUint(next, 10), get(t, client, redisName), at) {
						return
					}
					word = next
				case !assert.LessOrEqual(t, p.FreshAt(next), max(now, 0), at):
					return
				default:
					word = 0
				}
				hint = got.Decision
			}
		})
	}
	group.Wait()
}

// withoutTake is the word after a return of units behind later calls: units x interval - age come
// back, if no call can still be waiting.
func withoutTake(p policy.Policy, word uint64, of store.Taken, now policy.Instant, units int64) uint64 {
	s := p.(shape.Shaped).Shape()
	tick := func(at policy.Instant) *big.Int {
		return new(big.Int).SetUint64(uint64(min(max(at, 0), policy.Instant(s.End))) * 16)
	}
	level := new(big.Int).Sub(new(big.Int).SetUint64(word), tick(now))
	switch depth := new(big.Int).SetUint64(s.Depth); {
	case s.Kind == shape.Funnel && level.Cmp(depth) <= 0:
	case s.Kind == shape.Bursty && level.Cmp(depth.Add(depth, new(big.Int).SetUint64(s.Interval))) <= 0:
	default:
		return word
	}
	filled := new(big.Int).Mul(big.NewInt(units), new(big.Int).SetUint64(s.Interval))
	if units <= 0 {
		return word
	}
	left := new(big.Int).Add(filled, tick(of.At))
	if after := new(big.Int).SetUint64(of.After); left.Cmp(after) > 0 {
		left = after // it cannot have filled as much
	}
	if left.Sub(left, tick(now)); left.Cmp(filled) > 0 {
		left = filled // the clock went back
	}
	empty := tick(now)
	if first := new(big.Int).SetUint64(16 + s.Depth); s.Kind == shape.Bursty && first.Cmp(empty) > 0 {
		empty = first // no store is full before
	}
	next := new(big.Int).SetUint64(word)
	if left.Sign() > 0 && next.Cmp(empty) > 0 {
		if next.Sub(next, left); next.Cmp(empty) < 0 {
			next = empty
		}
	}
	return next.Uint64()
}

// Calls take, some for a later turn, and return all or a part in any order, before or after they
// start. The used units never exceed the limit, counted when each call starts.
//
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
			// A word that another call lengthened is kept.
			taken, err := s.Take(ctx, l, "k", 1, math.MaxInt64)
			require.NoError(t, err)
			_, err = s.Take(ctx, l, "k", 1, math.MaxInt64)
			require.NoError(t, err)
			_, err = s.Cancel(ctx, l, "k", taken, 1)
			require.NoError(t, err)
			assert.EqualValues(t, 1, integer(t, client, "EXISTS", name(t, s, l, "k")))
		})
	}
}

// At the end of time void units are not given back.
func TestCancelWhenTimeStandsStill(t *testing.T) {
	client := connect(t, shared)
	clock := int64(1) << 60
	s := clocked(t, client, &clock)
	p := policy.Must(policy.SlidingWindow(10, time.Second))
	l, of := limit(t, s, p), p.(shape.Shaped).Shape()
	for back := range uint64(3) { // windows before the last
		word := (of.Last-back)<<(2*of.Bits) | 5
		put(t, client, name(t, s, l, "k"), strconv.FormatUint(word, 10))
		took := store.Taken{Before: word - 1, After: word - 1}
		got, err := s.Cancel(context.Background(), l, "k", took, 2)
		require.NoError(t, err)
		assert.Equal(t, p.(policy.Refunder).Cancel(word, took.After, 0, math.MaxInt64, 2, math.MaxInt64), got.After)
		assert.Equal(t, back == 0, got.After != word, "only the last still counts")
	}
}

// Calls that change one word at once all succeed with one call of Redis each.
func TestChangesLoseNothing(t *testing.T) {
	s := store.New(connect(t, shared), store.Options{Name: own(t)})
	ctx := context.Background()
	for _, p := range []policy.Policy{
		policy.Must(policy.Funnel(1000, 1, 24*time.Hour)), policy.Must(policy.Queue(999, 1, 24*time.Hour)),
		policy.Must(policy.FixedWindow(1000, 24*time.Hour)), policy.Must(policy.SlidingWindow(1000, 24*time.Hour)), newLog(t, 1000, 24*time.Hour),
	} {
		l := limit(t, s, p)
		var group sync.WaitGroup
		for range 8 {
			group.Go(func() {
				for range 10 {
					_, err := s.Refund(ctx, l, "k", -3)
					assert.NoError(t, err)
					_, err = s.Take(ctx, l, "k", 1, math.MaxInt64)
					assert.NoError(t, err)
					_, err = s.Refund(ctx, l, "k", 2)
					assert.NoError(t, err)
				}
			})
		}
		group.Wait()
		d, err := s.Peek(ctx, l, "k")
		require.NoError(t, err)
		assert.EqualValues(t, 1000-8*10*2, d.Remaining, "%v", p)
	}
}
