package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ral-limiter/ral/internal/testkit/child"
)

// startingTime is how long a server may take from its start to its first answer.
const startingTime = 2 * time.Minute

// server is one of the fleet's web servers, as seen by the process that starts it.
type server struct {
	name string
	args []string
	log  func(string)

	acting  sync.Mutex // held while it is started or ended
	process atomic.Pointer[child.Process]
	stdin   io.Closer
	addr    atomic.Pointer[string] // the last that it had
	stats   atomic.Pointer[stats]  // what it said last, nil if it does not answer
}

// do does what a button of the page says.
func (s *server) do(what string) error {
	s.acting.Lock()
	defer s.acting.Unlock()
	runs := s.process.Load().Runs()
	switch {
	case what == "start" && !runs:
		if err := s.start(); err != nil {
			return err
		}
		s.log("is back.")
	case what == "kill" && runs:
		s.process.Load().Kill()
		s.log("was killed (SIGKILL).")
	default:
		return fmt.Errorf("%q cannot be done to a server that is %s", what, s.state())
	}
	return nil
}

// start starts the process, and waits until it listens.
func (s *server) start() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self, s.args...)
	listens := make(chan string, 1)
	cmd.Stdout = &lines{to: func(line string) {
		if addr, found := strings.CutPrefix(line, addressLine); found {
			listens <- addr
			return
		}
		s.log(line)
	}}
	var problems strings.Builder
	cmd.Stderr = &problems
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	p, err := child.Start(cmd)
	if err != nil {
		return err
	}
	s.process.Store(p)
	s.stdin = stdin
	select {
	case addr := <-listens:
		s.addr.Store(&addr)
		return nil
	case <-p.Ended():
	case <-time.After(startingTime):
		p.Kill()
	}
	return fmt.Errorf("%s did not start: %s", s.name, strings.TrimSpace(problems.String()))
}

// state says in a word how the server is.
func (s *server) state() string {
	switch {
	case !s.process.Load().Runs():
		return "killed"
	case s.stats.Load() == nil:
		return "silent"
	}
	return "up"
}

// look asks the server how its limiter is.
func (s *server) look(ctx context.Context) {
	said, err := s.ask(ctx)
	if err != nil {
		said = nil
	}
	s.stats.Store(said)
}

func (s *server) ask(ctx context.Context) (_ *stats, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*tick)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+*s.addr.Load()+"/stats", nil)
	if err != nil {
		return nil, err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, answer.Body.Close()) }()
	said := new(stats)
	return said, json.NewDecoder(answer.Body).Decode(said)
}

// close ends the server in order, or else by force.
func (s *server) close() {
	s.acting.Lock()
	defer s.acting.Unlock()
	p := s.process.Load()
	if !p.Runs() {
		return
	}
	_ = s.stdin.Close() // if that does not end it, see below
	select {
	case <-p.Ended():
	case <-time.After(5 * time.Second):
		p.Kill()
	}
}
