package fleet

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/fleet/internal/redistest"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// serverJob has a process serve calls under a shared Funnel until its input ends.
type serverJob struct {
	Addr, Name string
	// Count is the units a second.
	Capacity, Count int64
	Mode            Mode
	Outage          Fallback
	Servers         int
	// InFlight, if not 0, is in place of the Funnel: see serveInFlight.
	InFlight int64
	Tenants  bool // the Funnel is of tenants: see serveTenants
}

const serverJobVariable = "RAL_FLEET_TEST_SERVER"

// serverBudget is short for a halted Redis, and long enough for a busy machine to read an answer.
const serverBudget = 250 * time.Millisecond

// A server is asked by a line: taking keeps the unit, and returning gives it back.
const taking, returning = "take", "return"

type serverReply struct {
	Source  limits.Source
	Allowed bool
	// Calm reports whether the call is of a tenant that stays below its guarantee.
	Calm bool
	// Granted is the tenant that came by itself, if the units are of its guarantee.
	Granted string
}

func serve() error {
	var j serverJob
	if err := json.Unmarshal([]byte(os.Getenv(serverJobVariable)), &j); err != nil {
		return err
	}
	if j.InFlight > 0 {
		return serveInFlight(j)
	}
	p, err := policy.Funnel(j.Capacity, j.Count, time.Second)
	if err != nil {
		return err
	}
	c := at(j.Addr, p)
	c.Name, c.Budget, c.Mode, c.Outage, c.Servers = j.Name, serverBudget, j.Mode, j.Outage, j.Servers
	if j.Tenants {
		return serveTenants(c)
	}
	l, err := New(c)
	if err != nil {
		return err
	}
	defer l.Close()
	replies := json.NewEncoder(os.Stdout)
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		g, err := l.Hold(context.Background(), limits.Call[string]{Key: "a", N: 1, NoWait: true})
		if err != nil {
			return err
		}
		if lines.Text() == returning {
			// In an outage the units may stay taken.
			_ = g.Cancel(context.Background())
		}
		if err := replies.Encode(serverReply{Source: g.Source(), Allowed: g.Allowed}); err != nil {
			return err
		}
	}
	return nil
}

// serveTenants is serve for the tenants of a group. All are greedy except "calm", for which this server
// calls once in calmPause. The reserve has room for grantedTenants of those that come by themselves.
func serveTenants(c Config) error {
	const calmPause = time.Second
	total := c.Policy
	c.Policy = nil
	s, err := NewShares(SharesConfig{
		Config: c, Total: total, Reserved: policy.Must(policy.Funnel(16+8*grantedTenants, 20+10*grantedTenants, time.Second)), Tenants: []string{"calm", "greedy"},
		Guarantee: func(tenant string) policy.Policy { return policy.Must(policy.Funnel(8, 10, time.Second)) },
	})
	if err != nil {
		return err
	}
	defer s.Close()
	var calmAt time.Time
	replies := json.NewEncoder(os.Stdout)
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		tenant := []string{"greedy", "one", "two", "three", "four"}[rand.IntN(5)]
		if time.Since(calmAt) > calmPause { // wall: its pace, which is not judged
			tenant, calmAt = "calm", time.Now()
		}
		// A greedy call waits for a moment, so that processes compete for loans.
		r, err := s.Acquire(context.Background(), tenant, 1, time.Duration(rand.IntN(2))*10*time.Millisecond)
		if err != nil && !errors.Is(err, engine.ErrDeadline) {
			return err
		}
		if lines.Text() == returning {
			_ = r.Cancel(context.Background())
		}
		reply := serverReply{Source: r.Source(), Allowed: r.Allowed, Calm: tenant == "calm"}
		if r.Allowed && !r.Borrowed && r.Source() == limits.SourceRedis && tenant != "calm" && tenant != "greedy" {
			reply.Granted = tenant
		}
		if err := replies.Encode(reply); err != nil {
			return err
		}
	}
	return nil
}

const grantedTenants = 2

// process is this test as a server, and its caller. It ends if this process dies, as its input ends.
type process struct {
	cmd     *exec.Cmd
	asks    io.WriteCloser
	replies *json.Decoder
	// answers are of goroutine call, until it ends.
	answers []answered
	// here counts the answers by Redis or leases, and away those by the fallback.
	here, away answerCount
	killed     atomic.Bool
}

type answerCount struct{ all, refused atomic.Int64 }

// answered is an answer, and when it was made by the caller's clock.
type answered struct {
	serverReply
	sent, heard time.Duration
	returned    bool
}

func startServer(t *testing.T, j serverJob) *process {
	t.Helper()
	job := must.Get(json.Marshal(j))
	p := &process{cmd: exec.Command(os.Args[0])}
	p.cmd.Env = append(os.Environ(), serverJobVariable+"="+string(job))
	p.cmd.Stderr = os.Stderr
	p.asks = must.Get(p.cmd.StdinPipe())
	out := must.Get(p.cmd.StdoutPipe())
	p.replies = json.NewDecoder(out)
	require.NoError(t, p.cmd.Start())
	t.Cleanup(func() {
		// The process may have ended before.
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
	})
	return p
}

// call makes calls until ended is closed.
func (p *process) call(returns bool, begun time.Time, ended <-chan struct{}) error {
	for {
		select {
		case <-ended:
			return nil
		default:
		}
		a, ask := answered{returned: returns && rand.IntN(4) == 0}, taking
		if a.returned {
			ask = returning
		}
		a.sent = time.Since(begun) // wall: it was decided after this
		if _, err := fmt.Fprintln(p.asks, ask); err != nil && !p.killed.Load() {
			return err
		}
		if err := p.replies.Decode(&a.serverReply); p.killed.Load() {
			return nil
		} else if err != nil {
			return err
		}
		a.heard = time.Since(begun) // wall: it was decided before this
		p.answers = append(p.answers, a)
		by := &p.away
		if a.Source == limits.SourceRedis || a.Source == limits.SourceLease {
			by = &p.here
		}
		by.all.Add(1)
		if !a.Allowed {
			by.refused.Add(1)
		}
		time.Sleep(time.Duration(rand.IntN(int(4 * time.Millisecond)))) // wall: its pace, which is not judged
	}
}

// mostInAStretch returns how many more were admitted than a Funnel allows, in the worst stretch
// from a call to an answer. Calls sent and answered within were decided there.
func (j serverJob) mostInAStretch(admitted []answered) (above int64) {
	slices.SortFunc(admitted, func(a, b answered) int { return cmp.Compare(a.heard, b.heard) })
	for _, from := range admitted {
		n := int64(0)
		for _, to := range admitted {
			if to.sent >= from.sent {
				n++
				above = max(above, n-j.Capacity-int64(float64(j.Count)*(to.heard-from.sent).Seconds()))
			}
		}
	}
	return above
}

// TestProcessesKeepTheLimit has four processes keep one limit, while Redis forgets its scripts, ends
// connections, stands still, is killed, and returns from disk. Redis and leases admit no more than
// the limit in any stretch of time by the callers' clock, and neither do the shares. While Redis is
// away, each process goes on answering.
// Promise: Several processes keep the limit across flushes, pauses, restarts and reconnects.
func TestProcessesKeepTheLimit(t *testing.T) {
	if testing.Short() {
		t.Skip("several processes, and a Redis that is killed")
	}
	const servers = 4
	for _, c := range []struct {
		name   string
		mode   Mode
		outage Fallback
		// returns means that some calls give their unit back.
		returns bool
		tenants bool
	}{
		{"exact, shares", Exact, FallbackShare, false, false},
		{"exact, shares, giving back", Exact, FallbackShare, true, false},
		{"exact, closed", Exact, FallbackClosed, false, false},
		{"exact, open", Exact, FallbackOpen, false, false},
		{"leased, shares", Leased, FallbackShare, false, false},
		{"leased, shares, giving back", Leased, FallbackShare, true, false},
		{"tenants, shares", Exact, FallbackShare, true, true},
		{"tenants, closed", Exact, FallbackClosed, false, true},
		{"leased, closed", Leased, FallbackClosed, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			redis := redistest.Start(t, redistest.Options{AOF: true})
			j := serverJob{Addr: redis.Addr(), Name: name(), Capacity: 40, Count: 50, Mode: c.mode, Outage: c.outage, Servers: servers, Tenants: c.tenants}
			begun, ended := time.Now(), make(chan struct{})
			var all [servers]*process
			var calling sync.WaitGroup
			failed := make(chan error, servers)
			for i := range all {
				all[i] = startServer(t, j)
				calling.Go(func() {
					if err := all[i].call(c.returns, begun, ended); err != nil {
						failed <- err
					}
				})
			}
			goOn := func(what string, done func() bool) {
				t.Helper()
				inTime(t, func() bool {
					select {
					case err := <-failed:
						require.NoError(t, err)
					default:
					}
					return done()
				}, what)
			}
			answer := func(what string, by func(*process) *answerCount) {
				t.Helper()
				var before [servers]int64
				for i, p := range all {
					before[i] = by(p).all.Load()
				}
				goOn(what, func() bool {
					for i, p := range all {
						if by(p).all.Load() < before[i]+20 {
							return false
						}
					}
					return true
				})
			}
			refuse := func(what string, by func(*process) *answerCount) {
				t.Helper()
				goOn(what, func() bool {
					return slices.ContainsFunc(all[:], func(p *process) bool { return by(p).refused.Load() > 0 })
				})
			}
			here := func(p *process) *answerCount { return &p.here }
			away := func(p *process) *answerCount { return &p.away }
			admin := redis.Client(t)
			command := func(words ...string) {
				require.NoError(t, admin.Do(t.Context(), admin.B().Arbitrary(words...).Build()).Error())
			}

			answer("Redis answers", here)
			refuse("the limit is what holds them", here)
			for range 2 {
				command("SCRIPT", "FLUSH", "SYNC")
				answer("Redis has forgotten the scripts", here)
				command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
				answer("Redis has ended the connections", here)
				require.NoError(t, redis.Pause())
				answer("Redis stands still", away)
				require.NoError(t, redis.Resume())
				answer("Redis goes on", here)
				redis.Kill()
				answer("Redis is gone", away)
				if c.outage == FallbackShare {
					refuse("the shares are what holds them", away)
				}
				require.NoError(t, redis.Restart())
				answer("Redis is back", here)
			}
			if c.tenants {
				require.NoError(t, all[0].cmd.Process.Signal(syscall.SIGSTOP))
				before := all[1].here.all.Load()
				goOn("others go on", func() bool { return all[1].here.all.Load() > before+50 })
				require.NoError(t, all[0].cmd.Process.Signal(syscall.SIGCONT))
				answer("it goes on", here)
				all[0].killed.Store(true)
				require.NoError(t, all[0].cmd.Process.Kill())
				before = all[1].here.all.Load()
				goOn("others go on", func() bool { return all[1].here.all.Load() > before+50 })
			}
			close(ended)
			calling.Wait()

			calm, calmRefused, granted := 0, 0, map[string]bool{}
			admitted, refused := map[limits.Source][]answered{}, map[limits.Source]int{}
			for _, p := range all {
				for _, a := range p.answers {
					if a.Granted != "" {
						granted[a.Granted] = true
					}
					if a.Calm && a.Source == limits.SourceRedis {
						calm++
						if !a.Allowed {
							calmRefused++
						}
					}
					if !a.Allowed {
						refused[a.Source]++
					} else if !a.returned {
						admitted[a.Source] = append(admitted[a.Source], a)
					}
				}
				require.NoError(t, p.asks.Close())
				if err := p.cmd.Wait(); !p.killed.Load() {
					require.NoError(t, err)
				}
			}
			if c.tenants {
				t.Logf("%d guaranteed calls", calm)
				assert.NotZero(t, calm)
				assert.Zero(t, calmRefused, "tenants below their guarantee were refused")
				assert.Len(t, granted, grantedTenants, "the reserve has no room for more, and Redis forgot none")
			}
			// Redis and leases are one limit, and the shares are another.
			byRedis := slices.Concat(admitted[limits.SourceRedis], admitted[limits.SourceLease])
			byShares := admitted[limits.SourceShare]
			t.Logf("%d admitted by Redis and leases, %d by shares; refused %v", len(byRedis), len(byShares), refused)
			assert.LessOrEqual(t, j.mostInAStretch(byRedis), int64(0), "Redis and leases admitted more than the limit")
			assert.LessOrEqual(t, j.mostInAStretch(byShares), int64(0), "shares admitted more than the limit")
			assert.NotEmpty(t, byRedis)
			switch c.outage {
			case FallbackShare:
				assert.NotEmpty(t, byShares)
			case FallbackOpen:
				assert.NotEmpty(t, admitted[limits.SourceOpen])
				assert.Zero(t, refused[limits.SourceOpen])
			case FallbackClosed:
				assert.Empty(t, admitted[limits.SourceClosed])
				assert.NotZero(t, refused[limits.SourceClosed])
			}
		})
	}
}

// inTime is eventually for a slow machine: it waits until shortly before the tests' deadline.
func inTime(t *testing.T, done func() bool, what string) {
	t.Helper()
	end, ends := t.Deadline()
	if !ends {
		end = time.Now().Add(10 * time.Minute)
	}
	for end = end.Add(-10 * time.Second); !done(); time.Sleep(2 * time.Millisecond) { // wall: until the deadline of the tests
		require.True(t, time.Now().Before(end), what)
	}
}
