package peers

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"
)

// redisServer is a Redis that was started for a limiter.
type redisServer struct {
	folder, socket string
	process        *os.Process
	ended          chan struct{} // closed when the process has
}

// How long a Redis may take to be there, and to go when it is asked to.
const (
	startingTime = 10 * time.Second
	stoppingTime = 3 * time.Second
)

// startRedis starts a Redis that listens on a socket in a folder of its own and
// on no port, and waits until it answers.
func startRedis(server string) (*redisServer, error) {
	folder, err := os.MkdirTemp("", "ralbench-redis-")
	if err != nil {
		return nil, err
	}
	r := &redisServer{folder: folder, socket: filepath.Join(folder, "socket"), ended: make(chan struct{})}
	if err := r.start(server); err != nil {
		return nil, errors.Join(fmt.Errorf("starting %s: %w", server, err), os.RemoveAll(folder))
	}
	if err := r.await(); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", server, err), r.stop())
	}
	return r, nil
}

// start starts the process. Where the system can, it ends it together with this
// one, even if that is killed. Linux ties it to the thread that started it, so
// that a thread is kept for it.
func (r *redisServer) start(server string) error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(r.ended)
		cmd := exec.Command(server,
			"--port", "0", "--unixsocket", r.socket, "--unixsocketperm", "700",
			"--save", "", "--appendonly", "no", "--dir", r.folder,
			"--daemonize", "no", "--loglevel", "warning")
		var said bytes.Buffer
		cmd.Stdout, cmd.Stderr = &said, &said
		cmd.SysProcAttr = dieTogether()
		err := cmd.Start()
		r.process = cmd.Process
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ended is nobody's concern: see await
		}
	}()
	return <-started
}

// await waits until somebody listens on the socket.
func (r *redisServer) await() error {
	for begun := time.Now(); time.Since(begun) < startingTime; {
		if c, err := net.Dial("unix", r.socket); err == nil {
			return c.Close()
		}
		select {
		case <-r.ended:
			return errors.New("ended as soon as it was started")
		case <-time.After(5 * time.Millisecond):
		}
	}
	return fmt.Errorf("does not answer on its socket after %v", startingTime)
}

// stop ends the process, waits for it, and removes its folder.
func (r *redisServer) stop() error {
	// Either may fail because it has ended by itself, which is all right.
	_ = r.process.Signal(os.Interrupt)
	select {
	case <-r.ended:
	case <-time.After(stoppingTime):
		_ = r.process.Kill()
		<-r.ended
	}
	return os.RemoveAll(r.folder)
}
