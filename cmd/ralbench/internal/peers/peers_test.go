package peers

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/internal/testkit/child"
	"github.com/ral-limiter/ral/internal/testkit/must"
)

func open(t *testing.T, c bench.Contender, s bench.Setup) bench.Limiter {
	t.Helper()
	if s.MaxKeys == 0 {
		s.MaxKeys = s.Keys
	}
	l := must.Get(c.New(s))
	t.Cleanup(func() { assert.NoError(t, l.Close()) })
	return l
}

func limiting(t *testing.T) []bench.Contender {
	var some []bench.Contender
	for _, c := range All() {
		if c.Name != uberPacing.Name {
			some = append(some, c)
		}
	}
	if server, err := child.FindRedis(""); err == nil {
		some = append(some, Redis(server))
	} else {
		t.Log("no redis-server is installed: redis_rate is left out")
	}
	return some
}

func times(key string, n int) []string { return slices.Repeat([]string{key}, n) }

func TestEachPeerPassesABurstAndRefusesTheNextCalls(t *testing.T) {
	all := limiting(t)
	for _, c := range Calls() {
		if !slices.Contains(c.For, bench.VerbsWorkload) && !slices.Contains(c.For, bench.InFlightWorkload) {
			all = append(all, c)
			continue
		}
		// No limit is meant to hold: reservations are cancelled, calls wait, and slots are released.
		l := open(t, c, bench.Setup{Limit: bench.Limit{Capacity: 100, Count: 1, Per: time.Hour}, Keys: 1})
		assert.True(t, l.Choke("a"), c.Name)
		assert.Equal(t, 99, l.Ask(times("a", 99)), c.Name)
	}
	for _, c := range all {
		t.Run(c.Name, func(t *testing.T) {
			l := open(t, c, bench.Setup{Limit: bench.Limit{Capacity: 7, Count: 1, Per: time.Hour}, Keys: 3})
			for i := range 12 {
				assert.Equal(t, i < 7, l.Choke("a"), "call %d", i)
			}
			assert.True(t, l.Choke("b"), "another key has a limit of its own")
			assert.Equal(t, 6+7, l.Ask(append(times("b", 20), times("c", 20)...)))
		})
	}
}

func TestSlotsAreReleased(t *testing.T) {
	for _, c := range []bench.Contender{semaphoreXsync, bulkheadSyncMap} {
		l := open(t, c, bench.Setup{Limit: bench.Limit{Capacity: 1, Count: 1, Per: time.Hour}, Keys: 1})
		assert.Equal(t, 100, l.Ask(times("a", 100)), c.Name)
	}
}

func TestPeersDescribeThemselves(t *testing.T) {
	seen := map[string]bool{}
	var inexact []string
	for _, c := range slices.Concat(All(), Calls(), []bench.Contender{Redis("redis-server")}) {
		name := fmt.Sprint(c.Name, c.For)
		assert.False(t, seen[name], name)
		seen[name] = true
		assert.NotEmpty(t, c.About, c.Name)
		assert.LessOrEqual(t, len(c.Name), 15, "%s: the table's column", c.Name)
		if !c.Exact {
			inexact = append(inexact, c.Name)
			assert.NotEmpty(t, c.Note, "%s: why not", c.Name)
		}
		for _, workload := range c.For {
			assert.Contains(t, bench.Names(bench.Calls(1)), workload, c.Name)
			assert.True(t, slices.ContainsFunc(bench.RalCalls(), func(r bench.Contender) bool {
				return r.Name == c.Like && slices.Contains(r.For, workload)
			}), "%s in %s: no row of %s beside it", c.Name, workload, c.Like)
		}
	}
	assert.Equal(t, []string{"httprate", "uber", "httprate count", "httprate", "slidingwindow"}, inexact)
	assert.True(t, Redis("").Slow)
	assert.True(t, Redis("").Elsewhere)
}

func TestThrottledGivesUpTheLeastRecentlyUsed(t *testing.T) {
	l := open(t, throttledGCRA, bench.Setup{Limit: bench.Limit{Capacity: 1, Count: 1, Per: time.Hour}, Keys: 100, MaxKeys: 2})
	assert.True(t, l.Choke("a"))
	assert.True(t, l.Choke("b"))
	assert.False(t, l.Choke("a"))
	assert.True(t, l.Choke("c"), "in b's place")
	assert.False(t, l.Choke("a"))
	assert.True(t, l.Choke("b"), "it was forgotten, with its count")
}

func TestUberLetsAllCallsPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, uberPacing, bench.Setup{})
		begun := time.Now()
		assert.Equal(t, 10_000, l.Ask(times("a", 10_000)))
		assert.Less(t, time.Since(begun), time.Millisecond, "without a wait")
	})
}

func TestPeersForgetIdleKeysIfTheySaySo(t *testing.T) {
	w := bench.Workload{
		Name: "memory", Limit: bench.Limit{Capacity: 1, Count: 1000, Per: time.Second}, Draw: bench.DrawOnce,
		Keys: 20_000, Rounds: 1, AuditOnly: true, Memory: true, Idle: 100 * time.Millisecond,
	}
	report := must.Get(bench.Run(t.Context(), []bench.Workload{w}, All(), bench.Options{Duration: time.Millisecond, Rounds: 1}))
	var idle []string
	for _, r := range report.Workloads[0].Results {
		assert.Positive(t, r.Memory.BytesPerKey, r.Name)
		if r.Memory.Idle > 0 {
			idle = append(idle, r.Name)
			assert.Less(t, r.Memory.IdleShare(), 0.8, r.Name)
		}
	}
	assert.Equal(t, []string{"go-limiter", "ulule"}, idle)
}

func TestRedisIsGoneWhenItsLimiterIsClosed(t *testing.T) {
	folder := t.TempDir()
	t.Setenv("TMPDIR", folder)
	l := must.Get(Redis("").New(bench.Setup{Limit: bench.Limit{Capacity: 1, Count: 1, Per: time.Hour}}))
	assert.NotEmpty(t, must.Get(os.ReadDir(folder)), "its socket is there")
	assert.True(t, l.Choke("a"))

	require.NoError(t, l.Close())
	assert.Empty(t, must.Get(os.ReadDir(folder)))
	assert.False(t, l.Choke("b"), "without an answer it is a no")
	assert.EqualValues(t, 1, l.Counts().Unavailable)
}

func TestRedisOfOthersOutlivesALimiter(t *testing.T) {
	running, err := child.OpenRedis(child.RedisConfig{})
	require.NoError(t, err)
	defer func() { assert.NoError(t, running.Close()) }()
	setup := bench.Setup{Limit: bench.Limit{Capacity: 2, Count: 1, Per: time.Hour}}
	for range 2 {
		l := must.Get(RedisAt(running.Network(), running.Addr()).New(setup))
		assert.True(t, l.Choke("a"), "it still has what the first one took")
		require.NoError(t, l.Close())
	}
	l := must.Get(RedisAt(running.Network(), running.Addr()).New(setup))
	assert.False(t, l.Choke("a"))
	require.NoError(t, l.Close())
}

// The floor in C answers as the yardstick: hot keys pass or are refused, and the time is its own.
func TestCFloorIsBuiltAndMeasures(t *testing.T) {
	if _, err := exec.LookPath("cc"); err != nil {
		t.Skip("there is no C compiler")
	}
	require.NoError(t, BuildCFloor())
	workloads := must.Get(bench.Select(bench.Standard(1), []string{"hot-pass", "hot-refused"}))
	o := bench.Options{Duration: time.Millisecond, Rounds: 2, Callers: 2}
	for _, w := range must.Get(bench.Run(t.Context(), workloads, []bench.Contender{CFloor(), bench.Floor()}, o)).Workloads {
		floor := w.Yardstick(bench.YardstickC)
		require.NotNil(t, floor, w.Name)
		require.Len(t, floor.Rounds, 2)
		for _, p := range floor.Rounds {
			assert.Positive(t, p.Calls, w.Name)
			assert.Positive(t, p.CPU, w.Name)
			assert.GreaterOrEqual(t, p.Elapsed, time.Millisecond, w.Name)
		}
		assert.InDelta(t, w.Refused, floor.RefusedShare, 1e-9, w.Name)
		assert.Nil(t, floor.Audit, "it limits nothing")
		assert.False(t, floor.Comparable())
	}
	for _, w := range bench.All(1) {
		assert.Equal(t, w.Name == "hot-pass" || w.Name == "hot-refused", CFloor().Needs(w) && !w.Apart, w.Name)
	}
}
