package supervisor

import "context"

// A Handle is a supervisor started by Start. Any number of goroutines may call its methods.
type Handle struct {
	done chan struct{}
	// err is written before done is closed.
	err error
}

// Start calls Run on its own goroutine and returns at once.
func (s *Supervisor) Start(ctx context.Context) *Handle {
	handle := &Handle{done: make(chan struct{})}
	spawn(s.cfg.seam, func() error { return s.Run(ctx) }, func(err error) {
		handle.err = err
		close(handle.done)
	})
	return handle
}

// Done returns a channel that is closed when Run has returned.
func (r *Handle) Done() <-chan struct{} { return r.done }

// Err returns the result of Run, or nil before Run returns.
func (r *Handle) Err() error {
	select {
	case <-r.done:
		return r.err
	default:
		return nil
	}
}
