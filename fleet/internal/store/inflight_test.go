package store_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/fleet/internal/slots"
	"github.com/ral-limiter/ral/fleet/internal/store"
	"github.com/ral-limiter/ral/fleet/internal/storetest"
	"github.com/ral-limiter/ral/internal/core/penalty"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/internal/testkit/testenv"
	"github.com/ral-limiter/ral/policy"
)

const inFlightTerm = 10 * time.Second

// inFlightContract makes the same random calls of limits in flight, and of a window beside them, in Redis
// and in package storetest.
type inFlightContract struct {
	*testing.T
	random *rand.Rand
	clock  int64
	client rueidis.Client
	real   *store.Store
	fake   *storetest.Store
	redis  *storetest.Redis
	limits []*store.Limit
	window *store.Limit
	// run is the run of the real Redis.
	run   string
	slots []store.Confirm
	made  int
	step  string
}

func newInFlightContract(t *testing.T, seed uint64, rule penalty.Rule) *inFlightContract {
	c := &inFlightContract{T: t, random: rand.New(rand.NewPCG(seed, 7)), client: connect(t, shared), redis: storetest.New(), clock: 1e9}
	options := store.Options{Name: own(t), Penalty: rule, Term: inFlightTerm, Clock: func() int64 { return c.clock }}
	c.real, c.fake = store.New(c.client, options), c.redis.Store(options)
	for _, p := range []policy.Policy{policy.Must(policy.InFlight(5, time.Minute)), policy.Must(policy.InFlight(3, 4*time.Second))} {
		c.limits = append(c.limits, limit(t, c.real, p))
	}
	c.window = limit(t, c.real, policy.Must(policy.FixedWindow(4, time.Second)))
	return c
}

func (c *inFlightContract) limit() *store.Limit { return c.limits[c.random.IntN(2)] }

func (c *inFlightContract) key() string { return []string{"a", "b"}[c.random.IntN(2)] }

func (c *inFlightContract) units() int64 {
	return []int64{1, 1, 1, 1, 2, 2, 3, 5, 0, -1, 6}[c.random.IntN(11)]
}

func (c *inFlightContract) ask(l *store.Limit) store.TakeAsk {
	c.made++
	return store.TakeAsk{Limit: l, Key: c.key(), N: c.units(), ID: fmt.Sprint("id-", c.made)}
}

func (c *inFlightContract) enter() {
	a := c.ask(c.limit())
	c.step += fmt.Sprintf("enter %+v", a)
	want, wantErr := c.fake.TakeOne(c.Context(), a)
	got, err := c.real.TakeOne(c.Context(), a)
	require.Equal(c, wantErr, err, c.step)
	require.Equal(c, want, got, c.step)
	c.entered(a, got)
}

func (c *inFlightContract) entered(a store.TakeAsk, t store.Taken) {
	if t.Allowed && a.N > 0 {
		c.slots = append(c.slots, store.Confirm{Slot: &slots.Slot{Key: a.Key, ID: a.ID, N: a.N}, Left: time.Minute})
	}
}

func (c *inFlightContract) all() {
	var asks []store.Ask
	for range 1 + c.random.IntN(4) {
		if a := c.ask(c.limit()); c.random.IntN(3) > 0 {
			asks = append(asks, a)
		} else {
			asks = append(asks, store.Ask{Limit: c.window, Key: a.Key, N: a.N})
		}
	}
	c.step += fmt.Sprintf("all %+v", asks)
	want, wantErr := c.fake.TakeAll(c.Context(), asks)
	got, err := c.real.TakeAll(c.Context(), asks)
	require.Equal(c, wantErr, err, c.step)
	seen := map[string]bool{}
	for i, a := range asks {
		// The model knows when the units end that are not there yet.
		if seen[a.Key] && a.Limit != c.window {
			want[i].RetryAfter, want[i].ResetAfter = got[i].RetryAfter, got[i].ResetAfter
		}
		seen[a.Key] = seen[a.Key] || a.Limit != c.window
	}
	require.Equal(c, want, got, c.step)
	allowed := true
	for _, t := range got {
		allowed = allowed && t.Allowed
	}
	for i, a := range asks {
		if allowed && a.Limit != c.window {
			c.entered(a, got[i])
		}
	}
}

func (c *inFlightContract) confirm() {
	var slots []store.Confirm
	for _, key := range []string{"a", "b"} {
		for _, s := range c.slots {
			if s.Key == key && c.random.IntN(3) > 0 {
				s.Left = time.Duration(c.random.Int64N(int64(15 * time.Second)))
				slots = append(slots, s)
			}
		}
	}
	c.step += fmt.Sprintf("confirm %+v", slots)
	inFake := slices.Clone(slots)
	for i := range slots {
		// The slot was counted by this Redis, by another, or by none that is known.
		runs := []string{c.run, c.run, c.run, c.run, c.run, c.run, "another", ""}
		slots[i].Run = runs[c.random.IntN(len(runs))]
		if inFake[i].Run = slots[i].Run; slots[i].Run == c.run {
			inFake[i].Run = "run 0"
		}
		c.step += fmt.Sprintf(", %q", slots[i].Run)
	}
	want := must.Get(c.fake.Confirm(c.Context(), c.limits[0], inFake))
	got := must.Get(c.real.Confirm(c.Context(), c.limits[0], slots))
	require.NotEmpty(c, got.Run)
	c.run = got.Run
	require.Equal(c, want.There, got.There, c.step)
}

func (c *inFlightContract) release() {
	if len(c.slots) == 0 {
		return
	}
	// The slot may have been released before.
	s := c.slots[c.random.IntN(len(c.slots))]
	c.step += fmt.Sprintf("release %+v", s)
	want := must.Get(c.fake.Release(c.Context(), c.limits[0], s.Key, s.ID, s.N))
	require.Equal(c, want, must.Get(c.real.Release(c.Context(), c.limits[0], s.Key, s.ID, s.N)), c.step)
}

// Random calls enter, confirm and release units, alone and together with a window, also of a Redis
// that has lost its mark or is another process, and get the same answers of the scripts and of a
// plain model.
func TestInFlightAgreesWithAModel(t *testing.T) {
	seed := testenv.Seed(t)
	random := rand.New(rand.NewPCG(seed, 0))
	for i := range uint64(6) {
		rule := penalty.Rule{}
		if i%3 == 2 {
			rule = anyRule(random)
		}
		c := newInFlightContract(t, seed+i, rule)
		// The store learns the run.
		c.confirm()
		for step := range 4 * oracleSteps {
			c.clock += []int64{0, 1, c.random.Int64N(3_000_000), c.random.Int64N(3_000_000)}[c.random.IntN(4)]
			if c.random.IntN(200) == 0 {
				// No server beats meanwhile.
				c.clock += int64(3 * inFlightTerm / time.Microsecond)
			}
			c.step = fmt.Sprint("step ", step, " at ", c.clock, ": ")
			switch c.random.IntN(6) {
			case 0, 1:
				c.enter()
			case 2:
				c.all()
			case 3, 4:
				c.confirm()
			case 5:
				c.release()
			}
			if len(c.slots) > 40 {
				c.slots = c.slots[20:]
			}
		}
	}
}

// Promise: A set in flight ends in Redis at most a term after its servers, so that nothing stays.
func TestInFlightSetsExpire(t *testing.T) {
	client := connect(t, shared)
	s := store.New(client, store.Options{Name: own(t), Term: inFlightTerm})
	l := limit(t, s, policy.Must(policy.InFlight(5, time.Hour)))
	first := must.Get(s.TakeOne(t.Context(), store.TakeAsk{Limit: l, Key: "k", N: 1, ID: "x"}))
	require.False(t, first.Allowed, "a Redis without a mark may have lost units")
	require.True(t, first.Emptied)
	c := must.Get(s.Confirm(t.Context(), l, []store.Confirm{{Slot: &slots.Slot{Key: "k", ID: "x", N: 2}, Left: time.Hour}}))
	require.Equal(t, []bool{true}, c.There)
	require.EqualValues(t, 2, integer(t, client, "ZCARD", name(t, s, l, "k")))
	left := integer(t, client, "PTTL", name(t, s, l, "k"))
	require.Positive(t, left)
	require.LessOrEqual(t, left, (inFlightTerm + time.Second).Milliseconds())
}

func TestInFlightLimitsThatRedisCannotKeep(t *testing.T) {
	s := store.New(nil, store.Options{Name: "x"})
	_, err := s.Limit(policy.Must(policy.InFlight(store.MaxInFlight+1, time.Minute)))
	require.ErrorContains(t, err, "fleet.Config: Policy is in flight 10001, 1m at most, want at most 10000 in flight")
}
