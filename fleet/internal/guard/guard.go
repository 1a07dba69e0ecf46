package guard

import (
	"context"
	"errors"
	"fmt"
	"sync"
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

// Config is what a guard is made with. Every field is required but OnChange.
type Config struct {
	// Budget is how long a call may take at most for the one who makes it.
	Budget time.Duration
	// Hang is how long it may go on without him, so that a connection which takes
	// longer to make than the budget is made. The context of the call ends then.
	Hang time.Duration
	// Most is how many calls may be under way, those that go on alone included, and so
	// how many goroutines the guard has at most. Those of a Batch that are made as one
	// are one.
	Most int

	// Failures in a row open the breaker. Pause is how long it stays open at first
	// before one call probes; Longest bounds how that doubles.
	Failures       int
	Pause, Longest time.Duration
	// Failed tells which errors are failures: those that are no answer of the server's.
	Failed func(error) bool
	// OnChange is told that the breaker opened or closed, by a goroutine that makes a
	// call: it should return at once.
	OnChange func()
}

// Guard keeps calls to one server within a budget. Its methods, and Do, may be called by
// any number of goroutines. The zero value is of no use: see New.
type Guard struct {
	config  Config
	breaker *breaker
	base    context.Context // of all calls
	cancel  context.CancelFunc

	// A call is run by a worker, a goroutine that has run others before, so that its
	// stack has grown already. jobs hands it to one that is idle, without a buffer; slots
	// has one element for each that there is.
	jobs  chan job
	slots chan struct{}
	idle  chan struct{} // one element for each that waits for a job

	timers  sync.Pool
	closing sync.Once
}

// idlers is how many workers stay when there is nothing to do. A worker costs its stack,
// some 8 KiB.
const idlers = 64

type job interface{ run(context.Context) }

// New returns a guard. Call Close to end its goroutines.
func New(c Config) *Guard {
	if c.OnChange == nil {
		c.OnChange = func() {}
	}
	g := &Guard{
		config:  c,
		breaker: newBreaker(c.Failures, c.Pause, c.Longest, c.OnChange),
		jobs:    make(chan job),
		slots:   make(chan struct{}, c.Most),
		idle:    make(chan struct{}, min(idlers, c.Most)),
	}
	g.base, g.cancel = context.WithCancel(context.Background())
	return g
}

// Open tells whether the breaker is open; why is an ErrOpen then.
func (g *Guard) Open() (open bool, why error) {
	if open, _ = g.breaker.state(); open {
		why = *g.breaker.cause.Load()
	}
	return open, why
}

// Openings is how often the breaker opened.
func (g *Guard) Openings() uint64 {
	_, n := g.breaker.state()
	return n
}

// Close ends the guard: calls under way and later ones get ErrClosed, and the contexts of
// those that go on end. It waits until they have returned, which is up to whoever was
// called, and at most Hang if he heeds his context.
func (g *Guard) Close() {
	g.closing.Do(func() {
		g.cancel()
		for range cap(g.slots) {
			g.slots <- struct{}{} // which a worker gives back when it ends
		}
	})
}

// flight is a call under way. Until done is sent on, only its worker touches value and
// err; from then on only the one who called, if he is still there.
type flight[T any] struct {
	call  func(context.Context) (T, error)
	hang  time.Duration
	value T
	err   error
	done  chan struct{}
}

func (f *flight[T]) run(base context.Context) {
	ctx, cancel := context.WithTimeout(base, f.hang)
	defer cancel()
	f.value, f.err = f.call(ctx)
	f.done <- struct{}{}
}

// Do runs call, and returns what it returns, or an error that says why there was no
// answer: one of ErrOpen, ErrBudget, ErrBusy and ErrClosed, or the cause of ctx, if that
// ended first. Do returns when the budget is spent whatever call does, which may go on
// for Hang then; what it returns is dropped.
//
// call runs on another goroutine, with a context that does not end with ctx.
func Do[T any](ctx context.Context, g *Guard, call func(context.Context) (T, error)) (T, error) {
	return DoWithin(ctx, g, g.config.Budget, call)
}

// DoWithin is Do with another budget, of at most Hang.
func DoWithin[T any](ctx context.Context, g *Guard, budget time.Duration, call func(context.Context) (T, error)) (T, error) {
	var none T
	if ctx.Err() != nil {
		return none, context.Cause(ctx)
	}
	if g.base.Err() != nil {
		return none, ErrClosed
	}
	p, err := g.breaker.enter()
	if err != nil {
		return none, err
	}
	o := unsure
	defer func() { g.breaker.leave(p, o, err) }() // also if Failed panics

	timer := g.timer(budget)
	defer g.timers.Put(timer)
	defer timer.Stop()

	f := &flight[T]{call: call, hang: g.config.Hang, done: make(chan struct{}, 1)}
	if err = g.start(ctx, f, budget, timer.C); err != nil {
		return none, err
	}
	select {
	case <-f.done:
		if err = f.err; err != nil && g.config.Failed(err) {
			o = bad
			return none, err
		}
		o = good
		return f.value, err
	case <-timer.C:
		o, err = bad, fmt.Errorf("%w of %v", ErrBudget, budget)
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-g.base.Done():
		err = ErrClosed
	}
	return none, err
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
		return fmt.Errorf("%w of %v: %w (%d)", ErrBudget, budget, ErrBusy, g.config.Most)
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
