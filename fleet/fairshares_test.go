package fleet

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/fleet/internal/redistest"
	"github.com/ral-limiter/ral/fleet/internal/store"
	"github.com/ral-limiter/ral/fleet/internal/storetest"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/internal/testkit/testenv"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// tenantsOf has "a" with (10, 1/s) and "b" with (20, 2/s), out of (30, 5/s), of (100, 10/s). "c" has a
// ceiling of (5, 1/s), and "barred" must not borrow.
func tenantsOf(c Config) SharesConfig {
	c.Policy = nil
	return SharesConfig{
		Config: c, Total: funnel(100, 10, time.Second), Reserved: funnel(30, 5, time.Second), Tenants: []string{"a", "b", "barred"},
		Guarantee: func(tenant string) policy.Policy {
			return map[string]policy.Policy{"a": funnel(10, 1, time.Second), "b": funnel(20, 2, time.Second)}[tenant]
		},
		Ceiling: func(tenant string) policy.Policy {
			return map[string]policy.Policy{"c": funnel(5, 1, time.Second), "barred": policy.Must(policy.FixedWindow(5, time.Second))}[tenant]
		},
	}
}

func openShares(t testing.TB, c SharesConfig) *Shares {
	t.Helper()
	s := must.Get(NewShares(c))
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	eventually(t, func() bool { return s.Health() == nil }, "Redis is there")
	return s
}

// sharesOracle makes the same calls of shares in process and over a fleet, and expects the same answers.
type sharesOracle struct {
	*testing.T
	random *rand.Rand
	micros atomic.Int64
	near   *engine.Shares[string]
	far    *Shares
	step   string
}

func newSharesOracle(t *testing.T) *sharesOracle {
	return newOracleOf(t, tenantsOf(at(shared.Addr(), nil)))
}

func newOracleOf(t *testing.T, c SharesConfig) *sharesOracle {
	o := &sharesOracle{T: t, random: rand.New(rand.NewPCG(testenv.Seed(t), 1))}
	o.micros.Store(1e12)
	c.Config.clock = o.micros.Load
	o.near = must.Get(engine.NewShares(engine.SharesConfig[string]{
		Config: engine.Config{Idle: store.ReserveIdle, Clock: func() policy.Instant { return policy.Instant(o.micros.Load() * 1000) }},
		Total:  c.Total, Reserved: c.Reserved, Tenants: c.Tenants, Guarantee: c.Guarantee, Ceiling: c.Ceiling,
	}))
	o.far = openShares(t, c)
	return o
}

func (o *sharesOracle) tenant() string { return []string{"a", "b", "c", "stranger"}[o.random.IntN(4)] }

func (o *sharesOracle) units() int64 {
	return []int64{1, 1, 1, 2, 3, 5, 10, 20, 0, -1, 35, 70, 71}[o.random.IntN(13)]
}

func (o *sharesOracle) move() {
	o.micros.Add([]int64{0, 1, o.random.Int64N(1e3), o.random.Int64N(1e5), o.random.Int64N(1e6), o.random.Int64N(2e7)}[o.random.IntN(6)])
}

func (o *sharesOracle) same(want engine.ShareDecision, got ShareAnswer, err error) {
	o.Helper()
	require.NoError(o, err, o.step)
	require.Equal(o, limits.SourceRedis, got.Source())
	require.Equal(o, want, engine.ShareDecision{Decision: got.Decision, Borrowed: got.Borrowed}, o.step)
}

// Promise: Shares over a fleet answer as shares in process.
func TestSharesInRedisAnswerAsInProcess(t *testing.T) {
	o := newSharesOracle(t)
	seen := map[string]int{}
	for i := range 4000 {
		o.move()
		tenant, n, patience := o.tenant(), o.units(), time.Duration(0)
		if o.random.IntN(2) == 0 {
			patience = time.Duration(o.random.Int64N(int64(20 * time.Second)))
		}
		o.step = fmt.Sprintf("step %d at %d: %d of %q, patience %v", i, o.micros.Load(), n, tenant, patience)
		want := o.near.Peek(tenant, n)
		got, err := o.far.Peek(o.Context(), tenant, n)
		o.same(want, got, err)
		if patience > 0 {
			r, err := o.far.Reserve(o.Context(), tenant, n, patience)
			want = o.near.Reserve(tenant, n, patience).ShareDecision
			o.same(want, r.ShareAnswer, err)
		} else {
			got, err = o.far.Take(o.Context(), tenant, n)
			want = o.near.Take(tenant, n)
			o.same(want, got, err)
		}
		seen[fmt.Sprint(want.Allowed, want.Borrowed, want.Wait > 0)]++
		x := must.Get(o.far.Explain(o.Context(), tenant))
		y := o.near.Explain(tenant)
		require.Equal(o, y.Decision, x.Decision, o.step)
		require.Len(o, x.Each, len(y.Each))
		require.Equal(o, y.Binding, x.Binding, o.step)
	}
	for _, kind := range []string{"true false false", "true true false", "true false true", "false false false"} {
		assert.Greater(o, seen[kind], 3, kind)
	}
	near, far := o.near.Stats(), o.far.Stats()
	near.Name = far.Name
	assert.Equal(o, near, far.SharesStats)
}

// In process more is remembered of earlier calls, so that nearly always as much comes back, and never less.
// Promise: A reservation of shares over a fleet gives back no more than one in process.
func TestSharesInRedisGiveBackAsInProcess(t *testing.T) {
	o := newSharesOracle(t)
	type pair struct {
		near engine.ShareReservation[string]
		far  ShareReservation
		n    int64
	}
	var open []pair
	settled, less := 0, 0
	settle := func(index int, n int64) {
		p := open[index]
		open = slices.Delete(open, index, index+1)
		p.near.Keep(n)
		require.NoError(o, p.far.Keep(o.Context(), n), o.step)
		settled++
	}
	for i := range 6000 {
		o.move()
		if o.random.IntN(3) == 0 && len(open) > 0 || len(open) > 20 {
			index := o.random.IntN(len(open))
			settle(index, max(o.random.Int64N(2*open[index].n)-open[index].n, 0))
			continue
		}
		tenant, n := o.tenant(), max(o.units(), 1)
		o.step = fmt.Sprintf("step %d at %d: %d of %q", i, o.micros.Load(), n, tenant)
		near := o.near.Reserve(tenant, n, 0)
		far, err := o.far.Reserve(o.Context(), tenant, n, 0)
		if want := near.ShareDecision; want.Decision != far.Decision || want.Borrowed != far.Borrowed {
			require.LessOrEqual(o, far.Remaining, want.Remaining+n*map[bool]int64{true: 1}[want.Allowed && !want.Borrowed && far.Borrowed], o.step)
			require.False(o, far.Allowed && !want.Allowed, o.step)
			less++
			near.Cancel()
			require.NoError(o, far.Cancel(o.Context()))
			for len(open) > 0 {
				settle(0, 0)
			}
			o.micros.Add(1e9) // all has drained
			continue
		}
		o.same(near.ShareDecision, far.ShareAnswer, err)
		if near.Allowed {
			open = append(open, pair{near, far, n})
		}
	}
	o.Logf("%d settled, %d times less came back", settled, less)
	assert.Greater(o, settled, 1000)
	assert.Less(o, less, settled/50)
}

// comersOf has tenants that come by themselves, beside "a" with (10, 1/s) and out of (40, 4/s): "x0", "x1" and
// so on with (10, 1/s), "y0" and so on with (15, 2/s), and "window", whose guarantee is no funnel.
func comersOf(c Config) SharesConfig {
	sharesConfig := tenantsOf(c)
	sharesConfig.Reserved, sharesConfig.Tenants = funnel(40, 4, time.Second), []string{"a"}
	sharesConfig.Guarantee = func(tenant string) policy.Policy {
		switch {
		case tenant == "a", strings.HasPrefix(tenant, "x"):
			return funnel(10, 1, time.Second)
		case strings.HasPrefix(tenant, "y"):
			return funnel(15, 2, time.Second)
		case tenant == "window":
			return policy.Must(policy.FixedWindow(5, time.Second))
		}
		return nil
	}
	return sharesConfig
}

// Redis grants guarantees as an engine does, which looks for tenants that have left at most a sixteenth of the idle
// time later. The clock moves by less than that, or by much more.
// Promise: Over a fleet, tenants that come by themselves get and lose their guarantees as in process.
func TestGuaranteesInRedisAreGrantedAsInProcess(t *testing.T) {
	for name, config := range map[string]Config{"redis": at(shared.Addr(), nil), "storetest": on(storetest.New(), nil)} {
		t.Run(name, func(t *testing.T) {
			config.Budget = generous
			o := newOracleOf(t, comersOf(config))
			seen := map[string]int{}
			for i := range 3000 {
				o.micros.Add(o.random.Int64N(200_000))
				if o.random.IntN(40) == 0 {
					o.micros.Add(store.ReserveIdle.Microseconds() * 2)
				}
				tenant, n := []string{"a", "x0", "x1", "x2", "x3", "y0", "y1", "window", "stranger"}[o.random.IntN(9)], o.units()
				o.step = fmt.Sprintf("step %d at %d: %d of %q", i, o.micros.Load(), n, tenant)
				want := o.near.Peek(tenant, n)
				got, err := o.far.Peek(o.Context(), tenant, n)
				o.same(want, got, err)
				wait := time.Duration(o.random.Int64N(2) * o.random.Int64N(int64(5*time.Second)))
				if n < 1 || n > 10 {
					// An engine keeps an entry from which nothing was taken for no certain time.
					n = 1 + o.random.Int64N(10)
				}
				r, err := o.far.Reserve(o.Context(), tenant, n, wait)
				want = o.near.Reserve(tenant, n, wait).ShareDecision
				o.same(want, r.ShareAnswer, err)
				if tenant[0] == 'x' || tenant[0] == 'y' {
					seen[fmt.Sprintf("%c %v %v %d", tenant[0], want.Allowed, want.Borrowed, want.Limit)]++
				}
				near, far := o.near.Stats(), o.far.Stats()
				require.Equal(o, near.Unguaranteed, far.Unguaranteed, o.step)
			}
			for _, kind := range []string{"x true false 10", "x true true 60", "x false false 10", "y true false 15", "y true true 60"} {
				assert.Greater(o, seen[kind], 3, "%s of %v", kind, seen)
			}
			assert.GreaterOrEqual(o, o.far.Stats().Unreserved, int64(0))
		})
	}
}

// The rates of three guarantees are together the reserve's exactly, in fractions that no float has.
func TestGrantsAreExact(t *testing.T) {
	for name, config := range map[string]Config{"redis": at(shared.Addr(), nil), "storetest": on(storetest.New(), nil)} {
		t.Run(name, func(t *testing.T) {
			config.Budget = generous
			const capacity = 1<<40 + 1
			guarantee := funnel(capacity, 1, 7*time.Microsecond)
			s := openShares(t, SharesConfig{
				Config: config, Total: funnel(1<<43, 4, 7*time.Microsecond), Reserved: funnel(3*capacity+1, 3, 7*time.Microsecond),
				Guarantee: func(tenant string) policy.Policy {
					if tenant == "slow" {
						return funnel(1, 1, 24*time.Hour)
					}
					return guarantee
				},
			})
			for _, tenant := range []string{"a", "b", "c"} {
				require.False(t, must.Get(s.Take(t.Context(), tenant, capacity)).Borrowed)
			}
			require.True(t, must.Get(s.Take(t.Context(), "slow", 1)).Borrowed, "a unit is left, and no rate")
			require.EqualValues(t, 1, s.Stats().Unreserved)

			config.Name += "-of-units"
			s = openShares(t, SharesConfig{
				Config: config, Total: funnel(100, 10, time.Second), Reserved: funnel(30, 9, time.Second),
				Guarantee: func(string) policy.Policy { return funnel(20, 1, time.Second) },
			})
			require.False(t, must.Get(s.Take(t.Context(), "a", 1)).Borrowed)
			require.True(t, must.Get(s.Take(t.Context(), "b", 1)).Borrowed, "a rate is left, and too few units")
		})
	}
}

// Promise: A guarantee over a fleet goes back to the reserve when its tenant has owed nothing for five minutes and
// another needs it, and not while the tenant owes.
func TestGuaranteesComeOutOfTheReserveOfAFleet(t *testing.T) {
	t.Run("storetest", func(t *testing.T) {
		inBubble(t, func(t *testing.T, redis *storetest.Redis) {
			losesGuarantees(t, on(redis, nil), func() { redis.Restart(true) }, func() { redis.Set(gone) })
		})
	})
	t.Run("redis", func(t *testing.T) {
		redis := redistest.Start(t, redistest.Options{})
		inBubbleOf(t, redis, func(t *testing.T, line *redistest.Line) {
			losesGuarantees(t, over(line, nil), func() { redis.Do(t, "FLUSHDB") }, func() { line.Set(gone) })
		})
		reply := redis.Do(t, "KEYS", "*{reserve}")
		keys := must.Get(reply.AsStrSlice())
		require.Len(t, keys, 1)
		reply = redis.Do(t, "PTTL", keys[0])
		require.Positive(t, must.Get(reply.AsInt64()), "it expires once nobody owes anything")
	})
}

// losesGuarantees has tenants come and leave in a bubble. empty empties Redis, and end has it gone.
func losesGuarantees(t *testing.T, config Config, empty, end func()) {
	t.Helper()
	events := log{}
	c := comersOf(config)
	c.Config.OnEvent = events.add
	one, other := openShares(t, c), openShares(t, c)
	borrows := func(s *Shares, tenant string) bool {
		t.Helper()
		a := must.Get(s.Take(t.Context(), tenant, 1))
		require.True(t, a.Allowed)
		return a.Borrowed
	}
	for i, s := range []*Shares{one, other, one} {
		require.False(t, borrows(s, fmt.Sprint("x", i)))
		require.False(t, borrows(other, fmt.Sprint("x", i)), "all servers know")
	}
	require.NotContains(t, events.kinds(), SharePassed)
	require.True(t, borrows(one, "x3"))
	require.True(t, borrows(other, "window"))
	require.True(t, borrows(other, "window"))
	assert.Equal(t, []uint64{1, 2}, []uint64{one.Stats().Unguaranteed, other.Stats().Unguaranteed})
	assert.Zero(t, one.Stats().Unreserved)
	time.Sleep(time.Second)
	assert.Equal(t, []EventKind{SharePassed, SharePassed}, events.kinds(), "each server tells of the first")
	require.ErrorContains(t, events.events()[0].Err, "SharesStats.Unguaranteed")

	// All of x0 and x1 drains, and x2 owes for longer: its grant was settled with more.
	g := must.Get(one.Hold(t.Context(), limits.Call[string]{Key: "x2", N: 1, NoWait: true}))
	require.NoError(t, g.Settle(t.Context(), 100))
	time.Sleep(store.ReserveIdle - 5*time.Second)
	require.True(t, borrows(one, "x3"))
	time.Sleep(10 * time.Second)
	require.True(t, must.Get(one.Peek(t.Context(), "window", 1)).Borrowed)
	require.False(t, borrows(one, "x3"), "x0 has left")
	require.Zero(t, must.Get(one.Take(t.Context(), "x4", 0)).RetryAfter, "x1 has left")
	time.Sleep(time.Minute)
	require.True(t, borrows(one, "x5"), "x4 has a grant, though it took nothing")
	require.True(t, borrows(other, "x0"))
	require.False(t, borrows(other, "x2"), "it owed for 100 seconds")
	require.False(t, borrows(other, "x4"))

	// What Redis loses, it grants again, and the group has lost its units, too.
	empty()
	require.False(t, borrows(one, "x5"))
	assert.EqualValues(t, 20, one.Stats().Unreserved)
	end()
	a := must.Get(one.Take(t.Context(), "x5", 1))
	assert.True(t, a.Borrowed, "only Redis knows that it was granted")
	assert.Equal(t, limits.SourceShare, a.Source())
}

// Promise: A guarantee over a fleet that is set holds once Redis has granted no more than it leaves of the reserve.
func TestSetGuaranteeWaitsForTheReserve(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		s := openShares(t, comersOf(on(redis, nil)))
		limitOf := func(tenant string) int64 {
			must.Get(s.Peek(t.Context(), tenant, 0))
			return must.Get(s.Take(t.Context(), tenant, 1)).Limit
		}
		for i := range 3 {
			require.EqualValues(t, 10, limitOf(fmt.Sprint("x", i)))
		}
		require.NoError(t, s.SetGuarantee("a", funnel(20, 1, time.Second)))
		require.NoError(t, s.SetGuarantee("x0", funnel(12, 1, time.Second)))
		require.Error(t, s.SetGuarantee("y0", funnel(15, 2, time.Second)), "Tenants leave less")
		time.Sleep(5*time.Second + beat/2)
		require.EqualValues(t, 20-10, limitOf("a"), "the others have 30 units of 18")
		require.EqualValues(t, 10, limitOf("x0"), "it is a tenant that came by itself")
		require.EqualValues(t, 60, limitOf("x3"))
		time.Sleep(store.ReserveIdle + 20*time.Second)
		require.EqualValues(t, 20, limitOf("a"), "x1 and x2 have left")
		require.EqualValues(t, 12, limitOf("x0"))
		require.EqualValues(t, 60, limitOf("x1"), "18 units less x0's old grant are left")
	})
}

func TestNewSharesNamesWhatItRefuses(t *testing.T) {
	for _, c := range []struct {
		change func(*SharesConfig)
		say    string
	}{
		{func(c *SharesConfig) { c.Config.Mode = Leased }, "fleet.SharesConfig: Config.Mode is 1, want Exact"},
		{func(c *SharesConfig) { c.Config.PolicyFor = func(string) policy.Policy { return nil } }, "Config.PolicyFor is set"},
		{func(c *SharesConfig) { c.Config.StateFile = "x" }, "Config.StateFile is set"},
		{func(c *SharesConfig) { c.Config.Policy = c.Total }, "Config.Policy is set"},
		{func(c *SharesConfig) { c.Total = nil }, "fleet.SharesConfig: Total is <nil>, want a policy.Funnel"},
		{func(c *SharesConfig) { c.Total = policy.Must(policy.InFlight(10, time.Minute)) }, "Total is in flight 10, 1m at most, want a policy.Funnel: units in use are shared in process only"},
		{func(c *SharesConfig) { c.Reserved = policy.Must(policy.InFlight(10, time.Minute)) }, "fleet.SharesConfig: Reserved is"},
		{func(c *SharesConfig) { c.Reserved = funnel(100, 5, time.Second) }, "fleet.SharesConfig: Reserved is 100, want a capacity below Total's"},
		{func(c *SharesConfig) { c.Reserved = funnel(29, 5, time.Second) }, "fleet.SharesConfig: Guarantee(Tenants[1])"},
		{func(c *SharesConfig) { c.Config.Name = "" }, "fleet.Config: Name"},
	} {
		config := tenantsOf(at(shared.Addr(), nil))
		c.change(&config)
		s, err := NewShares(config)
		require.Nil(t, s)
		field := (*policy.FieldError)(nil)
		require.True(t, errors.As(err, &field), "%v", err)
		require.ErrorContains(t, err, c.say)
	}
}

func TestSharesInAClusterNeedATag(t *testing.T) {
	if testing.Short() {
		t.Skip("a cluster")
	}
	cluster := redistest.StartCluster(t, redistest.Options{})
	c := at(cluster[0].Addr(), nil)
	c.Redis.ForceSingleClient = false
	_, err := NewShares(tenantsOf(c))
	require.ErrorContains(t, err, `Config.Tag is ""`)
	c.Tag = "group"
	s := openShares(t, comersOf(c))
	for _, tenant := range []string{"a", "c", "stranger", "x0"} {
		r := must.Get(s.Reserve(t.Context(), tenant, 3, 0))
		require.True(t, r.Allowed)
		require.Equal(t, limits.SourceRedis, r.Source(), "%v", r.Err())
		require.NoError(t, r.Cancel(t.Context()))
	}
	require.Zero(t, must.Get(s.Peek(t.Context(), "x1", 10)).RetryAfter)
	must.Get(s.Take(t.Context(), "x1", 0))
	require.Zero(t, s.Stats().Used, "units did not come back")
}

// An outage begins while all servers know the tenants. Each server has its part of all guarantees and
// loans, and what shares let pass is charged afterwards.
// Promise: Without Redis, all servers together admit at most the capacity of their shares at once.
func TestSharesWithoutRedisKeepTheGroup(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		const servers = 4
		c := tenantsOf(on(redis, nil))
		c.Config.Servers = servers
		var all [servers]*Shares
		for i := range all {
			all[i] = openShares(t, c)
		}
		for _, s := range all {
			for _, tenant := range []string{"a", "b", "c"} {
				require.True(t, must.Get(s.Peek(t.Context(), tenant, 1)).Allowed)
			}
		}
		redis.Set(gone)
		own, lent := map[string]int64{}, map[string]int64{}
		var used int64
		drain := func() (admitted int64) {
			for _, s := range all {
				for _, tenant := range []string{"stranger", "c", "a", "b"} {
					for {
						a := must.Get(s.Take(t.Context(), tenant, 1))
						require.Equal(t, limits.SourceShare, a.Source())
						if !a.Allowed {
							require.Positive(t, a.RetryAfter)
							break
						}
						admitted++
						if a.Borrowed {
							lent[tenant]++
						} else {
							own[tenant]++
						}
					}
				}
			}
			return admitted
		}
		used = drain()
		assert.Equal(t, map[string]int64{"a": 4 * (10 / 4), "b": 20}, own, "tenants must have their parts, although others borrowed all before")
		assert.EqualValues(t, 4*(70/4), lent["stranger"])
		assert.LessOrEqual(t, used, int64(100))
		time.Sleep(4 * time.Second)
		assert.LessOrEqual(t, drain(), int64(4*10+servers), "more passed than drained at the rate of the group")
		s := all[0]
		assert.False(t, must.Get(s.Take(t.Context(), "barred", 1)).Allowed)
		x := must.Get(s.Explain(t.Context(), "a"))
		assert.Empty(t, x.Each)
		r := must.Get(s.Reserve(t.Context(), "unknown to all", 0, 0))
		require.NoError(t, r.Cancel(t.Context()))

		redis.Set(well)
		eventually(t, func() bool { return all[0].Health() == nil }, "Redis is back")
		time.Sleep(10 * time.Second) // all is charged meanwhile, and 100 of 110 units would drain
		must.Get(s.Take(t.Context(), "stranger", 0))
		assert.True(t, must.Get(s.Take(t.Context(), "a", 10)).Allowed)
	})
}

// Promise: A unit that a share let pass is charged to the tenant and to the group once Redis is back.
func TestSharesAreChargedAfterAnOutage(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		c := tenantsOf(on(redis, nil))
		c.Config.Servers, c.Tenants, c.Total, c.Reserved = 1, c.Tenants[:1], funnel(100, 1, time.Second), funnel(30, 1, time.Second)
		s := openShares(t, c)
		must.Get(s.Peek(t.Context(), "a", 1))
		redis.Set(gone)
		require.True(t, must.Get(s.Take(t.Context(), "a", 8)).Allowed)
		require.True(t, must.Get(s.Take(t.Context(), "a", 5)).Borrowed)
		redis.Set(well)
		time.Sleep(3 * time.Second)
		eventually(t, func() bool { return s.Health() == nil }, "Redis is back")
		synctest.Wait()
		d := must.Get(s.Take(t.Context(), "a", 0))
		require.Equal(t, limits.SourceRedis, d.Source())
		assert.InDelta(t, 2+3, d.Remaining, 1.1, "8 units must be charged, and drain")
		assert.InDelta(t, 13-3, s.Stats().Used, 1.1)
	})
}

func TestSharesWithoutRedisByOtherFallbacks(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		for outage, allowed := range map[Fallback]bool{FallbackOpen: true, FallbackClosed: false} {
			c := tenantsOf(on(redis, nil))
			c.Config.Outage = outage
			s := openShares(t, c)
			redis.Set(gone)
			for range 200 {
				a := must.Get(s.Take(t.Context(), "a", 10))
				require.Equal(t, allowed, a.Allowed)
				require.ErrorIs(t, a.Err(), ErrOutage)
			}
			require.Equal(t, policy.Never, must.Get(s.Take(t.Context(), "a", 71)).RetryAfter)
			require.False(t, must.Get(s.Take(t.Context(), "a", 71)).Allowed)
			redis.Set(well)
		}
	})
}

func TestSetGuaranteeOverAFleet(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		c := tenantsOf(on(redis, nil))
		c.Reserved = funnel(40, 6, time.Second)
		one, other := openShares(t, c), openShares(t, c)
		limitOf := func(s *Shares) int64 { return must.Get(s.Take(t.Context(), "a", 0)).Limit }
		require.True(t, must.Get(one.Take(t.Context(), "a", 4)).Allowed)
		require.NoError(t, one.SetGuarantee("a", funnel(20, 4, time.Second)))
		time.Sleep(3 * time.Second)
		assert.EqualValues(t, 5, limitOf(one), "the burst must be the one that both limits allow at the lower rate, which the other server still keeps")
		assert.EqualValues(t, 10, limitOf(other))
		require.NoError(t, other.SetGuarantee("a", funnel(20, 4, time.Second)))
		time.Sleep(5*time.Second + beat/2)
		for _, s := range []*Shares{one, other} {
			limitOf(s) // tells the server how much Redis has granted
			assert.EqualValues(t, 20, limitOf(s))
		}

		for _, s := range []struct {
			p   policy.Policy
			say string
		}{
			{nil, "want a policy.Funnel"}, {policy.Must(policy.FixedWindow(1, time.Second)), "want a policy.Funnel"},
			{funnel(21, 1, time.Second), "the rest of the reserve"},
		} {
			err := one.SetGuarantee("a", s.p)
			field := (*policy.FieldError)(nil)
			require.True(t, errors.As(err, &field), "%v", err)
			require.ErrorContains(t, err, s.say)
		}
		require.NoError(t, one.SetGuarantee("a", funnel(1, 1, time.Second)))
		require.Error(t, one.SetGuarantee("new", funnel(1, 1, time.Second)), "a guarantee must be refused while the larger one may still be in use")
		require.NoError(t, one.Close())
		require.ErrorIs(t, one.SetGuarantee("b", funnel(1, 1, time.Second)), engine.ErrClosed)
		_, err := one.Take(t.Context(), "a", 1)
		require.ErrorIs(t, err, engine.ErrClosed)
	})
}

// The group has drained half of a guaranteed burst when that is given back, and other calls hide whether it is
// the burst's half.
func TestGuaranteeGetsBackAtMostWhatTheGroupDoes(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		s := openShares(t, tenantsOf(on(redis, nil)))
		r := must.Get(s.Reserve(t.Context(), "a", 10, 0))
		require.True(t, r.Allowed)
		require.True(t, must.Get(s.Take(t.Context(), "stranger", 20)).Borrowed)
		time.Sleep(500 * time.Millisecond)
		require.NoError(t, r.Cancel(t.Context()))
		d := must.Get(s.Peek(t.Context(), "a", 0))
		assert.EqualValues(t, 5, d.Remaining)
		assert.EqualValues(t, 20, s.Stats().Used, "of 30 units 5 must have drained and 5 come back")
		require.NoError(t, r.Cancel(t.Context()), "a second Cancel must be no error")
		require.EqualValues(t, 5, must.Get(s.Peek(t.Context(), "a", 0)).Remaining)
	})
}

func TestTenantWithoutAFunnelAsCeilingBorrowsNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		s := openShares(t, tenantsOf(on(redis, nil)))
		a := must.Get(s.Take(t.Context(), "barred", 1))
		require.Equal(t, limits.SourceRedis, a.Source())
		require.False(t, a.Allowed)
		require.Equal(t, policy.Never, a.RetryAfter)
		require.Equal(t, a, must.Get(s.Peek(t.Context(), "barred", 1)))
		x := must.Get(s.Explain(t.Context(), "barred"))
		require.False(t, x.Allowed)
		require.Equal(t, policy.Never, x.RetryAfter)
		require.Len(t, x.Each, 2, "the group, and the ceiling")
		require.Equal(t, 1, x.Binding)
		require.ErrorContains(t, x.Each[1].Err(), "the ceiling is no funnel")
	})
}

// Redis answers a call after the share has.
func TestLateAnswerIsChargedOnceToTheTenant(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		c := tenantsOf(on(redis, nil))
		c.Config.Servers, c.Total, c.Reserved, c.Tenants = 1, funnel(100, 1, time.Second), funnel(30, 1, time.Second), c.Tenants[:1]
		s := openShares(t, c)
		must.Get(s.Peek(t.Context(), "a", 1))
		redis.Set(redistest.Weather{Answers: 50 * time.Millisecond})
		a := must.Get(s.Take(t.Context(), "a", 6))
		require.True(t, a.Allowed)
		require.Equal(t, limits.SourceShare, a.Source())
		redis.Set(well)
		time.Sleep(3500 * time.Millisecond)
		d := must.Get(s.Peek(t.Context(), "a", 0))
		require.Equal(t, limits.SourceRedis, d.Source())
		assert.EqualValues(t, 10-6+3, d.Remaining)
		assert.EqualValues(t, 6-3, s.Stats().Used)
	})
}
