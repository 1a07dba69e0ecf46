package engine

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/table"
)

// open returns an engine that the test's end closes, after comparing its table with its index.
func open[K comparable](t testing.TB, config Config) *Engine[K] {
	t.Helper()
	e, err := New[K](config)
	require.NoError(t, err)
	t.Cleanup(func() { check(t, e) })
	return e
}

// check ends the engine's goroutines, compares the table with its index, and closes the engine.
func check[K comparable](t testing.TB, e *Engine[K]) {
	t.Helper()
	alive(t, e)
	e.stop()
	<-e.running.Done()
	if !e.closed.Load() {
		assert.NoError(t, e.table.Check())
	}
	assert.NoError(t, e.Close())
}

// alive waits until a writer, if any, has carried out a command. A writer that just died may have
// left repairs to its successor. Random faults must be disarmed.
func alive[K comparable](t testing.TB, e *Engine[K]) {
	t.Helper()
	reply := make(chan table.SweepResult, 1)
	must.Await(t, func() bool {
		if !e.writing() || e.closed.Load() || len(reply) > 0 {
			return true
		}
		// Repeated: a command that two writers died of is dropped.
		e.queue.TrySend(table.SweepCommand[K](0, 0, reply))
		return false
	}, "a writer does something")
}

// settled waits until the writer has nothing left to do.
func settled[K comparable](t testing.TB, e *Engine[K]) {
	t.Helper()
	must.Await(t, func() bool {
		if e.queue.Len() == 0 && e.table.View().Landed() == 0 {
			return true
		}
		// A key with a lost command is to be filed, too.
		e.table.View().NoteLostFiling()
		return false
	}, "the writer has nothing left to do")
}

func funnel(capacity, count int64, per time.Duration) policy.Policy {
	return policy.Must(policy.Funnel(capacity, count, per))
}

// hooked is a limit whose methods call functions that are not nil.
type hooked struct {
	policy.Policy
	// take runs before each Take.
	take func(a *asked)
	// took runs after each Take of units.
	took func(a *asked)
	// cancel runs before each Cancel.
	cancel func(undone int64)
	// undone runs after each Cancel.
	undone func()
	// carried runs after each Carry of a word that was used.
	carried func()
	// fresh runs before each FreshAt.
	fresh func()
}

// asked is a call of Take. took may change its answer, next and d.
type asked struct {
	word     uint64
	n        int64
	patience time.Duration

	next uint64
	d    policy.Decision
}

// once returns a function that calls f the first time. f may call it.
func once(f func()) func() {
	return func() {
		if g := f; g != nil {
			f = nil
			g()
		}
	}
}

func (h *hooked) Take(word uint64, now policy.Instant, n int64, patience time.Duration) (uint64, policy.Decision) {
	if h.take == nil && h.took == nil {
		// This call allocates nothing.
		return h.Policy.Take(word, now, n, patience)
	}
	a := asked{word: word, n: n, patience: patience}
	if h.take != nil {
		h.take(&a)
	}
	a.next, a.d = h.Policy.Take(word, now, n, patience)
	if h.took != nil && n > 0 {
		h.took(&a)
	}
	return a.next, a.d
}

func (h *hooked) FreshAt(word uint64) policy.Instant {
	if h.fresh != nil {
		h.fresh()
	}
	return h.Policy.FreshAt(word)
}

func (h *hooked) Refund(word uint64, now policy.Instant, n int64) uint64 {
	return h.Policy.(policy.Refunder).Refund(word, now, n)
}

func (h *hooked) Cancel(word, taken uint64, takenAt, now policy.Instant, n, undone int64) uint64 {
	if h.cancel != nil {
		h.cancel(undone)
	}
	next := h.Policy.(policy.Refunder).Cancel(word, taken, takenAt, now, n, undone)
	if h.undone != nil {
		h.undone()
	}
	return next
}

func (h *hooked) Reads(other policy.Policy) bool {
	return h.Policy.(policy.Relative).Reads(unhooked(other))
}

func (h *hooked) Carry(from policy.Policy, word uint64, now policy.Instant) (uint64, bool) {
	next, ok := h.Policy.(policy.Relative).Carry(unhooked(from), word, now)
	if word != 0 && h.carried != nil {
		h.carried()
	}
	return next, ok
}

func unhooked(p policy.Policy) policy.Policy {
	if h, ok := p.(*hooked); ok {
		return h.Policy
	}
	return p
}

func units(n int64, claims ...Claim) []Claim {
	claims = slices.Clone(claims)
	for i := range claims {
		claims[i].n = n
	}
	return claims
}

// handClock is a clock that tests advance.
type handClock struct{ now atomic.Int64 }

func newHandClock() *handClock {
	c := &handClock{}
	c.now.Store(1)
	return c
}

func (c *handClock) Now() policy.Instant      { return policy.Instant(c.now.Load()) }
func (c *handClock) Advance(by time.Duration) { c.now.Add(int64(by)) }

// together runs f on n goroutines that start together, and waits.
func together(n int, f func(i int)) {
	var start, done sync.WaitGroup
	start.Add(1)
	for i := range n {
		done.Go(func() {
			start.Wait()
			f(i)
		})
	}
	start.Done()
	done.Wait()
}

func keys(n int) []string {
	k := make([]string, n)
	for i := range k {
		k[i] = fmt.Sprintf("client-%07d", i)
	}
	return k
}

type faults struct {
	mu sync.Mutex
	// armed has the deaths left at each point. A negative number is always.
	armed map[string]int
	// exit ends goroutines by Goexit instead of a panic.
	exit  bool
	fired map[string]int
}

func newFaults(goexit bool) *faults {
	return &faults{armed: map[string]int{}, exit: goexit, fired: map[string]int{}}
}

func (f *faults) arm(point string, times int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.armed[point] = times
}

func (f *faults) count(point string) (fired int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.fired[point]
}

func (f *faults) at(point string) {
	f.mu.Lock()
	die := f.armed[point] != 0
	if die {
		f.armed[point]--
		f.fired[point]++
	}
	f.mu.Unlock()
	if !die {
		return
	}
	if f.exit {
		runtime.Goexit()
	}
	panic("injected at " + point)
}
