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

	"github.com/ral-limiter/ral/cmd/rald/internal/checkserver"
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
	door    *checkserver.Door
	server  *http.Server
	on      net.Listener
	fail    context.CancelCauseFunc
	running sync.WaitGroup
}

// startCheck opens the listener if there are rules, and returns nil otherwise.
func startCheck(
	s settings, rules *checkserver.Rules, config checkserver.Config, fail context.CancelCauseFunc,
) (*checker, error) {
	switch {
	case rules == nil && s.check.wanted:
		return nil, fmt.Errorf("-check-listen needs the file %s", filepath.Join(s.dir, checkserver.Name))
	case rules == nil:
		return nil, nil
	}
	door, err := checkserver.New(config, rules)
	if err != nil {
		return nil, err
	}
	l, err := listen("-check-listen", s.check.listen, s.tls)
	if err != nil {
		return nil, err
	}
	config.Log.Info("rald answers HTTP checks", "address", l.Addr().String(), "rules", rules.Len())
	return &checker{
		door: door,
		server: &http.Server{
			Handler: door, MaxHeaderBytes: mostHeader, ReadHeaderTimeout: 10 * time.Second,
			WriteTimeout: slowestCheck, IdleTimeout: s.idle, ErrorLog: slog.NewLogLogger(config.Log.Handler(), slog.LevelWarn),
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
