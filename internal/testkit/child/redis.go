package child

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// redisStartingTime bounds the time that a Redis takes to answer and to load its data.
const redisStartingTime = 2 * time.Minute

// maxPorts bounds how often OpenRedis tries other ports.
const maxPorts = 5

// RedisConfig configures a Redis. The zero value listens on a port and keeps everything in memory.
type RedisConfig struct {
	// Program is the redis-server to start, as exec.LookPath takes it, "" for "redis-server".
	Program string
	// Socket makes it listen on a Unix socket in its folder and on no port.
	Socket bool
	// Cluster makes it a node of a cluster, with a port of its own for the other nodes: see BusPort.
	Cluster bool
	// Args are further arguments. They override the defaults here: only the log is written.
	Args []string
	// Settings is the content of its configuration file, which Redis may write; "" is no file.
	Settings string
}

// Redis is a redis-server that was started, with a temporary folder for its files. It is safe for
// concurrent use, except that Kill, Restart and Close must be called one at a time.
type Redis struct {
	program       string
	network, addr string
	folder        string
	args          []string
	process       atomic.Pointer[Process]
	busPort       int
}

// FindRedis returns the path of program, "" for "redis-server". The error says how to install Redis.
func FindRedis(program string) (path string, err error) {
	if program == "" {
		program = "redis-server"
	}
	if path, err = exec.LookPath(program); err != nil {
		return "", fmt.Errorf("there is no %s here: install Redis (Debian, Ubuntu: apt-get install redis-server; "+
			"Fedora: dnf install redis; macOS: brew install redis): %w", program, err)
	}
	return path, nil
}

// OpenRedis starts a Redis on a free port and waits until it answers. If another process takes a port
// meanwhile, OpenRedis tries other ports. Call Close to end the server.
// If it cannot be started nothing is left of it, and the error contains the output of Redis.
func OpenRedis(redisConfig RedisConfig) (redis *Redis, err error) {
	program, err := FindRedis(redisConfig.Program)
	if err != nil {
		return nil, err
	}
	for range maxPorts {
		if redis, err = openRedis(program, redisConfig); !errors.Is(err, errTaken) {
			break
		}
	}
	return redis, err
}

func openRedis(program string, redisConfig RedisConfig) (*Redis, error) {
	folder, err := os.MkdirTemp("", "ral-redis-")
	if err != nil {
		return nil, err
	}
	redis := &Redis{program: program, folder: folder}
	if err = redis.configure(redisConfig); err == nil {
		err = redis.Restart()
	}
	if err != nil {
		return nil, errors.Join(err, redis.Close())
	}
	return redis, nil
}

// configure chooses the address of the server and the command that starts it.
func (s *Redis) configure(redisConfig RedisConfig) error {
	if redisConfig.Settings != "" {
		file := filepath.Join(s.folder, "settings")
		if err := os.WriteFile(file, []byte(redisConfig.Settings), 0o600); err != nil {
			return err
		}
		s.args = append(s.args, file)
	}
	if redisConfig.Socket {
		s.network, s.addr = "unix", filepath.Join(s.folder, "socket")
		s.args = append(s.args, "--port", "0", "--unixsocket", s.addr, "--unixsocketperm", "700")
	} else {
		port, err := FreePort()
		if err != nil {
			return err
		}
		s.network, s.addr = "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		s.args = append(s.args, "--bind", "127.0.0.1", "--port", strconv.Itoa(port))
	}
	if redisConfig.Cluster {
		var err error
		if s.busPort, err = FreePort(); err != nil {
			return err
		}
		s.args = append(s.args, "--cluster-enabled", "yes", "--cluster-port", strconv.Itoa(s.busPort))
	}
	s.args = append(s.args, "--dir", s.folder, "--daemonize", "no", "--save", "", "--appendonly", "no")
	s.args = append(s.args, redisConfig.Args...)
	return nil
}

// FreePort returns a free port of the loopback interface, below the ports that systems give to
// sockets by themselves. Another process may take it before the caller does.
func FreePort() (port int, err error) {
	for range 100 {
		var listener net.Listener
		if listener, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 15000+rand.IntN(17000))); err == nil {
			return listener.Addr().(*net.TCPAddr).Port, listener.Close()
		}
	}
	return 0, fmt.Errorf("no port from 15000 on is free: %w", err)
}

// FreeAddr returns an address of the loopback interface with a free port: see FreePort.
func FreeAddr() (string, error) {
	port, err := FreePort()
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), err
}

// Network returns the network of Addr, as net.Dial takes it. Both are the same after Restart.
func (s *Redis) Network() string { return s.network }

// Addr returns a host and port, or the path of a socket: see Network.
func (s *Redis) Addr() string { return s.addr }

// BusPort returns the port at which a node of a cluster meets others, and 0 without a cluster.
func (s *Redis) BusPort() int { return s.busPort }

// PID returns the process ID, or 0 if the server does not run.
func (s *Redis) PID() int { return s.process.Load().PID() }

// Restart starts a server that has ended, at the same address, and waits until it has loaded its
// data from disk and answers. If it fails the server does not run.
func (s *Redis) Restart() error {
	log, err := os.OpenFile(s.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	// The process has a copy of its own.
	defer func() { _ = log.Close() }()
	cmd := exec.Command(s.program, s.args...)
	cmd.Stdout, cmd.Stderr = log, log
	process, err := Start(cmd)
	if err != nil {
		return fmt.Errorf("starting %s: %w", s.program, err)
	}
	s.process.Store(process)
	if err := s.await(process); err != nil {
		process.Kill()
		return err
	}
	return nil
}

var errTaken = errors.New("the port is taken")

// await waits until the process answers with its data loaded. If another process has the port, this
// process has ended or soon will.
func (s *Redis) await(process *Process) (err error) {
	for began := time.Now(); time.Since(began) < redisStartingTime; {
		if err = s.Ping(time.Second); err == nil {
			return s.identify(process)
		}
		select {
		case <-process.Ended():
			err := fmt.Errorf("%s ended as soon as it was started: %s", s.program, s.Said())
			if strings.Contains(s.Said(), "in use") {
				err = errors.Join(errTaken, err)
			}
			return err
		case <-time.After(2 * time.Millisecond):
		}
	}
	return fmt.Errorf("%s does not answer at %s after %v (%w): %s", s.program, s.addr, redisStartingTime, err, s.Said())
}

// identify checks that the process that answers is the one that was started.
func (s *Redis) identify(process *Process) error {
	pid, err := s.ask("INFO server", "process_id:", redisStartingTime)
	if err == nil && pid != strconv.Itoa(process.PID()) {
		err = errTaken
	}
	return err
}

// Ping returns nil if the server answers in time and has loaded its data.
func (s *Redis) Ping(within time.Duration) error {
	_, err := s.ask("PING", "+PONG", within)
	return err
}

// ask sends a command on a connection of its own. It returns the rest of the answer's first line
// that begins with line.
func (s *Redis) ask(command, line string, within time.Duration) (rest string, err error) {
	conn, err := net.DialTimeout(s.network, s.addr, within)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(within)); err != nil {
		return "", err
	}
	if _, err := fmt.Fprintf(conn, "%s\r\n", command); err != nil {
		return "", err
	}
	answer := bufio.NewScanner(conn)
	for answer.Scan() {
		if rest, found := strings.CutPrefix(answer.Text(), line); found {
			return rest, nil
		}
		if strings.HasPrefix(answer.Text(), "-") {
			return "", fmt.Errorf("%s: %s", command, answer.Text())
		}
	}
	return "", errors.Join(errors.New(command+": no answer"), answer.Err())
}

func (s *Redis) log() string { return filepath.Join(s.folder, "log") }

// Said returns the end of the server's output since it was first started.
func (s *Redis) Said() string {
	said, err := os.ReadFile(s.log())
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(said[max(0, len(said)-2000):]))
}

// Kill ends the server by SIGKILL, whatever it is doing, and waits for its end.
func (s *Redis) Kill() { s.process.Load().Kill() }

// Close ends the server and removes its files. Only the first call does anything.
func (s *Redis) Close() error {
	s.Kill()
	return os.RemoveAll(s.folder)
}
