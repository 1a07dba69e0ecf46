package main

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ral-limiter/ral/internal/testkit/redisd"
)

// redis is the Redis of the fleet, which can be killed, paused, and brought back.
type redis struct {
	*redisd.Server
	log func(string)

	acting sync.Mutex // held while it is started, paused or ended
	paused atomic.Bool
	ping   atomic.Int64 // how long the last took in nanoseconds, 0 if there was no answer
}

// openRedis starts a Redis on a free port, in a folder of its own.
func openRedis(program string, log func(string)) (*redis, error) {
	server, err := redisd.Open(redisd.Config{Program: program, Args: []string{
		// Every command goes to the kernel before it is answered, so that nothing is
		// lost when the process is killed. That it reaches the disk, for when the
		// machine is, would take longer than is shown here.
		"--appendonly", "yes", "--appendfsync", "no",
	}})
	if err != nil {
		return nil, fmt.Errorf("%w (-redis says which to start)", err)
	}
	r := &redis{Server: server, log: log}
	r.probe()
	return r, nil
}

// do does what a button of the page says.
func (r *redis) do(what string) error {
	r.acting.Lock()
	defer r.acting.Unlock()
	runs := r.PID() != 0
	switch {
	case what == "start" && !runs:
		if err := r.Restart(); err != nil {
			return err
		}
		r.probe()
		r.log("Redis is back, with what it had written to disk.")
	case what == "kill" && runs:
		r.Kill()
		r.paused.Store(false)
		r.log("Redis was killed (SIGKILL).")
	case what == "pause" && runs && !r.paused.Load():
		if err := r.Pause(); err != nil {
			return err
		}
		r.paused.Store(true)
		r.log("Redis was paused (SIGSTOP): it takes connections, and answers nothing.")
	case what == "resume" && runs && r.paused.Load():
		if err := r.Resume(); err != nil {
			return err
		}
		r.paused.Store(false)
		r.log("Redis goes on (SIGCONT).")
	default:
		return fmt.Errorf("%q cannot be done to a Redis that is %s", what, r.state())
	}
	return nil
}

// probe measures how long Redis takes to answer.
func (r *redis) probe() {
	began := time.Now()
	took := int64(0)
	if r.Ping(tick/2) == nil {
		took = max(1, int64(time.Since(began)))
	}
	r.ping.Store(took)
}

// state says in a word how Redis is.
func (r *redis) state() string {
	switch {
	case r.PID() == 0:
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
	return r.Close()
}
