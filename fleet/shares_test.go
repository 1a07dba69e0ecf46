package fleet

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/fleet/internal/storetest"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/limits"
)

// sharing is a fleet in a bubble that takes all it can of a key.
type sharing struct {
	config  Config
	servers []*sharer
	// exact and local are the units let pass by Redis and by shares.
	exact, local atomic.Int64
	begun        time.Time
}

type sharer struct {
	limiter *Limiter
	stop    context.CancelFunc
	caller  sync.WaitGroup
}

func startSharing(t *testing.T, c Config, servers int) *sharing {
	t.Helper()
	s := &sharing{config: c, begun: time.Now(), servers: make([]*sharer, servers)}
	for i := range s.servers {
		s.enlist(t, i)
	}
	return s
}

func (s *sharing) enlist(t *testing.T, index int) {
	t.Helper()
	l, err := New(s.config)
	require.NoError(t, err)
	server := &sharer{limiter: l}
	ctx, stop := context.WithCancel(t.Context())
	server.stop = stop
	server.caller.Go(func() {
		for ctx.Err() == nil {
			a, err := l.Take(context.Background(), "a", 1)
			assert.NoError(t, err)
			switch {
			case !a.Allowed:
				time.Sleep(5 * time.Millisecond)
			case a.Source() == limits.SourceRedis:
				s.exact.Add(1)
			default:
				s.local.Add(1)
			}
		}
	})
	s.servers[index] = server
}

func (s *sharing) leave(t *testing.T, index int) {
	t.Helper()
	s.servers[index].stop()
	s.servers[index].caller.Wait()
	require.NoError(t, s.servers[index].limiter.Close())
}

// finish ends all servers, and returns the units let pass by Redis and shares, and the limit's.
func (s *sharing) finish(t *testing.T, rate float64) (exact, local, bound float64) {
	t.Helper()
	for i := range s.servers {
		s.leave(t, i)
	}
	exact, local = float64(s.exact.Load()), float64(s.local.Load())
	bound = float64(s.config.Policy.Limit()) + rate*time.Since(s.begun).Seconds()
	t.Logf("%v by Redis and %v by shares, of %.0f: %.2f of the limit", exact, local, bound, (exact+local)/bound)
	return exact, local, bound
}

// TestFlappingRedisKeepsTheLimit has Redis be away for 3.3 s and back for 0.7 s, repeatedly. The shares of four
// servers, told or counting their number, keep to the limit together with Redis. Redis may admit
// uncharged units once more: hence another capacity.
// Promise: Outages make no server forget the others.
func TestFlappingRedisKeepsTheLimit(t *testing.T) {
	const servers, capacity, rate, cycles = 4, 100, 50, 4
	for name, count := range map[string]int{"told": servers, "counted": 0} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, redis *storetest.Redis) {
				c := on(redis, funnel(capacity, rate, time.Second))
				c.Servers = count
				s := startSharing(t, c, servers)
				time.Sleep(2 * beat)
				for range cycles {
					redis.Set(gone)
					time.Sleep(3300 * time.Millisecond)
					redis.Set(well)
					time.Sleep(700 * time.Millisecond)
				}
				exact, local, bound := s.finish(t, rate)
				assert.LessOrEqual(t, exact+local, bound+capacity)
				assert.GreaterOrEqual(t, exact+local, bound-capacity)
				assert.Greater(t, local, rate*3.3, "shares must admit more than Redis alone would")
			})
		})
	}
}

// Promise: An outage is no second burst.
// Promise: Shares together admit the limit during outages.
func TestOutageIsNoSecondBurst(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		const servers, capacity, rate = 4, 200, 20
		s := startSharing(t, on(redis, funnel(capacity, rate, time.Second)), servers)
		time.Sleep(3 * beat)
		redis.Set(gone)
		time.Sleep(3 * beat)
		exact, local, bound := s.finish(t, rate)
		assert.LessOrEqual(t, exact+local, bound+servers)
		assert.GreaterOrEqual(t, exact+local, bound-2*servers)
		assert.NotZero(t, local, "shares were not used")
	})
}

// After ten restarts without Redis, a used up limit of 400 admits only new units; servers that
// do not know of each other each admit all of them.
// Promise: Restarts without Redis admit nothing at first, also with `FullShares`.
func TestRestartsInAnOutage(t *testing.T) {
	for name, count := range map[string]int{"told": 4, "told too few": 1, "not told": 0, "full shares": 4} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, redis *storetest.Redis) {
				const servers, restarts, capacity, rate = 2, 10, 400, 400. / 3600
				c := on(redis, funnel(capacity, capacity, time.Hour))
				c.Servers, c.FullShares = count, name == "full shares"
				s := startSharing(t, c, servers)
				time.Sleep(3 * beat)
				redis.Set(gone)
				for range restarts {
					time.Sleep(200 * time.Millisecond)
					for i := range servers {
						s.leave(t, i)
						s.enlist(t, i)
					}
				}
				exact, local, bound := s.finish(t, rate)
				assert.GreaterOrEqual(t, exact, float64(capacity))
				assert.LessOrEqual(t, exact+local, capacity+servers*(bound-capacity)+servers)
			})
		})
	}
}

// Two servers are restarted ten times, reach Redis, and lose it before anybody asks about a key whose
// limit is 400. In each outage each server admits one call of up to its share of 200, or with
// FullShares its share in calls of any cost. Without a StateFile the next start forgets them.
// Promise: In an outage an unknown key gets one call a server, or its share with `FullShares`.
func TestUnknownKeyGetsOneCallInAnOutage(t *testing.T) {
	const servers, restarts, capacity, share = 2, 10, 400, 200
	for _, full := range []bool{false, true} {
		for _, cost := range []int64{1, 200} {
			inBubble(t, func(t *testing.T, redis *storetest.Redis) {
				c := on(redis, funnel(capacity, capacity, 100*time.Hour))
				c.Servers, c.FullShares = servers, full
				admitted := int64(0)
				for range restarts {
					redis.Set(well)
					all := [servers]*Limiter{must.Get(New(c)), must.Get(New(c))}
					// The dead servers are forgotten.
					time.Sleep(3 * time.Minute)
					redis.Set(gone)
					for _, l := range all {
						for must.Get(l.Take(t.Context(), "a", cost)).Allowed {
							admitted += cost
						}
					}
					for _, l := range all {
						require.NoError(t, l.Close())
					}
				}
				t.Logf("full shares %v, calls of %d units: %d units of %d", full, cost, admitted, capacity)
				want := cost
				if full {
					want = share
				}
				require.Equal(t, restarts*servers*want, admitted)
			})
		}
	}
}

// Promise: In an outage the first refused calls, too, are told turns of the server's share.
func TestGuessesGoByTheirDivisor(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		c := on(redis, funnel(10, 10, time.Second))
		c.Servers = 4
		l := open(t, c)
		assert.Equal(t, 1, l.Servers(false), "one server must tell turns while Redis decides")
		assert.Equal(t, 4, l.Servers(true), "four servers must tell turns if a share decided before Redis is known to be away")
		redis.Set(gone)
		eventually(t, func() bool { return l.Health() != nil }, "an outage")
		assert.Equal(t, 4, l.Servers(false), "four servers must tell turns while shares decide")
		redis.Set(well)
		eventually(t, func() bool { return l.Health() == nil }, "well")
		assert.Equal(t, 1, l.Servers(false), "one server must tell turns once Redis decides again")
	})
}
