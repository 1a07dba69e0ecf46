package families

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/fleet"
	"github.com/ral-limiter/ral/internal/testkit/child"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/limits"
)

func openRedis(t *testing.T) *child.Redis {
	t.Helper()
	r, err := child.OpenRedis(child.RedisConfig{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, r.Close()) })
	return r
}

// openShared is open for a server of a fleet. Only an outage spends its budget.
func openShared(t *testing.T, r *child.Redis, config Config, fleetConfig Fleet) *Families {
	t.Helper()
	fleetConfig.Redis = rueidis.ClientOption{InitAddress: []string{r.Addr()}, ForceSingleClient: true}
	fleetConfig.Name, fleetConfig.Budget, fleetConfig.Servers = "test", time.Minute, max(fleetConfig.Servers, 1)
	config.Fleet = &fleetConfig
	return open(t, config)
}

// claim is a key of a limit.
func claim(t *testing.T, s *Families, text, key string, n int64) Claim {
	t.Helper()
	limit := parse(text)
	family, err := s.Of(limit)
	require.NoError(t, err)
	return Claim{family, limit, key, n}
}

// Promise: Leases never exceed the limit; unleasable limits are exact.
func TestServersShareLimits(t *testing.T) {
	for _, leased := range []bool{false, true} {
		r := openRedis(t)
		servers := make([]*Families, 2)
		for i := range servers {
			servers[i] = openShared(t, r, Config{}, Fleet{Servers: len(servers), Leased: leased})
		}
		for number, c := range []struct {
			// claims has the units by limit.
			claims   map[string]int64
			want     int64
			leasable bool
		}{
			{map[string]int64{"window 100/300d": 1}, 100, true},
			{map[string]int64{"sliding 90/300d": 1}, 90, true},
			{map[string]int64{"funnel 50, 1/10d": 1}, 50, true},
			{map[string]int64{"at most 70/300d": 2}, 35, false},
			{map[string]int64{"window 40/300d aligned": 1}, 40, false},
			{map[string]int64{"at most 80/300d": 2, "window 300/300d aligned": 1}, 40, false},
			{map[string]int64{"at most 400/300d": 1, "window 60/300d aligned": 2}, 30, false},
		} {
			var admitted atomic.Int64
			var group sync.WaitGroup
			for i := range 8 {
				var claims []Claim
				for limit, n := range c.claims {
					claims = append(claims, claim(t, servers[i%2], limit, fmt.Sprint("key", number), n))
				}
				group.Go(func() {
					for range 40 {
						if out, err := TakeAll(t.Context(), claims...); assert.NoError(t, err) && out.Allowed {
							admitted.Add(1)
						}
					}
				})
			}
			group.Wait()
			if leased && c.leasable {
				assert.LessOrEqual(t, admitted.Load(), c.want, c.claims)
				assert.Positive(t, admitted.Load(), c.claims)
			} else {
				assert.Equal(t, c.want, admitted.Load(), c.claims)
			}
		}
		of := claim(t, servers[0], "at most 400/300d", "key6", 0)
		left, err := of.Family.TakeWith(t.Context(), of.Limit, of.Key, 0)
		require.NoError(t, err)
		assert.EqualValues(t, 400-30, left.Remaining, "what is refused takes nothing")
	}
}

// Promise: Without Redis calls follow `-outage`.
func TestOutageIsAnsweredAsConfigured(t *testing.T) {
	for outage, want := range map[fleet.Fallback]int{fleet.FallbackShare: 4, fleet.FallbackOpen: 20, fleet.FallbackClosed: 0} {
		r := openRedis(t)
		s := openShared(t, r, Config{}, Fleet{Outage: outage})
		claimed := claim(t, s, "window 10/300d", "key", 1)
		take := func(n int) (admitted int) {
			for range n {
				if out, err := TakeAll(t.Context(), claimed); assert.NoError(t, err) && out.Allowed {
					admitted++
				}
			}
			return admitted
		}
		assert.Equal(t, 6, take(6))
		assert.NoError(t, claimed.Family.Health())
		r.Kill()
		must.Await(t, func() bool {
			_, err := claimed.Family.TakeWith(t.Context(), claimed.Limit, "another", 0)
			return assert.NoError(t, err) && claimed.Family.Health() != nil
		}, "the breaker opens")
		assert.Equal(t, want, take(20), s.config.Fleet.OutageName())
	}
}

// Clients make up the limits. The error names the bound. After Close every call is an error.
func TestLimitsOverRedisAreBounded(t *testing.T) {
	// This fallback keeps nothing of each limit.
	s := openShared(t, openRedis(t), Config{Max: 2}, Fleet{Outage: fleet.FallbackOpen})
	for i := range 1024 {
		_, err := TakeAll(t.Context(), claim(t, s, fmt.Sprintf("window %d/300d", i+2), "a", 0))
		require.NoError(t, err)
	}
	claimed := claim(t, s, "window 2000/300d", "a", 1)
	_, err := TakeAll(t.Context(), claimed)
	assert.ErrorIs(t, err, fleet.ErrTooManyLimits)
	_, err = claimed.Family.ByCall().Hold(t.Context(), limits.Call[string]{Key: "a", N: 1, Limit: claimed.Limit, Patience: time.Millisecond})
	assert.ErrorIs(t, err, fleet.ErrTooManyLimits)
	_, err = TakeAll(t.Context(), claimed, claim(t, s, "window 2/300d", "b", 1))
	assert.ErrorIs(t, err, fleet.ErrTooManyLimits)
	_, err = s.Of(parse("sliding 1/m"))
	require.ErrorIs(t, err, ErrTooMany)
	_, err = s.Keep(needs(parse("sliding 1/m"))...)
	require.NoError(t, err, "a configured one has room")
	_, err = s.Of(parse("sliding 1/m"))
	require.NoError(t, err)

	require.NoError(t, s.Close())
	_, err = claimed.Family.TakeWith(t.Context(), parse("window 2/300d"), "a", 1)
	assert.ErrorIs(t, err, engine.ErrClosed, "with an error, not with an answer")
	_, err = s.Of(parse("at most 5/s"))
	assert.Error(t, err)
}
