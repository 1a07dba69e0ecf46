package fleet

import (
	"bytes"
	"encoding/json"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/fleet/internal/redistest"
	"github.com/ral-limiter/ral/policy"
)

// job is what a server of TestProcesses is told to do: 16 callers take from that many keys
// of a funnel until its standard input ends.
type job struct {
	Addr, Name            string
	Capacity, Count, Keys int64
	Per                   time.Duration
	Log                   bool // a SlidingLog of Capacity units per Per instead
	Shares                bool // count what shares let pass, too: see shares_process_test.go
	Servers               int
}

const serverJob = "RAL_FLEET_TEST_SERVER"

// callers is how many goroutines of a server call at once.
const callers = 16

func isServer() bool { return os.Getenv(serverJob) != "" }

// record is what a key was allowed, by Redis's clock.
type record struct {
	Admitted    int64
	First, Last policy.Instant
	Refused     int64
}

func (r *record) add(o record) {
	if o.Admitted > 0 {
		if r.Admitted == 0 {
			r.First, r.Last = o.First, o.Last
		}
		r.First, r.Last = min(r.First, o.First), max(r.Last, o.Last)
	}
	r.Admitted += o.Admitted
	r.Refused += o.Refused
}

func (j job) policy() (policy.Policy, error) {
	if j.Log {
		return SlidingLog(j.Capacity, j.Per)
	}
	return policy.Funnel(j.Capacity, j.Count, j.Per)
}

// serve is the life of a server of TestProcesses.
func serve() error {
	var j job
	if err := json.Unmarshal([]byte(os.Getenv(serverJob)), &j); err != nil {
		return err
	}
	p, err := j.policy()
	if err != nil {
		return err
	}
	c := at(j.Addr, p)
	c.Name, c.Budget, c.Outage = j.Name, quick, FallbackClosed
	call := j.call
	if j.Shares {
		c.Budget, c.Outage, c.Servers = 50*time.Millisecond, FallbackShare, j.Servers
		call = j.callShares
	}
	l, err := New(c)
	if err != nil {
		return err
	}
	defer l.Close()

	ended := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(ended)
	}()
	var all sync.WaitGroup
	var parts [callers]map[string]record
	for i := range parts {
		all.Go(func() { parts[i] = call(l, ended) })
	}
	all.Wait()
	records := map[string]record{}
	for _, part := range parts {
		for key, r := range part {
			sum := records[key]
			sum.add(r)
			records[key] = sum
		}
	}
	return json.NewEncoder(os.Stdout).Encode(records)
}

// call is the life of one caller.
func (j job) call(l *Limiter, ended <-chan struct{}) map[string]record {
	records := map[string]record{}
	for {
		select {
		case <-ended:
			return records
		default:
		}
		key := strconv.FormatInt(rand.Int64N(j.Keys), 10)
		t, err := l.take(l.ctx, key, 1, 0)
		switch {
		case err != nil:
			panic(err)
		case t.answer.Source != SourceRedis:
			time.Sleep(time.Millisecond) // an outage
			continue
		}
		r := records[key]
		if t.answer.Allowed {
			r.add(record{Admitted: 1, First: t.exact.At, Last: t.exact.At})
		} else {
			r.Refused++
			// Redis and the process that kills it need time, too.
			time.Sleep(time.Duration(rand.IntN(int(4 * time.Millisecond))))
		}
		records[key] = r
	}
}

// TestProcesses has 8 processes of 16 callers each take what they can get from one key,
// and from 10,000, while scripts are flushed, clients are paused and cut off, and Redis
// is killed and started again with what it had written to disk. It checks that
//
//  1. no key is admitted more than capacity + rate * time, the time being Redis's own from its first
//     to its last admission;
//  2. the limit is what holds them: calls are refused, and at least as much as the capacity
//     is admitted.
func TestProcesses(t *testing.T) {
	const processes = 8
	for _, c := range []struct {
		name string
		job  job
		keys int // of which something must be admitted, at least
	}{
		{"one key", job{Capacity: 50, Count: 1000, Per: time.Second, Keys: 1}, 1},
		{"one key's log", job{Capacity: 100, Per: 100 * time.Millisecond, Log: true, Keys: 1}, 1},
		{"10,000 keys", job{Capacity: 1, Count: 1, Per: 2 * time.Second, Keys: 10_000}, 1000},
	} {
		t.Run(c.name, func(t *testing.T) {
			redis := redistest.Start(t, redistest.Options{AOF: true})
			c.job.Addr, c.job.Name = redis.Addr(), name()
			servers := make([]*process, processes)
			for i := range servers {
				servers[i] = start(t, c.job)
			}
			admin := redis.Client(t)
			command := func(words ...string) {
				require.NoError(t, admin.Do(t.Context(), admin.B().Arbitrary(words[0]).Args(words[1:]...).Build()).Error())
			}
			time.Sleep(300 * time.Millisecond)
			for range 2 {
				command("SCRIPT", "FLUSH", "SYNC")
				time.Sleep(100 * time.Millisecond)
				command("CLIENT", "PAUSE", "50", "ALL")
				time.Sleep(150 * time.Millisecond)
				command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
				time.Sleep(100 * time.Millisecond)
				redis.Kill()
				require.NoError(t, redis.Restart())
				eventually(t, func() bool { return admin.Do(t.Context(), admin.B().Ping().Build()).Error() == nil }, "it is back")
				time.Sleep(200 * time.Millisecond)
			}
			sum, all := map[string]record{}, record{}
			for _, s := range servers {
				require.NoError(t, s.stop.Close())
			}
			for _, s := range servers {
				for key, r := range s.end(t) {
					of := sum[key]
					of.add(r)
					sum[key] = of
					all.add(r)
				}
			}
			for key, r := range sum {
				span := time.Duration(r.Last - r.First)
				most := c.job.Capacity + int64(float64(c.job.Count)*span.Seconds()/c.job.Per.Seconds())
				if c.job.Log {
					most = c.job.Capacity * (int64(span/c.job.Per) + 1)
				}
				assert.LessOrEqual(t, r.Admitted, most, "key %s in %v", key, span)
			}
			assert.GreaterOrEqual(t, len(sum), c.keys)
			assert.NotZero(t, all.Refused)
			assert.Greater(t, all.Admitted, c.job.Capacity)
			t.Logf("%d admitted and %d refused of %d keys in %v", all.Admitted, all.Refused, len(sum), time.Duration(all.Last-all.First))
		})
	}
}

// process is a server of its own.
type process struct {
	cmd      *exec.Cmd
	stop     io.Closer
	out, err bytes.Buffer
}

// start starts one. It ends by itself if this process dies, as its input does then.
func start(t *testing.T, j job) *process {
	t.Helper()
	told, err := json.Marshal(j)
	require.NoError(t, err)
	p := &process{cmd: exec.Command(os.Args[0])}
	p.cmd.Env = append(os.Environ(), serverJob+"="+string(told))
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.err
	p.stop, err = p.cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // if it is still there
		_ = p.cmd.Wait()
	})
	return p
}

// end waits until it has ended, and returns what it was allowed.
func (p *process) end(t *testing.T) (records map[string]record) {
	t.Helper()
	require.NoError(t, p.cmd.Wait(), p.err.String())
	require.NoError(t, json.Unmarshal(p.out.Bytes(), &records), p.out.String())
	return records
}

// TestClockSteps has the clock of Redis's host go back and forth, by little and by much, in
// the input of the scripts. However it goes, no more is admitted than the limit has in the
// time from the earliest instant to the latest.
func TestClockSteps(t *testing.T) {
	must := policy.Must
	const per = 10 * time.Second
	sliding, err := SlidingLog(20, per)
	require.NoError(t, err)
	for _, c := range []struct {
		p policy.Policy
		// most is what may be admitted in a span of so many periods.
		most func(periods float64) float64
	}{
		{must(policy.Funnel(20, 20, per)), func(n float64) float64 { return 20 + 20*n }},
		{must(policy.Queue(19, 20, per)), func(n float64) float64 { return 20 + 20*n }},
		{must(policy.Bursty(20, per, 20)), func(n float64) float64 { return 20 + 20*n + 1 }},
		{must(policy.FixedWindow(20, per)), func(n float64) float64 { return 20 * (math.Floor(n) + 1) }},
		{must(policy.SlidingWindow(20, per)), func(n float64) float64 { return 20 * (math.Floor(n) + 2) }},
		{sliding, func(n float64) float64 { return 20 * (math.Floor(n) + 1) }},
	} {
		t.Run(c.p.String(), func(t *testing.T) {
			const start = int64(time.Hour / time.Microsecond)
			us, least, latest := start, start, start
			var clock atomic.Int64 // us, which the keeper reads as well
			clock.Store(us)
			config := at(shared.Addr(), c.p)
			config.clock = clock.Load
			l := open(t, config)
			seed := rand.Uint64()
			random := rand.New(rand.NewPCG(seed, 0))
			admitted := 0
			for i := range 3000 {
				a := take(t, l, "a", 1)
				require.Equal(t, SourceRedis, a.Source, a.Cause)
				if a.Allowed {
					admitted++
					least, latest = min(least, us), max(latest, us)
				}
				switch step := random.Int64N(int64(per / time.Microsecond)); {
				case i%100 == 99: // far away
					us += random.Int64N(2*step+1) - step
				case i%2 == 0:
					us += step / 20
				default:
					us -= step / 25
				}
				us = max(us, 0)
				clock.Store(us)
			}
			span := float64(latest-least) / float64(per/time.Microsecond)
			require.LessOrEqual(t, float64(admitted), c.most(span), "seed %d, %v periods", seed, span)
			require.Greater(t, admitted, 19, "seed %d", seed)
			t.Logf("%d of at most %.0f", admitted, c.most(span))
		})
	}
}
