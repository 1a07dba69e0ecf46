package fleet

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/fleet/internal/redistest"
	"github.com/ral-limiter/ral/limits"
)

// Redis is full while eight callers take, until the keeper has looked at it six times. Without INFO,
// only the heartbeat finds that it is.
// Promise: While Redis has no memory for a take, Health and events tell a single outage, however many calls come.
func TestFullRedisIsOneOutage(t *testing.T) {
	redis := redistest.Start(t, redistest.Options{})
	for _, may := range []string{"+info", "-info"} {
		for _, mode := range []Mode{Exact, Leased} {
			t.Run(fmt.Sprint(may, mode), func(t *testing.T) {
				redis.Do(t, "CONFIG", "SET", "maxmemory", "0")
				redis.Do(t, "ACL", "SETUSER", "keeper", "on", ">secret", "allkeys", "allchannels", "+@all", may)
				var events log
				c := at(redis.Addr(), funnel(1_000_000, 1_000_000, time.Second))
				c.Mode, c.OnEvent = mode, events.add
				c.Redis.Username, c.Redis.Password = "keeper", "secret"
				l := open(t, c)

				healthy, changes, taken := true, 0, 0
				look := func() {
					if now := l.Health() == nil; now != healthy {
						healthy = now
						changes++
					}
				}
				load := func() (last limits.Answer) {
					look()
					taken++
					var callers sync.WaitGroup
					for i := range 8 {
						callers.Go(func() { take(t, l, fmt.Sprint(i, " ", taken), 1) })
					}
					callers.Wait()
					look()
					return take(t, l, "last", 1)
				}
				require.NoError(t, load().Err())
				redis.Do(t, "CONFIG", "SET", "maxmemory", "1")
				troubles := map[*error]bool{}
				eventually(t, func() bool {
					load()
					if why := l.trouble.Load(); why != nil {
						troubles[why] = true
					}
					return len(troubles) > 6
				}, "the keeper looks again")
				require.ErrorIs(t, l.Health(), ErrFull)
				require.Equal(t, 1, changes)
				redis.Do(t, "CONFIG", "SET", "maxmemory", "0")
				eventually(t, func() bool { return load().Err() == nil }, "it is well")
				look()
				require.Equal(t, 2, changes)
				outages := func() []EventKind {
					return slices.DeleteFunc(events.kinds(), func(k EventKind) bool { return k > OutageEnded })
				}
				eventually(t, func() bool { return len(outages()) > 1 }, "the end is told")
				require.Equal(t, []EventKind{OutageBegan, OutageEnded}, outages())
			})
		}
	}
}
