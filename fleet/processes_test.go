package fleet

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/fleet/internal/redistest"
	"github.com/ral-limiter/ral/httplimit"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// webJob tells a web server of TestWebServersWithProcesses to serve requests under a shared Funnel until its
// input ends.
type webJob struct {
	Addr, Name      string
	Capacity, Count int64 // Count a second
	Mode            Mode
	Outage          Fallback
	Servers         int
	Charge          bool // requests with the field Free get their units back
}

const webServerJob = "RAL_FLEET_TEST_WEB"

// webBudget is short for a halted Redis, and long enough for a busy machine to read an answer.
const webBudget = 250 * time.Millisecond

type webReport struct {
	Addr     string
	Spent    int64 // requests that were answered without Redis as the budget was spent
	Openings uint64
}

const sourceField = "Source"

func serveWeb() error {
	var j webJob
	if err := json.Unmarshal([]byte(os.Getenv(webServerJob)), &j); err != nil {
		return err
	}
	p, err := policy.Funnel(j.Capacity, j.Count, time.Second)
	if err != nil {
		return err
	}
	c := at(j.Addr, p)
	c.Name, c.Budget, c.Mode, c.Outage, c.Servers = j.Name, webBudget, j.Mode, j.Outage, j.Servers
	l, err := New(c)
	if err != nil {
		return err
	}
	defer l.Close()
	type writer struct{}
	var spent atomic.Int64
	options := httplimit.Options{
		OnVerdict: func(r *http.Request, v limits.Verdict) {
			r.Context().Value(writer{}).(http.ResponseWriter).Header().Set(sourceField, v.Provenance.Source().String())
			if errors.Is(v.Provenance.Err(), ErrBudget) {
				spent.Add(1)
			}
		},
	}
	if j.Charge {
		options.Charge = func(_ *http.Request, served httplimit.Served) int64 { return count(served.Status == http.StatusOK) }
	}
	m, err := httplimit.New(l, httplimit.ByHeader("Key"), options)
	if err != nil {
		return err
	}
	limited := m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Free") != "" {
			w.WriteHeader(http.StatusNoContent)
		}
	}))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		limited.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), writer{}, w)))
	})}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	said := json.NewEncoder(os.Stdout)
	if err := said.Encode(webReport{Addr: listener.Addr().String()}); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	_ = server.Close()
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return said.Encode(webReport{Spent: spent.Load(), Openings: l.Stats().Openings})
}

// process is this test as a server. It ends if this process dies, as its input ends.
type process struct {
	cmd  *exec.Cmd
	stop io.Closer
	says *json.Decoder
	err  bytes.Buffer
}

// start starts a server with a job in the variable.
func start(t *testing.T, variable string, job any, env ...string) *process {
	t.Helper()
	told, err := json.Marshal(job)
	require.NoError(t, err)
	p := &process{cmd: exec.Command(os.Args[0])}
	p.cmd.Env = append(append(os.Environ(), variable+"="+string(told)), env...)
	p.cmd.Stderr = &p.err
	p.stop, err = p.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // if it is still there
		_ = p.cmd.Wait()
	})
	p.says = json.NewDecoder(out)
	return p
}

// hear reads what the process says next.
func (p *process) hear(t *testing.T, into any) {
	t.Helper()
	if err := p.says.Decode(into); err != nil {
		_ = p.cmd.Wait()
		require.NoError(t, err, p.err.String())
	}
}

// webAnswer is an answer, by the client's clock.
type webAnswer struct {
	sent, answered time.Duration
	status         int
	source         string
	told           bool // when to come back: Retry-After or RateLimit
	reduced        bool // the body names the problem type of an outage
}

type webClient struct {
	answers []webAnswer // of goroutine run, until it ends
	// Counts of answers by Redis or leases and by the fallback, and of their refusals.
	here, away, refusedHere, refusedAway atomic.Int64
}

func (c *webClient) run(ctx context.Context, addr string, free bool, begun time.Time, ended <-chan struct{}) error {
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	for {
		select {
		case <-ended:
			return nil
		default:
		}
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr, http.NoBody)
		if err != nil {
			return err
		}
		r.Header.Set("Key", "a")
		if free && rand.IntN(4) == 0 {
			r.Header.Set("Free", "1")
		}
		a := webAnswer{sent: time.Since(begun)} // wall: it was decided after this
		w, err := client.Do(r)
		if err != nil {
			return err
		}
		body, err := io.ReadAll(w.Body)
		_ = w.Body.Close()
		if err != nil {
			return err
		}
		a.answered = time.Since(begun) // wall: it was decided before this
		a.status, a.source = w.StatusCode, w.Header.Get(sourceField)
		a.told = w.Header.Get("Retry-After")+w.Header.Get("RateLimit") != ""
		a.reduced = strings.Contains(string(body), "#temporary-reduced-capacity")
		c.answers = append(c.answers, a)
		refused := count(a.status == http.StatusTooManyRequests)
		switch a.source {
		case limits.SourceRedis.String(), limits.SourceLease.String():
			c.here.Add(1)
			c.refusedHere.Add(refused)
		default:
			c.away.Add(1)
			c.refusedAway.Add(refused)
		}
		time.Sleep(time.Duration(rand.IntN(int(4 * time.Millisecond)))) // wall: its pace, which is not judged
	}
}

// mostInAStretch returns how many more were admitted than a Funnel allows, in the worst stretch
// from a request to an answer. Requests sent and answered within were decided there.
func (j webJob) mostInAStretch(admitted []webAnswer) (above int64) {
	slices.SortFunc(admitted, func(a, b webAnswer) int { return cmp.Compare(a.answered, b.answered) })
	for _, from := range admitted {
		n := int64(0)
		for _, to := range admitted {
			if to.sent >= from.sent {
				n++
				above = max(above, n-j.most(to.answered-from.sent))
			}
		}
	}
	return above
}

func (j webJob) most(d time.Duration) int64 {
	return j.Capacity + int64(float64(j.Count)*d.Seconds())
}

// TestWebServersWithProcesses has four processes serve HTTP requests under one limit, while Redis forgets
// its scripts, ends connections, stands still, is killed, and returns from disk:
//
//  1. Redis and leases admit no more than the limit in any stretch of time by the clients' clock,
//     and neither do the shares;
//  2. while Redis is away, each client has its requests answered;
//  3. an answer is 200, 429 or, only of FallbackClosed, 503 with its problem type;
//  4. a client is told when to come back, or its rest, only if Redis decided in Exact mode.
//
// Promise: Several processes keep the limit across flushes, pauses, restarts and reconnects.
// Promise: Web servers keep limits and time budgets while Redis dies and returns.
func TestWebServersWithProcesses(t *testing.T) {
	if testing.Short() {
		t.Skip("several processes, and a Redis that is killed")
	}
	const servers, clients = 4, 4 // of each server
	for _, c := range []struct {
		name   string
		mode   Mode
		outage Fallback
		charge bool
	}{
		{"exact, shares", Exact, FallbackShare, false},
		{"exact, shares, giving back", Exact, FallbackShare, true},
		{"exact, closed", Exact, FallbackClosed, false},
		{"exact, open", Exact, FallbackOpen, false},
		{"leased, shares", Leased, FallbackShare, false},
		{"leased, shares, giving back", Leased, FallbackShare, true},
		{"leased, closed", Leased, FallbackClosed, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			redis := redistest.Start(t, redistest.Options{AOF: true})
			j := webJob{Addr: redis.Addr(), Name: name(), Capacity: 40, Count: 50, Mode: c.mode, Outage: c.outage, Servers: servers, Charge: c.charge}
			ctx, cancel := context.WithCancel(t.Context())
			var web [servers]*process
			var addrs [servers]string
			for i := range web {
				web[i] = start(t, webServerJob, j)
				var r webReport
				web[i].hear(t, &r)
				addrs[i] = r.Addr
			}
			begun, ended := time.Now(), make(chan struct{})
			var all [servers * clients]webClient
			var sending sync.WaitGroup
			defer sending.Wait()
			defer cancel() // if the test fails
			for i := range all {
				sending.Go(func() {
					if err := all[i].run(ctx, addrs[i%servers], c.charge, begun, ended); err != nil && ctx.Err() == nil {
						t.Errorf("client %d: %v", i, err)
						cancel()
					}
				})
			}
			goOn := func(what string, of func(*webClient) *atomic.Int64) {
				t.Helper()
				var before [len(all)]int64
				for i := range all {
					before[i] = of(&all[i]).Load()
				}
				inTime(t, func() bool {
					require.NoError(t, ctx.Err())
					for i := range all {
						if of(&all[i]).Load() < before[i]+20 {
							return false
						}
					}
					return true
				}, what)
			}
			refuse := func(what string, refused func(*webClient) *atomic.Int64) {
				t.Helper()
				inTime(t, func() bool {
					require.NoError(t, ctx.Err())
					n := int64(0)
					for i := range all {
						n += refused(&all[i]).Load()
					}
					return n > 0
				}, what)
			}
			admin := redis.Client(t)
			command := func(words ...string) {
				require.NoError(t, admin.Do(t.Context(), admin.B().Arbitrary(words[0]).Args(words[1:]...).Build()).Error())
			}
			here := func(c *webClient) *atomic.Int64 { return &c.here }
			away := func(c *webClient) *atomic.Int64 { return &c.away }

			goOn("Redis answers", here)
			refuse("the limit is what holds them", func(c *webClient) *atomic.Int64 { return &c.refusedHere })
			for range 2 {
				command("SCRIPT", "FLUSH", "SYNC")
				goOn("Redis has forgotten the scripts", here)
				command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
				goOn("Redis has ended the connections", here)
				require.NoError(t, redis.Pause())
				goOn("Redis stands still", away)
				require.NoError(t, redis.Resume())
				goOn("Redis goes on", here)
				redis.Kill()
				goOn("Redis is gone", away)
				if c.outage == FallbackShare {
					refuse("the shares are what holds them", func(c *webClient) *atomic.Int64 { return &c.refusedAway })
				}
				require.NoError(t, redis.Restart())
				goOn("Redis is back", here)
			}
			close(ended)
			sending.Wait()
			require.False(t, t.Failed())

			admitted, refused, free := map[string][]webAnswer{}, map[string]int{}, 0
			for i := range all {
				for _, a := range all[i].answers {
					closed := a.source == limits.SourceClosed.String()
					switch a.status {
					case http.StatusOK:
						admitted[a.source] = append(admitted[a.source], a)
					case http.StatusNoContent:
						require.True(t, c.charge)
						free++
					case http.StatusTooManyRequests:
						refused[a.source]++
						require.False(t, closed)
					case http.StatusServiceUnavailable:
						refused[a.source]++
						require.True(t, closed, a)
						require.True(t, a.reduced)
					default:
						require.Fail(t, "another status", a)
					}
					require.Equal(t, a.source == limits.SourceRedis.String() && c.mode == Exact, a.told, a)
				}
			}
			var spent int64
			var openings uint64
			for _, s := range web {
				var r webReport
				require.NoError(t, s.stop.Close())
				s.hear(t, &r)
				require.NoError(t, s.cmd.Wait(), s.err.String())
				spent, openings = spent+r.Spent, openings+r.Openings
			}
			counts := ""
			for source, of := range admitted {
				counts += fmt.Sprintf(", %d %s", len(of), source)
			}
			t.Logf("admitted%s; %d given back; refused %v; %d openings, %d budgets spent", counts, free, refused, openings, spent)

			// Redis and leases are one limit, and the shares are another.
			byRedis := slices.Concat(admitted[limits.SourceRedis.String()], admitted[limits.SourceLease.String()])
			byShares := admitted[limits.SourceShare.String()]
			assert.LessOrEqual(t, j.mostInAStretch(byRedis), int64(0), "admitted by Redis and leases")
			assert.LessOrEqual(t, j.mostInAStretch(byShares), int64(0), "admitted by shares")
			assert.NotEmpty(t, byRedis)
			switch c.outage {
			case FallbackShare:
				assert.NotEmpty(t, byShares)
			case FallbackOpen:
				assert.NotEmpty(t, admitted[limits.SourceOpen.String()])
				assert.Zero(t, refused[limits.SourceOpen.String()])
			case FallbackClosed:
				assert.NotZero(t, refused[limits.SourceClosed.String()])
			}
			if c.mode == Exact {
				assert.NotZero(t, spent, "some requests were under way when Redis stood still")
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
