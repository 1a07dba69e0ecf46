package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ral-limiter/ral/cell"
	"github.com/ral-limiter/ral/cmdqueue"
	"github.com/ral-limiter/ral/internal/core/keycodec"
	"github.com/ral-limiter/ral/internal/core/seam"
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

	codec  keycodec.Codec[K] // nil is the one for the type of the keys
	keeper *keeper           // nil if Config.State has no Path
	census *census[K]

	// blocks is nil until a key is blocked for the first time, unless there is a Penalty or
	// a state with blocks. blocking is held while it is started.
	blocks   atomic.Pointer[blocksEngine[K]]
	blocking sync.Mutex
	config   Config

	closing  sync.Once
	closed   atomic.Bool
	closeErr error // written under closing: that of the last save

	seam seam.Seam
	form keyForm   // of the keys in claims
	last io.Writer // as in Config
}

// New checks the configuration and starts an engine. With Config.State it loads the file
// first, if there is one. The error, if any, is a *policy.FieldError that names the field, or
// one about the file: see State. Call Close to end the engine's goroutines.
func New[K comparable](config Config, more ...Option[K]) (*Engine[K], error) {
	config = config.withDefaults()
	o, err := prepare(config, more)
	if err != nil {
		return nil, err
	}
	config.chosen = o.policyForSet
	if config.State.Path == "" {
		return start(config, o, nil, nil)
	}
	k, l, err := openState(config, o.codec)
	if err != nil {
		return nil, namedBy(config.Name, err)
	}
	e, err := start(config, o, l, k)
	if err != nil {
		return nil, errors.Join(err, k.unlock())
	}
	return e, nil
}

// prepare checks a configuration, which has its defaults, and the options.
func prepare[K comparable](config Config, more []Option[K]) (o options[K], err error) {
	if err := config.validate(); err != nil {
		return o, err
	}
	for _, option := range more {
		if option == nil {
			return o, &policy.FieldError{Of: "engine.New", Field: "more", Value: "nil", Want: "an option, such as PolicyFor returns"}
		}
		option(&o)
	}
	if o.policyForSet && o.policyFor == nil {
		return o, &policy.FieldError{Of: "engine.PolicyFor", Field: "choose", Value: "nil", Want: "a function"}
	}
	if c, own := o.codec.(*codec[K]); own && (c.name == "" || c.encode == nil || c.decode == nil) {
		return o, &policy.FieldError{Of: "engine.KeyCodec", Field: "name, encode, decode", Value: fmt.Sprintf("%.80q", c.name), Want: "a name and two functions"}
	}
	return o, nil
}

func newTable[K comparable](config Config) *table.Table[K] {
	t := table.New[K](table.Options{
		Policy:  config.Policy,
		Idle:    config.Idle,
		MaxKeys: config.MaxKeys,
		Firm:    config.firm,
		Seed:    config.seed,
		Fault:   config.fault,
	})
	simulate(config.seam, t) // before it has keys: that sets the seed of their hashes
	return t
}

// start starts an engine. It begins with what was loaded, or with nothing if that is nil. The
// keeper, if not nil, is the engine's from then on.
func start[K comparable](config Config, o options[K], l *loaded[K], k *keeper) (*Engine[K], error) {
	if l == nil {
		l = &loaded[K]{first: 1, last: 1}
	}
	var source timeSource
	if config.source != nil {
		source = *config.source
	} else {
		source = newTimeSource(config, l.first, l.last)
		config.OnEvent = oneAtATime(config.OnEvent)
	}
	var anchor func(policy.Policy) policy.Policy
	if _, ok := config.Policy.(policy.Anchored); ok {
		// If the wall clock went back, windows stay where they were: one that has ended would
		// come again.
		if l.zero.After(source.zero) {
			source.zero = l.zero
		}
		anchor = source.anchored // limits of other families need none
	}
	config.Policy = source.anchored(config.Policy)
	if l.table == nil {
		l.table = newTable[K](config)
	} else {
		l.keys.Done(config.Policy, source.first)
	}
	e := &Engine[K]{
		table:  l.table,
		name:   config.Name,
		codec:  o.codec,
		keeper: k,
		time:   source,
		queue:  cmdqueue.New[table.Command[K]](config.QueueDepth),
		seam:   config.seam,
		form:   formOf[K](),
		last:   config.last,
		config: config,
	}
	simulate(config.seam, e.queue)
	if s := config.seam.Scheduler; s != nil && config.source == nil {
		s.Built(e.table, e.queue)
	}
	e.cell, e.control = cell.New(cell.Options[K]{
		View:              e.table.View(),
		PolicyFor:         o.policyFor,
		Anchor:            anchor,
		OnMisfit:          config.OnMisfit,
		Queue:             e.queue,
		WhenFull:          cell.WhenFull(config.WhenFull),
		RefuseUnavailable: config.WhenUnavailable == Refuse,
		OpenTimeout:       config.OpenTimeout,
		RefuseClosed:      k != nil || e.last != nil || config.source != nil,
		Refusals:          config.refusals,
		RefusedKeys:       !config.NoRefusedKeys,
		Idle:              config.Idle,
		MaxWaiting:        config.MaxWaiting,
		MaxWaitingTotal:   config.MaxWaitingTotal,
		Epoch:             e.time.epoch,
		First:             e.time.first,
		Clock:             e.time.now,
		Writing:           e.writing,
	})

	e.time.id = e.cell.ID()

	var err error
	supervised := supervisor.Config{
		Name:      config.Name,
		Intensity: config.Restarts,
		Period:    config.RestartPeriod,
		OnEvent:   config.OnEvent,
		Fault:     config.fault,
	}
	e.census = &census[K]{
		view: e.table.View(), clock: e.control.Now, chosen: o.policyFor != nil,
	}
	sweeper := janitor.New(e.queue, e.control.Tick, config.Idle, config.fault)
	sweeper.Also(e.census.step)
	simulate(config.seam, e.cell, sweeper, &supervised)
	children := []supervisor.Child{{
		Name:     "writer",
		Run:      (&writer[K]{e.table, e.queue, e.control.Now, &e.dropped, config.fault, config.seam}).run,
		Shutdown: shutdown,
	}, {
		Name:     "janitor",
		Run:      sweeper.Run,
		Shutdown: shutdown,
	}}
	if k != nil {
		children = append(children, supervisor.Child{
			Name:     "saver",
			Run:      (&saver{k, e.save, config.seam}).run,
			Shutdown: shutdown,
		})
	}
	e.supervisor, err = supervisor.New(supervised, children...)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	e.stop = stop
	e.running = e.supervisor.Start(ctx)
	if config.Penalty != (Penalty{}) || l.blocks != nil {
		if err := e.startBlocks(l.blocks); err != nil {
			return nil, errors.Join(err, e.Close())
		}
	}
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
// No key leaves. Make a new engine and Close this one. With Config.State, it saves no
// more until Close.
//
// If that is so of the goroutines for blocked keys, the error says it: no further key can
// be blocked, and those that are stay so. The other keys do not notice.
//
// With Config.Clock, it returns an error while that clock stands where no time passes: before
// the engine's first instant, or more than 9 years after it. A key that has used its limit is
// refused until the clock is back.
//
// With Config.State, it returns an error that wraps ErrUnsaved if saves have failed for
// long. Nothing else suffers from that.
func (e *Engine[K]) Health() error {
	switch {
	case e.closed.Load():
		return e.named(ErrClosed)
	case !e.writing():
		return e.named(fmt.Errorf("%w: %w", ErrUnhealthy, e.running.Err()))
	case e.blocks.Load() != nil && !e.blocks.Load().writing():
		return e.named(fmt.Errorf("%w: of blocked keys: %w", ErrUnhealthy, e.blocks.Load().running.Err()))
	}
	if err := e.time.health(); err != nil || e.keeper == nil {
		return e.named(err)
	}
	return e.named(e.keeper.health())
}

// Close ends the engine's goroutines and waits for them; the keys are forgotten.
// Calls from then on, and those under way, are answered as Config.WhenUnavailable
// says, and none waits. Close may be called more than once, and returns nil
// unless a goroutine did not end within 5 seconds, which it reports as
// ErrAbandoned.
//
// With Config.State those calls are refused, and the state is saved with all units
// that were admitted. If that fails, the file stays as the last save left it, and
// Close returns why. A call under way on a new key may be refused although its units
// are in the file.
func (e *Engine[K]) Close() error {
	e.closing.Do(func() {
		e.closed.Store(true)
		e.control.Close()
		e.stopRunning()
		e.stopBlocks()
		if e.keeper != nil {
			e.closeErr = e.keeper.close(e.saveLast)
		}
		if e.last != nil {
			_, e.closeErr = e.saveLast(e.last)
		}
		e.table.Clear()
		e.endBlocks() // last: a call under way on a key that was in the table asks for it
		if b := e.blocks.Load(); b != nil {
			b.table.Clear()
		}
	})
	err := e.closeErr
	if n := e.abandoned(); n > 0 {
		err = errors.Join(fmt.Errorf("%w (%d)", ErrAbandoned, n), err)
	}
	return e.named(err)
}

// stopRunning ends the engine's goroutines.
func (e *Engine[K]) stopRunning() {
	e.stop()
	seam.Receive[struct{}](e.seam, "close: running", seam.Forever, nil, nil, e.running.Done())
	e.queue.Close()
}

// abandoned returns how many goroutines did not end when they should have.
func (e *Engine[K]) abandoned() int {
	n := e.supervisor.Abandoned()
	if b := e.blocks.Load(); b != nil {
		n += b.abandoned()
	}
	return n
}
