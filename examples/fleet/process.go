package main

import (
	"bytes"
	"os/exec"
	"runtime"
)

// process is another process, which ends when this one does.
type process struct {
	cmd   *exec.Cmd
	ended chan struct{} // closed when it has
}

// launch starts a process. Linux ends it together with the thread that started it, so
// that a thread is kept for it.
func launch(cmd *exec.Cmd) (*process, error) {
	cmd.SysProcAttr = dieTogether()
	p := &process{cmd, make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ended is in what it wrote
			close(p.ended)
		}
	}()
	return p, <-started
}

// runs tells whether there is a process, and it has not ended.
func (p *process) runs() bool {
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

// pid is the process's number, 0 if it does not run.
func (p *process) pid() int {
	if !p.runs() {
		return 0
	}
	return p.cmd.Process.Pid
}

// kill ends the process by SIGKILL, whatever it is doing, and waits for that.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended by itself, which is all right
	<-p.ended
}

// lines is a Writer that passes on what is written, line by line.
type lines struct {
	to   func(line string)
	rest []byte
}

func (l *lines) Write(p []byte) (int, error) {
	l.rest = append(l.rest, p...)
	for {
		line, rest, found := bytes.Cut(l.rest, []byte("\n"))
		if !found {
			return len(p), nil
		}
		l.to(string(line))
		l.rest = rest
	}
}
