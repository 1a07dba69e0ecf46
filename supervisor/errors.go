package supervisor

import (
	"errors"
	"fmt"
)

// Errors of New, and of a Run that did not begin.
var (
	// ErrConfig is wrapped by every error of New, and by Run's for a nil context: a field or
	// argument has an invalid value.
	ErrConfig = errors.New("supervisor: invalid configuration")

	// ErrRunning is returned by Run if the Supervisor runs or has run: two incarnations of a child
	// never run side by side.
	ErrRunning = errors.New("supervisor: already running")
)

// ErrIntensity is returned by a Run that gave up: there were more than Config.Intensity restarts
// within Config.Period. The error is wrapped with the cause, for errors.Is and errors.As.
var ErrIntensity = errors.New("restart intensity exceeded")

// ErrGoexit is the reason when runtime.Goexit ended a child, as by testing's FailNow and SkipNow.
var ErrGoexit = errors.New("runtime.Goexit called")

// A PanicError is the reason when a panic ended a child, or a step of the supervisor. A panic(nil)
// arrives as a *runtime.PanicNilError in Value.
type PanicError struct {
	// Value is the argument of panic.
	Value any
	// Stack is the stack of the panicking goroutine, as formatted by debug.Stack.
	Stack []byte
}

// Error returns the panic's value without the stack, to fit a line of a log.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Unwrap returns Value if Value is an error, and nil otherwise.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}
