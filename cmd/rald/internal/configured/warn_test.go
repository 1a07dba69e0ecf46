package configured

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/cmd/rald/internal/families"
	"github.com/ral-limiter/ral/cmd/rald/internal/limitfile"
	"github.com/ral-limiter/ral/cmd/rald/internal/redistest"
	"github.com/ral-limiter/ral/fleet"
	"github.com/ral-limiter/ral/internal/testkit/logbuffer"
	"github.com/ral-limiter/ral/policy"
)

// warningsOf returns the warnings of each limit that warns.
func warningsOf(l *Limits) map[string]uint64 {
	all := map[string]uint64{}
	for name, u := range l.All() {
		if n, _ := u.Counts(); n != nil {
			all[name] = n.Warnings.Load()
		}
	}
	return all
}

func warnFile(t *testing.T, text string) *limitfile.File {
	t.Helper()
	f, err := limitfile.Parse("limits.yaml", []byte(text))
	require.NoError(t, err)
	return f
}

// Promise: A key that passes a share of its limit's `warn-at` is logged, as a hash, once in a period, and counted by limit.
func TestConfiguredLimitsWarn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logbuffer.Buffer
		o := open(t, "")
		l, err := New(Config{Families: o.keep, Log: log.Logger()})
		require.NoError(t, err)
		require.NoError(t, l.Set(t.Context(), warnFile(t, "limits:\n  api: {limit: window 10/h, warn-at: [0.5, 0.8]}\n  other: window 10/h\n"), nil))
		admit := func(name, key string, n int64) bool {
			a, err := l.Admit(t.Context(), Prefix(name)+key, n)
			require.NoError(t, err)
			return a.Allowed
		}
		require.True(t, admit("other", "secret", 9), "of the same engine")
		require.True(t, admit("api", "secret", 4))
		require.False(t, admit("api", "secret", 7))
		require.Equal(t, map[string]uint64{"api": 0}, warningsOf(l))
		require.True(t, admit("api", "secret", 1))
		require.Equal(t, map[string]uint64{"api": 1}, warningsOf(l))
		require.True(t, admit("api", "secret", 3))
		require.True(t, admit("api", "secret", 1))
		require.True(t, admit("api", "second", 10))
		require.Equal(t, map[string]uint64{"api": 4}, warningsOf(l))
		synctest.Wait()
		lines := log.Lines()
		require.Len(t, lines, 4)
		require.Regexp(t, `level=WARN msg="ral: a key has passed a share of its limit" limit=api warning="key [0-9a-f]{16} has passed 50% of its limit, 5 of 10 left"`, lines[0])
		require.NotContains(t, strings.Join(lines, ""), "sec")

		// A changed file keeps the count, and warns by its shares.
		require.NoError(t, l.Set(t.Context(), warnFile(t, "limits:\n  api: {limit: window 20/h, warn-at: [0.9]}\n"), nil))
		require.True(t, admit("api", "secret", 8))
		require.Equal(t, map[string]uint64{"api": 4}, warningsOf(l))
		require.True(t, admit("api", "secret", 1))
		require.Equal(t, map[string]uint64{"api": 5}, warningsOf(l))
		require.NoError(t, l.Set(t.Context(), warnFile(t, "limits:\n  api: window 20/h\n"), nil))
		require.Empty(t, warningsOf(l))
		require.True(t, admit("api", "third", 20))
		require.NoError(t, l.Set(t.Context(), warnFile(t, "limits:\n  api: {limit: window 20/h, warn-at: [0.9]}\n"), nil))
		require.Equal(t, map[string]uint64{"api": 5}, warningsOf(l))
		time.Sleep(time.Hour)
		require.True(t, admit("api", "third", 20))
		require.Equal(t, map[string]uint64{"api": 6}, warningsOf(l))
	})
}

// A call that waits warns when it has its units.
func TestConfiguredWaitWarns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, "")
		require.NoError(t, o.Set(t.Context(), warnFile(t, "limits:\n  api: {limit: 'queue 4, 1/s', warn-at: [0.5]}\n"), nil))
		for i := range 4 {
			go func() { _, _ = o.Admit(t.Context(), Prefix("api")+"k", 1) }()
			synctest.Wait()
			require.Equal(t, map[string]uint64{"api": 0}, warningsOf(o.Limits), i)
		}
		time.Sleep(10 * time.Second)
		require.Equal(t, map[string]uint64{"api": 1}, warningsOf(o.Limits))
	})
}

// Promise: With `-redis` a limit warns as well; leased limits refuse `warn-at`.
func TestLimitsInRedisWarn(t *testing.T) {
	database, _ := redistest.Open(t, fleet.FallbackShare)
	o := openIn(t, database, "")
	file := warnFile(t, "limits:\n  api: {limit: window 10/300d, warn-at: [0.8]}\n")
	require.NoError(t, o.Set(t.Context(), file, nil))
	for used := range int64(10) {
		a, err := o.Admit(t.Context(), Prefix("api")+"k", 1)
		require.NoError(t, err)
		require.True(t, a.Allowed)
		require.Equal(t, used >= 7, warningsOf(o.Limits)["api"] == 1)
	}
	leased := *database.Fleet
	leased.Leased = true
	want := "limits.yaml:2: api: warn-at: it is accepted without -fleet leased: a server knows its leases, not what remains of a limit"
	require.EqualError(t, Room(families.Config{Fleet: &leased}, file), want)
	require.EqualError(t, leasedFaults(&leased, file), want)
	require.NoError(t, leasedFaults(&leased, warnFile(t, "limits:\n  api: window 10/300d\n")))
}

// An outage's share has a lower limit: its shares are of that.
func TestShareOfAnOutageWarnsByItsOwnLimit(t *testing.T) {
	one := newLimit(limitfile.Named{Name: "api", Policy: policy.Must(policy.Parse("window 100/h"))}, nil)
	one.watch = &watch{watcher: newWatcher(slog.New(slog.DiscardHandler)), warnAt: []float64{0.8}}
	for left := int64(24); left >= 0; left-- {
		one.warn("k", 1, &policy.Decision{Allowed: true, Limit: 25, Remaining: left, ResetAfter: time.Hour})
		assert.Equal(t, left <= 5, one.counts.Warnings.Load() == 1, left)
	}
}
