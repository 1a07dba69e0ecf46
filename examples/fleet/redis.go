package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// startingTime is how long a process may take from its start to its first answer.
const startingTime = 20 * time.Second

// redis is the Redis of the fleet, which can be killed, paused, and brought back.
type redis struct {
	program, folder string
	port            int
	log             func(string)

	acting  sync.Mutex // held by who starts, pauses and ends it
	process atomic.Pointer[process]
	paused  atomic.Bool
	ping    atomic.Int64 // how long the last took in nanoseconds, 0 if there was no answer
}

// openRedis starts a Redis on a free port, in a folder of its own.
func openRedis(program string, log func(string)) (*redis, error) {
	if _, err := exec.LookPath(program); err != nil {
		return nil, fmt.Errorf("there is no %s here: install Redis (Debian, Ubuntu: apt-get install redis-server; "+
			"Fedora: dnf install redis; macOS: brew install redis), or say by -redis where it is (%w)", program, err)
	}
	folder, err := os.MkdirTemp("", "ral-fleet-")
	if err != nil {
		return nil, err
	}
	var failures []error
	for range 3 { // somebody else may take the port first
		r := &redis{program: program, folder: folder, log: log}
		if r.port, err = freePort(); err == nil {
			err = r.start()
		}
		if err == nil {
			return r, nil
		}
		failures = append(failures, err)
	}
	return nil, errors.Join(append(failures, os.RemoveAll(folder))...)
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}

// addr is where it listens, each time that it is started.
func (r *redis) addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(r.port)) }

// do does what a button of the page says.
func (r *redis) do(what string) error {
	r.acting.Lock()
	defer r.acting.Unlock()
	runs := r.process.Load().runs()
	switch {
	case what == "start" && !runs:
		if err := r.start(); err != nil {
			return err
		}
		r.log("Redis is back, with what it had written to disk.")
	case what == "kill" && runs:
		r.process.Load().kill()
		r.paused.Store(false)
		r.log("Redis was killed (SIGKILL).")
	case what == "pause" && runs && !r.paused.Load():
		if err := r.process.Load().cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			return err
		}
		r.paused.Store(true)
		r.log("Redis was paused (SIGSTOP): it takes connections, and answers nothing.")
	case what == "resume" && runs && r.paused.Load():
		if err := r.process.Load().cmd.Process.Signal(syscall.SIGCONT); err != nil {
			return err
		}
		r.paused.Store(false)
		r.log("Redis goes on (SIGCONT).")
	default:
		return fmt.Errorf("%q cannot be done to a Redis that is %s", what, r.state())
	}
	return nil
}

// start starts the process, and waits until it has read what it had on disk and answers.
func (r *redis) start() error {
	// Every command goes to the kernel before it is answered, so that nothing is lost
	// when the process is killed. That it reaches the disk, for when the machine is,
	// would take longer than is shown here.
	cmd := exec.Command(r.program, "--bind", "127.0.0.1", "--port", strconv.Itoa(r.port), "--dir", r.folder,
		"--daemonize", "no", "--save", "", "--appendonly", "yes", "--appendfsync", "no")
	said, err := os.OpenFile(filepath.Join(r.folder, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = said.Close() }() // the process has a copy of its own
	cmd.Stdout, cmd.Stderr = said, said
	p, err := launch(cmd)
	if err != nil {
		return err
	}
	r.process.Store(p)
	for began := time.Now(); time.Since(began) < startingTime && p.runs(); time.Sleep(2 * time.Millisecond) {
		if r.answers(time.Second) {
			r.probe()
			return nil
		}
	}
	p.kill()
	text, _ := os.ReadFile(said.Name()) // why is known without, if only to the user
	return fmt.Errorf("%s does not answer: %s", r.program, text[max(0, len(text)-1000):])
}

// answers tells whether Redis answers a ping in time.
func (r *redis) answers(within time.Duration) bool {
	c, err := net.DialTimeout("tcp", r.addr(), within)
	if err != nil {
		return false
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(within)) // it fails on closed connections only
	if _, err := c.Write([]byte("PING\r\n")); err != nil {
		return false
	}
	answer := make([]byte, 64)
	n, err := c.Read(answer)
	return err == nil && bytes.HasPrefix(answer[:n], []byte("+PONG"))
}

// probe measures how long Redis takes to answer.
func (r *redis) probe() {
	began := time.Now()
	took := int64(0)
	if r.answers(tick / 2) {
		took = max(1, int64(time.Since(began)))
	}
	r.ping.Store(took)
}

// state says in a word how Redis is.
func (r *redis) state() string {
	switch {
	case !r.process.Load().runs():
		return "killed"
	case r.paused.Load():
		return "paused"
	case r.ping.Load() == 0:
		return "silent"
	}
	return "up"
}

// close ends it and removes its files.
func (r *redis) close() error {
	r.acting.Lock()
	defer r.acting.Unlock()
	r.process.Load().kill()
	return os.RemoveAll(r.folder)
}
