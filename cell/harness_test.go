package cell

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/cmdqueue"
	"github.com/ral-limiter/ral/internal/core/penalty"
	"github.com/ral-limiter/ral/internal/core/seam"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/table"
)

// desk is a cell without goroutines. The test advances its clock, and is the writer of its table:
// keys are filed by settle.
type desk struct {
	*Cell[string]
	t       testing.TB
	control Control[string]
	table   *table.Table[string]
	queue   *cmdqueue.Queue[table.Command[string]]
	now     atomic.Int64
}

// newDesk returns a desk with a limit. choose, if not nil, chooses the limit of a key. When the
// test has ended, the table and its index must agree.
func newDesk(t testing.TB, p policy.Policy, choose func(key string) policy.Policy) *desk {
	t.Helper()
	d := &desk{t: t}
	d.now.Store(1)
	d.set(table.Options{Policy: p}, Options[string]{PolicyFor: choose, Clock: d.instant})
	return d
}

// blockBy returns a desk with the same clock, whose cell keeps the blocked keys.
func (d *desk) blockBy(rule *penalty.Rule) *desk {
	d.t.Helper()
	b := &desk{t: d.t}
	o := Options[string]{Clock: d.instant}
	if rule.Counts() {
		o.Refusals = new(Refusals)
	}
	b.set(table.Options{Policy: rule, Firm: rule.Firm(), Seed: d.table.View().Seed()}, o)
	d.BlockBy(b.Cell)
	return b
}

func (d *desk) set(of table.Options, o Options[string]) {
	of.Idle, of.MaxKeys = 5*time.Minute, 1<<16
	d.table = table.New[string](of)
	d.queue = cmdqueue.New[table.Command[string]](1024)
	o.View, o.Queue, o.First = d.table.View(), d.queue, 1
	o.OpenTimeout, o.Idle, o.MaxWaiting, o.MaxWaitingTotal = time.Minute, 5*time.Minute, 1024, 1<<16
	o.Writing = func() bool { return true }
	d.Cell, d.control = New(o)
	d.t.Cleanup(func() {
		d.settle()
		require.NoError(d.t, d.table.Check())
	})
}

func (d *desk) instant() policy.Instant  { return policy.Instant(d.now.Load()) }
func (d *desk) advance(by time.Duration) { d.now.Add(int64(by)) }

// settle does all that the writer has to do.
func (d *desk) settle() {
	for {
		command, _, ok := d.queue.TryReceive()
		if !ok {
			break
		}
		command.Begin(d.instant)
		d.table.Apply(command)
		d.queue.Done()
	}
	for d.table.Unsettled() {
		d.table.Settle(d.instant())
	}
}

// change replaces the cell's own limit, as the writer does for SetPolicy.
func (d *desk) change(p policy.Policy) {
	d.t.Helper()
	change := table.NewChange(p, d.instant())
	d.table.Apply(table.ChangeCommand[string](change))
	require.Equal(d.t, table.ChangeMade, <-change.Answer())
	d.settle()
}

// on runs functions at the steps and waits of the cell with their names.
func (d *desk) on(points map[string]func()) { seam.Give(d.Cell, steps{do: points}) }

type steps struct {
	seam.Scheduler // no other methods are called
	do             map[string]func()
}

func (s steps) Step(point string) {
	if do := s.do[point]; do != nil {
		do()
	}
}

func (s steps) Await(point string, _ time.Duration, ready func() bool) bool {
	s.Step(point)
	runtime.Gosched()
	return ready != nil && ready()
}

// Verbs with their decisions as results.

func (d *desk) Take(key string, n int64) policy.Decision { return d.TakeWith(nil, key, n) }

func (d *desk) TakeWith(limit policy.Policy, key string, n int64) (got policy.Decision) {
	d.Cell.TakeWith(limit, key, n, &got)
	return got
}

func (d *desk) Peek(key string) (got policy.Decision) {
	d.Cell.Peek(key, 0, &got)
	return got
}

func (d *desk) Refund(key string, n int64) (got policy.Decision) {
	d.Cell.Refund(key, n, &got)
	return got
}

// reservation is an answer with its units.
type reservation struct {
	policy.Decision
	Held[string]
}

func (d *desk) Reserve(key string, n int64, patience time.Duration) (r reservation) {
	d.Cell.Reserve(key, n, patience, &r.Decision, &r.Held)
	return r
}

func funnel(capacity, count int64, per time.Duration) policy.Policy {
	return policy.Must(policy.Funnel(capacity, count, per))
}

// eachLimit returns a limit of each kind, of 10 units that come back in 10 seconds.
func eachLimit() []policy.Policy {
	return []policy.Policy{
		funnel(10, 1, time.Second),
		policy.Must(policy.FixedWindow(10, 10*time.Second)),
		policy.Must(policy.SlidingWindow(10, 10*time.Second)),
		policy.Must(policy.AtMost(10, 10*time.Second)),
		policy.Must(policy.Queue(10, 1, time.Second)),
		policy.Must(policy.Bursty(1, time.Second, 10)),
		policy.Must(policy.WarmingUp(1, time.Second, 10*time.Second, 3)),
	}
}

// bare is a policy without further interfaces.
type bare struct{ policy.Policy }

func number(i int) string { return fmt.Sprint("key ", i) }
