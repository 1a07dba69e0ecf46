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

// writer is the one goroutine that changes which keys are in the table. What it
// remembers is in the table and the queue, so that when it dies the next one
// goes on from there.
type writer[K comparable] struct {
	table   *table.Table[K]
	queue   *cmdqueue.Queue[table.Command[K]]
	clock   func() policy.Instant
	dropped *atomic.Uint64
	fault   func(point string)
	seam    seam.Seam
}

// writerPoints are the places at which the writer itself calls its fault
// function; the table's own are table.Points.
func writerPoints() []string {
	return []string{"writer: begin", "writer: received", "writer: done", "writer: settle"}
}

const (
	// attempts is how often a command is given to a writer that dies of it.
	attempts = 2
	// commandsPerSettle is how many commands are carried out between two
	// looks at what else there is to do, while they keep coming.
	commandsPerSettle = 256
	// settlesPerTurn is after how many steps of Settle others are let run, which
	// takes some milliseconds. If callers use up all processors the writer may
	// have to wait 10 ms for its next turn: with one step in each, a million keys
	// were indexed again in 40 s.
	settlesPerTurn = 32
)

// run carries commands out until the context ends; then it returns nil.
func (w *writer[K]) run(ctx context.Context) error {
	w.at("writer: begin")
	w.table.Recover()
	for {
		emptied := false
		for range commandsPerSettle {
			command, attempt, ok := w.queue.TryReceive()
			if !ok {
				if emptied = w.table.Unsettled(); emptied {
					break
				}
				if command, attempt, ok = w.queue.Receive(ctx); !ok {
					return nil
				}
			}
			w.carryOut(command, attempt)
		}
		if ctx.Err() != nil {
			return nil
		}
		w.seam.Step("writer: others")
		for n := 0; n < settlesPerTurn && w.table.Unsettled(); n++ {
			w.at("writer: settle")
			w.table.Settle(w.clock())
		}
		// A flood keeps the writer busy for as long as it lasts. Without this a
		// caller on the same processor waits for the end of its time slice, 10 ms
		// and more, instead of a tenth of a millisecond. If callers use up all
		// processors it costs the writer as much: a command that left a little to
		// settle should not keep the next one waiting.
		if !emptied || w.table.Unsettled() {
			runtime.Gosched()
		}
	}
}

func (w *writer[K]) carryOut(command table.Command[K], attempt int) {
	if attempt > attempts {
		w.table.Abandon(command)
		w.dropped.Add(1)
		w.queue.Done()
		return
	}
	w.at("writer: received")
	command.Begin(w.clock)
	w.table.Apply(command)
	w.at("writer: done")
	w.queue.Done()
}

func (w *writer[K]) at(point string) {
	if w.fault != nil {
		w.fault(point)
	}
}
