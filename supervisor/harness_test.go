package supervisor

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

var errBoom = errors.New("boom")

var (
	returns = func() error { return nil }
	fails   = func() error { return errBoom }
	panics  = func() error { panic("boom") }
	exits   = func() error { runtime.Goexit(); return nil }
)

// An actor is a child that follows orders. Its journal has "-a" when its context is cancelled and
// "!a" when the actor is told to end. The rig adds "+a" for each ChildStarted.
type actor struct {
	Child
	// deaf actors ignore their context.
	deaf bool

	orders chan func() error
	// reports are of the actor's work.
	reports chan error
	// live is the number of incarnations in Run.
	live int
}

func kid(name string) *actor { return &actor{Child: Child{Name: name}} }

func (a *actor) within(d time.Duration) *actor { a.Shutdown = d; return a }
func (a *actor) thatIsDeaf() *actor            { a.deaf = true; return a }

// A rig is a supervisor with its actors, in a synctest bubble.
type rig struct {
	*Supervisor
	t      *testing.T
	cancel context.CancelFunc
	result chan error
	// Once free is closed, deaf actors end.
	free   chan struct{}
	actors map[string]*actor

	mu      sync.Mutex
	journal []string
	events  []Event
}

// build makes a supervisor without running it. At the end of the test build ends everything, and
// every actor and every other goroutine must be gone.
func build(t *testing.T, cfg Config, actors ...*actor) *rig {
	t.Helper()
	before := runtime.NumGoroutine()
	r := &rig{t: t, actors: map[string]*actor{}, free: make(chan struct{})}
	hook := cfg.OnEvent
	var inside atomic.Int32
	var last time.Time
	cfg.OnEvent = func(e Event) {
		require.EqualValues(t, 1, inside.Add(1), "calls of the hook come one after the other")
		defer inside.Add(-1)
		require.False(t, e.Time.Before(last))
		last = e.Time
		// Another call would come meanwhile.
		runtime.Gosched()
		// A hook may call back.
		_, _ = r.Abandoned(), r.Restarts()
		require.Equal(t, r.cfg.Name, e.Supervisor)
		if e.Kind == ChildStarted {
			r.note("+" + e.Child)
		}
		r.mu.Lock()
		r.events = append(r.events, e)
		r.mu.Unlock()
		if hook != nil {
			hook(e)
		}
	}
	var children []Child
	for _, a := range actors {
		r.actors[a.Name] = a
		children = append(children, r.wire(a))
	}
	s, err := New(cfg, children...)
	require.NoError(t, err)
	r.Supervisor = s
	t.Cleanup(func() {
		close(r.free)
		if r.cancel != nil {
			r.cancel()
			<-r.result
		}
		synctest.Wait()
		require.Zero(t, s.Abandoned(), "abandoned children after all have ended")
		for _, a := range actors {
			require.Zero(t, r.running(a.Name), "child %s still runs", a.Name)
		}
		for i := 0; runtime.NumGoroutine() > before && i < 1e7; i++ {
			// A finished goroutine may still be counted.
			runtime.Gosched()
		}
		require.LessOrEqual(t, runtime.NumGoroutine(), before, "goroutines are left")
	})
	return r
}

func start(t *testing.T, cfg Config, actors ...*actor) *rig {
	t.Helper()
	r := build(t, cfg, actors...)
	r.run()
	return r
}

func (r *rig) run() {
	ctx, cancel := context.WithCancel(r.t.Context())
	result := make(chan error, 1)
	r.cancel, r.result = cancel, result
	go func() { result <- r.Run(ctx); close(result) }()
	synctest.Wait()
}

func (r *rig) wire(a *actor) Child {
	a.orders, a.reports = make(chan func() error), make(chan error)
	c := a.Child
	c.Run = func(ctx context.Context) error {
		r.mu.Lock()
		a.live++
		r.mu.Unlock()
		defer func() {
			r.mu.Lock()
			a.live--
			r.mu.Unlock()
		}()
		asked := ctx.Done()
		for {
			select {
			case <-asked:
				r.note("-" + a.Name)
				if !a.deaf {
					return ctx.Err()
				}
				asked = nil
			case order := <-a.orders:
				r.note("!" + a.Name)
				return order()
			case err := <-a.reports:
				Report(ctx, err)
			case <-r.free:
				if a.deaf {
					return nil
				}
				<-ctx.Done()
				return nil
			}
		}
	}
	return c
}

func (r *rig) note(line string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.journal = append(r.journal, line)
}

// tell ends an incarnation of an actor and lets the rest settle.
func (r *rig) tell(name string, order func() error) {
	r.t.Helper()
	select {
	case r.actors[name].orders <- order:
	case <-time.After(time.Hour):
		r.t.Fatalf("child %s does not run", name)
	}
	synctest.Wait()
}

// report has an actor report on its work.
func (r *rig) report(name string, outcomes ...error) {
	for _, err := range outcomes {
		r.actors[name].reports <- err
	}
	synctest.Wait()
}

func (r *rig) running(name string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.actors[name].live
}

func (r *rig) journaled(want string) {
	r.t.Helper()
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	require.Equal(r.t, want, strings.Join(r.journal, " "))
	r.journal = nil
}

// reported compares the events since the last call, as "child kind" lines.
func (r *rig) reported(want ...string) {
	r.t.Helper()
	var got []string
	for _, e := range r.seen() {
		got = append(got, strings.TrimSpace(e.Child+" "+strings.TrimPrefix(e.Kind.String(), "child ")))
	}
	require.Equal(r.t, want, got)
}

func (r *rig) seen() []Event {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	events := r.events
	r.events = nil
	return events
}

// ends waits up to an hour for Run and returns its error.
func (r *rig) ends() error {
	r.t.Helper()
	select {
	case err, ok := <-r.result:
		require.True(r.t, ok, "Run's result was asked for twice")
		return err
	case <-time.After(time.Hour):
		r.t.Fatal("Run does not return")
		return nil
	}
}

func (r *rig) stop() {
	r.t.Helper()
	r.cancel()
	require.NoError(r.t, r.ends())
}

func in(t *testing.T, f func(t *testing.T)) { t.Helper(); synctest.Test(t, f) }

func kinds(events []Event, k Kind) int {
	return len(slices.DeleteFunc(slices.Clone(events), func(e Event) bool { return e.Kind != k }))
}

func since(f func()) time.Duration {
	before := time.Now()
	f()
	return time.Since(before)
}
