package share

import (
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/fleet/internal/slidinglog"
	"github.com/ral-limiter/ral/policy"
)

// open returns a share to which Redis has said of those keys that nothing is used.
func open(t *testing.T, p policy.Policy, servers int, keys ...string) *Local {
	t.Helper()
	return openMost(t, p, servers, 1<<16, keys...)
}

func openMost(t *testing.T, p policy.Policy, servers, most int, keys ...string) *Local {
	t.Helper()
	l, err := New(Config{Policy: p, Servers: servers, MaxKeys: most, Name: plain})
	require.NoError(t, err)
	for _, key := range keys {
		l.Learn(key, 0, redisTime(l.now()))
	}
	return l
}

// redisTime is another clock than that of the share.
func redisTime(now policy.Instant) policy.Instant { return now + policy.Instant(500*24*time.Hour) }

func owed(l *Local) map[string]int64 {
	all := map[string]int64{}
	for d := range l.Owed() {
		all[d.Name] = d.Units
	}
	return all
}

// pay pays what a key owes, and returns what the others owe.
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

// takeAll takes one unit after the other until the key is refused.
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

func TestWhatIsOwed(t *testing.T) {
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

		// What could not be charged is told again, what was is not, though it counts.
		l.Unpaid()
		require.Equal(t, map[string]int64{"b": b}, pay(l, "a"))
		require.Empty(t, owed(l))
		require.True(t, l.Take("a", 1, time.Hour).Allowed)
		require.Equal(t, map[string]int64{"a": 1, "b": b}, owed(l))

		// A loop that stops in the middle is told all again.
		l.Unpaid()
		for range l.Owed() {
			break
		}
		require.Len(t, owed(l), 2)

		// What is given back is not owed, once.
		r := l.Take("a", 1, time.Hour)
		require.True(t, r.Allowed)
		r.Cancel()
		require.Equal(t, map[string]int64{"a": 1, "b": b}, owed(l))
		l.Refund("b", 2)
		require.Equal(t, map[string]int64{"a": 1, "b": b - 2}, owed(l))
		l.Refund("b", 10)
		l.Refund("b", -1)
		require.Equal(t, map[string]int64{"a": 1, "b": 1}, owed(l))

		// What counts in Redis already is not owed either.
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

// A part of a take comes back on a busy key as far as the key owes it. The rest was charged, and
// stays used here; what never will be charged does not come back.
func TestRefundOfATake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := openMost(t, policy.Must(policy.Funnel(20, 1, time.Hour)), 1, 1, "a")
		remaining := func() int64 { return l.Peek("a").Remaining }
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

func TestAnotherNumberOfServers(t *testing.T) {
	l := open(t, policy.Must(policy.Funnel(100, 1, time.Hour)), 1, "a", "b")
	require.True(t, l.Take("a", 60, 0).Allowed)
	require.NoError(t, l.Serve(2))
	require.Equal(t, 2, l.Servers())
	require.False(t, l.Take("a", 1, 0).Allowed, "60 of 50 are used")
	require.True(t, l.Take("b", 30, 0).Allowed)
	require.NoError(t, l.Serve(1))
	require.True(t, l.Take("b", 40, 0).Allowed, "three fifths are used")
	require.False(t, l.Take("b", 1, 0).Allowed)
}

// A share that loses its other servers keeps as large a part of it used.
func TestPartStaysUsed(t *testing.T) {
	simulated(t, kinds(t), func(t *testing.T, whole policy.Policy) {
		l := open(t, whole, 4, "a")
		takeUp(l, "a")
		require.NoError(t, l.Serve(1))
		require.False(t, l.Take("a", 1, 0).Allowed)
	})
}

// kinds are limits of 40 units, each of which counts for some seconds at least.
func kinds(t *testing.T) []policy.Policy {
	t.Helper()
	must := policy.Must
	log, err := slidinglog.New(40, 4*time.Second)
	require.NoError(t, err)
	return []policy.Policy{
		must(policy.Funnel(40, 10, time.Second)), must(policy.Queue(39, 10, time.Second)),
		must(policy.Bursty(10, time.Second, 40)), must(policy.FixedWindow(40, 4*time.Second)),
		must(policy.SlidingWindow(40, 4*time.Second)), must(policy.AlignedWindow(40, 4*time.Second)), log,
	}
}

// TestPaidAllTheTime has a key take what it can, and everything be charged each time: the
// share admits no more than the same share of which nothing is ever charged, and each
// unit is charged once.
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

// What was charged and drained is forgotten; and what the share admits then is owed.
func TestPaidDrains(t *testing.T) {
	simulated(t, kinds(t), func(t *testing.T, whole policy.Policy) {
		l := open(t, whole, 2, "a")
		require.True(t, l.Take("a", 1, time.Hour).Allowed)
		require.Empty(t, pay(l, "a"))
		require.Equal(t, 1, size(l))
		time.Sleep(time.Minute)
		require.Empty(t, owed(l))
		require.Zero(t, size(l))
		require.True(t, l.Take("a", 1, time.Hour).Allowed)
		require.Equal(t, map[string]int64{"a": 1}, owed(l))
	})
}

func size(l *Local) (n int) {
	for i := range l.shards {
		n += len(l.shards[i].entries)
	}
	return n
}

// Units that were charged, and then drained, do not hide units that were taken later.
func TestDrainedUnitsHideNothing(t *testing.T) {
	simulated(t, kinds(t), func(t *testing.T, whole policy.Policy) {
		l := open(t, whole, 1, "a")
		require.True(t, l.Take("a", 7, time.Hour).Allowed)
		time.Sleep(time.Second) // before it is charged
		for d := range l.Owed() {
			l.Paid(d)
		}
		time.Sleep(3*time.Second + 1) // those of a window count no more
		require.True(t, l.Take("a", 5, time.Hour).Allowed)
		require.Equal(t, map[string]int64{"a": 5}, owed(l))
	})
}

// Units that drained before they were charged are not owed when Redis then says that others
// are used.
func TestDrainedUnitsAreNotOwed(t *testing.T) {
	simulated(t, kinds(t), func(t *testing.T, whole policy.Policy) {
		l := open(t, whole, 2, "a")
		require.True(t, l.Take("a", 5, time.Hour).Allowed)
		time.Sleep(10 * time.Second)
		l.Learn("a", l.Word(20, redisTime(l.now())), redisTime(l.now()))
		require.True(t, l.Take("a", 1, time.Hour).Allowed)
		require.Equal(t, map[string]int64{"a": 1}, owed(l))
	})
}

// What was charged is carried to another number of servers, as what was used is, and a
// key that is reset owes what it takes from then on.
func TestPaidOfOthers(t *testing.T) {
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

// TestShareBeginsFromRedis has a key use a part of the limit in Redis before Redis goes
// away. All servers know that, and together they admit no more than what is left; what
// drains in Redis drains in the shares.
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
					atMost = max(atMost, 0) + int64(servers) // the last call comes on top
				}
				assert.LessOrEqual(t, admitted, atMost, "%d used, %d servers", used, servers)
				assert.GreaterOrEqual(t, admitted, 40-used-2*int64(servers), "%d used, %d servers", used, servers)
				time.Sleep(10 * time.Second)
				for _, l := range all {
					later += takeUp(l, "a")
				}
				assert.GreaterOrEqual(t, later, int64(39-servers), "it comes back")
			}
		}
	})
}

// A share of a fixed window that Redis has opened ends with it.
func TestShareOfAWindowEndsWithIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, policy.Must(policy.FixedWindow(40, 4*time.Second)), 2)
		l.Learn("a", l.Word(40, redisTime(l.now())), redisTime(l.now()))
		time.Sleep(3500 * time.Millisecond)
		r := l.Take("a", 1, 0)
		require.False(t, r.Allowed)
		require.Equal(t, 500*time.Millisecond, r.RetryAfter.Round(time.Millisecond))
		time.Sleep(r.RetryAfter)
		require.EqualValues(t, 20, takeUp(l, "a"))
	})
}

// A key of which nothing is known begins used up, except for a unit, as of when Redis was
// heard last, and comes back from there.
//
// Promise: An unknown key begins used up, except for one unit.
func TestUnknownKeyBeginsUsedUp(t *testing.T) {
	simulated(t, kinds(t), func(t *testing.T, whole policy.Policy) {
		l := open(t, whole, 2, "another")
		require.EqualValues(t, 1, takeUp(l, "a"))
		time.Sleep(2 * time.Second)
		back := takeUp(l, "a")
		require.LessOrEqual(t, back, int64(10), "half of 10 a second")
		require.GreaterOrEqual(t, back, int64(4))
		time.Sleep(20 * time.Second)
		require.GreaterOrEqual(t, takeUp(l, "b"), int64(20), "all has come back")

		// Redis says something of another key: b counts on, c is not known.
		l.Learn("another", l.Word(1, redisTime(l.now())), redisTime(l.now()))
		require.EqualValues(t, 0, takeUp(l, "b"))
		require.EqualValues(t, 1, takeUp(l, "c"))
	})
}

// A server that has just started, and does not reach Redis, begins with nothing, so that
// servers that are restarted again and again admit no more than one that is not.
func TestRestartIsNoBurst(t *testing.T) {
	simulated(t, kinds(t), func(t *testing.T, whole policy.Policy) {
		const restarts, life = 20, time.Second
		admitted := int64(0)
		for range restarts {
			l := open(t, whole, 2)
			for range 50 {
				admitted += takeUp(l, "a")
				time.Sleep(life / 50)
			}
		}
		// Half of 10 a second, for as long.
		require.LessOrEqual(t, admitted, int64(restarts*5))
		t.Log(admitted, "admitted")
	})
}

// Without a count of the servers there is no share: all is refused until there is one.
func TestUncountedRefuses(t *testing.T) {
	simulated(t, kinds(t), func(t *testing.T, whole policy.Policy) {
		l := open(t, whole, 0, "a")
		r := l.Take("a", 1, time.Hour)
		require.False(t, r.Allowed)
		require.Equal(t, policy.Never, r.RetryAfter)
		r.Cancel()
		require.False(t, l.Refund("a", 1).Allowed)
		require.True(t, l.Peek("a").Allowed)
		all, allowed := TakeAll(Claim{l, "a", 1})
		require.False(t, allowed)
		require.False(t, all[0].Allowed)
		require.Empty(t, owed(l))
		require.NoError(t, l.Serve(2))
		require.GreaterOrEqual(t, takeUp(l, "a"), int64(20))
	})
}

// What Redis said loses its meaning when a key that owed all would have drained.
func TestOldWordsAreForgotten(t *testing.T) {
	simulated(t, kinds(t), func(t *testing.T, whole policy.Policy) {
		l := open(t, whole, 1, "a")
		time.Sleep(8 * time.Second)
		l.Learn("another", 0, redisTime(l.now()))
		require.EqualValues(t, 1, takeUp(l, "a"))
	})
}

// An answer that is older than the last, by Redis's clock, changes nothing; one by a clock
// that was set back does. Of several at one instant the one that leaves least counts.
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

// A refund of units that Redis counts goes to the share, as much of it as there is.
func TestRefundOfWhatRedisCounts(t *testing.T) {
	simulated(t, kinds(t), func(t *testing.T, whole policy.Policy) {
		l := open(t, whole, 2)
		l.Learn("a", l.Word(40, redisTime(l.now())), redisTime(l.now()))
		takeUp(l, "a")
		l.Refund("a", 5)
		require.GreaterOrEqual(t, takeUp(l, "a"), int64(5))
	})
}

// TestMemoryIsBounded has far more keys than there is room for, each of 64 KiB: no more
// are kept than there is room for, of each a few bytes, and none begins afresh for that.
//
// Promise: A share never holds more than `MaxKeys`.
func TestMemoryIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 100
		l, err := New(Config{
			Policy: policy.Must(policy.Funnel(4, 1, time.Hour)), Servers: 1, MaxKeys: most,
			Name: func(key string) string { return strings.Clone(key[:8]) },
		})
		require.NoError(t, err)
		long := strings.Repeat("x", 64<<10-8)
		name := func(i int) string { return (strconv.Itoa(i) + "........")[:8] + long }
		for i := range 20 * most {
			l.Learn(name(i), 0, redisTime(l.now()))
		}
		words := 0
		for i := range l.shards {
			words += len(l.shards[i].known)
		}
		require.LessOrEqual(t, words, most)
		require.Greater(t, words, most/2)

		admitted := int64(0)
		for i := range 20 * most {
			admitted += takeUp(l, name(i))
			require.LessOrEqual(t, size(l), most)
		}
		charged := int64(0)
		for d := range l.Owed() {
			require.Len(t, d.Name, 8)
			charged += d.Units
		}
		require.NotZero(t, charged)
		require.Equal(t, admitted, charged+int64(l.Lapsed()), "each is charged, or counted as lapsed")

		// A key that was pushed out does not begin afresh.
		again := int64(0)
		for i := range 20 * most {
			again += takeUp(l, name(i))
		}
		require.LessOrEqual(t, again, int64(4*words), "only what Redis said of a key counts")
		for i := range 20 * most {
			l.Learn("k"+name(i), 0, redisTime(l.now()))
		}
		again = 0
		for i := range 20 * most {
			again += takeUp(l, name(i))
		}
		require.Zero(t, again)
	})
}

// A word that Redis told long ago says something of a key that it has said nothing of
// since, and nothing of its clock.
func TestLateWordsChangeNothingThatIsNewer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := policy.Must(policy.Funnel(100, 1, time.Hour))
		l := open(t, p, 1)
		const then = policy.Instant(time.Hour)
		word := func(used int64, at policy.Instant) uint64 { return charged(p, 0, at, used) }
		l.LearnLate("late", word(60, then), then)
		later := then + policy.Instant(10*time.Second)
		l.Learn("newer", word(10, later), later)
		l.LearnLate("newer", word(90, then), then)
		require.EqualValues(t, 40, l.Peek("late").Remaining)
		require.EqualValues(t, 90, l.Peek("newer").Remaining)
		require.Equal(t, int64(later-l.now()), l.ahead.Load())
		l.LearnLate("late", l.Word(70, later), later)
		require.EqualValues(t, 30, l.Peek("late").Remaining)
	})
}
