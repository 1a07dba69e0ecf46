package guard

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

var (
	// ErrOpen: the breaker is open, and the server was not asked. ErrOpen is wrapped together with
	// the failure that opened the breaker, or the last probe's.
	ErrOpen = errors.New("the last calls failed")
	// ErrBudget: the budget was spent before the answer. The request may still be done.
	ErrBudget = errors.New("no answer within the budget")
	// ErrBusy: the budget was spent before the call's turn, with MaxInFlight calls under way. The
	// server was not asked, which is no failure. ErrBusy is wrapped together with ErrBudget.
	ErrBusy = errors.New("too many calls under way")
	// ErrClosed: the guard is closed.
	ErrClosed = errors.New("closed")
)

// Config configures a guard. Every field is required.
type Config struct {
	// Budget is the longest that a caller waits.
	Budget time.Duration
	// CallTimeout ends a call that goes on without its caller. The time should suffice to connect.
	CallTimeout time.Duration
	// MaxInFlight bounds the calls under way, and so the goroutines. A Batch's joint call counts
	// once.
	MaxInFlight int

	// Silence is the time without an answer that opens the breaker, as watch counts it.
	Silence time.Duration
	// Failures in a row open the breaker, each of a call made after the failure before. Pause is
	// the time from opening to the first probe; it doubles up to MaxPause.
	Failures        int
	Pause, MaxPause time.Duration
	// Failed reports whether an error is a failure: no answer of the server's.
	Failed func(error) bool
	// Trips counts the calls, perhaps of several guards.
	Trips *Trips
	// OnChange is called when the breaker opened or closed. OnChange must return soon.
	OnChange func()
}

// Guard keeps calls to a server within a budget. Its methods, and Do, may be called by any number
// of goroutines. New makes a Guard; the zero value is of no use.
type Guard struct {
	config  Config
	breaker *breaker
	watch   *watch
	// watcher waits for the goroutine of watch.
	watcher sync.WaitGroup
	// base is the context of all calls.
	base   context.Context
	cancel context.CancelFunc

	// Calls run on workers, goroutines that are reused because their stacks have grown. jobs,
	// without a buffer, hands a call to an idle worker. slots has an element for each worker.
	jobs  chan job
	slots chan struct{}
	// idle has an element for each worker that waits for a job.
	idle chan struct{}

	timers sync.Pool
	// yielded is when a call last gave way, as the breaker counts.
	yielded atomic.Int64
	closing sync.Once
}

// idlers bounds the idle workers. Each costs a stack of some 8 KiB.
const idlers = 64

// Trips counts calls. Its methods may be called by any number of goroutines.
type Trips struct{ answered, failed, took atomic.Uint64 }

// Read returns the number of answered calls, their total time, and the number of failed calls.
func (t *Trips) Read() (answered uint64, took time.Duration, failed uint64) {
	return t.answered.Load(), time.Duration(t.took.Load()), t.failed.Load()
}

// count counts a call that returned, unless Close ended it.
func (g *Guard) count(sending sending, answered bool) {
	switch trips := g.config.Trips; {
	case answered:
		trips.took.Add(uint64(time.Since(sending.sentAt)))
		trips.answered.Add(1)
	case g.base.Err() == nil:
		trips.failed.Add(1)
	}
}

// job is one call, or a batch of calls, that is sent to the server on a goroutine of the guard. It is an
// interface because calls have results of different types.
type job interface{ run(context.Context) }

// New returns a guard. Call Close to end its goroutines.
func New(config Config) *Guard {
	guard := &Guard{
		config:  config,
		breaker: newBreaker(&config),
		watch:   newWatch(config.Silence, config.Budget),
		jobs:    make(chan job),
		slots:   make(chan struct{}, config.MaxInFlight),
		idle:    make(chan struct{}, min(idlers, config.MaxInFlight)),
	}
	guard.base, guard.cancel = context.WithCancel(context.Background())
	return guard
}

// Open reports whether the breaker is open; why is then an ErrOpen.
func (g *Guard) Open() (open bool, why error) {
	if open, _ = g.breaker.state(); open {
		why = *g.breaker.cause.Load()
	}
	return open, why
}

// Probing reports whether the breaker is open with a probe under way.
func (g *Guard) Probing() bool {
	open, _ := g.breaker.state()
	return open && g.breaker.probes.Load() > 0
}

// Failure returns the error that opened the breaker or failed the last probe; nil while the breaker
// is closed. Failure never returns an explanation.
func (g *Guard) Failure() error { return g.breaker.failure() }

// Explain sets the error that calls are told while the breaker is open. nil restores the failure of
// the last probe. To wrap a failure, wrap Failure's error: Open's may hold the last explanation.
func (g *Guard) Explain(err error) { g.breaker.explain(err) }

// Openings returns how often the breaker opened.
func (g *Guard) Openings() uint64 {
	_, n := g.breaker.state()
	return n
}

// Close ends the guard: calls under way and later get ErrClosed. Close ends the contexts of the
// calls that go on, and waits for these calls, at most CallTimeout if they heed their contexts.
func (g *Guard) Close() {
	g.closing.Do(func() {
		g.cancel()
		for range cap(g.slots) {
			// A worker gives its slot back when it ends.
			g.slots <- struct{}{}
		}
		// Only a worker starts the watcher.
		g.watcher.Wait()
	})
}

func (g *Guard) send(budget time.Duration) sending {
	sending := g.watch.send(budget)
	if !g.watch.running.Load() && g.watch.running.CompareAndSwap(false, true) {
		g.watcher.Go(func() {
			g.watch.run(g.base, func(err error) { g.breaker.trip(err, errors.Is(err, ErrSlow)) })
		})
	}
	return sending
}

func (g *Guard) outcome(sending sending, err error) outcome {
	switch {
	case err != nil && g.config.Failed(err):
		if g.base.Err() != nil {
			return unsure
		}
		return bad
	case g.watch.stale(sending):
		return stale
	case !sending.within():
		return late
	}
	return good
}

// flight is a call under way. Until done is sent on, only its worker touches value and err,
// and then only the caller.
type flight[T any] struct {
	guard *Guard
	pass  pass
	// judged is the budget by which the server is judged.
	judged time.Duration
	call   func(context.Context) (T, error)
	value  T
	err    error
	done   chan struct{}
}

func (f *flight[T]) run(base context.Context) {
	ctx, cancel := context.WithTimeout(base, f.guard.config.CallTimeout)
	defer cancel()
	sending := f.guard.send(f.judged)
	f.value, f.err = f.call(ctx)
	outcome := f.guard.outcome(sending, f.err)
	if outcome < bad {
		f.guard.watch.hear(sending)
	}
	f.guard.watch.receive(sending)
	f.guard.count(sending, outcome < bad)
	f.guard.breaker.leave(f.pass, outcome, f.err)
	f.done <- struct{}{}
}

// Do runs call on another goroutine and returns its results, or why there was no answer: ErrOpen,
// ErrBudget, ErrBusy, ErrClosed, or the cause of ctx if that ended first. Do returns when the
// budget is spent. call does not end with ctx and may go on for CallTimeout. Its results are then
// dropped, but tell how the server is.
func Do[T any](ctx context.Context, breaker *Guard, call func(context.Context) (T, error)) (T, error) {
	return do(ctx, breaker, breaker.config.Budget, breaker.config.Budget, call)
}

// DoWithin is Do with another budget, of at most CallTimeout.
func DoWithin[T any](ctx context.Context, breaker *Guard, budget time.Duration, call func(context.Context) (T, error)) (T, error) {
	return do(ctx, breaker, budget, budget, call)
}

// DoPatiently is Do with another wait. The server is still judged by the guard's budget.
func DoPatiently[T any](ctx context.Context, breaker *Guard, wait time.Duration, call func(context.Context) (T, error)) (T, error) {
	return do(ctx, breaker, wait, breaker.config.Budget, call)
}

func do[T any](ctx context.Context, guard *Guard, budget, judged time.Duration, call func(context.Context) (T, error)) (T, error) {
	var none T
	pass, err := guard.enter(ctx)
	if err != nil {
		return none, err
	}
	timer := guard.timer(budget)
	defer guard.timers.Put(timer)
	defer timer.Stop()

	f := &flight[T]{guard: guard, pass: pass, judged: judged, call: call, done: make(chan struct{}, 1)}
	if err = guard.start(ctx, f, budget, timer.C); err != nil {
		guard.breaker.leave(pass, unsure, nil)
		return none, err
	}
	select {
	case <-f.done:
	case <-timer.C:
		if !guard.arrived(f.done) {
			return none, fmt.Errorf("%w of %v", ErrBudget, budget)
		}
	case <-ctx.Done():
		return none, context.Cause(ctx)
	case <-guard.base.Done():
		return none, ErrClosed
	}
	if f.err != nil && guard.config.Failed(f.err) {
		return none, f.err
	}
	return f.value, f.err
}

// yieldEvery is how often refused calls give way.
const yieldEvery = time.Millisecond

// enter returns a pass of the breaker's, unless ctx or the guard has ended. Now and then a refused
// caller gives way: callers in a loop could keep the reader of a probe's answer from a processor.
func (g *Guard) enter(ctx context.Context) (pass, error) {
	switch {
	case ctx.Err() != nil:
		return pass{}, context.Cause(ctx)
	case g.base.Err() != nil:
		return pass{}, ErrClosed
	}
	pass, err := g.breaker.enter()
	if err != nil {
		now, last := g.breaker.now(), g.yielded.Load()
		if now-last > int64(yieldEvery) && g.yielded.CompareAndSwap(last, now) {
			runtime.Gosched()
		}
	}
	return pass, err
}

// arrived reports whether an answer is there for a caller whose budget is spent. On a busy machine
// the answer's reader may lack a processor; the reader has a turn first, if others were answered a
// moment ago.
func (g *Guard) arrived(done <-chan struct{}) bool {
	if g.watch.heardLately() {
		runtime.Gosched()
	}
	select {
	case <-done:
		return true
	default:
		return false
	}
}

func (g *Guard) start(ctx context.Context, j job, budget time.Duration, expired <-chan time.Time) error {
	select {
	// An idle worker takes the job.
	case g.jobs <- j:
		return nil
	default:
	}
	select {
	case g.jobs <- j:
		return nil
	case g.slots <- struct{}{}:
		go g.work(j)
		return nil
	case <-expired:
		return fmt.Errorf("%w of %v: %w (%d)", ErrBudget, budget, ErrBusy, g.config.MaxInFlight)
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-g.base.Done():
		return ErrClosed
	}
}

// work runs jobs until enough workers are idle.
func (g *Guard) work(j job) {
	defer func() { <-g.slots }()
	for {
		j.run(g.base)
		select {
		case g.idle <- struct{}{}:
		default:
			return
		}
		select {
		case j = <-g.jobs:
			<-g.idle
		case <-g.base.Done():
			<-g.idle
			return
		}
	}
}

func (g *Guard) timer(budget time.Duration) *time.Timer {
	if t, ok := g.timers.Get().(*time.Timer); ok {
		t.Reset(budget)
		return t
	}
	return time.NewTimer(budget)
}
