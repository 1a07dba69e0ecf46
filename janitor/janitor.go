// Package janitor decides when to sweep idle keys out of the table, and how far
// to go at a time. It does not sweep: it asks the writer to, through the command
// queue, so that callers who open keys are served between two steps. It knows
// nothing of limits. Start reading at [Janitor.Run].
package janitor

import (
	"context"
	"time"

	"github.com/ral-limiter/ral/cmdqueue"
	"github.com/ral-limiter/ral/internal/seam"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/table"
)

const (
	// Budget is how many entries one step looks at. With a million expired keys
	// a step of 256 evictions takes 0.06 ms; one in a hundred takes 0.4 ms, for
	// it also copies a shard (table's BenchmarkSweep).
	Budget = 256

	// The janitor looks a few times in an idle period, so that a key leaves
	// soon after it may, but neither more often than minEvery, nor less often
	// than maxEvery, however long the period is.
	looksPerIdle = 16
	minEvery     = time.Millisecond
	maxEvery     = time.Second
)

// Janitor asks for sweeps. Call New to make one.
type Janitor[K comparable] struct {
	queue *cmdqueue.Queue[table.Command[K]]
	clock func() policy.Instant
	every time.Duration
	reply chan table.SweepResult
	fault func(point string)
	seam  seam.Scheduler // of a simulation; nil otherwise
}

// Points lists the places at which the janitor calls its fault function.
func Points() []string {
	return []string{"janitor: begin", "janitor: look", "janitor: asked", "janitor: answered"}
}

// New returns a janitor for a table whose writer receives from queue and keeps
// idle keys for idle. clock gives the time by which it sweeps. fault is called
// at the places that Points lists, for tests to panic in; nil does nothing.
func New[K comparable](
	queue *cmdqueue.Queue[table.Command[K]], clock func() policy.Instant, idle time.Duration, fault func(point string),
) *Janitor[K] {
	if fault == nil {
		fault = func(string) {}
	}
	return &Janitor[K]{
		queue: queue,
		clock: clock,
		every: Every(idle),
		// One place: the writer does not wait, so that an answer that comes before
		// the janitor waits for it would be lost without.
		reply: make(chan table.SweepResult, 1),
		fault: fault,
	}
}

// Under has the janitor run under a scheduler, for simulations. It returns j.
func (j *Janitor[K]) Under(s seam.Scheduler) *Janitor[K] {
	j.seam = s
	return j
}

// Every returns how often a janitor looks, for an idle time. A key is gone no
// later than this after it may be, and what the sweep itself takes.
func Every(idle time.Duration) time.Duration {
	return min(max(idle/looksPerIdle, minEvery), maxEvery)
}

// Run asks for sweeps until the context ends; then it returns nil. It may be
// run again, also after it panicked: it remembers nothing that matters.
func (j *Janitor[K]) Run(ctx context.Context) error {
	j.fault("janitor: begin")
	tick := time.NewTicker(j.every)
	defer tick.Stop()
	ticks := tick.C
	if j.seam != nil {
		ticks = nil // it tells when
	}
	for {
		if !j.ticked(ctx, ticks) {
			return nil
		}
		j.fault("janitor: look")
		for j.sweep(ctx, ticks) {
		}
	}
}

// ticked waits for the next tick. It returns false if the context ends before.
func (j *Janitor[K]) ticked(ctx context.Context, tick <-chan time.Time) bool {
	if j.seam != nil {
		return !j.seam.Await("janitor: tick", j.every, func() bool { return ctx.Err() != nil })
	}
	select {
	case <-ctx.Done():
		return false
	case <-tick:
		return true
	}
}

// sweep asks for one step and waits for its result. It returns true if there is
// more to do at once. It gives up at the next tick: the command may have been
// lost with the writer.
func (j *Janitor[K]) sweep(ctx context.Context, tick <-chan time.Time) (more bool) {
	select {
	case <-j.reply: // of a step that was given up
	default:
	}
	if !j.queue.TrySend(table.SweepCommand[K](j.clock(), Budget, j.reply)) {
		return false // full: the writer has more urgent work
	}
	j.fault("janitor: asked")
	if j.seam != nil {
		j.seam.Await("janitor: asks", j.every, func() bool { return len(j.reply) > 0 || ctx.Err() != nil })
		if len(j.reply) == 0 || ctx.Err() != nil {
			return false
		}
	}
	select {
	case result := <-j.reply:
		j.fault("janitor: answered")
		return result.More
	case <-tick:
		return false
	case <-ctx.Done():
		return false
	}
}
