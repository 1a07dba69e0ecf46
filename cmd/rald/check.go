package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	"github.com/ral-limiter/ral/cmd/rald/internal/httpdoor"
	"github.com/ral-limiter/ral/cmd/rald/internal/redisdoor"
	"github.com/ral-limiter/ral/cmd/rald/internal/spaces"
	"github.com/ral-limiter/ral/policy"
)

const (
	// mostHeader is the most bytes of the header of a check. A proxy passes on that of its
	// client, which nginx bounds to 32 KiB.
	mostHeader = 64 << 10
	// slowestCheck bounds an answer, and with it the wait under a queue.
	slowestCheck = time.Minute
)

// checker answers HTTP checks on its listener.
type checker struct {
	door    *httpdoor.Door
	server  *http.Server
	on      net.Listener
	fail    context.CancelCauseFunc
	running sync.WaitGroup
}

// readChecks returns the rules of the HTTP check of a directory, or nil if there are none.
func readChecks(dir string, named map[string]redisdoor.Named) (*httpdoor.Rules, error) {
	if dir == "" {
		return nil, nil
	}
	return httpdoor.Read(dir, func(name string) (policy.Policy, bool) {
		limit, ok := named[name]
		return limit.Limit, ok
	})
}

// startCheck opens the listener if the directory has rules, and returns nil otherwise. Its keys
// are those of clients of Redis under configured limits.
func startCheck(
	s settings, named map[string]redisdoor.Named, keep *spaces.Spaces, log *slog.Logger, fail context.CancelCauseFunc,
) (*checker, error) {
	rules, err := readChecks(s.dir, named)
	switch {
	case err != nil:
		return nil, err
	case rules == nil && s.check.wanted:
		return nil, fmt.Errorf("-check-listen needs the file %s", filepath.Join(s.dir, httpdoor.Name))
	case rules == nil:
		return nil, nil
	}
	door, err := httpdoor.New(httpdoor.Config{Spaces: keep, Log: log}, rules)
	if err != nil {
		return nil, err
	}
	l, err := listen("-check-listen", s.check.listen, s.tls)
	if err != nil {
		return nil, err
	}
	log.Info("rald answers HTTP checks", "address", l.Addr().String(), "rules", rules.Len())
	return &checker{
		door: door,
		server: &http.Server{
			Handler: door, MaxHeaderBytes: mostHeader, ReadHeaderTimeout: 10 * time.Second,
			WriteTimeout: slowestCheck, IdleTimeout: s.idle, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn),
		},
		on: l, fail: fail,
	}, nil
}

// run serves until the context ends. Checks have the time to drain then.
func (c *checker) run(ctx context.Context, drain time.Duration) {
	c.running.Go(func() {
		if err := c.server.Serve(c.on); !errors.Is(err, http.ErrServerClosed) {
			c.fail(err)
		}
	})
	c.running.Go(func() {
		<-ctx.Done()
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), drain)
		defer cancel()
		if c.server.Shutdown(late) != nil {
			_ = c.server.Close()
		}
	})
}

// close waits for what run has started.
func (c *checker) close() { c.running.Wait() }
