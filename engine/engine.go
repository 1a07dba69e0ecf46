package engine

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
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

// shutdown bounds Close's wait for each goroutine. The goroutines can stop about every millisecond.
const shutdown = 5 * time.Second

// Engine limits how often each key may act. Call New to make one; the zero value is of no use. Its
// methods are safe for concurrent use. Use Choke for yes or no, Take for costs or the time to wait,
// and Peek to look. Wait and Reserve are for calls that can come later. TakeWith applies a limit
// that comes with the call. Claim and TakeAll take from several keys at once.
//
// Keys that are not equal to themselves or cannot be hashed, such as NaN or an interface holding a
// slice, are never recorded. Config.WhenUnavailable answers for them.
//
// If K's underlying type is string, keys of at most 80 bytes are copied. A longer key stays in
// memory, with all that it is a part of, for as long as the engine keeps the key, and so does the
// first key of a line while calls wait.
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

	// codec is nil for the codec by the type of the keys.
	codec keycodec.Codec[K]
	// keeper is nil without Config.State.Path.
	keeper *keeper
	census *census[K]
	events *keyEvents[K]
	// warned is nil without Config.WarnAt.
	warned *warnings[K]
	// misuse is nil without units in use.
	misuse *misuse[K]

	// blocks is nil until the first block, unless there is a Penalty or a state with blocks.
	// blocking guards its start.
	blocks   atomic.Pointer[blocksEngine[K]]
	blocking sync.Mutex
	config   Config

	closing sync.Once
	closed  atomic.Bool
	// closeErr is the error of the last save. closing guards it.
	closeErr error

	seam seam.Seam
	// form is the form of the keys in claims.
	form    keyForm
	claimer claimer
	// last is Config.last.
	last io.Writer
}

// New checks the configuration and starts an engine, from the file of Config.State if there is one.
// The error is a *policy.FieldError that names the field, or concerns the file: see State. Call
// Close to end the engine's goroutines.
func New[K comparable](config Config, more ...Option[K]) (*Engine[K], error) {
	config = config.withDefaults()
	options, err := prepare(config, more)
	if err != nil {
		return nil, err
	}
	config.chosen = options.policyForSet
	if config.State.Path == "" {
		return start(config, options, nil, nil)
	}
	keeper, loaded, err := openState(config, options.codec)
	if err != nil {
		return nil, namedBy(config.Name, err)
	}
	engine, err := start(config, options, loaded, keeper)
	if err != nil {
		return nil, errors.Join(err, keeper.unlock())
	}
	return engine, nil
}

func prepare[K comparable](config Config, more []Option[K]) (options options[K], err error) {
	if err := config.validate(); err != nil {
		return options, err
	}
	for _, option := range more {
		if option == nil {
			return options, &policy.FieldError{Of: "engine.New", Field: "more", Value: "nil", Want: "an option, such as PolicyFor returns"}
		}
		option(&options)
	}
	if options.policyForSet && options.policyFor == nil {
		return options, &policy.FieldError{Of: "engine.PolicyFor", Field: "choose", Value: "nil", Want: "a function"}
	}
	if err := options.warnFault(config); err != nil {
		return options, err
	}
	if c, own := options.codec.(*codec[K]); own && (c.name == "" || c.encode == nil || c.decode == nil) {
		return options, &policy.FieldError{Of: "engine.KeyCodec", Field: "name, encode, decode", Value: fmt.Sprintf("%.80q", c.name), Want: "a name and two functions"}
	}
	return options, nil
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
	// The table has no keys yet, since simulate sets their hash seed.
	simulate(config.seam, t)
	return t
}

// start starts an engine with the loaded state, if any. The engine owns the keeper, if any, from
// then on.
func start[K comparable](config Config, options options[K], l *loaded[K], keeper *keeper) (*Engine[K], error) {
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
		// If the wall clock went back, windows stay: an ended window would come again.
		if l.zero.After(source.zero) {
			source.zero = l.zero
		}
		// Only anchored families need an anchor.
		anchor = source.anchored
	}
	config.Policy = source.anchored(config.Policy)
	if l.table == nil {
		l.table = newTable[K](config)
	} else {
		l.keys.Done(config.Policy, source.first)
	}
	engine := &Engine[K]{
		table:  l.table,
		name:   config.Name,
		codec:  options.codec,
		keeper: keeper,
		time:   source,
		queue:  cmdqueue.New[table.Command[K]](config.QueueDepth),
		seam:   config.seam,
		form:   formOf[K](),
		last:   config.last,
		config: config,
	}
	simulate(config.seam, engine.queue)
	if scheduler := config.seam.Scheduler; scheduler != nil && config.source == nil {
		scheduler.Built(engine.table, engine.queue)
	}
	engine.events = &keyEvents[K]{config.Name, maphash.MakeSeed(), supervisor.NewEventMailbox(config.OnEvent)}
	if len(config.WarnAt) > 0 {
		engine.warned = newWarnings(options.onWarn, engine.events)
	}
	var onOverstay, onUnheld func(K)
	if _, ok := config.Policy.(policy.Occupier); ok {
		engine.misuse = newMisuse(engine.events)
		onOverstay, onUnheld = engine.misuse.overstayed, engine.misuse.unheldUnits
	}
	engine.cell, engine.control = cell.New(cell.Options[K]{
		View:              engine.table.View(),
		PolicyFor:         options.policyFor,
		Anchor:            anchor,
		OnMisfit:          config.OnMisfit,
		Queue:             engine.queue,
		WhenFull:          cell.WhenFull(config.WhenFull),
		RefuseUnavailable: config.WhenUnavailable == Refuse,
		OpenTimeout:       config.OpenTimeout,
		MaxKeys:           config.MaxKeys,
		RefuseClosed:      keeper != nil || engine.last != nil || config.source != nil,
		Refusals:          config.refusals,
		RefusedKeys:       !config.NoRefusedKeys,
		Idle:              config.Idle,
		MaxWaiting:        config.MaxWaiting,
		MaxWaitingTotal:   config.MaxWaitingTotal,
		Epoch:             engine.time.epoch,
		First:             engine.time.first,
		Clock:             engine.time.now,
		Writing:           engine.writing,
		WarnAt:            config.WarnAt,
		OnWarn:            engine.warned.add,
		OnOverstay:        onOverstay,
		OnUnheld:          onUnheld,
	})

	engine.claimer = claimer{engine, claimers.Add(1), &engine.time, engine.cell.Tally(), engine.cell.Warns()}

	var err error
	supervised := supervisor.Config{
		Name:      config.Name,
		Intensity: config.Restarts,
		Period:    config.RestartPeriod,
		OnEvent:   config.OnEvent,
		Fault:     config.fault,
	}
	engine.census = &census[K]{view: engine.table.View(), clock: engine.control.Now, seam: config.seam}
	sweeper := janitor.New(engine.queue, engine.control.Tick, config.Idle, config.fault)
	if options.policyFor == nil {
		sweeper.Also(engine.census.step)
	}
	simulate(config.seam, engine.cell, sweeper, &supervised)
	children := []supervisor.Child{{
		Name:     "writer",
		Run:      (&writer[K]{engine.table, engine.queue, engine.control.Now, &engine.dropped, config.fault, config.seam}).run,
		Shutdown: shutdown,
	}, {
		Name:     "janitor",
		Run:      sweeper.Run,
		Shutdown: shutdown,
	}}
	if options.policyFor != nil && !config.uncounted {
		engine.census.chosen = engine.cell.Chosen
		children = append(children, supervisor.Child{Name: "census", Run: engine.census.run, Shutdown: shutdown})
	}
	if keeper != nil {
		children = append(children, supervisor.Child{
			Name:     "saver",
			Run:      (&saver{keeper, engine.save, config.seam}).run,
			Shutdown: shutdown,
		})
	}
	engine.supervisor, err = supervisor.New(supervised, children...)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	engine.stop = stop
	engine.running = engine.supervisor.Start(ctx)
	if config.Penalty != (Penalty{}) || l.blocks != nil {
		if err := engine.startBlocks(l.blocks); err != nil {
			return nil, errors.Join(err, engine.Close())
		}
	}
	return engine, nil
}

func simulate(points seam.Seam, parts ...any) {
	if points.Scheduler == nil {
		return
	}
	for _, part := range parts {
		seam.Give(part, points.Scheduler)
	}
}

func (e *Engine[K]) writing() bool { return !seam.IsClosed(e.running.Done()) }

// Epoch returns the time of the policies' instant 1, within a microsecond, for limits.Record. The
// time has a monotonic reading, and means nothing with a Config.Clock that is not package time's.
func (e *Engine[K]) Epoch() time.Time { return e.time.epoch.Add(-time.Duration(e.time.first - 1)) }

func (e *Engine[K]) named(err error) error { return namedBy(e.name, err) }

// Health returns nil while the engine works, restarts included. After Close Health returns
// ErrClosed.
//
// If the writer or the janitor failed more often than Config.Restarts permits, the error wraps
// ErrUnhealthy and the last failure. The engine is then degraded for good. It still limits known
// keys exactly, records no others (Config.WhenUnavailable answers for them), keeps all keys, and
// with Config.State saves only at Close. Make a new engine and Close this one. If the
// goroutines for blocked keys failed, the error says so: blocks stay, further keys cannot be
// blocked, and other keys are not affected.
//
// With Config.Clock, Health returns an error while no time passes: the clock is before the engine's
// first instant or more than 9 years after it. A key that has used its limit is then refused until
// the clock is back. With Config.State, the error wraps ErrUnsaved if saves have failed for long.
// Limiting goes on.
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

// Close ends the engine's goroutines, waits for them and forgets the keys. Later calls and those
// under way do not wait and are answered as Config.WhenUnavailable says. Close may be called more
// than once. Close returns ErrAbandoned if a goroutine did not end within 5 seconds.
//
// With Config.State those calls are refused, and the state is saved with all units that were
// admitted. If that fails, the file stays as the last save left it, and Close returns the cause. A
// call under way on a new key may be refused although its units are in the file.
func (e *Engine[K]) Close() error {
	e.closing.Do(func() {
		e.closed.Store(true)
		e.control.Close()
		e.stopRunning()
		e.stopBlocks()
		e.warned.flush()
		e.events.box.Flush()
		if e.keeper != nil {
			e.closeErr = e.keeper.close(e.saveLast)
		}
		if e.last != nil {
			_, e.closeErr = e.saveLast(e.last)
		}
		e.table.Clear()
		// This comes last, as a call under way on a key of the table asks for the blocks.
		e.endBlocks()
		if engine := e.blocks.Load(); engine != nil {
			engine.table.Clear()
		}
	})
	err := e.closeErr
	if n := e.abandoned(); n > 0 {
		err = errors.Join(fmt.Errorf("%w (%d)", ErrAbandoned, n), err)
	}
	return e.named(err)
}

func (e *Engine[K]) stopRunning() {
	e.stop()
	seam.Receive[struct{}](e.seam, "close: running", seam.Forever, nil, nil, e.running.Done())
	e.queue.Close()
}

func (e *Engine[K]) abandoned() int {
	n := e.supervisor.Abandoned()
	if engine := e.blocks.Load(); engine != nil {
		n += engine.abandoned()
	}
	return n
}
