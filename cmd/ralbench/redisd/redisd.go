// Package redisd starts a redis-server of one's own, to be measured with, and stops it.
// It keeps everything in memory and writes nothing to disk. Start reading at [Server].
package redisd

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// Server is a Redis that was started. One goroutine at a time may stop it.
type Server struct {
	// Network and Addr are where it listens, as net.Dial takes them.
	Network, Addr string

	folder  string
	process *os.Process
	ended   chan struct{} // closed when the process has
	said    bytes.Buffer  // to be read when it has ended
}

// How long a Redis may take to be there, and to go when it is asked to.
const (
	startingTime = 10 * time.Second
	stoppingTime = 3 * time.Second
)

// ErrMissing says that no redis-server is installed, and how that is mended.
var ErrMissing = errors.New("redis-server is not installed: on Debian and Ubuntu apt-get install redis-server, on macOS brew install redis, on Fedora dnf install redis")

// Find returns the redis-server that is installed, or ErrMissing.
func Find() (binary string, err error) {
	if binary, err = exec.LookPath("redis-server"); err != nil {
		return "", ErrMissing
	}
	return binary, nil
}

// OnSocket starts a Redis that listens on a socket in a folder of its own and on no
// port, and waits until it answers.
func OnSocket(binary string) (*Server, error) {
	return launch(binary, func(s *Server) ([]string, error) {
		s.Network, s.Addr = "unix", filepath.Join(s.folder, "socket")
		return []string{"--port", "0", "--unixsocket", s.Addr, "--unixsocketperm", "700"}, nil
	})
}

// OnPort starts a Redis that listens on a free port of this machine, as far as others
// on it are concerned, and waits until it answers. It tries other ports if somebody
// else was faster.
func OnPort(binary string) (s *Server, err error) {
	for range 5 {
		s, err = launch(binary, func(s *Server) ([]string, error) {
			port, err := freePort()
			s.Network, s.Addr = "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
			return []string{"--bind", "127.0.0.1", "--port", strconv.Itoa(port)}, err
		})
		if err == nil || !errors.Is(err, errTaken) {
			break
		}
	}
	return s, err
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}

// launch starts a Redis with the arguments that say where it listens.
func launch(binary string, where func(*Server) ([]string, error)) (*Server, error) {
	folder, err := os.MkdirTemp("", "ralbench-redis-")
	if err != nil {
		return nil, err
	}
	s := &Server{folder: folder, ended: make(chan struct{})}
	args, err := where(s)
	if err == nil {
		err = s.start(binary, args)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("starting %s: %w", binary, err), os.RemoveAll(folder))
	}
	if err := s.await(); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", binary, err), s.Stop())
	}
	return s, nil
}

// start starts the process. Where the system can, it ends it together with this
// one, even if that is killed. Linux ties it to the thread that started it, so
// that a thread is kept for it.
func (s *Server) start(binary string, args []string) error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(s.ended)
		cmd := exec.Command(binary, append(args,
			"--save", "", "--appendonly", "no", "--dir", s.folder,
			"--daemonize", "no", "--loglevel", "warning")...)
		cmd.Stdout, cmd.Stderr = &s.said, &s.said
		cmd.SysProcAttr = dieTogether()
		err := cmd.Start()
		s.process = cmd.Process
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ended is nobody's concern: see await
		}
	}()
	return <-started
}

// errTaken says that somebody else listens on the port.
var errTaken = errors.New("the port is taken")

// await waits until the Redis that was started listens. Another process may have the
// port: this one has ended then, or is about to.
func (s *Server) await() error {
	for begun := time.Now(); time.Since(begun) < startingTime; {
		if c, err := net.Dial(s.Network, s.Addr); err == nil {
			defer func() { _ = c.Close() }()
			return s.pid(c)
		}
		select {
		case <-s.ended:
			return s.end()
		case <-time.After(5 * time.Millisecond):
		}
	}
	return fmt.Errorf("does not answer at %s after %v", s.Addr, startingTime)
}

// pid sees that who answers is the process that was started.
func (s *Server) pid(c net.Conn) error {
	_ = c.SetDeadline(time.Now().Add(startingTime))
	if _, err := c.Write([]byte("INFO server\r\n")); err != nil {
		return err
	}
	answer := bufio.NewScanner(c)
	for answer.Scan() {
		if pid, found := strings.CutPrefix(answer.Text(), "process_id:"); found {
			if pid != strconv.Itoa(s.process.Pid) {
				return errTaken
			}
			return nil
		}
	}
	return errors.Join(errTaken, answer.Err())
}

// end says why the process ended as soon as it was started.
func (s *Server) end() error {
	said := strings.TrimSpace(s.said.String())
	if strings.Contains(said, "in use") {
		return errTaken
	}
	if at := strings.LastIndexByte(said, '\n'); at >= 0 {
		said = said[at+1:]
	}
	return fmt.Errorf("ended as soon as it was started: %s", said)
}

// Stop ends the process, waits for it, and removes its folder.
func (s *Server) Stop() error {
	// Either may fail because it has ended by itself, which is all right.
	_ = s.process.Signal(os.Interrupt)
	select {
	case <-s.ended:
	case <-time.After(stoppingTime):
		_ = s.process.Kill()
		<-s.ended
	}
	return os.RemoveAll(s.folder)
}
