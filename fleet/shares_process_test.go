package fleet

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/fleet/internal/redistest"
	"github.com/ral-limiter/ral/fleet/internal/store"
	"github.com/ral-limiter/ral/policy"
)

// callShares is the life of one caller that takes whatever is let pass of one key. The
// record under "exact" is what Redis let pass, and that under "local" what the share did;
// their time is that of the machine.
func (j job) callShares(l *Limiter, _ *progress, ended <-chan struct{}) map[string]record {
	var exact, local record
	for {
		select {
		case <-ended:
			return map[string]record{"exact": exact, "local": local}
		default:
		}
		a, err := l.Take(l.ctx, "a", 1)
		if err != nil {
			panic(err)
		}
		of := &exact
		if a.Source != SourceRedis {
			of = &local
		}
		now := policy.Instant(time.Now().UnixNano())
		if a.Allowed {
			of.add(record{Admitted: 1, First: now, Last: now})
		} else {
			of.add(record{Refused: 1})
			time.Sleep(2 * time.Millisecond)
		}
	}
}

// sharing is a fleet of processes that take from one key as long as it lasts.
type sharing struct {
	job     job
	servers []*process
	sum     map[string]record
	begun   time.Time
}

func startSharing(t *testing.T, redis *redistest.Server, j job, servers int) *sharing {
	t.Helper()
	j.Addr, j.Name, j.Shares = redis.Addr(), name(), true
	s := &sharing{job: j, sum: map[string]record{}, begun: time.Now()}
	for range servers {
		s.servers = append(s.servers, start(t, j))
	}
	return s
}

// usedUp waits until Redis says that the limit is used up, and all servers have beaten at
// least twice since they were there.
func (s *sharing) usedUp(t *testing.T, redis *redistest.Server) {
	t.Helper()
	p, err := s.job.policy()
	require.NoError(t, err)
	client := redis.Client(t)
	direct := store.New(client, store.Options{Name: s.job.Name})
	limit, err := direct.Limit(p)
	require.NoError(t, err)
	eventually(t, func() bool {
		servers, err := client.Do(t.Context(), client.B().Zcard().Key("ral:"+s.job.Name+":servers").Build()).AsInt64()
		if err != nil || int(servers) != len(s.servers) {
			return false
		}
		standing, err := direct.Peek(t.Context(), limit, "a")
		return err == nil && standing.Remaining*10 <= s.job.Capacity
	}, "it is used up")
	time.Sleep(2 * beat)
}

// end ends a server, and counts what it was allowed.
func (s *sharing) end(t *testing.T, server int) {
	t.Helper()
	require.NoError(t, s.servers[server].stop.Close())
	for way, r := range s.servers[server].end(t) {
		of := s.sum[way]
		of.add(r)
		s.sum[way] = of
	}
}

// bound is what the limit allows since the beginning.
func (s *sharing) bound() float64 {
	return float64(s.job.Capacity) + float64(s.job.Count)*float64(time.Since(s.begun))/float64(s.job.Per)
}

// ended ends all servers. It returns what Redis let pass, what the shares did, and what
// the limit allows.
func (s *sharing) ended(t *testing.T) (exact, local, bound float64) {
	t.Helper()
	for i := range s.servers {
		s.end(t, i)
	}
	exact, local, bound = float64(s.sum["exact"].Admitted), float64(s.sum["local"].Admitted), s.bound()
	t.Logf("%v by Redis and %v by shares, of %.0f: %.2f of the limit", exact, local, bound, (exact+local)/bound)
	return exact, local, bound
}

// TestFlappingRedis has Redis be away for 3.3 s and there for 0.7 s, again and again, under
// four processes that take what they can. It checks that the shares of the four keep to
// the limit together with Redis, whether they were told how many they are or have to count
// each other, of which an outage makes none forget the others.
//
// What a share let pass may be let pass by Redis as well until it is charged there, but
// only once, since it is owed then: hence another capacity. A process that gets no processor
// while Redis is there may miss to be charged, so that Redis lets pass once more what its share
// did in an outage, or to be counted, so that three share what four take. One process may in
// each outage.
func TestFlappingRedis(t *testing.T) {
	const servers, capacity, rate, cycles = 4, 100, 50, 4
	const away = 3300 * time.Millisecond
	const shared = cycles * rate * float64(away) / float64(time.Second)
	for _, c := range []struct {
		name              string
		servers           int
		uncharged, missed float64
	}{{"told", servers, shared / servers, 0}, {"counted", 0, shared / servers, shared / (servers - 1)}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			redis := redistest.Start(t, redistest.Options{AOF: true})
			s := startSharing(t, redis, job{Capacity: capacity, Count: rate, Per: time.Second, Servers: c.servers}, servers)
			time.Sleep(2 * beat)
			for range cycles {
				redis.Kill()
				time.Sleep(away)
				require.NoError(t, redis.Restart())
				time.Sleep(700 * time.Millisecond)
			}
			exact, local, bound := s.ended(t)
			assert.LessOrEqual(t, exact+local, bound+capacity+c.uncharged+c.missed)
			assert.Greater(t, local, rate*3.3, "and shares are used")
		})
	}
}

// TestOutageIsNoSecondBurst has four processes use a limit up, and Redis die: what the
// shares let pass is what comes in from then on.
func TestOutageIsNoSecondBurst(t *testing.T) {
	t.Parallel()
	const servers, capacity, rate = 4, 200, 20
	redis := redistest.Start(t, redistest.Options{AOF: true})
	s := startSharing(t, redis, job{Capacity: capacity, Count: rate, Per: time.Second}, servers)
	s.usedUp(t, redis)
	redis.Kill()
	time.Sleep(3 * beat)
	exact, local, bound := s.ended(t)
	assert.LessOrEqual(t, exact+local, bound+servers)
	assert.NotZero(t, exact)
	assert.NotZero(t, local, "and shares are used")
}

// TestRestartsInAnOutage has a limit of 400 be used up, Redis die, and all servers be
// restarted, ten times: what they have forgotten they do not admit again. One that does not
// know of the other lets pass all that comes in, as does the other.
func TestRestartsInAnOutage(t *testing.T) {
	for _, c := range []struct {
		name    string
		servers int
	}{{"told", 4}, {"told too few", 1}, {"not told", 0}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			const servers, restarts, capacity = 2, 10, 400
			redis := redistest.Start(t, redistest.Options{AOF: true})
			s := startSharing(t, redis, job{Capacity: capacity, Count: 400, Per: time.Hour, Servers: c.servers}, servers)
			s.usedUp(t, redis)
			redis.Kill()
			for range restarts {
				time.Sleep(200 * time.Millisecond)
				for i := range servers {
					s.end(t, i)
					s.servers[i] = start(t, s.job)
				}
			}
			exact, local, bound := s.ended(t)
			assert.NotZero(t, exact)
			assert.LessOrEqual(t, exact+local, capacity+servers*(bound-capacity)+servers)
		})
	}
}
