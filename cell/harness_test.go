package cell

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
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
	// began, if not zero, has the clock also advance with package time from then on.
	began time.Time
	// gone means that there is no writer.
	gone bool
	// drained means that the table was drained, and counts keys that it does not hold any more.
	drained bool
	// reads, if not nil, runs once, after the next reading of the clock.
	reads func()
}

// idle is the time for which a desk keeps a key that owes nothing.
const idle = 5 * time.Minute

// newDesk returns a desk with a limit. choose, if not nil, chooses the limit of a key. When the
// test has ended, the table and its index must agree.
func newDesk(t testing.TB, p policy.Policy, choose func(key string) policy.Policy) *desk {
	t.Helper()
	d := &desk{t: t}
	d.now.Store(1)
	d.set(table.Options{Policy: p}, Options[string]{PolicyFor: choose, Clock: d.instant})
	return d
}

// newTimedDesk is newDesk with a clock that advances with package time, for bubbles.
func newTimedDesk(t testing.TB, p policy.Policy, choose func(key string) policy.Policy) *desk {
	t.Helper()
	d := newDesk(t, p, choose)
	d.began = time.Now()
	return d
}

// blockBy returns a desk with the same clock, whose cell keeps the blocked keys.
func (d *desk) blockBy(rule *penalty.Rule) *desk {
	d.t.Helper()
	b := &desk{t: d.t, began: d.began}
	o := Options[string]{Clock: d.instant}
	if rule.Counts() {
		o.Refusals = new(Refusals)
	}
	b.set(table.Options{Policy: rule, Firm: rule.Firm(), Seed: d.table.View().Seed()}, o)
	d.BlockBy(b.Cell)
	return b
}

func (d *desk) set(tableOptions table.Options, o Options[string]) {
	tableOptions.Idle, tableOptions.MaxKeys = idle, 1<<16
	d.table = table.New[string](tableOptions)
	d.queue = cmdqueue.New[table.Command[string]](1024)
	o.View, o.Queue, o.First = d.table.View(), d.queue, 1
	o.OpenTimeout, o.Idle, o.MaxWaiting, o.MaxWaitingTotal = time.Minute, idle, 1024, 1<<16
	o.MaxKeys = tableOptions.MaxKeys
	o.Writing = func() bool { return !d.gone }
	d.Cell, d.control = New(o)
	d.t.Cleanup(func() {
		d.settle()
		if !d.drained {
			require.NoError(d.t, d.table.Check())
		}
	})
}

func (d *desk) instant() policy.Instant {
	now := d.now.Load()
	if !d.began.IsZero() {
		now += int64(time.Since(d.began)) // wall: in the bubble of its test
	}
	if f := d.reads; f != nil {
		d.reads = nil
		f()
	}
	return policy.Instant(now)
}

func (d *desk) hashOf(key string) uint64 {
	// Strings have a hash.
	hash, _ := d.Hash(key)
	return hash
}

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

// forget evicts all keys that have owed nothing for a time of idle.
func (d *desk) forget() {
	d.settle()
	d.table.Sweep(d.instant(), 1<<16)
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
	// No other methods of the Scheduler are called.
	seam.Scheduler
	do map[string]func()
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

// wait calls Wait in a goroutine of a bubble, and returns once it waits. served gets the time at
// which it was served.
func (d *desk) wait(n int64, served chan<- time.Time) {
	go func() {
		assert.NoError(d.t, d.Wait(context.Background(), "key", n))
		served <- time.Now()
	}()
	synctest.Wait()
}

// Verbs with their decisions as results.

func (d *desk) Take(key string, n int64) (got policy.Decision) {
	d.Cell.Take(key, n, &got)
	return got
}

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
	Waited time.Duration
}

func (d *desk) Acquire(ctx context.Context, key string, n int64, patience time.Duration) (r reservation, err error) {
	r.Waited, err = d.Cell.Acquire(ctx, key, n, patience, &r.Decision, &r.Held)
	return r, err
}

func (d *desk) Reserve(key string, n int64, patience time.Duration) (r reservation) {
	d.Cell.Reserve(key, n, patience, &r.Decision, &r.Held)
	return r
}

func funnel(capacity, count int64, per time.Duration) policy.Policy {
	return policy.Must(policy.Funnel(capacity, count, per))
}

// bare is a policy without further interfaces.
type bare struct{ policy.Policy }

func number(i int) string { return fmt.Sprint("key ", i) }
