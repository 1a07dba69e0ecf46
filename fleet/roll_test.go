package fleet

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/fleet/internal/store"
	"github.com/ral-limiter/ral/fleet/internal/storetest"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// Different limits are told at once with both and the newer, as an error only after the time of a
// deploy.
// Promise: Servers with different limits are an error after ten minutes.
func TestDifferentLimitsBecomeAnError(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		var first, second log
		c := on(redis, funnel(100, 10, time.Second))
		c.OnEvent = first.add
		old := open(t, c)
		time.Sleep(time.Second)
		c.Policy, c.OnEvent = policy.Must(policy.FixedWindow(50, time.Minute)), second.add
		other := launch(t, c)
		eventOf := func(l *log, kind EventKind) Event {
			t.Helper()
			var found Event
			eventually(t, func() bool {
				events := l.events()
				i := slices.IndexFunc(events, func(e Event) bool { return e.Kind == kind })
				if i >= 0 {
					found = events[i]
				}
				return i >= 0
			}, kind.String())
			return found
		}
		for _, c := range []struct {
			log *log
			say string
		}{{&first, "a newer limit is being deployed"}, {&second, "this server's limit is the newer one"}} {
			e := eventOf(c.log, LimitDeploying)
			require.ErrorIs(t, e.Err, ErrLimits)
			for _, part := range []string{c.say, old.config.Policy.String(), other.config.Policy.String()} {
				require.ErrorContains(t, e.Err, part)
			}
		}
		for _, l := range []*Limiter{old, other} {
			require.NoError(t, l.Health(), "a deploy must be no error")
			require.Equal(t, limits.SourceRedis, take(t, l, "a", 1).Source())
		}

		time.Sleep(deploying)
		for _, l := range []*Limiter{old, other} {
			eventually(t, func() bool { return l.Health() != nil }, "it has lasted too long")
			require.ErrorIs(t, l.Health(), ErrLimits)
			require.NotErrorIs(t, l.Health(), ErrOutage)
			require.ErrorContains(t, l.Health(), old.config.Policy.String())
			require.ErrorContains(t, l.Health(), other.config.Policy.String())
			require.Equal(t, limits.SourceRedis, take(t, l, "a", 1).Source(), "calls must go on in Redis")
		}
		require.ErrorIs(t, eventOf(&first, LimitConflict).Err, ErrLimits)

		require.NoError(t, other.Close())
		eventually(t, func() bool { return old.Health() == nil }, "the other limit is gone")
		eventOf(&first, LimitAgreed)
		require.NotContains(t, first.kinds(), OutageBegan)
	})
}

// Promise: Servers of different epochs are an error.
func TestDifferentEpochsAreAnError(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		c := on(redis, funnel(100, 10, time.Second))
		var servers []*Limiter
		var logs [2]log
		for i, epoch := range []time.Time{store.DefaultEpoch, store.DefaultEpoch.Add(time.Hour)} {
			c.Epoch, c.OnEvent, c.clock = epoch, logs[i].add, func() int64 { return time.Since(epoch).Microseconds() }
			servers = append(servers, launch(t, c))
		}
		for i, l := range servers {
			eventually(t, func() bool { return l.Stats().Servers == len(servers) }, "all are counted")
			eventually(t, func() bool { return slices.Contains(logs[i].kinds(), LimitConflict) }, "it is told")
			require.ErrorIs(t, l.Health(), ErrLimits)
			require.NotErrorIs(t, l.Health(), ErrOutage)
			for _, part := range []string{"different epochs", "epoch 2026-01-01T00:00:00Z", "epoch 2026-01-01T01:00:00Z"} {
				require.ErrorContains(t, l.Health(), part)
			}
			require.NotContains(t, l.Health().Error(), "newer", "the error must not hope for a newer version, as no deploy mends the limit")
		}
		require.NoError(t, servers[0].Close())
		eventually(t, func() bool { return servers[1].Health() == nil }, "the other epoch is gone")
		require.Equal(t, 1, servers[1].Stats().Servers)
		require.Equal(t, []EventKind{LimitConflict, LimitAgreed}, logs[1].kinds())
	})
}

func TestDifferentLimitsAreFound(t *testing.T) {
	c := at("any", funnel(100, 10, time.Second)).withDefaults()
	minute := func(n float64) policy.Instant { return policy.Instant(n * float64(time.Minute)) }
	other := c
	other.Mode = Leased
	epoch := c
	epoch.Epoch = c.Epoch.Add(time.Hour)
	kept := func(c Config, since float64) store.KeptLimit {
		return store.KeptLimit{Text: c.text(), Since: minute(since)}
	}
	for _, step := range []struct {
		name   string
		limits []store.KeptLimit
		wrong  bool
		// say is "" for no difference.
		say    string
		agreed float64
	}{
		{"alone", []store.KeptLimit{kept(c, 1)}, false, "", 0},
		{"not even this one, as it just left", nil, false, "", 0},
		{"another mode, newer", []store.KeptLimit{kept(c, 1), kept(other, 99)}, false, "a newer limit is being deployed", 0},
		{"another mode, older", []store.KeptLimit{kept(other, 1), kept(c, 99)}, false, "this server's limit is the newer one", 0},
		{"for long", []store.KeptLimit{kept(other, 1), kept(c, 90)}, true, "for more than 10m0s; finish the deploy", 0},
		{"for long, the other way", []store.KeptLimit{kept(other, 90), kept(c, 1)}, true, "a newer limit", 0},
		{"for long, and not all the time", []store.KeptLimit{kept(other, 1), kept(c, 2)}, false, "this server's limit is the newer one", 95},
		{"for long since they agreed", []store.KeptLimit{kept(other, 1), kept(c, 2)}, true, "for more than 10m0s", 90},
		{"another epoch", []store.KeptLimit{kept(c, 1), kept(epoch, 99)}, true, "different epochs", 0},
	} {
		err, wrong := differing(c, store.Roll{Now: minute(100), Limits: step.limits}, minute(step.agreed))
		require.Equal(t, step.wrong, wrong, step.name)
		if step.say == "" {
			require.NoError(t, err, step.name)
			continue
		}
		require.ErrorIs(t, err, ErrLimits)
		require.ErrorContains(t, err, step.say)
		require.Equal(t, 2, strings.Count(err.Error(), c.Policy.String()), "the error must name both limits: %v", err)
	}
}
