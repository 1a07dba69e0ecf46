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

// Errors of Do.
var (
	// ErrOpen says that the breaker is open: the server was not asked. It is wrapped
	// together with the failure that opened it, or the last probe's.
	ErrOpen = errors.New("not asked, because the last calls failed")
	// ErrBudget says that the budget was spent before the server answered. What was
	// asked of it may be done all the same.
	ErrBudget = errors.New("no answer within the budget")
	// ErrBusy says that the budget was spent before it was the call's turn: as many as
	// may are under way. The server was not asked, so that it does not count as a
	// failure. It is wrapped together with ErrBudget.
	ErrBusy = errors.New("too many calls under way")
	// ErrClosed says that the guard is closed.
	ErrClosed = errors.New("closed")
)

// Config is what a guard is made with. Every field is required except OnChange.
type Config struct {
	// Budget is the longest that a call may take for its caller.
	Budget time.Duration
	// CallTimeout is how long a call may go on when its caller has gone, so that
	// a connection which takes longer to make than the budget is made. The context of the
	// call ends then.
	CallTimeout time.Duration
	// MaxInFlight is how many calls may be under way, those that go on alone included, and
	// so how many goroutines make calls. Those of a Batch that are made as one are one.
	MaxInFlight int

	// Silence is how long calls may be without an answer before the breaker opens. It is
	// counted in time that this process gets to run: see watch.
	Silence time.Duration
	// Failures in a row open the breaker, each of a call that was made after the failure
	// before. Pause is how long it stays open at first before one call probes; Longest
	// bounds how that doubles.
	Failures       int
	Pause, Longest time.Duration
	// Failed reports whether an error is a failure: no answer of the server's.
	Failed func(error) bool
	// Trips counts the calls that are made, of several guards perhaps. It may be nil.
	Trips *Trips
	// OnChange is called when the breaker opened or closed. It should return at once.
	OnChange func()
}

// Guard keeps calls to one server within a budget. Its methods, and Do, may be called by
// any number of goroutines. The zero value is of no use: see New.
type Guard struct {
	config  Config
	breaker *breaker
	watch   *watch
	watcher sync.WaitGroup  // its goroutine
	base    context.Context // of all calls
	cancel  context.CancelFunc

	// A call is run by a worker, a goroutine that has run others before, so that its
	// stack has grown already. jobs hands it to one that is idle, without a buffer; slots
	// has one element for each that there is.
	jobs  chan job
	slots chan struct{}
	idle  chan struct{} // one element for each that waits for a job

	timers  sync.Pool
	yielded atomic.Int64 // when a call last gave way, as the breaker counts
	closing sync.Once
}

// idlers is how many workers stay when there is nothing to do. A worker costs its stack,
// some 8 KiB.
const idlers = 64

// Trips counts calls that were made. Its methods may be called by any number of goroutines.
type Trips struct{ answered, failed, took atomic.Uint64 }

// Read returns the number of calls that were answered, how long they took in all, and the number of
// those that failed.
func (t *Trips) Read() (answered uint64, took time.Duration, failed uint64) {
	return t.answered.Load(), time.Duration(t.took.Load()), t.failed.Load()
}

// count counts a call that returned, and whether it was answered. One that Close ended is in no
// count.
func (g *Guard) count(s sending, answered bool) {
	switch t := g.config.Trips; {
	case t == nil:
	case answered:
		t.took.Add(uint64(time.Since(s.at)))
		t.answered.Add(1)
	case g.base.Err() == nil:
		t.failed.Add(1)
	}
}

type job interface{ run(context.Context) }

// New returns a guard. Call Close to end its goroutines.
func New(c Config) *Guard {
	if c.OnChange == nil {
		c.OnChange = func() {}
	}
	g := &Guard{
		config:  c,
		breaker: newBreaker(c.Failures, c.Pause, c.Longest, c.OnChange),
		watch:   newWatch(c.Silence, c.Budget),
		jobs:    make(chan job),
		slots:   make(chan struct{}, c.MaxInFlight),
		idle:    make(chan struct{}, min(idlers, c.MaxInFlight)),
	}
	g.base, g.cancel = context.WithCancel(context.Background())
	return g
}

// Open reports whether the breaker is open; why is an ErrOpen then.
func (g *Guard) Open() (open bool, why error) {
	if open, _ = g.breaker.state(); open {
		why = *g.breaker.cause.Load()
	}
	return open, why
}

// Probing reports whether the breaker is open, and a call is under way that tries whether the
// server is back.
func (g *Guard) Probing() bool {
	open, _ := g.breaker.state()
	return open && g.breaker.probes.Load() > 0
}

// Failure returns the error that opened the breaker or that of the last failed probe, and nil
// while the breaker is closed. Unlike the error of Open it is never one that Explain was given.
func (g *Guard) Failure() error { return g.breaker.failure() }

// Explain has calls be told err while the breaker is open, as what they are told of an
// outage does not always say why. With nil they are told again how the last probe failed.
// An err that wraps a failure wraps that of Failure, since the error of Open may hold the
// last explanation.
func (g *Guard) Explain(err error) { g.breaker.explain(err) }

// Openings returns how often the breaker opened.
func (g *Guard) Openings() uint64 {
	_, n := g.breaker.state()
	return n
}

// Close ends the guard: calls under way and later ones get ErrClosed, and the contexts of
// those that go on end. It waits until they have returned, which is at most CallTimeout if
// they heed their contexts.
func (g *Guard) Close() {
	g.closing.Do(func() {
		g.cancel()
		for range cap(g.slots) {
			g.slots <- struct{}{} // which a worker gives back when it ends
		}
		g.watcher.Wait() // only a worker starts it
	})
}

// send notes that a call is sent, and has answers be watched for.
func (g *Guard) send(budget time.Duration) sending {
	s := g.watch.send(budget)
	if !g.watch.running.Load() && g.watch.running.CompareAndSwap(false, true) {
		g.watcher.Go(func() {
			g.watch.run(g.base, func(err error) { g.breaker.trip(err, errors.Is(err, ErrSlow)) })
		})
	}
	return s
}

// outcome returns how a call went that returned err.
func (g *Guard) outcome(s sending, err error) outcome {
	switch {
	case err != nil && g.config.Failed(err):
		if g.base.Err() != nil {
			return unsure
		}
		return bad
	case g.watch.stale(s):
		return stale
	case !s.within():
		return late
	}
	return good
}

// flight is a call under way. Until done is sent on, only its worker touches value and
// err; from then on only the caller, if it is still there.
type flight[T any] struct {
	guard  *Guard
	pass   pass
	judged time.Duration // the budget by which the server is judged
	call   func(context.Context) (T, error)
	value  T
	err    error
	done   chan struct{}
}

func (f *flight[T]) run(base context.Context) {
	ctx, cancel := context.WithTimeout(base, f.guard.config.CallTimeout)
	defer cancel()
	s := f.guard.send(f.judged)
	f.value, f.err = f.call(ctx)
	o := f.guard.outcome(s, f.err)
	if o < bad {
		f.guard.watch.hear(s)
	}
	f.guard.watch.receive(s)
	f.guard.count(s, o < bad)
	f.guard.breaker.leave(f.pass, o, f.err)
	f.done <- struct{}{}
}

// Do runs call, and returns what it returns, or an error that says why there was no
// answer: one of ErrOpen, ErrBudget, ErrBusy and ErrClosed, or the cause of ctx, if that
// ended first. Do returns when the budget is spent whatever call does, which may go on
// for CallTimeout then. What it returns is dropped, and tells how the server is.
//
// call runs on another goroutine, with a context that does not end with ctx.
func Do[T any](ctx context.Context, g *Guard, call func(context.Context) (T, error)) (T, error) {
	return do(ctx, g, g.config.Budget, g.config.Budget, call)
}

// DoWithin is Do with another budget, of at most CallTimeout.
func DoWithin[T any](ctx context.Context, g *Guard, budget time.Duration, call func(context.Context) (T, error)) (T, error) {
	return do(ctx, g, budget, budget, call)
}

// DoPatiently is Do for a call that no caller waits for. It returns after wait, and the
// server is judged by the budget of other calls.
func DoPatiently[T any](ctx context.Context, g *Guard, wait time.Duration, call func(context.Context) (T, error)) (T, error) {
	return do(ctx, g, wait, g.config.Budget, call)
}

func do[T any](ctx context.Context, g *Guard, budget, judged time.Duration, call func(context.Context) (T, error)) (T, error) {
	var none T
	p, err := g.enter(ctx)
	if err != nil {
		return none, err
	}
	timer := g.timer(budget)
	defer g.timers.Put(timer)
	defer timer.Stop()

	f := &flight[T]{guard: g, pass: p, judged: judged, call: call, done: make(chan struct{}, 1)}
	if err = g.start(ctx, f, budget, timer.C); err != nil {
		g.breaker.leave(p, unsure, nil)
		return none, err
	}
	select {
	case <-f.done:
	case <-timer.C:
		if !g.arrived(f.done) {
			return none, fmt.Errorf("%w of %v", ErrBudget, budget)
		}
	case <-ctx.Done():
		return none, context.Cause(ctx)
	case <-g.base.Done():
		return none, ErrClosed
	}
	if f.err != nil && g.config.Failed(f.err) {
		return none, f.err
	}
	return f.value, f.err
}

// yieldEvery is how often calls that are not made give way.
const yieldEvery = time.Millisecond

// enter returns a pass of the breaker's, unless ctx or the guard has ended. A caller that gets none goes on without having
// waited for anything. Callers that do so all the time would keep the goroutine that reads a
// probe's answer from a processor, each for as long as the scheduler lets it run. So now and
// then one of them gives way.
func (g *Guard) enter(ctx context.Context) (pass, error) {
	switch {
	case ctx.Err() != nil:
		return pass{}, context.Cause(ctx)
	case g.base.Err() != nil:
		return pass{}, ErrClosed
	}
	p, err := g.breaker.enter()
	if err != nil {
		now, last := g.breaker.now(), g.yielded.Load()
		if now-last > int64(yieldEvery) && g.yielded.CompareAndSwap(last, now) {
			runtime.Gosched()
		}
	}
	return p, err
}

// arrived reports whether there is an answer for a caller whose budget is spent. On a busy
// machine it may be there, and the goroutine that reads it has not had a processor yet. It
// has its turn first, as long as others were answered a moment ago.
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

// start has a worker run the job.
func (g *Guard) start(ctx context.Context, j job, budget time.Duration, expired <-chan time.Time) error {
	select {
	case g.jobs <- j: // to one that is idle
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

// work runs one job after the other until there are enough that wait for the next.
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

// timer returns one that has just begun to run.
func (g *Guard) timer(budget time.Duration) *time.Timer {
	if t, ok := g.timers.Get().(*time.Timer); ok {
		t.Reset(budget)
		return t
	}
	return time.NewTimer(budget)
}
