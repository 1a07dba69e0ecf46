package fleet

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/fleet/internal/share"
	"github.com/ral-limiter/ral/fleet/internal/store"
	"github.com/ral-limiter/ral/fleet/internal/storetest"
	"github.com/ral-limiter/ral/internal/core/statefile"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

var hostile = strings.Repeat("}", 200)

// inAnOutage configures a file and a Redis that is killed once a limiter knows some keys.
func inAnOutage(t *testing.T, redis *storetest.Redis) (c Config, l *Limiter) {
	t.Helper()
	c = on(redis, funnel(100, 1, time.Hour))
	c.Servers = 1
	c.StateFile = filepath.Join(t.TempDir(), "charges")
	l = open(t, c)
	require.Equal(t, limits.SourceRedis, take(t, l, "a", 40).Source())
	for _, key := range []string{"b", hostile, "other"} {
		// The share knows the key then.
		require.Equal(t, limits.SourceRedis, take(t, l, key, 0).Source())
	}
	redis.Set(gone)
	for key, n := range map[string]int64{"a": 20, "b": 29, hostile: 5} {
		a := take(t, l, key, n)
		require.Equal(t, limits.SourceShare, a.Source())
		require.True(t, a.Allowed)
	}
	return c, l
}

func units(t *testing.T, c Config, owner string, file []byte) (n int64) {
	t.Helper()
	local := must.Get(share.New(share.Config{Policy: c.Policy, Servers: c.Servers, MaxKeys: 100, Name: store.Short}))
	require.NoError(t, local.Load(bytes.NewReader(file), owner))
	for d := range local.Owed() {
		n += d.Units
	}
	return n
}

// A key's share goes on over a restart; an unknown key's begins with nothing. Units are charged
// once, before and after the restart.
// Promise: With `StateFile` uncharged units survive restarts and are charged once.
func TestRestartInAnOutageIsChargedOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		c, l := inAnOutage(t, redis)
		eventually(t, func() bool { return !l.local.Changed() }, "it is saved")
		// The take is not saved, except by Close.
		require.True(t, take(t, l, "b", 1).Allowed)
		require.NoError(t, l.Close())
		for range 2 {
			l = launch(t, c)
			require.ErrorIs(t, l.Health(), ErrOutage)
			require.EqualValues(t, 40, take(t, l, "a", 0).Remaining)
			require.EqualValues(t, 70, take(t, l, "b", 0).Remaining)
			require.EqualValues(t, 95, take(t, l, hostile, 0).Remaining)
			require.False(t, take(t, l, "other", 1).Allowed)
			require.False(t, take(t, l, "a", 41).Allowed)
			require.NoError(t, l.Close())
		}
		l = launch(t, c)
		require.True(t, take(t, l, "a", 3).Allowed)

		redis.Set(well)
		eventually(t, func() bool { return l.Stats().Charged >= 58 }, "it is charged")
		for range 2 {
			require.EqualValues(t, 37, inRedis(t, l, "a"))
			require.EqualValues(t, 70, inRedis(t, l, "b"))
			require.EqualValues(t, 95, inRedis(t, l, hostile))
			require.EqualValues(t, 100, inRedis(t, l, "other"))
			require.NoError(t, l.Close())
			l = open(t, c)
		}
		require.Zero(t, l.Stats().Charged)
	})
}

// Promise: A killed server loses only charges since its last save.
func TestKilledServerChargesTheSavedUnits(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		c, l := inAnOutage(t, redis)
		var file []byte
		eventually(t, func() bool {
			var err error
			file, err = os.ReadFile(c.StateFile)
			return err == nil && units(t, c, l.state.limit, file) == 54
		}, "it is saved")
		next := c
		next.StateFile = filepath.Join(t.TempDir(), "charges")
		require.NoError(t, os.WriteFile(next.StateFile, file, 0o600))
		// The take is lost.
		require.True(t, take(t, l, "a", 1).Allowed)

		killed := l
		l = launch(t, next)
		require.EqualValues(t, 40, take(t, l, "a", 0).Remaining)
		redis.Set(well)
		eventually(t, func() bool { return l.Stats().Charged >= 54 }, "it is charged")
		// The other server is still there, and charges the same and another.
		eventually(t, func() bool { return killed.Stats().Charged >= 55 }, "it is charged")
		require.EqualValues(t, 100-40-20-21, inRedis(t, l, "a"))
	})
}

// Promise: With `StateFile` the successors of a killed server do not count beside it.
func TestKilledServerCountsOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		c := on(redis, funnel(100, 1, time.Hour))
		c.StateFile = filepath.Join(t.TempDir(), "charges")
		open(t, c)
		file := must.Get(os.ReadFile(c.StateFile + ".id"))
		// The servers before are killed without an end.
		for range 10 {
			c.StateFile = filepath.Join(t.TempDir(), "charges")
			require.NoError(t, os.WriteFile(c.StateFile+".id", file, 0o600))
			l := open(t, c)
			eventually(t, func() bool { return l.Stats().Servers > 0 && l.Stats().Divisor > 0 }, "servers are counted")
			require.Equal(t, 1, l.Stats().Servers)
			require.Equal(t, 1, l.Stats().Divisor)
		}
		c.StateFile = filepath.Join(t.TempDir(), "charges")
		other := open(t, c)
		eventually(t, func() bool { return other.Stats().Servers == 2 }, "a server without the file counts by itself")

		require.NoError(t, os.WriteFile(c.StateFile+"2.id", bytes.Repeat([]byte("x"), maxIdentity+1), 0o600))
		c.StateFile += "2"
		further := open(t, c)
		eventually(t, func() bool { return further.Stats().Servers == 3 }, "a damaged identity is replaced")
	})
}

// Promise: A `StateFile` in use, damaged or of another limit is an error, and stays.
func TestStateFileThatCannotBeUsed(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		c := on(redis, funnel(100, 1, time.Hour))
		c.StateFile = filepath.Join(t.TempDir(), "charges")
		l := open(t, c)
		_, err := New(c)
		require.ErrorIs(t, err, ErrStateFile)
		require.ErrorIs(t, err, statefile.ErrLocked)
		require.ErrorContains(t, err, c.StateFile)
		require.NoError(t, l.Close())
		require.NoError(t, l.Close(), "a second Close must be no error")

		whole := must.Get(os.ReadFile(c.StateFile))
		for _, change := range []func(*Config){func(c *Config) { c.Name = name() }, func(c *Config) { c.Tag = "tag" }} {
			other := c
			change(&other)
			_, err = New(other)
			require.ErrorIs(t, err, ErrStateFile)
			require.ErrorContains(t, err, c.Name)
		}

		cut := whole[:len(whole)-1]
		require.NoError(t, os.WriteFile(c.StateFile, cut, 0o600))
		for _, mode := range []Mode{Exact, Leased} {
			c.Mode = mode
			_, err = New(c)
			require.ErrorIs(t, err, ErrStateFile)
			require.ErrorIs(t, err, statefile.ErrCorrupt)
			require.Equal(t, cut, must.Get(os.ReadFile(c.StateFile)))
		}
		require.NoError(t, os.WriteFile(c.StateFile, whole, 0o600))
		require.NoError(t, open(t, c).Close(), "the lock was not kept")

		c.StateFile = filepath.Join(t.TempDir(), "no", "charges")
		_, err = New(c)
		require.ErrorIs(t, err, ErrStateFile)
		require.ErrorIs(t, err, os.ErrNotExist)

		for _, outage := range []Fallback{FallbackOpen, FallbackClosed} {
			c.Outage = outage
			_, err = New(c)
			var field *policy.FieldError
			require.ErrorAs(t, err, &field)
			require.Equal(t, "StateFile", field.Field)
		}
	})
}

func TestFailedSaveIsTold(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		dir := filepath.Join(t.TempDir(), "dir")
		require.NoError(t, os.Mkdir(dir, 0o700))
		var events log
		c := on(redis, funnel(100, 1, time.Hour))
		c.StateFile, c.OnEvent = filepath.Join(dir, "charges"), events.add
		l := must.Get(New(c))
		eventually(t, func() bool { return l.Health() == nil }, "Redis is there")
		require.NoError(t, os.RemoveAll(dir))
		// The share knows the key then.
		require.EqualValues(t, 100, inRedis(t, l, "a"))
		require.True(t, l.local.Take("a", 1, 0).Allowed)
		eventually(t, func() bool { return l.Health() != nil }, "a save fails")
		require.ErrorIs(t, l.Health(), ErrStateFile)
		require.ErrorIs(t, l.Health(), os.ErrNotExist)
		require.True(t, take(t, l, "b", 1).Allowed)
		restored := func() (all []Event) {
			for _, e := range events.events() {
				if e.Kind == StateUnsaved || e.Kind == StateSaved {
					all = append(all, e)
				}
			}
			return all
		}
		eventually(t, func() bool { return len(restored()) == 1 }, "it is told")
		require.Equal(t, StateUnsaved, restored()[0].Kind)
		require.ErrorIs(t, restored()[0].Err, ErrStateFile)

		require.NoError(t, os.Mkdir(dir, 0o700))
		eventually(t, func() bool { return l.Health() == nil && len(restored()) == 2 }, "a save succeeds")
		require.Equal(t, Event{Kind: StateSaved}, restored()[1])
		require.NoError(t, os.RemoveAll(dir))
		require.ErrorIs(t, l.Close(), ErrStateFile)
		require.Len(t, restored(), 2, "each event must be told once")
	})
}
