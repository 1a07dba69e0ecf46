package supervisor

import "context"

// A Handle is a supervisor at work on a goroutine of its own; Start gives it.
// Its methods may be called by any number of goroutines.
type Handle struct {
	done chan struct{}
	err  error // written before done is closed
}

// Start calls Run on a goroutine of its own and returns at once.
func (s *Supervisor) Start(ctx context.Context) *Handle {
	r := &Handle{done: make(chan struct{})}
	spawn(s.cfg.seam, func() error { return s.Run(ctx) }, func(err error) {
		r.err = err
		close(r.done)
	})
	return r
}

// Done returns a channel that is closed when Run has returned.
func (r *Handle) Done() <-chan struct{} { return r.done }

// Err returns what Run returned, or nil while it has not.
func (r *Handle) Err() error {
	select {
	case <-r.done:
		return r.err
	default:
		return nil
	}
}
