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
	"github.com/ral-limiter/ral/fleet/internal/storetest"
	"github.com/ral-limiter/ral/internal/testkit/seeds"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// job tells a server of TestLimitWithProcesses to take from the keys of a funnel until its input ends.
type job struct {
	Addr, Name            string
	Capacity, Count, Keys int64
	Per                   time.Duration
	Log                   bool // a SlidingLog of Capacity units per Per instead
}

const serverJob = "RAL_FLEET_TEST_SERVER"

const callers = 16

func isServer() bool { return os.Getenv(serverJob) != "" }

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
	c.Name, c.Outage = j.Name, FallbackClosed
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
	said := json.NewEncoder(os.Stdout)
	var all sync.WaitGroup
	var parts [callers]map[string]record
	var now progress
	for i := range parts {
		all.Go(func() { parts[i] = j.call(l, &now, ended) })
	}
	all.Go(func() { now.tell(said, ended) })
	all.Wait()
	records := map[string]record{}
	for _, part := range parts {
		for key, r := range part {
			sum := records[key]
			sum.add(r)
			records[key] = sum
		}
	}
	return said.Encode(report{Records: records})
}

// report is a server's progress, with its records in the end.
type report struct {
	Admitted, Refused int64    // since it said so last
	Keys              []string // of which something was admitted for the first time
	Records           map[string]record
}

type progress struct {
	mu    sync.Mutex
	known map[string]bool
	next  report
}

func (p *progress) count(key string, allowed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !allowed {
		p.next.Refused++
		return
	}
	p.next.Admitted++
	if !p.known[key] {
		if p.known == nil {
			p.known = map[string]bool{}
		}
		p.known[key] = true
		p.next.Keys = append(p.next.Keys, key)
	}
}

func (p *progress) tell(to *json.Encoder, ended <-chan struct{}) {
	tick := time.NewTicker(20 * time.Millisecond) // wall: how often it says so is not judged
	defer tick.Stop()
	for {
		select {
		case <-ended:
			return
		case <-tick.C:
		}
		p.mu.Lock()
		next := p.next
		p.next = report{}
		p.mu.Unlock()
		if next.Admitted+next.Refused > 0 {
			if err := to.Encode(next); err != nil {
				panic(err)
			}
		}
	}
}

func (j job) call(l *Limiter, now *progress, ended <-chan struct{}) map[string]record {
	records := map[string]record{}
	for {
		select {
		case <-ended:
			return records
		default:
		}
		key := strconv.FormatInt(rand.Int64N(j.Keys), 10)
		t, err := l.take(l.ctx, l.own.Load(), key, 1, 0)
		switch {
		case err != nil:
			panic(err)
		case t.answer.Source() != limits.SourceRedis:
			time.Sleep(time.Millisecond) // wall: its pace in an outage, which is not judged
			continue
		}
		now.count(key, t.answer.Allowed)
		r := records[key]
		if t.answer.Allowed {
			r.add(record{Admitted: 1, First: t.exact.At, Last: t.exact.At})
		} else {
			r.Refused++
			// Redis and the process that kills it need time, too.
			time.Sleep(time.Duration(rand.IntN(int(4 * time.Millisecond)))) // wall: its pace, which is not judged
		}
		records[key] = r
	}
}

// TestLimitWithProcesses has 8 processes of 16 callers take all they can from one key and from 10,000, while
// scripts are flushed, clients are paused and cut off, and Redis is killed and restarted from disk:
//
//  1. no key is admitted more than capacity + rate * time, by Redis's clock between its admissions;
//  2. the limit is used: calls are refused, and at least the capacity is admitted.
//
// Promise: Several processes keep the limit across flushes, pauses, restarts and reconnects.
func TestLimitWithProcesses(t *testing.T) {
	if testing.Short() {
		t.Skip("several processes, and a Redis that is killed")
	}
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
			goOn := func() {
				t.Helper()
				var before [processes]int64
				for i, s := range servers {
					before[i] = s.heard().answered()
				}
				for i, s := range servers {
					inTime(t, func() bool { return s.heard().answered() > before[i]+100 }, "each server is answered")
				}
			}
			goOn()
			for range 2 {
				command("SCRIPT", "FLUSH", "SYNC")
				goOn()
				command("CLIENT", "PAUSE", "50", "ALL")
				goOn()
				command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
				goOn()
				redis.Kill()
				require.NoError(t, redis.Restart())
				inTime(t, func() bool { return admin.Do(t.Context(), admin.B().Ping().Build()).Error() == nil }, "it is back")
				goOn()
			}
			inTime(t, func() bool {
				var all report
				keys := map[string]bool{}
				for _, s := range servers {
					heard := s.heard()
					all.Admitted += heard.Admitted
					all.Refused += heard.Refused
					for _, key := range heard.Keys {
						keys[key] = true
					}
				}
				return len(keys) >= c.keys && all.Refused > 0 && all.Admitted > c.job.Capacity
			}, "the limit is what holds them")
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

type process struct {
	cmd      *exec.Cmd
	stop     io.Closer
	out, err bytes.Buffer // out of a process that startBusy made
	read     chan error   // the result of hear

	mu  sync.Mutex
	all report // all that it said
}

// start starts a process. It ends if this process dies, as its input ends.
func start(t *testing.T, j job) *process {
	t.Helper()
	told, err := json.Marshal(j)
	require.NoError(t, err)
	p := &process{cmd: exec.Command(os.Args[0]), read: make(chan error, 1)}
	p.cmd.Env = append(os.Environ(), serverJob+"="+string(told))
	p.cmd.Stderr = &p.err
	p.stop, err = p.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	go func() { p.read <- p.hear(out) }()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // if it is still there
		_ = p.cmd.Wait()
	})
	return p
}

func (p *process) hear(out io.Reader) error {
	for reports := json.NewDecoder(out); ; {
		var r report
		if err := reports.Decode(&r); err != nil {
			return err
		}
		p.mu.Lock()
		p.all.Admitted += r.Admitted
		p.all.Refused += r.Refused
		p.all.Keys = append(p.all.Keys, r.Keys...)
		p.all.Records = r.Records
		p.mu.Unlock()
	}
}

func (p *process) heard() report {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.all
}

func (r report) answered() int64 { return r.Admitted + r.Refused }

func (p *process) end(t *testing.T) (records map[string]record) {
	t.Helper()
	read := <-p.read
	require.NoError(t, p.cmd.Wait(), p.err.String())
	require.ErrorIs(t, read, io.EOF)
	records = p.heard().Records
	require.NotNil(t, records)
	return records
}

// TestClockSteps steps Redis's clock back and forth in the scripts' input: no more is admitted than
// in the time from the earliest instant to the latest.
//
// Promise: A Redis clock stepping back and forth mints nothing.
func TestClockSteps(t *testing.T) {
	must := policy.Must
	const per = 10 * time.Second
	sliding, err := SlidingLog(20, per)
	require.NoError(t, err)
	for _, c := range []struct {
		p policy.Policy
		// most bounds the admissions in a span of so many periods.
		most func(periods float64) float64
	}{
		{must(policy.Funnel(20, 20, per)), func(n float64) float64 { return 20 + 20*n }},
		{must(policy.Queue(19, 20, per)), func(n float64) float64 { return 20 + 20*n }},
		{must(policy.Bursty(20, per, 20)), func(n float64) float64 { return 20 + 20*n + 1 }},
		{must(policy.FixedWindow(20, per)), func(n float64) float64 { return 20 * (math.Floor(n) + 1) }},
		{must(policy.SlidingWindow(20, per)), func(n float64) float64 { return 20 * (math.Floor(n) + 2) }},
		{must(policy.AlignedWindow(20, per)), func(n float64) float64 { return 20 * (math.Floor(n) + 2) }},
		{sliding, func(n float64) float64 { return 20 * (math.Floor(n) + 1) }},
	} {
		t.Run(c.p.String(), func(t *testing.T) {
			inBubble(t, func(t *testing.T, redis *storetest.Redis) {
				const start = int64(time.Hour / time.Microsecond)
				us, least, latest := start, start, start
				var clock atomic.Int64 // us, which the keeper reads as well
				clock.Store(us)
				config := on(redis, c.p)
				config.clock = clock.Load
				l := open(t, config)
				seed := seeds.Of(t)
				random := rand.New(rand.NewPCG(seed, 0))
				admitted := 0
				for i := range 3000 {
					a := take(t, l, "a", 1)
					require.Equal(t, limits.SourceRedis, a.Source(), a.Err())
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
		})
	}
}
