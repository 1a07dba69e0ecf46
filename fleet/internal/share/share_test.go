package share

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/fleet/internal/slidinglog"
	"github.com/ral-limiter/ral/policy"
)

func log(t *testing.T) policy.Policy {
	t.Helper()
	l, err := slidinglog.New(100, time.Second)
	require.NoError(t, err)
	return l
}

func TestWhatAShareIs(t *testing.T) {
	must := policy.Must
	for _, c := range []struct {
		whole   policy.Policy
		servers int
		part    string
	}{
		{must(policy.Funnel(100, 10, time.Second)), 1, "funnel of 100, draining 10 per 1s"},
		{must(policy.Funnel(100, 10, time.Second)), 0, "funnel of 100, draining 10 per 1s"},
		{must(policy.Funnel(100, 10, time.Second)), 3, "funnel of 33, draining 10 per 3s"},
		{must(policy.Funnel(2, 10, time.Second)), 5, "funnel of 1, draining 10 per 5s"},
		{must(policy.Queue(19, 10, time.Second)), 4, must(policy.Queue(4, 10, 4*time.Second)).String()},
		{must(policy.Queue(0, 10, time.Second)), 4, must(policy.Queue(0, 10, 4*time.Second)).String()},
		{must(policy.Bursty(10, time.Second, 9)), 4, must(policy.Bursty(10, 4*time.Second, 2)).String()},
		{must(policy.FixedWindow(100, time.Minute)), 7, must(policy.FixedWindow(14, time.Minute)).String()},
		{must(policy.FixedWindow(3, time.Minute)), 7, must(policy.FixedWindow(1, 3*time.Minute)).String()},
		{must(policy.FixedWindow(1, 366*24*time.Hour)), 7, must(policy.FixedWindow(1, 366*24*time.Hour)).String()},
		{must(policy.SlidingWindow(100, time.Minute)), 7, must(policy.SlidingWindow(14, time.Minute)).String()},
		{log(t), 4, must(policy.AtMost(25, time.Second)).String()},
		// One unit in 12 years can be divided by one server only.
		{must(policy.Funnel(1, 1, 12*366*24*time.Hour)), 64, must(policy.Funnel(1, 1, 12*366*24*time.Hour)).String()},
	} {
		part, err := Of(c.whole, c.servers)
		require.NoError(t, err)
		assert.Equal(t, c.part, part.String(), "%v by %d", c.whole, c.servers)
	}
}

func TestWhatHasNoShares(t *testing.T) {
	for _, p := range []policy.Policy{
		policy.Must(policy.AtMost(1, time.Second)),
		policy.Must(policy.WarmingUp(1, time.Second, time.Second, 3)),
	} {
		_, err := Of(p, 2)
		require.ErrorContains(t, err, "has no shares")
	}
}

// TestSharesKeepTheLimit has all servers take whatever they can, and counts.
func TestSharesKeepTheLimit(t *testing.T) {
	const (
		tick = 10 * time.Millisecond
		span = 4 * time.Second
	)
	must := policy.Must
	for _, c := range []struct {
		whole policy.Policy
		// most is what the whole allows in the span, and fresh how many units each
		// server more than the whole divides by may bring.
		most, fresh int64
	}{
		{must(policy.Funnel(40, 10, time.Second)), 40 + 40, 0},
		{must(policy.Funnel(2, 10, time.Second)), 2 + 40, 1},
		{must(policy.Queue(39, 10, time.Second)), 40 + 40, 0},
		{must(policy.Bursty(10, time.Second, 40)), 40 + 40, 1}, // the last call comes on top
		{must(policy.FixedWindow(40, time.Second)), 4 * 40, 0},
		{must(policy.FixedWindow(2, time.Second)), 4 * 2, 1},
		{must(policy.SlidingWindow(40, time.Second)), 4 * 40, 0},
		{log(t), 4 * 100, 0},
	} {
		for _, servers := range []int{1, 2, 3, 8} {
			t.Run(fmt.Sprint(c.whole, servers), func(t *testing.T) {
				part, err := Of(c.whole, servers)
				require.NoError(t, err)
				words := make([]uint64, servers)
				var admitted int64
				for now := policy.Instant(1); now < policy.Instant(span); now += policy.Instant(tick) {
					for i := range words {
						for d := (policy.Decision{Allowed: true}); d.Allowed; {
							if words[i], d = part.Take(words[i], now, 1, 0); d.Allowed {
								admitted++
							}
						}
					}
				}
				require.LessOrEqual(t, admitted, c.most+c.fresh*int64(servers))
				require.GreaterOrEqual(t, admitted, c.most/2, "and not much less")
			})
		}
	}
}

func open(t *testing.T, p policy.Policy, servers int) *Local {
	t.Helper()
	l, err := New(p, servers, 0)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	return l
}

func owed(l *Local) map[string]int64 {
	all := map[string]int64{}
	for key, n := range l.Owed() {
		all[key] = n
	}
	return all
}

// pay pays what a key owes, and returns what the others owe.
func pay(l *Local, key string) map[string]int64 {
	others := map[string]int64{}
	for k, n := range l.Owed() {
		if k == key {
			l.Paid(k, n)
		} else {
			others[k] = n
		}
	}
	return others
}

func TestWhatIsOwed(t *testing.T) {
	must := policy.Must
	for _, whole := range []policy.Policy{
		must(policy.Funnel(40, 10, time.Second)), must(policy.Queue(40, 10, time.Second)),
		must(policy.Bursty(10, time.Second, 40)), must(policy.FixedWindow(40, time.Hour)),
		must(policy.SlidingWindow(40, time.Hour)),
	} {
		t.Run(whole.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, err := New(whole, 2, 0)
				require.NoError(t, err)
				defer l.Close()
				require.Empty(t, owed(l))
				for range 7 {
					require.True(t, l.Take("a", 1, time.Hour).Allowed)
				}
				require.True(t, l.Take("b", 3, time.Hour).Allowed)
				const b = 3
				require.Equal(t, map[string]int64{"a": 7, "b": b}, owed(l))
				require.Empty(t, owed(l), "nobody took since")

				// What could not be charged is told again, what was is not, though it
				// counts.
				l.Unpaid()
				require.Equal(t, map[string]int64{"b": b}, pay(l, "a"))
				require.Empty(t, owed(l))
				require.True(t, l.Take("a", 1, time.Hour).Allowed)
				require.Equal(t, map[string]int64{"a": 1, "b": b}, owed(l))

				// Who stops in the middle is told all again.
				l.Unpaid()
				for range l.Owed() {
					break
				}
				require.Len(t, owed(l), 2)
			})
		})
	}
}

// A Bursty begins with an empty store, which nobody has used.
func TestWhatIsOwedWhileTheStoreFills(t *testing.T) {
	for _, after := range []time.Duration{0, time.Millisecond, 3500 * time.Millisecond, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			l, err := New(policy.Must(policy.Bursty(10, time.Second, 40)), 2, 0)
			require.NoError(t, err)
			defer l.Close()
			time.Sleep(after)
			require.True(t, l.Take("a", 7, time.Hour).Allowed)
			require.Equal(t, map[string]int64{"a": 7}, owed(l), "after %v", after)
		})
	}
}

func TestAnotherNumberOfServers(t *testing.T) {
	l := open(t, policy.Must(policy.Funnel(100, 1, time.Hour)), 1)
	require.True(t, l.Take("a", 60, 0).Allowed)
	require.NoError(t, l.Serve(2))
	require.Equal(t, 2, l.Servers())
	require.False(t, l.Take("a", 1, 0).Allowed, "60 of 50 are used")
	require.True(t, l.Take("b", 50, 0).Allowed)
	require.False(t, l.Take("b", 1, 0).Allowed)
	require.NoError(t, l.Serve(1))
	require.True(t, l.Take("b", 50, 0).Allowed)
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
		must(policy.SlidingWindow(40, 4*time.Second)), log,
	}
}

// TestPaidAllTheTime has a key take what it can, and everything be charged each time: the
// share admits no more than the same share of which nothing is ever charged, and each
// unit is charged once.
func TestPaidAllTheTime(t *testing.T) {
	for _, whole := range kinds(t) {
		t.Run(whole.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, err := New(whole, 2, 0)
				require.NoError(t, err)
				defer l.Close()
				untold, err := New(whole, 2, 0)
				require.NoError(t, err)
				defer untold.Close()
				admitted, without, charged := int64(0), int64(0), int64(0)
				for range 400 {
					for l.Take("a", 1, 0).Allowed {
						admitted++
					}
					for untold.Take("a", 1, 0).Allowed {
						without++
					}
					for key, n := range l.Owed() {
						l.Paid(key, n)
						charged += n
					}
					time.Sleep(73 * time.Millisecond)
				}
				require.Equal(t, without, admitted)
				require.Equal(t, admitted, charged)
			})
		})
	}
}

// What was charged and drained is forgotten; and what the share admits then is owed.
func TestPaidDrains(t *testing.T) {
	for _, whole := range kinds(t) {
		t.Run(whole.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, err := New(whole, 2, 0)
				require.NoError(t, err)
				defer l.Close()
				require.True(t, l.Take("a", 1, time.Hour).Allowed)
				require.Empty(t, pay(l, "a"))
				require.Len(t, l.paid.words, 1)
				time.Sleep(time.Minute)
				require.True(t, l.Take("a", 1, time.Hour).Allowed)
				require.Equal(t, map[string]int64{"a": 1}, owed(l))
				require.Empty(t, l.paid.words)
			})
		})
	}
}

// There are no more words than the share has keys: a key that finds no room is charged
// when others have drained.
func TestPaidIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := New(policy.Must(policy.FixedWindow(40, time.Minute)), 1, 2)
		require.NoError(t, err)
		defer l.Close()
		l.paid.most = 1
		require.True(t, l.Take("a", 1, 0).Allowed)
		require.Empty(t, pay(l, "a"))
		require.True(t, l.Take("a", 1, 0).Allowed)
		require.True(t, l.Take("b", 1, 0).Allowed)
		require.Equal(t, map[string]int64{"a": 1}, owed(l))
		time.Sleep(2 * time.Minute)
		require.True(t, l.Take("b", 1, 0).Allowed)
		require.Equal(t, map[string]int64{"b": 1}, owed(l))
	})
}

// What was charged is carried to another number of servers, as what was used is, and a
// key that is reset owes what it takes from then on.
func TestPaidOfOthers(t *testing.T) {
	for _, whole := range kinds(t) {
		t.Run(whole.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, err := New(whole, 1, 0)
				require.NoError(t, err)
				defer l.Close()
				require.True(t, l.Take("a", 7, time.Hour).Allowed)
				require.Empty(t, pay(l, "a"))
				require.NoError(t, l.Serve(2))
				l.Unpaid()
				require.Empty(t, owed(l))
				require.True(t, l.Take("a", 2, time.Hour).Allowed)
				require.Equal(t, map[string]int64{"a": 2}, owed(l))
				require.True(t, l.Reset("a"))
				require.True(t, l.Take("a", 1, time.Hour).Allowed)
				require.Equal(t, map[string]int64{"a": 1}, owed(l))
			})
		})
	}
}
