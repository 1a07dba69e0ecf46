package supervisor

import (
	"runtime/debug"

	"github.com/ral-limiter/ral/internal/core/seam"
)

// spawn runs f on a goroutine of its own and then hands the reason for its end
// to done: nil or f's own error, a *PanicError, or ErrGoexit. It calls done
// exactly once, on the same goroutine. Every goroutine of this package, and so
// every child, is started here.
//
// The flag is needed because recover returns nil for a Goexit, just as it does
// after a normal return; only a normal return gets as far as setting it.
//
// Under a scheduler, that starts the goroutine.
func spawn(s seam.Seam, f func() error, done func(reason error)) {
	body := func() {
		var reason error
		returned := false
		defer func() {
			if !returned {
				if v := recover(); v != nil {
					// Deferred calls run on top of the panicking frames, so
					// that the stack still shows where the panic arose.
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
	if s.Scheduler != nil {
		s.Scheduler.Go(body)
		return
	}
	go body()
}

// guard runs f on a goroutine of its own, waits for it, and returns nil if f
// returned, else how it died. What f wrote happens before guard returns.
func guard(s seam.Seam, f func()) error {
	ended := make(chan error, 1)
	spawn(s, func() error { f(); return nil }, func(reason error) { ended <- reason })
	err, _ := seam.Receive(s, "supervisor: guard", seam.Forever, ended, nil, nil)
	return err
}
