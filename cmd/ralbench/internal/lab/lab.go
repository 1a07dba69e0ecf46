// Package lab runs workloads on servers that a run starts on this machine: a Redis of its own, and
// the programs of other servers.
//
// Start reading at [Run].
package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/prometheus/procfs"
	"github.com/redis/go-redis/v9"

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/internal/testkit/child"
)

// startingTime bounds the time that a server takes to listen.
const startingTime = 20 * time.Second

// Lab holds the servers of a run.
type Lab struct {
	// Dir is a folder for the files of the run.
	Dir string
	// version is the version of the last Redis that was started.
	version string
	ends    []func() error
}

func Open() (*Lab, error) {
	dir, err := os.MkdirTemp("", "ralbench")
	return &Lab{Dir: dir}, err
}

// Close stops the servers and removes the files.
func (l *Lab) Close() (err error) {
	for _, end := range l.ends {
		err = errors.Join(err, end())
	}
	return errors.Join(err, os.RemoveAll(l.Dir))
}

// AtEnd has Close call a function.
func (l *Lab) AtEnd(end func() error) { l.ends = append(l.ends, end) }

// Run measures contenders, which begin starts or builds, until done or the context ends, which is no
// error. With an error, the report holds the measurements before it. redis is the version of the
// Redis, if the run had one.
func Run(ctx context.Context, workloads []bench.Workload, options bench.Options, begin func(*Lab) ([]bench.Contender, error)) (report bench.Report, redis string, err error) {
	lab, err := Open()
	if err != nil {
		return report, "", err
	}
	defer func() { err = errors.Join(err, lab.Close()) }()
	contenders, err := begin(lab)
	switch {
	case err == nil:
		report, err = bench.Run(ctx, workloads, contenders, options)
	case ctx.Err() != nil:
		return bench.Report{Interrupted: true}, "", nil
	}
	return report, lab.version, err
}

// Redis starts a Redis on a socket, or else over TCP, with a client that looks into it.
func (l *Lab) Redis(socket bool) (*child.Redis, *redis.Client, error) {
	running, err := child.OpenRedis(child.RedisConfig{Socket: socket})
	if err != nil {
		return nil, nil, err
	}
	client := redis.NewClient(&redis.Options{Network: running.Network(), Addr: running.Addr(), PoolSize: 1})
	l.AtEnd(client.Close)
	l.AtEnd(running.Close)
	about := client.InfoMap(context.Background(), "server")
	l.version = about.Item("Server", "redis_version")
	return running, client, about.Err()
}

// Start starts a program and waits until it listens.
func (l *Lab) Start(network, addr string, env []string, program string, args ...string) (pid int, err error) {
	log, err := os.CreateTemp(l.Dir, "log")
	if err != nil {
		return 0, err
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = log, log
	started, err := child.Start(cmd)
	if err != nil {
		return 0, err
	}
	l.AtEnd(func() error { started.Kill(); return nil })
	if err := started.AwaitListener(network, addr, startingTime); err != nil {
		said, _ := os.ReadFile(log.Name())
		return 0, fmt.Errorf("%s: %w\n%s", filepath.Base(program), err, said)
	}
	return started.PID(), nil
}

// ProcessorTime returns the processor time used by processes. It reports false without /proc.
func ProcessorTime(pids []int) (sum time.Duration, known bool) {
	for _, pid := range pids {
		process, err := procfs.NewProc(pid)
		if err != nil {
			return 0, false
		}
		stat, err := process.Stat()
		if err != nil {
			return 0, false
		}
		sum += time.Duration(stat.CPUTime() * float64(time.Second))
	}
	return sum, true
}
