package engine

import (
	"context"
	"runtime"
	"sync/atomic"

	"github.com/ral-limiter/ral/cmdqueue"
	"github.com/ral-limiter/ral/internal/core/seam"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/table"
)

// writer is the only goroutine that changes which keys are in the table. Its state is in the table
// and the queue, so its successor goes on from there.
type writer[K comparable] struct {
	table   *table.Table[K]
	queue   *cmdqueue.Queue[table.Command[K]]
	clock   func() policy.Instant
	dropped *atomic.Uint64
	fault   func(point string)
	seam    seam.Seam
}

// writerPoints are the writer's own fault points; the table's are table.Points.
func writerPoints() []string {
	return []string{"writer: begin", "writer: received", "writer: done", "writer: settle"}
}

const (
	// attempts is the number of times that a command is tried, if the writer dies each time.
	attempts = 2
	// workPerTurn is the number of commands and filed keys, about a millisecond, between two looks at
	// other work, and two yields. In a flood with fewer, more than one call in 1,000 waits for the
	// writer; with more, the longest call waits longer: while a table grew to four million keys, 40
	// ms with 1,024 commands of any length, and 22 ms with 4,096.
	workPerTurn = 4096
	// settlesPerTurn is the number of Settle steps, some milliseconds, before other goroutines run.
	// If callers use up all processors the writer may then wait 10 ms for its next turn: with a
	// step in each turn, a million keys were indexed again in 40 s.
	settlesPerTurn = 32
)

func (w *writer[K]) run(ctx context.Context) error {
	defer w.table.Running(false)
	w.reached("writer: begin")
	w.table.Recover()
	for {
		w.table.Running(true)
		emptied := false
		for work := 0; work < workPerTurn; work++ {
			command, attempt, ok := w.queue.TryReceive()
			if !ok {
				if emptied = w.table.Unsettled(); emptied {
					break
				}
				w.table.Running(false)
				if command, attempt, ok = w.queue.Receive(ctx); !ok {
					return nil
				}
				w.table.Running(true)
			}
			work += w.carryOut(command, attempt)
		}
		if ctx.Err() != nil {
			return nil
		}
		w.seam.Step("writer: others")
		for n := 0; n < settlesPerTurn && w.table.Unsettled(); n++ {
			w.reached("writer: settle")
			w.table.Settle(w.clock())
		}
		// In a flood a caller on the same processor would wait for the end of the writer's time
		// slice, 10 ms and more, instead of 0.1 ms. If callers use up all processors the yield
		// costs the writer as much, so a command that left little to settle does not cause it.
		if !emptied || w.table.Unsettled() {
			w.table.Running(false)
			runtime.Gosched()
		}
	}
}

func (w *writer[K]) carryOut(command table.Command[K], attempt int) (filed int) {
	if attempt > attempts {
		w.table.Abandon(command)
		w.dropped.Add(1)
		w.queue.Done()
		return 0
	}
	w.reached("writer: received")
	command.Begin(w.clock)
	filed = w.table.Apply(command)
	w.reached("writer: done")
	w.queue.Done()
	return filed
}

func (w *writer[K]) reached(point string) {
	if w.fault != nil {
		w.fault(point)
	}
}
