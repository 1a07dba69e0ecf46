package supervisor

import (
	"runtime/debug"

	"github.com/ral-limiter/ral/internal/core/seam"
)

// spawn runs f on its own goroutine and passes the reason for its end to done, once, on the same
// goroutine. The reason is nil or f's error, a *PanicError, or ErrGoexit. Every goroutine of this
// package starts here. Under a scheduler, the scheduler starts the goroutine.
//
// returned tells a Goexit from a normal return: recover returns nil for both.
func spawn(points seam.Seam, f func() error, done func(reason error)) {
	body := func() {
		var reason error
		returned := false
		defer func() {
			if !returned {
				if v := recover(); v != nil {
					// Deferred calls run on top of the panicking frames, so the stack shows the
					// panic's origin.
					reason = &PanicError{Value: v, Stack: debug.Stack()}
				} else {
					reason = ErrGoexit
				}
			}
			done(reason)
		}()
		reason = f()
		returned = true
	}
	if points.Scheduler != nil {
		points.Scheduler.Go(body)
		return
	}
	go body()
}

// guard runs f on its own goroutine, waits for it, and returns nil if f returned, else how it died.
// Writes of f happen before guard returns.
func guard(points seam.Seam, f func()) error {
	ended := make(chan error, 1)
	spawn(points, func() error { f(); return nil }, func(reason error) { ended <- reason })
	err, _ := seam.Receive(points, "supervisor: guard", seam.Forever, ended, nil, nil)
	return err
}
