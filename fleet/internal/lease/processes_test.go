package lease

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/fleet/internal/redistest"
	"github.com/ral-limiter/ral/fleet/internal/store"
	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/policy"
)

// serverArgs names the variable that makes the test binary a server.
const serverArgs = "RAL_LEASE_TEST_SERVER"

var limits = map[string]policy.Policy{
	"funnel":  must(policy.Funnel(400, 2000, time.Second)),
	"fixed":   must(policy.FixedWindow(500, 250*time.Millisecond)),
	"sliding": must(policy.SlidingWindow(500, 250*time.Millisecond)),
}

const callers = 8

// Limits of an exchange with Redis: brief for servers, which retry; generous for tests on a busy
// machine.
const (
	brief    = 100 * time.Millisecond
	generous = time.Minute
)

func connect(addr string, limit policy.Policy, timeout time.Duration) (*Leases, *OnStore, rueidis.Client, error) {
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, DisableCache: true, ForceSingleClient: true})
	if err != nil {
		return nil, nil, nil, err
	}
	plan, err := NewPlan(limit, 0)
	if err != nil {
		return nil, nil, nil, err
	}
	direct := store.New(client, store.Options{Name: "processes"})
	kept, err := direct.Limit(plan.Policy)
	if err != nil {
		return nil, nil, nil, err
	}
	bank := NewOnStore(direct, plan, kept)
	l, err := New(Config{Plan: plan, Bank: bank, Name: store.Short, Servers: func() int { return servers }, Timeout: timeout})
	return l, bank, client, err
}

// serve takes units until its input ends or it is killed, and prints when it asked for each and got
// it.
func serve() {
	addr, limit, _ := strings.Cut(os.Getenv(serverArgs), " ")
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0) // the parent is gone
	}()
	l, _, _, err := connect(addr, limits[limit], brief)
	for err != nil { // Redis may be away
		l, _, _, err = connect(addr, limits[limit], brief)
	}
	for range callers {
		go func() {
			for {
				asked := time.Now()
				d, err := takeFrom(l, "key", 1, 20*time.Millisecond)
				if err == nil && d.Allowed {
					// A single write, so that death leaves no half line.
					fmt.Printf("%d %d\n", asked.UnixNano(), time.Now().UnixNano())
				}
				time.Sleep(time.Duration(rand.Int64N(int64(4 * time.Millisecond)))) // wall: its pace, which is not judged
			}
		}()
	}
	select {}
}

// span is from the ask of a unit to its admission.
type span struct{ asked, passed int64 }

type process struct {
	cmd  *exec.Cmd
	in   io.Closer
	done chan struct{}
}

type spans struct {
	mu  sync.Mutex
	all []span
}

func (s *spans) start(t *testing.T, addr, limit string) *process {
	p := &process{cmd: exec.Command(os.Args[0]), done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), serverArgs+"="+addr+" "+limit)
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	p.in, err = p.cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	go func() {
		defer close(p.done)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var x span
			if _, err := fmt.Sscan(lines.Text(), &x.asked, &x.passed); err != nil {
				continue // it died while it wrote
			}
			s.mu.Lock()
			s.all = append(s.all, x)
			s.mu.Unlock()
		}
	}()
	return p
}

func (s *spans) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.all)
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
	_ = p.cmd.Wait()
	_ = p.in.Close()
}

// fault returns a window with more than the limit. It counts units that were asked for and admitted
// within it.
func (s *spans) fault(limit shape.Shape) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.SortFunc(s.all, func(x, y span) int { return int(x.passed - y.passed) })
	for _, first := range s.all {
		sum := int64(0)
		for _, x := range s.all {
			if x.asked < first.asked {
				continue
			}
			sum++
			length := x.passed - first.asked
			var most int64
			switch limit.Kind {
			case shape.Funnel:
				most = limit.Capacity + length*limit.Count/int64(limit.Per)
			case shape.SlidingWindow:
				most = limit.Limit + length*limit.Limit/int64(limit.Per)
			default:
				most = limit.Limit * (1 + max((length+int64(limit.Per)-1)/int64(limit.Per), 1))
			}
			if sum > most {
				return fmt.Errorf("%d units in %v, where %d are allowed", sum, time.Duration(length), most)
			}
		}
	}
	return nil
}

// Processes and Redis die at any moment. The units of the dead come back.
func TestBoundWithProcesses(t *testing.T) {
	if testing.Short() {
		t.Skip("several processes, and a Redis that is killed")
	}
	for name, limit := range limits {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redis := redistest.Start(t, redistest.Options{AOF: true})
			var s spans
			var all [servers]*process
			for i := range all {
				all[i] = s.start(t, redis.Addr(), name)
			}
			rng := rand.New(rand.NewPCG(1, 2))
			s1 := limit.(shape.Shaped).Shape()
			for kills := 0; kills < 10 || s.count() <= int(s1.Limit); {
				before, some := s.count(), 1+rng.IntN(100)
				assert.Eventually(t, func() bool { return s.count() >= before+some }, generous, time.Millisecond, "servers go on")
				if rng.IntN(6) == 0 {
					redis.Kill()
					require.NoError(t, redis.Restart())
					continue
				}
				i := rng.IntN(servers)
				all[i].kill()
				all[i] = s.start(t, redis.Addr(), name)
				kills++
			}
			for _, p := range all {
				p.kill()
			}
			require.NoError(t, s.fault(s1))

			// All are dead. The next server gets their units.
			l, bank, client, err := connect(redis.Addr(), limit, generous)
			require.NoError(t, err)
			defer client.Close()
			defer func() { assert.NoError(t, l.Close(context.Background())) }()
			left := func() store.Taken {
				taken, err := bank.store.(*store.Store).Peek(context.Background(), bank.limit, "key")
				require.NoError(t, err)
				return taken
			}
			before, now := left(), store.Taken{}
			assert.Eventually(t, func() bool { now = left(); return now.At >= before.At+policy.Instant(l.plan.Term) }, generous, time.Millisecond)
			if s1.Kind == shape.Funnel {
				assert.GreaterOrEqual(t, now.Remaining, min(before.Remaining+l.plan.Most, l.Limit()))
			}
			assert.Eventually(t, func() bool { return left().Remaining == l.Limit() }, generous, time.Millisecond)
			d, err := takeFrom(l, "key", l.Limit(), generous)
			assert.NoError(t, err)
			assert.True(t, d.Allowed)
		})
	}
}

// Units of a window come back at once. Of a funnel all may have drained.
func TestCloseGivesBackToRedis(t *testing.T) {
	redis := redistest.Start(t, redistest.Options{})
	for i, limit := range []policy.Policy{must(policy.FixedWindow(500, time.Hour)), must(policy.SlidingWindow(500, time.Hour))} {
		t.Run(limit.String(), func(t *testing.T) {
			key := [...]string{"key", strings.Repeat("key", 20_000)}[i]
			l, bank, client, err := connect(redis.Addr(), limit, generous)
			require.NoError(t, err)
			defer client.Close()
			used := int64(0)
			for l.Held(key) < 10 {
				d, err := takeFrom(l, key, 1, generous)
				require.NoError(t, err)
				if d.Allowed {
					used++
				}
			}
			require.NoError(t, l.Close(context.Background()))
			taken, err := bank.store.(*store.Store).Peek(context.Background(), bank.limit, key)
			require.NoError(t, err)
			assert.GreaterOrEqual(t, taken.Remaining, l.Limit()-used)
			assert.Positive(t, l.Stats().Returned)
		})
	}
}

// The delay that Redis may have counts as age.
func TestFunnelGivesBackTheUndrainedUnits(t *testing.T) {
	redis := redistest.Start(t, redistest.Options{})
	l, bank, client, err := connect(redis.Addr(), limits["funnel"], generous)
	require.NoError(t, err)
	defer client.Close()
	defer func() { assert.NoError(t, l.Close(context.Background())) }()
	g := bank.Lease(context.Background(), []Ask{{Key: "other", Need: 200, Most: 200}})[0]
	require.NoError(t, g.Err)
	require.EqualValues(t, 200, g.Units)
	require.NoError(t, bank.Return(context.Background(), []Back{{Name: "other", Units: 200, Word: g.Word, At: g.At}}))
	taken, err := bank.store.(*store.Store).Peek(context.Background(), bank.limit, "other")
	require.NoError(t, err)
	drained := int64(taken.At-g.At)*2000/int64(time.Second) + 1
	late := int64(inTime) * 2000 / int64(time.Second)
	assert.LessOrEqual(t, taken.Remaining, l.Limit()-late+drained)
	assert.GreaterOrEqual(t, taken.Remaining, l.Limit()-late-1-drained)
}
