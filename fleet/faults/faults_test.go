package faults

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/redis/rueidis"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/ral-limiter/ral/fleet"
)

// wire is what lies between a limiter and its Redis, and can be broken.
type wire struct {
	t     testing.TB
	proxy *toxiproxy.Proxy
	// hole has what is sent be swallowed, and dials wait for ever.
	hole atomic.Bool
}

func newWire(t testing.TB, redis string) *wire {
	t.Helper()
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	w := &wire{t: t, proxy: toxiproxy.NewProxy(server, "redis", "127.0.0.1:0", redis)}
	require.NoError(t, w.proxy.Start())
	t.Cleanup(w.proxy.Stop)
	return w
}

// option connects through the wire, and gives up what is dead after a fifth of a second.
func (w *wire) option() rueidis.ClientOption {
	const dead = 100 * time.Millisecond
	return rueidis.ClientOption{
		InitAddress: []string{w.proxy.Listen}, ForceSingleClient: true,
		Dialer: net.Dialer{Timeout: dead, KeepAlive: dead}, ConnWriteTimeout: dead,
		DialCtxFn: func(ctx context.Context, addr string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
			if w.hole.Load() {
				ctx, cancel := context.WithTimeout(ctx, d.Timeout)
				defer cancel()
				<-ctx.Done()
				return nil, ctx.Err()
			}
			c, err := d.DialContext(ctx, "tcp", addr)
			if err != nil {
				return nil, err
			}
			return &holed{Conn: c, wire: w}, nil
		},
	}
}

// holed is a connection that never hears of its end: once it fell into the hole, nothing
// that is sent arrives, and nothing ever comes back.
type holed struct {
	net.Conn
	wire         *wire
	lost, closed atomic.Bool
}

func (h *holed) Close() error {
	h.closed.Store(true)
	return h.Conn.Close()
}

func (h *holed) Write(b []byte) (int, error) {
	if h.wire.hole.Load() {
		h.lost.Store(true)
	}
	if h.lost.Load() && !h.closed.Load() {
		return len(b), nil
	}
	return h.Conn.Write(b)
}

// toxic adds one, in the direction of "upstream" or "downstream", and returns how to take
// it out.
func (w *wire) toxic(kind, stream, attributes string) (mend func()) {
	name := kind + stream
	_, err := w.proxy.Toxics.AddToxicJson(strings.NewReader(fmt.Sprintf(
		`{"name": %q, "type": %q, "stream": %q, "attributes": {%s}}`, name, kind, stream, attributes)))
	require.NoError(w.t, err)
	return func() { assert.NoError(w.t, w.proxy.Toxics.RemoveToxic(context.Background(), name)) }
}

// cut closes all connections and refuses others.
func (w *wire) cut() (mend func()) {
	w.proxy.Stop()
	return func() {
		for range 1000 { // another process may have the port for a moment
			if w.proxy.Start() == nil {
				return
			}
			time.Sleep(time.Millisecond)
		}
		w.t.Error("the proxy does not start again")
	}
}

// faults are all ways in which a wire is broken here.
var faults = []struct {
	name  string
	begin func(w *wire) (mend func())
}{
	{"latency", func(w *wire) func() { return w.toxic("latency", "downstream", `"latency": 450, "jitter": 50`) }},
	{"latency of what is sent", func(w *wire) func() { return w.toxic("latency", "upstream", `"latency": 450`) }},
	{"bandwidth", func(w *wire) func() { return w.toxic("bandwidth", "upstream", `"rate": 0`) }},
	{"bandwidth of answers", func(w *wire) func() { return w.toxic("bandwidth", "downstream", `"rate": 0`) }},
	{"reset", func(w *wire) func() { return w.toxic("reset_peer", "downstream", `"timeout": 0`) }},
	{"reset of what is sent", func(w *wire) func() { return w.toxic("reset_peer", "upstream", `"timeout": 1`) }},
	{"half open: no answers", func(w *wire) func() { return w.toxic("timeout", "downstream", `"timeout": 0`) }},
	{"half open: nothing arrives", func(w *wire) func() { return w.toxic("timeout", "upstream", `"timeout": 0`) }},
	{"cut", func(w *wire) func() { return w.cut() }},
	{"black hole", func(w *wire) func() {
		w.hole.Store(true)
		return func() { w.hole.Store(false) }
	}},
	{"black hole while dialing", func(w *wire) func() {
		w.hole.Store(true)
		w.cut()()
		return func() { w.hole.Store(false) }
	}},
	{"answers cut short", func(w *wire) func() { return w.toxic("limit_data", "downstream", `"bytes": 10`) }},
}

// punctual measures how late calls are.
//
// A call is late by what it took beyond its budget, or beyond what a timer of the same
// length took that was started at the same moment on a goroutine of its own, if that is
// more: on a machine that is busy with something else that one fires late as well, and
// the call is not to blame. What remains is the call's own doing, and the difference of
// two measurements: a thread that the machine takes the processor from in the middle of
// one of the two. So a call may be late all the same where the machine is busy, by chance
// and now and then; where the budget does not hold, it is late each time that Redis is
// broken in that way. That Do keeps to it exactly, the tests of guard show in virtual time.
type punctual struct {
	calls, late atomic.Int64
	worst       atomic.Int64
}

const slack = 5 * time.Millisecond

// These are fleet's own: for how long Redis may be silent, and when a caller that is refused
// without it may try again.
const (
	silence = 200 * time.Millisecond
	retry   = 500 * time.Millisecond
)

// call makes one, and reports whether it was late.
func (p *punctual) call(budget time.Duration, call func()) (late bool) {
	begun := time.Now()
	timer := make(chan time.Duration, 1)
	go func() {
		time.Sleep(budget)
		timer <- time.Since(begun)
	}()
	call()
	took := time.Since(begun)
	p.calls.Add(1)
	if took <= budget+slack {
		return false
	}
	by := took - max(budget, <-timer)
	for worst := p.worst.Load(); int64(by) > worst && !p.worst.CompareAndSwap(worst, int64(by)); {
		worst = p.worst.Load()
	}
	if by <= slack {
		return false
	}
	p.late.Add(1)
	return true
}

// TestFaults breaks the wire between limiters and Redis 120 times, in all ways that
// faults has. Each takes the 200 ms of silence that open a breaker. Of each it checks that
//
//  1. no call takes longer than its budget and slack, as punctual measures that: of no kind
//     of fault do three quarters have a call that did;
//  2. calls that fail, or are not answered for a while, open the breaker: of one caller, few in a row
//     ask Redis in vain before others are not asked any more;
//  3. every call is answered, by the fallback, and says why;
//  4. when the wire is mended, the breaker closes by itself, and calls are exact again;
//
// and at the end that goroutines and memory are what they were after the first faults, and
// that no more was admitted than the limit and the shares allow.
func TestFaults(t *testing.T) {
	const lanes, warm, rounds = 5, 12, 24
	var (
		p       punctual
		all     sync.WaitGroup
		wires   [lanes]*lane
		outages = []fleet.Fallback{fleet.FallbackShare, fleet.FallbackOpen, fleet.FallbackClosed}
	)
	for i := range wires {
		wires[i] = newLane(t, i, outages[i%len(outages)], &p)
	}
	run := func(from, to int) {
		for _, lane := range wires {
			all.Go(func() {
				for i := from; i < to; i++ {
					lane.fault(faults[(i*lanes+lane.number)%len(faults)].name, faults[(i*lanes+lane.number)%len(faults)].begin)
				}
			})
		}
		all.Wait()
	}
	run(0, warm)
	goroutines, heap := footprint()
	run(warm, rounds)
	// Idle workers of the guards stay: some for each limiter.
	eventually(t, func() bool { n, _ := footprint(); return n <= goroutines+lanes*4 }, "goroutines are flat")
	left, after := footprint()
	require.LessOrEqual(t, after, heap+4<<20, "memory is flat")
	t.Logf("%d faults, %d calls: %d late, the worst by %v; %d goroutines after %d faults, %d at the end; heap %d and %d KiB",
		lanes*rounds, p.calls.Load(), p.late.Load(), time.Duration(p.worst.Load()), goroutines, lanes*warm, left, heap>>10, after>>10)
	begun, late := map[string]int{}, map[string]int{}
	for _, lane := range wires {
		for _, f := range lane.begun {
			begun[f.what]++
			if f.late {
				late[f.what]++
			}
		}
	}
	for what, n := range late {
		assert.Less(t, 4*n, 3*begun[what], "%s: %d of %d had calls that took longer than %v", what, n, begun[what], laneBudget+slack)
	}
}

// footprint returns the number of goroutines and the memory in use. It leaves out the
// goroutines of proxies, which leave some behind now and then.
func footprint() (goroutines int, heap uint64) {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	stacks := make([]byte, 4<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	for stack := range strings.SplitSeq(string(stacks), "\n\n") {
		if !strings.Contains(stack, "toxiproxy") {
			goroutines++
		}
	}
	return goroutines, m.HeapAlloc
}

// lane is a limiter behind a wire of its own, and what is done to it.
type lane struct {
	t       *testing.T
	number  int
	wire    *wire
	limiter *fleet.Limiter
	outage  fleet.Fallback
	p       *punctual
	keys    int
	begun   []fault
}

// fault is one that has been, and whether any call was late in it.
type fault struct {
	what string
	late bool
}

// laneBudget is long enough that a healthy Redis is within it nearly always, also beside
// other tests on a busy machine.
const laneBudget = 25 * time.Millisecond

func newLane(t *testing.T, number int, outage fleet.Fallback, p *punctual) *lane {
	t.Helper()
	w := newWire(t, shared.Addr())
	c := at(w, funnel(1000, 1000, time.Second))
	c.Budget, c.Outage = laneBudget, outage
	return &lane{t: t, number: number, wire: w, limiter: open(t, c), outage: outage, p: p}
}

// take asks for one unit of one of many keys.
func (l *lane) take() (a fleet.Answer, late bool) {
	l.keys++
	late = l.p.call(laneBudget, func() {
		var err error
		a, err = l.limiter.Take(l.t.Context(), fmt.Sprint(l.keys%100), 1)
		assert.NoError(l.t, err)
	})
	return a, late
}

// awaitExact waits until calls are exact again, several in a row.
func (l *lane) awaitExact(what string) {
	exact := 0
	for begun := time.Now(); exact < 3; {
		last, _ := l.take()
		if last.Source == fleet.SourceRedis {
			exact++
			continue
		}
		exact = 0
		time.Sleep(2 * time.Millisecond)
		if time.Since(begun) > patience {
			l.t.Errorf("%s: Redis is back, and calls are still answered by %v because of: %v", what, last.Source, last.Cause)
			return
		}
	}
	assert.NoError(l.t, l.limiter.Health())
}

func (l *lane) fault(what string, begin func(*wire) func()) {
	l.awaitExact("before " + what)
	mend := begin(l.wire)
	failed, late, tripped := 0, false, 0
	// Long enough for three calls and some probes.
	for begun := time.Now(); tripped < 20 || time.Since(begun) < 40*time.Millisecond; {
		a, slow := l.take()
		late = late || slow
		switch {
		case a.Source == fleet.SourceRedis:
			failed = 0 // it was not broken yet, or is about to be
		case errors.Is(a.Cause, fleet.ErrBreakerOpen):
			tripped++
			time.Sleep(time.Millisecond)
		case tripped == 0:
			failed++
		}
		if a.Source != fleet.SourceRedis {
			assert.ErrorIs(l.t, a.Cause, fleet.ErrOutage, what)
			assert.Equal(l.t, map[fleet.Fallback]fleet.Source{fleet.FallbackShare: fleet.SourceShare, fleet.FallbackOpen: fleet.SourceOpen, fleet.FallbackClosed: fleet.SourceClosed}[l.outage], a.Source)
		}
		if time.Since(begun) > patience {
			l.t.Errorf("%s: the breaker does not open", what)
			break
		}
	}
	// Three in a row, or as many as have a budget within the time of silence. That is
	// counted in ticks, which a busy machine stretches, so that the bound only finds a breaker
	// that stays closed, or does so for seconds. How many it is exactly,
	// guard.TestBreaker and guard.TestSilenceOpens show.
	assert.LessOrEqual(l.t, failed, 10*int(silence/laneBudget), "%s: calls that asked in vain before the breaker opened", what)
	l.begun = append(l.begun, fault{what, late})
	assert.ErrorIs(l.t, l.limiter.Health(), fleet.ErrOutage, what)
	mend()
	l.awaitExact("after " + what)
}

// TestManyCallersInAnOutage has a budget as short as the default and many callers at
// once, and checks of the calls that begin when the breaker is open that
//
//  1. nearly none asks Redis in vain. Those that do are probes. A probe comes every 50 ms at
//     most, or as soon as one was given up before it was sent, which takes a budget;
//  2. the others do not wait for anything: no more than half of them take longer than the
//     budget. Each needs some microseconds of a processor. On a busy machine any of them
//     may lose it in the middle, but not most.
//
// That calls that find the breaker closed keep to their budget exactly, the tests of guard
// show in virtual time.
func TestManyCallersInAnOutage(t *testing.T) {
	const callers, calls = 64, 20
	w := newWire(t, shared.Addr())
	c := at(w, funnel(1000, 1000, time.Second))
	c.Budget = 0
	l := open(t, c)
	for range 3 {
		eventually(t, func() bool { return take(t, l, "a", 1).Source == fleet.SourceRedis }, "exact again")
		mend := w.toxic("timeout", "downstream", `"timeout": 0`)
		var all sync.WaitGroup
		for i := range callers {
			all.Go(func() {
				_, err := l.Take(t.Context(), fmt.Sprint(i), 1)
				assert.NoError(t, err)
			})
		}
		all.Wait()
		eventually(t, func() bool { return l.Health() != nil }, "the breaker opens")
		var asked, unasked, slow atomic.Int64
		begun := time.Now()
		for i := range callers {
			all.Go(func() {
				for j := range calls {
					time.Sleep(time.Duration(rand.IntN(2000)) * time.Microsecond)
					began := time.Now()
					a, err := l.Take(t.Context(), fmt.Sprint(i, j), 1)
					took := time.Since(began)
					assert.NoError(t, err)
					assert.ErrorIs(t, a.Cause, fleet.ErrOutage)
					if !errors.Is(a.Cause, fleet.ErrBreakerOpen) {
						asked.Add(1)
						continue
					}
					unasked.Add(1)
					if took > fleet.DefaultBudget {
						slow.Add(1)
					}
				}
			})
		}
		all.Wait()
		took := time.Since(begun)
		mend()
		t.Logf("%d calls in %v: %d asked in vain, %d of the others took longer than %v", callers*calls, took, asked.Load(), slow.Load(), fleet.DefaultBudget)
		assert.LessOrEqual(t, asked.Load(), 2*int64(took/fleet.DefaultBudget)+2, "calls that asked Redis in vain")
		assert.LessOrEqual(t, 2*slow.Load(), unasked.Load(), "calls that waited, and did not ask")
	}
}

// TestRedisIsAwayAtTheStart starts a limiter where there is no Redis yet. Without Config.Servers it
// refuses and names that field; with it, its share begins with nothing and comes back.
func TestRedisIsAwayAtTheStart(t *testing.T) {
	defer goleak.VerifyNone(t, append(others, goleak.IgnoreCurrent())...)
	w := newWire(t, shared.Addr())
	mend := w.cut()
	var events log
	c := at(w, funnel(10, 1, time.Hour))
	c.OnEvent = events.add
	begun := time.Now()
	l, err := fleet.New(c)
	require.NoError(t, err)
	require.Less(t, time.Since(begun), 10*time.Second)
	a := take(t, l, "a", 1)
	for _, err := range []error{a.Cause, l.Health()} {
		require.ErrorIs(t, err, fleet.ErrOutage)
		require.ErrorIs(t, err, fleet.ErrUncounted)
		require.ErrorContains(t, err, "fleet.Config: Servers is 0")
	}
	require.Equal(t, fleet.SourceShare, a.Source)
	require.False(t, a.Allowed)
	require.Equal(t, retry, a.RetryAfter)
	require.Zero(t, l.Stats().Divisor)

	c.Name, c.Servers, c.OnEvent, c.Policy = name(), 2, nil, funnel(10, 20, time.Second)
	counted, err := fleet.New(c)
	require.NoError(t, err)
	eventually(t, func() bool { return take(t, counted, "a", 1).Allowed }, "its share comes back")
	a = take(t, counted, "a", 0)
	require.NotErrorIs(t, a.Cause, fleet.ErrUncounted)
	require.Equal(t, fleet.SourceShare, a.Source)
	require.Equal(t, 2, counted.Stats().Divisor)
	require.NoError(t, counted.Close())

	mend()
	eventually(t, func() bool { return l.Health() == nil }, "it connects by itself")
	a = take(t, l, "a", 1)
	require.Equal(t, fleet.SourceRedis, a.Source)
	require.EqualValues(t, 9, a.Remaining)
	require.Equal(t, 1, l.Stats().Divisor)
	require.Equal(t, []fleet.EventKind{fleet.OutageBegan, fleet.OutageEnded}, events.kinds())
	require.NoError(t, l.Close())
	w.proxy.Stop()
}

// TestRedisIsSilentAtTheStart starts a limiter where a Redis takes connections and does not answer,
// and where dials hang.
func TestRedisIsSilentAtTheStart(t *testing.T) {
	for _, how := range []string{"half open", "hole"} {
		t.Run(how, func(t *testing.T) {
			defer goleak.VerifyNone(t, append(others, goleak.IgnoreCurrent())...)
			w := newWire(t, shared.Addr())
			mend := func() { w.hole.Store(false) }
			if how == "hole" {
				w.hole.Store(true)
			} else {
				mend = w.toxic("timeout", "downstream", `"timeout": 0`)
			}
			c := at(w, funnel(10, 1, time.Hour))
			c.Outage = fleet.FallbackClosed
			l, err := fleet.New(c)
			require.NoError(t, err)
			require.Equal(t, fleet.SourceClosed, take(t, l, "a", 1).Source)
			mend()
			eventually(t, func() bool { return take(t, l, "a", 0).Source == fleet.SourceRedis }, "it connects by itself")
			require.NoError(t, l.Close())
			w.proxy.Stop()
		})
	}
}
