package supervisor

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A Supervisor runs children; see the package comment. It comes from New, the
// zero value is of no use. It runs once. All methods may be called concurrently.
type Supervisor struct {
	cfg      Config
	children []Child
	restarts atomic.Uint64
	events   mailbox

	mu struct { // locked before events.mu; no user code runs under it
		sync.Mutex
		started   bool   // Run was called
		abandoned int    // the abandoned lives that have not ended
		failing   []bool // per child: what it reported last: see Report
	}
}

// New returns a supervisor that is not running yet. Its error, if any, wraps
// ErrConfig and names each field with its value and with what is accepted.
func New(cfg Config, children ...Child) (*Supervisor, error) {
	if err := validate(cfg, children); err != nil {
		return nil, err
	}
	s := &Supervisor{cfg: cfg.withDefaults(), children: slices.Clone(children)}
	for i, c := range s.children {
		s.children[i] = c.withDefaults()
	}
	s.events.hook = cfg.OnEvent
	s.mu.failing = make([]bool, len(children))
	return s, nil
}

// Run starts the children in order and keeps them running until ctx is done or the
// supervisor gives up; in either case it then stops them in reverse order, one after the
// other, so that their Shutdown limits add up.
//
// It returns nil if ctx was the reason. Otherwise the error wraps
// ErrIntensity together with the cause; or no child was started, and it wraps
// ErrRunning or, for a nil ctx, ErrConfig. No goroutine of the supervisor
// or of a child is left then, except for abandoned children and an OnEvent that blocks.
func (s *Supervisor) Run(ctx context.Context) error {
	if ctx == nil {
		return fmt.Errorf("%w: Run's ctx is nil, want a context", ErrConfig)
	}
	r, err := s.begin(ctx)
	if err != nil {
		return err
	}

	// The state in r belongs to the goroutine of r.loop while there is one, and
	// to this one in between; guard orders the two.
	for {
		fault := guard(s.cfg.seam, r.loop)
		if fault == nil {
			break
		}
		if hopeless := r.faulted(fault); hopeless {
			r.lastResort(fault)
			break
		}
	}
	s.events.flush()
	return r.verdict
}

// begin claims the supervisor for its Run.
func (s *Supervisor) begin(ctx context.Context) (*run, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.started {
		return nil, fmt.Errorf("%w: %s", ErrRunning, s.cfg.Name)
	}
	s.mu.started = true
	return newRun(s, ctx), nil
}

// Restarts returns how many restarts there have been. The restart that would have
// exceeded the intensity did not take place and does not count.
func (s *Supervisor) Restarts() uint64 { return s.restarts.Load() }

// Abandoned returns how many children did not end within their Shutdown limit and
// still have not. A number that stays above zero means goroutines that leak.
func (s *Supervisor) Abandoned() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.abandoned
}

// post reports to the hook, if any.
func (s *Supervisor) post(kind Kind, child string, err error) {
	s.events.post(Event{Kind: kind, Supervisor: s.cfg.Name, Child: child, Err: err, Time: time.Now()})
}
