// Package child starts processes, private servers of Redis among them, and ends them when this
// process ends, on Linux also if killed.
package child

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"time"
)

// Process is a started process. A nil Process does not run. It is safe for concurrent use.
type Process struct {
	process *os.Process
	// ended is closed when the process has ended.
	ended chan struct{}
}

// Start starts the command, and adds to its SysProcAttr. Read cmd.ProcessState and the like when Ended
// is closed. A thread is kept, as Linux ends a process together with the thread that started it.
func Start(cmd *exec.Cmd) (*Process, error) {
	cmd.SysProcAttr = dieTogether(cmd.SysProcAttr)
	started, ended := make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(ended)
		err := cmd.Start()
		started <- err
		if err == nil {
			// cmd has the exit state.
			_ = cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return &Process{cmd.Process, ended}, nil
}

// Ended returns a channel that is closed when the process has ended and delivered its output.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Runs reports whether the process was started and has not ended. A paused process runs.
func (p *Process) Runs() bool {
	if p == nil {
		return false
	}
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// PID returns the process ID, or 0 if the process does not run.
func (p *Process) PID() int {
	if !p.Runs() {
		return 0
	}
	return p.process.Pid
}

// AwaitListener waits until connections to an address succeed. The error says that the process has
// ended, or has not listened within a time.
func (p *Process) AwaitListener(network, addr string, within time.Duration) error {
	for begun := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		conn, err := net.Dial(network, addr)
		if err == nil {
			return conn.Close()
		}
		if runs := p.Runs(); !runs || time.Since(begun) > within {
			return fmt.Errorf("no process listens at %s after %v, running: %v: %w", addr, time.Since(begun), runs, err)
		}
	}
}

// Signal sends the process a signal. It fails with os.ErrProcessDone if it has ended.
func (p *Process) Signal(signal os.Signal) error { return p.process.Signal(signal) }

// Kill ends the process, if it runs, by SIGKILL, whatever it is doing, and waits for its end.
func (p *Process) Kill() {
	if p == nil {
		return
	}
	// The process may have ended by itself.
	_ = p.process.Kill()
	<-p.ended
}
