package redistest

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"
)

// How long a server may take to answer after it was started.
const startingTime = 20 * time.Second

// Options says what a server is like. The zero value is one that keeps everything in
// memory, without a bound.
type Options struct {
	// AOF has the server write every command to disk before it answers, so that it
	// has everything again after Kill and Restart.
	AOF bool
	// MaxMemory and Policy are maxmemory and maxmemory-policy of redis.conf; "" is
	// the server's own default.
	MaxMemory, Policy string
	// Args are further arguments for redis-server.
	Args []string
}

// args are those of the options on redis-server's command line.
func (o Options) args() []string {
	args := []string{"--save", "", "--appendonly", "no"}
	if o.AOF {
		args = []string{"--save", "", "--appendonly", "yes", "--appendfsync", "always"}
	}
	if o.MaxMemory != "" {
		args = append(args, "--maxmemory", o.MaxMemory)
	}
	if o.Policy != "" {
		args = append(args, "--maxmemory-policy", o.Policy)
	}
	return append(args, o.Args...)
}

// Server is a redis-server of its own. Its methods may be called by any number of
// goroutines, but one at a time for those that start and end it: Kill, Stop, Restart
// and Close.
type Server struct {
	folder   string
	settings string // the path of a file of settings, "" is none
	port     int
	args     []string

	process *os.Process
	ended   chan struct{} // closed when the process has
	closing sync.Once
}

// Start starts a server for a test and waits until it answers. It ends with the test,
// which is told if that could not be done: a test that needs a Redis fails without.
func Start(t testing.TB, o Options) *Server {
	t.Helper()
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	cleanUp(t, s)
	return s
}

func cleanUp(t testing.TB, s *Server) {
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("redis-server at %s said:\n%s", s.Addr(), s.said())
		}
		if err := s.Close(); err != nil {
			t.Errorf("ending redis-server: %v", err)
		}
	})
}

// Open starts a server and waits until it answers. Call Close to end it.
func Open(o Options) (*Server, error) { return open(o.args(), "") }

// open starts a server with these arguments, and with a file of settings if they are
// not "". It tries other ports if somebody else was faster.
func open(args []string, settings string) (*Server, error) {
	if _, err := exec.LookPath("redis-server"); err != nil {
		return nil, errors.New("there is no redis-server: make needs installs it, or on Debian apt-get install redis-server")
	}
	folder, err := os.MkdirTemp("", "ral-redis-")
	if err != nil {
		return nil, err
	}
	file := ""
	if settings != "" {
		file = filepath.Join(folder, "settings")
		if err := os.WriteFile(file, []byte(settings), 0o600); err != nil {
			return nil, errors.Join(err, os.RemoveAll(folder))
		}
	}
	var failures []error
	for range 5 {
		port, err := freePort()
		if err != nil {
			failures = append(failures, err)
			continue
		}
		s := &Server{folder: folder, settings: file, port: port, args: args}
		if err = s.Restart(); err == nil {
			return s, nil
		}
		failures = append(failures, err)
		s.Kill()
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

// Addr is where the server listens, as host:port. It is the same after Restart.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// Restart starts a server that was killed or stopped, at the same address and with what
// it had written to disk, and waits until it has read that and answers.
func (s *Server) Restart() error {
	if err := s.begin(); err != nil {
		return fmt.Errorf("starting redis-server: %w", err)
	}
	return s.await()
}

// begin starts the process. Where the system can, it ends it together with this one,
// even if that is killed. Linux ties it to the thread that started it, so that a thread
// is kept for it.
func (s *Server) begin() error {
	log, err := os.OpenFile(s.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	ended := make(chan struct{})
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(ended)
		// The process has a copy of its own.
		defer func() { _ = log.Close() }()
		cmd := exec.Command("redis-server", s.commandLine()...)
		cmd.Stdout, cmd.Stderr = log, log
		cmd.SysProcAttr = dieTogether()
		err := cmd.Start()
		s.process = cmd.Process
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ended is nobody's concern: see await
		}
	}()
	s.ended = ended
	return <-started
}

func (s *Server) commandLine() []string {
	var line []string
	if s.settings != "" {
		line = append(line, s.settings)
	}
	line = append(line, "--bind", "127.0.0.1", "--port", strconv.Itoa(s.port), "--dir", s.folder, "--daemonize", "no")
	return append(line, s.args...)
}

func (s *Server) log() string { return filepath.Join(s.folder, "log") }

// said is the end of what the server wrote.
func (s *Server) said() []byte {
	said, err := os.ReadFile(s.log())
	if err != nil {
		return []byte(err.Error())
	}
	return said[max(0, len(said)-2000):]
}

// await waits until the server answers, and has loaded what it had on disk.
func (s *Server) await() error {
	for begun := time.Now(); time.Since(begun) < startingTime; {
		if s.answers() {
			return nil
		}
		select {
		case <-s.ended:
			return fmt.Errorf("redis-server ended as soon as it was started: %s", s.said())
		case <-time.After(2 * time.Millisecond):
		}
	}
	return fmt.Errorf("redis-server does not answer after %v: %s", startingTime, s.said())
}

func (s *Server) answers() bool {
	c, err := net.DialTimeout("tcp", s.Addr(), time.Second)
	if err != nil {
		return false
	}
	defer func() { _ = c.Close() }()
	if err := c.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return false
	}
	if _, err := c.Write([]byte("PING\r\n")); err != nil {
		return false
	}
	said := make([]byte, 64)
	n, err := c.Read(said)
	return err == nil && bytes.HasPrefix(said[:n], []byte("+PONG"))
}

// Kill ends the server by SIGKILL, at once and whatever it is doing, and waits for that.
func (s *Server) Kill() {
	if s.process == nil {
		return // it could not be started
	}
	// It may have ended by itself, which is all right.
	_ = s.process.Kill()
	<-s.ended
}

// Close ends the server and removes its files. Only the first call does anything.
func (s *Server) Close() (err error) {
	s.closing.Do(func() {
		s.Kill()
		err = os.RemoveAll(s.folder)
	})
	return err
}
