package inspect

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// answerTimeout bounds the wait for a function of the program, such as Limit.Stats.
const answerTimeout = time.Second

var errHangs = errors.New("did not answer")

// asker calls a function of the program that may hang. Concurrent requests share the call, so a
// function that never returns costs a single goroutine. The zero asker is ready for use.
type asker[T any] struct {
	mu sync.Mutex
	// under is the call under way.
	under *asked[T]
}

type asked[T any] struct {
	began time.Time
	// done is closed when value and err are set.
	done  chan struct{}
	value T
	err   error
}

// ask returns the function's value, or its panic as an error. It returns errHangs once
// answerTimeout has passed since the call began.
func (a *asker[T]) ask(what string, f func() T) (value T, err error) {
	a.mu.Lock()
	call := a.under
	if call == nil {
		call = &asked[T]{began: time.Now(), done: make(chan struct{}), err: fmt.Errorf("%s: it ended its goroutine", what)}
		a.under = call
		go a.run(call, what, f)
	}
	a.mu.Unlock()
	patience := time.NewTimer(answerTimeout - time.Since(call.began))
	defer patience.Stop()
	select {
	case <-call.done:
		return call.value, call.err
	case <-patience.C:
		return value, fmt.Errorf("%s %w", what, errHangs)
	}
}

func (a *asker[T]) run(call *asked[T], what string, f func() T) {
	defer func() {
		a.mu.Lock()
		a.under = nil
		a.mu.Unlock()
		close(call.done)
	}()
	call.err = guarded(what, func() { call.value = f() })
}
