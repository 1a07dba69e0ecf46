package engine

import (
	"math"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/policy"
)

// told returns an outcome without its held units.
func told(o Outcome) Outcome {
	return Outcome{Allowed: o.Allowed, RetryAfter: o.RetryAfter, Binding: o.Binding, Decisions: o.Decisions}
}

// Promise: `TakeAll` takes from all keys or none; its `RetryAfter` is true.
func TestTakeAllTakesFromAllKeysOrNone(t *testing.T) {
	clock := newHandClock()
	users := open[string](t, Config{Policy: funnel(3, 1, time.Second), Clock: clock.Now})
	hosts := open[int](t, Config{Policy: funnel(10, 1, time.Minute), Clock: clock.Now})
	user, host := users.Claim("u", 1), hosts.Claim(1, 1)

	out := TakeAll(units(2, host, user)...)
	assert.Equal(t, Outcome{Allowed: true, Binding: 1, Decisions: []policy.Decision{
		{Allowed: true, Limit: 10, Remaining: 8, ResetAfter: 2 * time.Minute},
		{Allowed: true, Limit: 3, Remaining: 1, ResetAfter: 2 * time.Second},
	}}, told(out))

	// One refuses: the other is unchanged, and says so.
	out = TakeAll(units(2, user, host)...)
	assert.Equal(t, Outcome{RetryAfter: time.Second, Binding: 0, Decisions: []policy.Decision{
		{Limit: 3, Remaining: 1, RetryAfter: time.Second, ResetAfter: 2 * time.Second},
		{Allowed: true, Limit: 10, Remaining: 8, ResetAfter: 2 * time.Minute},
	}}, told(out))
	assert.EqualValues(t, 1, users.Peek("u", 0).Remaining)
	assert.EqualValues(t, 8, hosts.Peek(1, 0).Remaining)

	// Both refuse: the longer wait decides, exactly.
	require.True(t, hosts.Reserve(1, 8, 0).Allowed)
	out = TakeAll(units(2, user, host)...)
	assert.False(t, out.Allowed)
	assert.Equal(t, 1, out.Binding)
	assert.Equal(t, 2*time.Minute, out.RetryAfter)
	clock.Advance(out.RetryAfter - 1)
	assert.False(t, TakeAll(units(2, user, host)...).Allowed)
	clock.Advance(1)
	assert.True(t, TakeAll(units(2, user, host)...).Allowed)
	// Each call counts once for each key that allowed or refused it.
	assert.EqualValues(t, 2, users.Stats().Admitted)
	assert.EqualValues(t, 2, users.Stats().Refused)
	assert.EqualValues(t, 3, hosts.Stats().Admitted)
	assert.EqualValues(t, 2, hosts.Stats().Refused)
}

// Promise: Credit does not decide which limit binds.
func TestShareLeftIsNotMeasuredByCredit(t *testing.T) {
	for _, c := range []struct {
		limit policy.Policy
		// take is taken before.
		take     int64
		left, of int64
		// binding is the limit that binds beside a funnel that has 2 of 10 left.
		binding int
	}{
		{policy.Must(policy.Bursty(100, time.Second, 99)), 1, 98, 100, 1},
		{policy.Must(policy.Bursty(100, time.Second, 99)), 78, 21, 100, 1},
		{policy.Must(policy.Bursty(100, time.Second, 99)), 80, 19, 100, 0},
		{policy.Must(policy.WarmingUp(100, time.Second, time.Minute, 3)), 0, 0, 1, 0},
	} {
		for name, chosen := range map[string]policy.Policy{"own": nil, "chosen": c.limit} {
			clock := newHandClock()
			e := openFor(t, Config{Policy: c.limit, Clock: clock.Now}, func(string) policy.Policy { return chosen })
			hours := open[string](t, Config{Policy: funnel(10, 1, time.Hour), Clock: clock.Now})
			// The store is full.
			clock.Advance(time.Minute)
			e.Take("a", c.take)
			hours.Take("a", 7)
			out := TakeAll(e.Claim("a", 1), hours.Claim("a", 1))
			require.True(t, out.Allowed)
			assert.Equal(t, []int64{c.left, 2}, []int64{out.Decisions[0].Remaining, out.Decisions[1].Remaining})
			assert.Equal(t, c.binding, out.Binding, "%v, %s: %d of %d left", c.limit, name, c.left, c.of)
			clock.Advance(time.Minute)
			out, err := AcquireAll(background, time.Minute, e.Claim("a", 0), hours.Claim("a", 0))
			require.NoError(t, err)
			assert.Equal(t, 1, out.Binding, "%v, %s: the store must be full again", c.limit, name)
		}
	}
}

func TestTakeAllOfTheOrdinary(t *testing.T) {
	clock := newHandClock()
	e := open[any](t, Config{Policy: funnel(5, 1, time.Second), Clock: clock.Now})
	assert.Equal(t, Outcome{Allowed: true, Binding: -1, Decisions: []policy.Decision{}}, told(TakeAll()))
	assert.True(t, TakeAll().Allowed)

	// The same key twice is charged twice, and both see the rest.
	out := TakeAll(e.Claim("a", 2), e.Claim("b", 2), e.Claim("a", 2))
	require.True(t, out.Allowed)
	assert.Equal(t, []int64{1, 3, 1}, []int64{out.Decisions[0].Remaining, out.Decisions[1].Remaining, out.Decisions[2].Remaining})
	assert.Equal(t, 0, out.Binding)
	out = TakeAll(e.Claim("a", 1), e.Claim("a", 1))
	assert.Equal(t, time.Second, out.RetryAfter)
	out = TakeAll(e.Claim("c", 3), e.Claim("c", 3))
	assert.Equal(t, policy.Never, out.RetryAfter, "six units of a capacity of five must never pass")
	out = TakeAll(e.Claim("c", 1<<62+1), e.Claim("c", 1<<62+1), e.Claim("c", 1<<62+1), e.Claim("c", 1<<62+1))
	assert.Equal(t, policy.Never, out.RetryAfter, "a sum that overflows 64 bits to four units must never pass")
	// Otherwise the depth of the queue differs.
	settled(t, e)
	before := e.Stats()

	out = TakeAll(e.Claim("a", 0), e.Claim("c", 0))
	assert.True(t, out.Allowed)
	assert.EqualValues(t, 1, out.Decisions[0].Remaining)
	assert.EqualValues(t, 5, out.Decisions[1].Remaining)
	assert.Equal(t, before, e.Stats())
	assert.Equal(t, 2, e.Len(), "a refused call opened a key")

	for _, n := range []int64{-1, math.MinInt64, 6} {
		out = TakeAll(e.Claim("b", n), e.Claim("b", n), e.Claim("c", n))
		assert.False(t, out.Allowed)
		assert.Equal(t, policy.Never, out.RetryAfter)
		assert.Equal(t, 0, out.Binding)
	}
	assert.EqualValues(t, 3, e.Peek("b", 0).Remaining)

	// Keys that no table can find are not found to be equal, either.
	unavailable := e.Stats().Unavailable
	assert.True(t, TakeAll(e.Claim([]int{}, 1), e.Claim([]int{}, 1)).Allowed)
	assert.EqualValues(t, unavailable+2, e.Stats().Unavailable)

	// The zero Claim is never met, and nothing is taken from the others.
	out = TakeAll(e.Claim("c", 1), Claim{}, Claim{})
	assert.False(t, out.Allowed)
	assert.Equal(t, policy.Never, out.RetryAfter)
	assert.Equal(t, 1, out.Binding)
	_, err := AcquireAll(background, time.Hour, e.Claim("c", 1), Claim{})
	assert.ErrorIs(t, err, ErrNever)
	assert.EqualValues(t, 5, e.Peek("c", 0).Remaining)
}

// 64 goroutines take overlapping sets of keys of three engines, in their own orders, while the
// clock stands still. No limit is exceeded, and in the end each key lacks exactly the units of
// allowed calls.
//
// Promise: Under contention `TakeAll` exceeds no limit and, if refused, keeps nothing.
func TestTakeAllGivesEverythingBack(t *testing.T) {
	const capacity, names = 400, 3
	clock := newHandClock()
	var engines [3]*Engine[int]
	var admitted [3][names]atomic.Int64
	for i := range engines {
		engines[i] = open[int](t, Config{Policy: funnel(capacity<<i, 1, time.Second), Clock: clock.Now})
	}
	var refused atomic.Int64
	together(64, func(i int) {
		dice := rand.New(rand.NewPCG(61, uint64(i)))
		for range 2000 / raceFactor {
			type at struct{ engine, key int }
			var set []at
			var claims []Claim
			for range 1 + dice.IntN(5) {
				a := at{dice.IntN(3), dice.IntN(names)}
				set = append(set, a)
				claims = append(claims, engines[a.engine].Claim(a.key, 1))
			}
			n := 1 + dice.Int64N(2)
			if !TakeAll(units(n, claims...)...).Allowed {
				refused.Add(1)
				continue
			}
			for _, a := range set {
				if admitted[a.engine][a.key].Add(n) > capacity<<a.engine {
					t.Errorf("more units passed than the limit %v allows", a)
				}
			}
		}
	})
	assert.Positive(t, refused.Load())
	for i, e := range engines {
		for key := range names {
			left := e.Peek(key, 0)
			assert.EqualValues(t, capacity<<i-admitted[i][key].Load(), left.Remaining)
			assert.Equal(t, time.Duration(admitted[i][key].Load())*time.Second, left.ResetAfter)
		}
		assert.Equal(t, names, e.Len())
	}
}

// yielding is a funnel that lets others run at each take, so that calls interleave.
func yielding(capacity, count int64, per time.Duration) policy.Policy {
	return &hooked{Policy: funnel(capacity, count, per), took: func(*asked) { runtime.Gosched() }}
}

// Many calls at once want the same keys, in different orders, with room for a single call.
func TestTakeAllPassesOne(t *testing.T) {
	clock := newHandClock()
	a := open[int](t, Config{Policy: yielding(1, 1, time.Second), Clock: clock.Now})
	b := open[int](t, Config{Policy: yielding(2, 2, time.Second), Clock: clock.Now})
	for range 2000 / raceFactor {
		for _, callers := range []int{2, 8} {
			var passed atomic.Int64
			together(callers, func(i int) {
				claims := []Claim{a.Claim(1, 1), b.Claim(1, 1), a.Claim(2, 1), a.Claim(3, 1), b.Claim(2, 1)}
				rand.New(rand.NewPCG(62, uint64(i))).Shuffle(len(claims), func(i, j int) { claims[i], claims[j] = claims[j], claims[i] })
				out := TakeAll(units(1, claims...)...)
				if out.Allowed {
					passed.Add(1)
				} else if out.Binding < 0 || out.RetryAfter <= 0 || out.Decisions[out.Binding].Allowed {
					t.Errorf("%+v", out)
				}
			})
			require.EqualValues(t, 1, passed.Load())
			clock.Advance(time.Second)
		}
	}
	s := a.Stats()
	assert.EqualValues(t, 2*(2000/raceFactor)*3, s.Admitted)
}
