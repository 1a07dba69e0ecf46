package supervisor

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A Supervisor runs children. Call New to make one; the zero value is not usable. A Supervisor runs
// once. All methods may be called concurrently.
type Supervisor struct {
	cfg      Config
	children []Child
	restarts atomic.Uint64
	events   *Mailbox[Event]

	// mu is locked before events.mu. No user code runs under it.
	mu struct {
		sync.Mutex
		// started is set once Run was called.
		started bool
		// abandoned counts the abandoned lives that have not ended.
		abandoned int
		// failing reports for each child whether its last report failed.
		failing []bool
	}
}

// New returns a supervisor that is not running yet. Its error, if any, wraps ErrConfig and names
// each invalid field with its value and the accepted values.
func New(cfg Config, children ...Child) (*Supervisor, error) {
	if err := validate(cfg, children); err != nil {
		return nil, err
	}
	supervisor := &Supervisor{cfg: cfg.withDefaults(), children: slices.Clone(children)}
	for i, child := range supervisor.children {
		supervisor.children[i] = child.withDefaults()
	}
	supervisor.events = NewEventMailbox(cfg.OnEvent)
	supervisor.mu.failing = make([]bool, len(children))
	return supervisor, nil
}

// Run starts the children in order and keeps them running until ctx is done or the supervisor gives
// up. Then it stops them in reverse order, each after the last, so that their Shutdown limits add
// up.
//
// Run returns nil if ctx was the reason. Otherwise the error wraps ErrIntensity together with the
// cause; or no child was started, and the error wraps ErrRunning or, for a nil ctx, ErrConfig. No
// goroutine of the supervisor or of a child is left, except for abandoned children and a blocking
// OnEvent.
func (s *Supervisor) Run(ctx context.Context) error {
	if ctx == nil {
		return fmt.Errorf("%w: Run's ctx is nil, want a context", ErrConfig)
	}
	run, err := s.begin(ctx)
	if err != nil {
		return err
	}

	// run belongs to the goroutine of run.loop while it lives, and to this goroutine in between; guard
	// orders the two.
	for {
		fault := guard(s.cfg.seam, run.loop)
		if fault == nil {
			break
		}
		if hopeless := run.faulted(fault); hopeless {
			run.lastResort(fault)
			break
		}
	}
	s.events.Flush()
	return run.verdict
}

func (s *Supervisor) begin(ctx context.Context) (*run, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.started {
		return nil, fmt.Errorf("%w: %s", ErrRunning, s.cfg.Name)
	}
	s.mu.started = true
	return newRun(s, ctx), nil
}

// Restarts returns the number of restarts, without the restart that would have exceeded the
// intensity.
func (s *Supervisor) Restarts() uint64 { return s.restarts.Load() }

// Abandoned returns the number of children that are running past their Shutdown limit. A number
// above zero for long means leaking goroutines.
func (s *Supervisor) Abandoned() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.abandoned
}

func (s *Supervisor) post(kind Kind, child string, err error) {
	s.events.Post(Event{Kind: kind, Supervisor: s.cfg.Name, Child: child, Err: err, Time: time.Now()})
}
