package engine

import (
	"context"
	"errors"
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

// Errors of Health.
var (
	// ErrClosed says that Close was called.
	ErrClosed = cell.ErrClosed
	// ErrUnhealthy says that the writer or the janitor failed more often than
	// Config.Restarts permits, and that both were given up. It is wrapped together
	// with the last failure.
	ErrUnhealthy = errors.New("ral: the engine is unhealthy: its goroutines were given up, and no new key is recorded")
)

// ErrAbandoned is returned by Close when a goroutine of the engine did not end
// in time. A goroutine cannot be killed, so it may still be there.
var ErrAbandoned = errors.New("ral: a goroutine of the engine did not end in time")

// shutdown is how long Close waits for the writer and the janitor each. Both
// come by a place where they can stop every millisecond or so.
const shutdown = 5 * time.Second

// Engine limits how often each key may act: see [cell.Cell] for Choke, Take, Wait and the
// other verbs. Call New to make one; the zero value is of no use. Its methods, and those
// of the embedded Cell, may be called by any number of goroutines.
type Engine[K comparable] struct {
	*cell.Cell[K]
	control cell.Control[K]

	table   *table.Table[K]
	queue   *cmdqueue.Queue[table.Command[K]]
	dropped atomic.Uint64

	supervisor *supervisor.Supervisor
	running    *supervisor.Handle
	stop       context.CancelFunc

	closing sync.Once
	closed  atomic.Bool

	seam seam.Scheduler // of a simulation; nil otherwise
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
			Seam:    config.seam,
		}),
		queue: cmdqueue.NewUnder[table.Command[K]](config.QueueDepth, config.seam),
		seam:  config.seam,
	}
	e.Cell, e.control = cell.New(cell.Options[K]{
		View:            e.table.View(),
		PolicyFor:       o.policyFor,
		Queue:           e.queue,
		Admission:       config.Admission,
		WhenFull:        config.WhenFull,
		WhenUnavailable: config.WhenUnavailable,
		OpenTimeout:     config.OpenTimeout,
		Idle:            config.Idle,
		MaxWaiting:      config.MaxWaiting,
		Epoch:           time.Now(),
		Clock:           fromOne(config.Clock),
		Writing:         e.writing,
		Seam:            config.seam,
	})

	var err error
	supervised := supervisor.Config{
		Name:      "ral",
		Strategy:  supervisor.OneForOne,
		Intensity: config.Restarts,
		Period:    config.RestartPeriod,
		OnEvent:   config.OnEvent,
		Fault:     config.fault,
	}
	if config.seam != nil {
		seam.Give(&supervised, config.seam)
		config.seam.Built(e.table, e.queue)
	}
	e.supervisor, err = supervisor.New(supervised, supervisor.Child{
		Name:     "writer",
		Run:      (&writer[K]{e.table, e.queue, e.control.Now, &e.dropped, config.fault, config.seam}).run,
		Shutdown: shutdown,
		// Two writers at once would be two owners of the table. One-for-one as it
		// is, the supervisor starts no second one anyhow.
		Exclusive: true,
	}, supervisor.Child{
		Name:     "janitor",
		Run:      janitor.New(e.queue, e.control.Now, config.Idle, config.fault).Under(config.seam).Run,
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

// writing tells whether there is a writer, or soon will be again.
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
// engine is degraded then, for good: it goes on limiting the keys that it knows,
// exactly; it records no others, and answers for them as Config.WhenUnavailable
// says; and no key leaves. Make a new engine and Close this one.
func (e *Engine[K]) Health() error {
	switch {
	case e.closed.Load():
		return ErrClosed
	case !e.writing():
		return fmt.Errorf("%w: %w", ErrUnhealthy, e.running.Err())
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
		e.control.Shut()
		e.stop()
		if e.seam != nil {
			e.seam.Await("close: running", seam.Forever, func() bool { return !e.writing() })
		}
		<-e.running.Done()
		e.queue.Close()
		e.table.Clear()
	})
	if n := e.supervisor.Abandoned(); n > 0 {
		return fmt.Errorf("%w (%d)", ErrAbandoned, n)
	}
	return nil
}

// fromOne has a clock begin at instant 1, wherever it stands now, and never say
// anything earlier.
func fromOne(clock func() policy.Instant) func() policy.Instant {
	if clock == nil {
		return nil
	}
	first := clock()
	return func() policy.Instant { return max(clock()-first+1, 1) }
}
