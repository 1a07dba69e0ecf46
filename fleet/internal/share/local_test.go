package share

import (
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/fleet/internal/share/part"
	"github.com/ral-limiter/ral/fleet/internal/slidinglog"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/policy"
)

// open returns a share to which Redis said that these keys are unused.
func open(t *testing.T, p policy.Policy, servers int, keys ...string) *Local {
	t.Helper()
	return openMost(t, p, servers, 1<<16, keys...)
}

func openMost(t *testing.T, p policy.Policy, servers, most int, keys ...string) *Local {
	t.Helper()
	l := must.Get(New(Config{Policy: p, Servers: servers, MaxKeys: most, Name: plain}))
	for _, key := range keys {
		l.Learn(key, 0, redisTime(l.now()))
	}
	return l
}

// redisTime converts to another clock.
func redisTime(now policy.Instant) policy.Instant { return now + policy.Instant(500*24*time.Hour) }

func owed(l *Local) map[string]int64 {
	all := map[string]int64{}
	for d := range l.Owed() {
		all[d.Name] = d.Units
	}
	return all
}

// pay pays the debts of a key, and returns the debts of others.
func pay(l *Local, key string) map[string]int64 {
	others := map[string]int64{}
	for d := range l.Owed() {
		if d.Name == key {
			l.Paid(d)
		} else {
			others[d.Name] = d.Units
		}
	}
	return others
}

// takeUp takes single units until the key is refused.
func takeUp(l *Local, key string) (admitted int64) {
	for admitted < 1000 && l.Take(key, 1, 0).Allowed {
		admitted++
	}
	return admitted
}

func simulated(t *testing.T, policies []policy.Policy, test func(t *testing.T, whole policy.Policy)) {
	for _, whole := range policies {
		t.Run(whole.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, whole) })
		})
	}
}

func TestDebtIsTold(t *testing.T) {
	must := policy.Must
	simulated(t, []policy.Policy{
		must(policy.Funnel(40, 10, time.Second)), must(policy.Queue(40, 10, time.Second)),
		must(policy.Bursty(10, time.Second, 40)), must(policy.FixedWindow(40, time.Hour)),
		must(policy.SlidingWindow(40, time.Hour)), must(policy.AlignedWindow(40, time.Hour)),
	}, func(t *testing.T, whole policy.Policy) {
		l := open(t, whole, 2, "a", "b")
		require.Empty(t, owed(l))
		for range 7 {
			require.True(t, l.Take("a", 1, time.Hour).Allowed)
		}
		const b = 3
		require.True(t, l.Take("b", b, time.Hour).Allowed)
		require.Equal(t, map[string]int64{"a": 7, "b": b}, owed(l))
		require.Empty(t, owed(l), "no call took since")

		// Debts that could not be charged come again; charged debts do not, though they count.
		l.Unpaid()
		require.Equal(t, map[string]int64{"b": b}, pay(l, "a"))
		require.Empty(t, owed(l))
		require.True(t, l.Take("a", 1, time.Hour).Allowed)
		require.Equal(t, map[string]int64{"a": 1, "b": b}, owed(l))

		// A loop that stops early gets all again.
		l.Unpaid()
		for range l.Owed() {
			break
		}
		require.Len(t, owed(l), 2)

		// Returned units are not owed.
		r := l.Take("a", 1, time.Hour)
		require.True(t, r.Allowed)
		r.Cancel()
		require.Equal(t, map[string]int64{"a": 1, "b": b}, owed(l))
		l.Refund("b", 2)
		require.Equal(t, map[string]int64{"a": 1, "b": b - 2}, owed(l))
		l.Refund("b", 10)
		l.Refund("b", -1)
		require.Equal(t, map[string]int64{"a": 1, "b": 1}, owed(l))

		// Nor are units that Redis counts.
		l.Refund("b", -4)
		require.EqualValues(t, 3, l.Credit("b", 3))
		require.Equal(t, map[string]int64{"a": 1, "b": 2}, owed(l))
		require.EqualValues(t, 2, l.Credit("b", 3))
		require.Zero(t, l.Credit("b", 3))
		require.Zero(t, l.Credit("c", 3))
		l.Unpaid()
		require.Equal(t, map[string]int64{"a": 1}, owed(l))
	})
}

// Promise: Units of a share come back only if not yet charged.
func TestRefundOfATake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := openMost(t, policy.Must(policy.Funnel(20, 1, time.Hour)), 1, 1, "a")
		remaining := func() int64 { return l.Peek("a", 0).Remaining }
		first := l.Take("a", 6, 0)
		require.True(t, l.Take("a", 2, 0).Allowed)
		require.Zero(t, first.Refund(4))
		require.Equal(t, map[string]int64{"a": 4}, owed(l))
		require.Equal(t, int64(16), remaining())

		second := l.Take("a", 6, 0)
		require.Empty(t, pay(l, "a"))
		require.True(t, l.Take("a", 1, 0).Allowed)
		require.Equal(t, int64(3), second.Refund(4), "a unit is owed, of which call is all the same")
		require.Empty(t, owed(l))
		require.Equal(t, int64(10), remaining(), "10 are charged")

		third := l.Take("a", 6, 0)
		require.NoError(t, l.Serve(2))
		require.Zero(t, third.Refund(5), "it counts on in another share")
		require.Equal(t, map[string]int64{"a": 1}, owed(l))

		require.True(t, l.Take("b", 1, 0).Allowed)
		require.NotZero(t, l.Lapsed(), "a made room")
		require.Zero(t, third.Refund(1))
		refused := l.Take("b", 100, 0)
		require.Zero(t, refused.Refund(1))
		require.Zero(t, third.Refund(-1))
	})
}

// The part that is used stays the same with another number of servers.
func TestPartStaysUsed(t *testing.T) {
	simulated(t, kinds(t), func(t *testing.T, whole policy.Policy) {
		l := open(t, whole, 4, "a")
		takeUp(l, "a")
		require.NoError(t, l.Serve(1))
		require.False(t, l.Take("a", 1, 0).Allowed)
	})
	l := open(t, policy.Must(policy.Funnel(100, 1, time.Hour)), 1, "a", "b")
	require.True(t, l.Take("a", 60, 0).Allowed)
	require.NoError(t, l.Serve(2))
	require.Equal(t, 2, l.Servers())
	require.False(t, l.Take("a", 1, 0).Allowed, "60 of 50 are used")
	require.True(t, l.Take("b", 30, 0).Allowed)
	require.NoError(t, l.Serve(1))
	require.EqualValues(t, 40, takeUp(l, "b"), "three fifths are used")
}

// kinds are limits of 40 units that count for at least some seconds.
func kinds(t *testing.T) []policy.Policy {
	t.Helper()
	must := policy.Must
	log := policy.Must(slidinglog.New(40, 4*time.Second))
	return []policy.Policy{
		must(policy.Funnel(40, 10, time.Second)), must(policy.Queue(39, 10, time.Second)),
		must(policy.Bursty(10, time.Second, 40)), must(policy.FixedWindow(40, 4*time.Second)),
		must(policy.SlidingWindow(40, 4*time.Second)), must(policy.AlignedWindow(40, 4*time.Second)), log,
	}
}

// A key takes all it can, and everything is charged at once. The share admits no more than without
// charges, and each unit is charged once.
func TestPaidAllTheTime(t *testing.T) {
	simulated(t, kinds(t), func(t *testing.T, whole policy.Policy) {
		l, untold := open(t, whole, 2, "a"), open(t, whole, 2, "a")
		admitted, without, charged := int64(0), int64(0), int64(0)
		for range 400 {
			admitted += takeUp(l, "a")
			without += takeUp(untold, "a")
			for d := range l.Owed() {
				l.Paid(d)
				charged += d.Units
			}
			time.Sleep(73 * time.Millisecond)
		}
		require.Equal(t, without, admitted)
		require.Equal(t, admitted, charged)
	})
}

// Charged units that drained are forgotten, and hide no new ones. Units that drained uncharged are
// not owed, even if Redis later says that other units are used.
func TestChargedUnitsDrainAndAreForgotten(t *testing.T) {
	simulated(t, kinds(t), func(t *testing.T, whole policy.Policy) {
		l := open(t, whole, 1, "a")
		require.True(t, l.Take("a", 7, time.Hour).Allowed)
		// The take drains for a second before it is charged.
		time.Sleep(time.Second)
		require.Empty(t, pay(l, "a"))
		// A window's units are gone.
		time.Sleep(3*time.Second + 1)
		require.True(t, l.Take("a", 5, time.Hour).Allowed)
		require.Equal(t, map[string]int64{"a": 5}, owed(l))
		time.Sleep(10 * time.Second)
		l.Learn("a", l.Word(20, redisTime(l.now())), redisTime(l.now()))
		require.True(t, l.Take("a", 1, time.Hour).Allowed)
		require.Equal(t, map[string]int64{"a": 1}, owed(l))
		l.Unpaid()
		require.Empty(t, pay(l, "a"))
		require.Equal(t, 1, size(l))
		time.Sleep(time.Minute)
		require.Empty(t, owed(l))
		require.Zero(t, size(l))
	})
}

func size(l *Local) (n int) {
	for i := range l.shards {
		n += len(l.shards[i].entries)
	}
	return n
}

// Charged units carry to another number of servers like used units. A reset key owes new units.
func TestChargedUnitsCarryToAnotherShare(t *testing.T) {
	simulated(t, kinds(t), func(t *testing.T, whole policy.Policy) {
		l := open(t, whole, 1, "a")
		require.True(t, l.Take("a", 7, time.Hour).Allowed)
		require.Empty(t, pay(l, "a"))
		require.NoError(t, l.Serve(2))
		l.Unpaid()
		require.Empty(t, owed(l))
		require.True(t, l.Take("a", 2, time.Hour).Allowed)
		require.Equal(t, map[string]int64{"a": 2}, owed(l))
		require.True(t, l.Reset("a"))
		require.False(t, l.Reset("a"))
		require.True(t, l.Take("a", 1, time.Hour).Allowed)
		require.Equal(t, map[string]int64{"a": 1}, owed(l))
	})
}

// A key uses part of the limit before Redis goes away. Servers admit no more than the rest.
func TestShareBeginsFromRedis(t *testing.T) {
	simulated(t, kinds(t), func(t *testing.T, whole policy.Policy) {
		for _, used := range []int64{0, 1, 10, 20, 39, 40} {
			for _, servers := range []int{1, 2, 3, 4} {
				var all []*Local
				for range servers {
					l := open(t, whole, servers)
					l.Learn("a", l.Word(used, redisTime(l.now())), redisTime(l.now()))
					all = append(all, l)
				}
				admitted, later := int64(0), int64(0)
				for _, l := range all {
					admitted += takeUp(l, "a")
				}
				atMost := 40 - used
				if strings.HasPrefix(whole.String(), "bursty") {
					// The last call may add units.
					atMost = max(atMost, 0) + int64(servers)
				}
				assert.LessOrEqual(t, admitted, atMost, "%d used, %d servers", used, servers)
				assert.GreaterOrEqual(t, admitted, 40-used-2*int64(servers), "%d used, %d servers", used, servers)
				time.Sleep(10 * time.Second)
				for _, l := range all {
					later += takeUp(l, "a")
				}
				assert.GreaterOrEqual(t, later, int64(39-servers), "fewer units came back than the share has")
			}
		}
	})
}

// A share of a fixed window ends with Redis's window. Units that Redis counts come back as far as
// the share has use for them.
func TestShareOfAWindowEndsWithIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, policy.Must(policy.FixedWindow(40, 4*time.Second)), 2)
		l.Learn("a", l.Word(40, redisTime(l.now())), redisTime(l.now()))
		time.Sleep(3500 * time.Millisecond)
		r := l.Take("a", 1, 0)
		require.False(t, r.Allowed)
		require.Equal(t, 500*time.Millisecond, r.RetryAfter.Round(time.Millisecond))
		l.Refund("a", 5)
		require.EqualValues(t, 5, takeUp(l, "a"))
		time.Sleep(r.RetryAfter)
		require.EqualValues(t, 20, takeUp(l, "a"))
	})
}

// An unknown key begins used up, except for a unit, at Redis's last answer, and a word that a full
// key would have drained by now is forgotten.
// Promise: An unknown key begins with one unit left.
func TestUnknownKeyBeginsUsedUp(t *testing.T) {
	simulated(t, kinds(t), func(t *testing.T, whole policy.Policy) {
		l := open(t, whole, 2, "another", "old")
		require.EqualValues(t, 1, takeUp(l, "a"))
		time.Sleep(2 * time.Second)
		back := takeUp(l, "a")
		require.LessOrEqual(t, back, int64(10), "half of 10 a second")
		require.GreaterOrEqual(t, back, int64(4))
		time.Sleep(20 * time.Second)
		require.GreaterOrEqual(t, takeUp(l, "b"), int64(20), "all has come back")

		// Redis says something of another key: b counts on, c is unknown.
		l.Learn("another", l.Word(1, redisTime(l.now())), redisTime(l.now()))
		require.EqualValues(t, 0, takeUp(l, "b"))
		require.EqualValues(t, 1, takeUp(l, "c"))
		require.EqualValues(t, 1, takeUp(l, "old"))
	})
}

// An unknown key's first call passes up to the share, whatever it costs, and no other until units
// have come back. A server without a word of Redis, and one that forgot a key with debts, admit none.
// Promise: Without Redis, the first call of an unknown key passes if its cost is within the share.
func TestFirstCallOfAnUnknownKey(t *testing.T) {
	simulated(t, kinds(t), func(t *testing.T, whole policy.Policy) {
		l := open(t, whole, 2, "another")
		half := must.Get(part.Of(whole, 2))
		most := min(half.Limit(), 20)
		for n := int64(1); n <= most; n++ {
			key := strconv.FormatInt(n, 10)
			require.True(t, l.Peek(key, n).Allowed, "%v, %d", half, n)
			require.EqualValues(t, 1, l.Peek(key, 0).Remaining, "a look")
			require.True(t, l.Take(key, n, 0).Allowed, "%v, %d", half, n)
			require.False(t, l.Take(key, 1, 0).Allowed, "%v, after %d", half, n)
			require.Equal(t, n, owed(l)[key])
		}
		if half.Limit() == most {
			require.Equal(t, policy.Never, l.Take("dearer", most+1, 0).RetryAfter)
		}
		unheard := must.Get(New(Config{Policy: whole, Servers: 2, MaxKeys: 1, Full: true, Name: plain}))
		require.False(t, unheard.Take("a", 1, 0).Allowed)
		require.False(t, unheard.Take("a", most, 0).Allowed)
	})
}

// With Full an unknown key begins with its whole share, also in one call, except after an eviction
// of a key that owed, for as long as that may have counted.
func TestUnknownKeysMayBeginWithTheirShare(t *testing.T) {
	simulated(t, kinds(t), func(t *testing.T, whole policy.Policy) {
		l := must.Get(New(Config{Policy: whole, Servers: 2, MaxKeys: 1, Full: true, Name: plain}))
		known := open(t, whole, 2, "a")
		l.Heard(redisTime(l.now()))
		all := takeUp(known, "a")
		require.Equal(t, all, takeUp(l, "a"))
		require.Equal(t, all, takeUp(l, "b"), "a key that owed is forgotten by that")
		require.Zero(t, takeUp(l, "c"))
		time.Sleep(time.Millisecond)
		l.Heard(redisTime(l.now()))
		require.EqualValues(t, 1, takeUp(l, "c"))
		time.Sleep(time.Minute)
		l.Heard(redisTime(l.now()))
		require.Equal(t, takeUp(open(t, whole, 2, "d"), "d"), takeUp(l, "d"))
	})
}

// All is refused until servers are counted.
func TestUncountedRefuses(t *testing.T) {
	simulated(t, kinds(t), func(t *testing.T, whole policy.Policy) {
		l := open(t, whole, 0, "a")
		r := l.Take("a", 1, time.Hour)
		require.False(t, r.Allowed)
		require.Equal(t, policy.Never, r.RetryAfter)
		r.Cancel()
		require.False(t, l.Refund("a", 1).Allowed)
		require.True(t, l.Peek("a", 0).Allowed)
		all, allowed := TakeAll(Claim{l, "a", 1})
		require.False(t, allowed)
		require.False(t, all[0].Allowed)
		require.Empty(t, owed(l))
		require.NoError(t, l.Serve(2))
		require.GreaterOrEqual(t, takeUp(l, "a"), int64(20))
	})
}

// Answers older by Redis's clock change nothing, unless it was set back. At one instant the least
// left counts.
func TestLatestWordCounts(t *testing.T) {
	simulated(t, kinds(t), func(t *testing.T, whole policy.Policy) {
		l := open(t, whole, 1)
		now := redisTime(l.now())
		l.Learn("a", l.Word(30, now), now)
		l.Learn("a", 0, now-1000)
		l.Learn("c", l.Word(30, now), now)
		l.Learn("c", 0, now)
		if !strings.HasPrefix(whole.String(), "bursty") {
			require.False(t, l.Take("a", 11, 0).Allowed)
			require.False(t, l.Take("c", 11, 0).Allowed)
		}
		l.Learn("b", l.Word(30, now), now)
		l.Learn("b", 0, now-policy.Instant(time.Hour))
		require.GreaterOrEqual(t, takeUp(l, "b"), int64(40))
	})
}

// Many more keys of 64 KiB come than fit. A few bytes of each are kept, and no key begins afresh.
// Promise: Shares hold at most `MaxKeys`.
func TestMemoryIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most, keys = 100, 2000
		l := must.Get(New(Config{
			Policy: policy.Must(policy.Funnel(4, 1, time.Hour)), Servers: 1, MaxKeys: most,
			Name: func(key string) string { return strings.Clone(key[:8]) },
		}))
		long := strings.Repeat("x", 64<<10-8)
		name := func(i int) string { return (strconv.Itoa(i) + "........")[:8] + long }
		takeAll := func() (admitted int64) {
			for i := range keys {
				admitted += takeUp(l, name(i))
				require.LessOrEqual(t, size(l), most)
			}
			return admitted
		}
		for i := range keys {
			l.Learn(name(i), 0, redisTime(l.now()))
		}
		words := 0
		for i := range l.shards {
			words += len(l.shards[i].known)
		}
		require.LessOrEqual(t, words, most)
		require.Greater(t, words, most/2)
		admitted, charged := takeAll(), int64(0)
		for d := range l.Owed() {
			require.Len(t, d.Name, 8)
			charged += d.Units
		}
		require.NotZero(t, charged)
		require.Equal(t, admitted, charged+int64(l.Lapsed()), "each is charged, or counted as lapsed")
		require.LessOrEqual(t, takeAll(), int64(4*words), "only what Redis said of an evicted key counts")
		for i := range keys {
			l.Learn("k"+name(i), 0, redisTime(l.now()))
		}
		require.Zero(t, takeAll())
	})
}

// An old word changes only keys without a newer word, and not the clock.
func TestLateWordsChangeNothingThatIsNewer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := policy.Must(policy.Funnel(100, 1, time.Hour))
		l := open(t, p, 1)
		const then = policy.Instant(time.Hour)
		word := func(used int64, at policy.Instant) uint64 { return part.NewWhole(p).Word(used, at) }
		l.LearnLate("late", word(60, then), then)
		later := then + policy.Instant(10*time.Second)
		l.Learn("newer", word(10, later), later)
		l.LearnLate("newer", word(90, then), then)
		require.EqualValues(t, 40, l.Peek("late", 0).Remaining)
		require.EqualValues(t, 90, l.Peek("newer", 0).Remaining)
		require.Equal(t, int64(later-l.now()), l.clockOffset.Load())
		l.LearnLate("late", l.Word(70, later), later)
		require.EqualValues(t, 30, l.Peek("late", 0).Remaining)
	})
}
