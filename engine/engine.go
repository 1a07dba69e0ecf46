package engine

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ral-limiter/ral/cell"
	"github.com/ral-limiter/ral/cmdqueue"
	"github.com/ral-limiter/ral/internal/seam"
	"github.com/ral-limiter/ral/janitor"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/supervisor"
	"github.com/ral-limiter/ral/table"
)

// shutdown bounds how long Close waits for the writer and the janitor each. Both
// come to a place where they can stop about every millisecond.
const shutdown = 5 * time.Second

// Engine limits how often each key may act. Call New to make one; the zero value is of no
// use. Its methods may be called by any number of goroutines.
//
// Reach for Choke if yes or no is enough, for Take if a call costs more than one unit or
// the answer must say how long to wait, and for Peek to look. Wait and Reserve are for
// calls that would rather come later than not at all, TakeWith is for limits that come
// with the call, and Claim and TakeAll are for several keys at once.
//
// A key is any comparable value. Keys that cannot be found again, such as a
// floating-point NaN or an interface holding a slice, are never recorded, and are
// answered as Config.WhenUnavailable says.
type Engine[K comparable] struct {
	name    string
	cell    *cell.Cell[K]
	control cell.Control[K]
	time    timeSource

	table   *table.Table[K]
	queue   *cmdqueue.Queue[table.Command[K]]
	dropped atomic.Uint64

	supervisor *supervisor.Supervisor
	running    *supervisor.Handle
	stop       context.CancelFunc

	closing sync.Once
	closed  atomic.Bool

	seam seam.Seam
}

// New checks the configuration and starts an engine. The error, if any, is a
// *policy.FieldError that names the field. Call Close to end the engine's
// goroutines.
func New[K comparable](config Config, more ...Option[K]) (*Engine[K], error) {
	config = config.withDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	var o options[K]
	for _, option := range more {
		if option == nil {
			return nil, &policy.FieldError{Of: "engine.New", Field: "more", Value: "nil", Want: "an option, such as PolicyFor returns"}
		}
		option(&o)
	}
	if o.policyForSet && o.policyFor == nil {
		return nil, &policy.FieldError{Of: "engine.PolicyFor", Field: "choose", Value: "nil", Want: "a function"}
	}

	e := &Engine[K]{
		table: table.New[K](table.Options{
			Policy:  config.Policy,
			Idle:    config.Idle,
			MaxKeys: config.MaxKeys,
			Fault:   config.fault,
		}),
		name:  config.Name,
		time:  newTimeSource(config),
		queue: cmdqueue.New[table.Command[K]](config.QueueDepth),
		seam:  config.seam,
	}
	simulate(config.seam, e.table, e.queue)
	if s := config.seam.Scheduler; s != nil {
		s.Built(e.table, e.queue)
	}
	e.cell, e.control = cell.New(cell.Options[K]{
		View:              e.table.View(),
		PolicyFor:         o.policyFor,
		OnMisfit:          config.OnMisfit,
		Queue:             e.queue,
		WhenFull:          cell.WhenFull(config.WhenFull),
		RefuseUnavailable: config.WhenUnavailable == Refuse,
		OpenTimeout:       config.OpenTimeout,
		Idle:              config.Idle,
		MaxWaiting:        config.MaxWaiting,
		MaxWaitingTotal:   config.MaxWaitingTotal,
		Epoch:             time.Now(),
		Clock:             e.time.now,
		Writing:           e.writing,
	})

	var err error
	supervised := supervisor.Config{
		Name:      config.Name,
		Strategy:  supervisor.OneForOne,
		Intensity: config.Restarts,
		Period:    config.RestartPeriod,
		OnEvent:   config.OnEvent,
		Fault:     config.fault,
	}
	sweeper := janitor.New(e.queue, e.control.Now, config.Idle, config.fault)
	simulate(config.seam, e.cell, sweeper, &supervised)
	e.supervisor, err = supervisor.New(supervised, supervisor.Child{
		Name:     "writer",
		Run:      (&writer[K]{e.table, e.queue, e.control.Now, &e.dropped, config.fault, config.seam}).run,
		Shutdown: shutdown,
		// Two writers at once would be two owners of the table. One-for-one as it
		// is, the supervisor starts no second one anyhow.
		Exclusive: true,
	}, supervisor.Child{
		Name:     "janitor",
		Run:      sweeper.Run,
		Shutdown: shutdown,
	})
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	e.stop = stop
	e.running = e.supervisor.Start(ctx)
	return e, nil
}

// simulate has parts of an engine run under a scheduler, if there is one.
func simulate(s seam.Seam, parts ...any) {
	if s.Scheduler == nil {
		return
	}
	for _, part := range parts {
		seam.Give(part, s.Scheduler)
	}
}

// writing reports whether there is a writer, or soon will be again.
func (e *Engine[K]) writing() bool {
	select {
	case <-e.running.Done():
		return false
	default:
		return true
	}
}

// Health returns nil while the engine is in order, restarts included. After
// Close it returns ErrClosed.
//
// When the writer or the janitor has failed more often than Config.Restarts
// permits, it returns an error that wraps ErrUnhealthy and the last failure. The
// engine is degraded then, for good. It goes on limiting the keys that it knows,
// exactly. It records no others, and answers for them as Config.WhenUnavailable says.
// No key leaves. Make a new engine and Close this one.
func (e *Engine[K]) Health() error {
	switch {
	case e.closed.Load():
		return e.named(ErrClosed)
	case !e.writing():
		return e.named(fmt.Errorf("%w: %w", ErrUnhealthy, e.running.Err()))
	}
	return nil
}

// Close ends the engine's goroutines and waits for them; the keys are forgotten.
// Calls from then on, and those under way, are answered as Config.WhenUnavailable
// says, and none waits. Close may be called more than once, and returns nil
// unless a goroutine did not end within 5 seconds, which it reports as
// ErrAbandoned.
func (e *Engine[K]) Close() error {
	e.closing.Do(func() {
		e.closed.Store(true)
		e.control.Close()
		e.stop()
		seam.Receive[struct{}](e.seam, "close: running", seam.Forever, nil, nil, e.running.Done())
		e.queue.Close()
		e.table.Clear()
	})
	if n := e.supervisor.Abandoned(); n > 0 {
		return e.named(fmt.Errorf("%w (%d)", ErrAbandoned, n))
	}
	return nil
}
