// Package janitor is a part of package engine that may change in any release. The package decides
// when to sweep idle keys out of the table, and how far at a time. A janitor asks the writer
// through the command queue, so that callers that open keys are served between steps. Start reading
// at [Janitor.Run].
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
	// Budget is the number of entries in a step. With a million expired keys 256 evictions take
	// 0.06 ms. A step in a hundred also copies a shard and takes 0.4 ms.
	Budget = 256

	// Several looks in an idle period, minEvery to maxEvery apart, let keys leave soon.
	looksPerIdle = 16
	minEvery     = time.Millisecond
	maxEvery     = time.Second

	// alsoEvery is the interval of Also.
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

	also func()
	// since is the time since the last call of also.
	since time.Duration
}

// Points lists the points at which the janitor calls its fault function.
func Points() []string {
	return []string{"janitor: begin", "janitor: look", "janitor: asked", "janitor: answered"}
}

// New returns a janitor for a table with a writer that receives from queue and keeps idle keys for
// idle. clock returns the instant of a sweep. fault is called at each of Points, for tests to panic
// in; nil does nothing.
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
		// The writer does not wait, as the channel has room for an early answer.
		reply: make(chan table.SweepResult, 1),
		fault: fault,
	}
}

// Also makes Run call do once a second, between sweeps, which wait for do. A caller must call Also
// before Run.
func (j *Janitor[K]) Also(do func()) { j.also = do }

func init() {
	seam.Accept(func(j interface{ under(seam.Seam) }, points seam.Seam) { j.under(points) })
}

func (j *Janitor[K]) under(points seam.Seam) { j.seam = points }

// Every returns the interval between looks, for an idle time. A key leaves at most this long after
// it may, plus the duration of the sweep.
func Every(idle time.Duration) time.Duration {
	return min(max(idle/looksPerIdle, minEvery), maxEvery)
}

// Run asks for sweeps until ctx ends; then it returns nil. Run may be called again, even after a
// panic.
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

// sweep requests a step and reports whether there is more to do. sweep waits an interval at most:
// the command may have been lost with the writer.
func (j *Janitor[K]) sweep(ctx context.Context) (more bool) {
	select {
	// The result is of a step that was given up.
	case <-j.reply:
	default:
	}
	if !j.queue.TrySend(table.SweepCommand[K](j.clock(), Budget, j.reply)) {
		// The queue is full: the writer has more urgent work.
		return false
	}
	j.fault("janitor: asked")
	result, event := seam.Receive(j.seam, "janitor: asks", j.every, j.reply, ctx, nil)
	if event != seam.Received {
		return false
	}
	j.fault("janitor: answered")
	return result.More
}
