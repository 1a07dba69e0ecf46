// Package janitor is a part of package engine that may change in any release: it decides
// when to sweep idle keys out of the table, and how far to go at a time. It does not
// sweep: it asks the writer to, through the command queue, so that callers that open keys
// are served between two steps. It knows nothing of limits. Start reading at [Janitor.Run].
package janitor

import (
	"context"
	"time"

	"github.com/ral-limiter/ral/cmdqueue"
	"github.com/ral-limiter/ral/internal/core/seam"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/table"
)

const (
	// Budget is the number of entries that one step looks at. With a million expired
	// keys a step of 256 evictions takes 0.06 ms; one in a hundred takes 0.4 ms, for
	// it also copies a shard (table's BenchmarkSweep).
	Budget = 256

	// The janitor looks a few times in an idle period, so that a key leaves soon
	// after it may. It looks neither more often than minEvery, nor less often than
	// maxEvery, however long the period is.
	looksPerIdle = 16
	minEvery     = time.Millisecond
	maxEvery     = time.Second

	// alsoEvery is the interval of what the janitor does besides: see Also.
	alsoEvery = time.Second
)

// Janitor asks for sweeps. Call New to make one.
type Janitor[K comparable] struct {
	queue *cmdqueue.Queue[table.Command[K]]
	clock func() policy.Instant
	every time.Duration
	reply chan table.SweepResult
	fault func(point string)
	seam  seam.Seam

	also  func()
	since time.Duration // the intervals since it was called
}

// Points lists the points at which the janitor calls its fault function.
func Points() []string {
	return []string{"janitor: begin", "janitor: look", "janitor: asked", "janitor: answered"}
}

// New returns a janitor for a table whose writer receives from queue and keeps idle
// keys for idle. clock returns the instant of a sweep. fault is called at the points
// that Points lists, for tests to panic in; nil does nothing.
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
		// Room for one: the writer does not wait, so without it an answer that comes
		// before the janitor waits would be lost.
		reply: make(chan table.SweepResult, 1),
		fault: fault,
	}
}

// Also has the janitor call do from now on, after the sweeps of a look, once in a second. Keys
// wait to be swept while it runs. Call it before Run.
func (j *Janitor[K]) Also(do func()) { j.also = do }

// init lets a simulation run a janitor of any key type under its scheduler.
func init() {
	seam.Accept(func(j interface{ under(seam.Seam) }, s seam.Seam) { j.under(s) })
}

func (j *Janitor[K]) under(s seam.Seam) { j.seam = s }

// Every returns the interval at which a janitor looks, for an idle time. A key leaves
// at most this long after it may, plus the duration of the sweep.
func Every(idle time.Duration) time.Duration {
	return min(max(idle/looksPerIdle, minEvery), maxEvery)
}

// Run asks for sweeps until the context ends; then it returns nil. It may be
// run again, also after it panicked: it remembers nothing that matters.
func (j *Janitor[K]) Run(ctx context.Context) error {
	j.fault("janitor: begin")
	for {
		if _, event := seam.Receive[struct{}](j.seam, "janitor: tick", j.every, nil, ctx, nil); event == seam.Ended {
			return nil
		}
		j.fault("janitor: look")
		for j.sweep(ctx) {
		}
		if j.since += j.every; j.since >= alsoEvery && j.also != nil {
			j.since = 0
			j.also()
		}
	}
}

// sweep asks for one step and waits for its result. It reports whether there is more
// to do at once. It gives up after the time between two looks: the command may have
// been lost with the writer.
func (j *Janitor[K]) sweep(ctx context.Context) (more bool) {
	select {
	case <-j.reply: // of a step that was given up
	default:
	}
	if !j.queue.TrySend(table.SweepCommand[K](j.clock(), Budget, j.reply)) {
		return false // full: the writer has more urgent work
	}
	j.fault("janitor: asked")
	result, event := seam.Receive(j.seam, "janitor: asks", j.every, j.reply, ctx, nil)
	if event != seam.Received {
		return false
	}
	j.fault("janitor: answered")
	return result.More
}
