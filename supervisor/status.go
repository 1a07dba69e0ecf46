package supervisor

import (
	"fmt"
	"time"
)

// A State is the stage of a child.
type State int

const (
	// Stopped: it does not run, and neither does the supervisor.
	Stopped State = iota
	// Waiting: it does not run, and is to be started in its turn.
	Waiting
	// Starting: its Init is at work.
	Starting
	// Running: its Init, if any, has returned nil.
	Running
	// Stopping: its context is cancelled, but it has not ended.
	Stopping
	// Finished: it was Transient and returned nil.
	Finished
)

// String returns the state in lower case.
func (s State) String() string {
	return name(int(s), "State", "stopped", "waiting", "starting", "running", "stopping", "finished")
}

// A Status describes one child at one moment.
type Status struct {
	Name     string
	State    State
	Restarts uint64    // how often it was started again in this Run
	Since    time.Time // when it came into State; zero before the first Run
}

// name returns the n-th of names, or Kind(n) if there is none.
func name(n int, kind string, names ...string) string {
	if n < 0 || n >= len(names) {
		return fmt.Sprintf("%s(%d)", kind, n)
	}
	return names[n]
}
