package main

import (
	"context"
	"errors"
	"log/slog"
	"runtime"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/ral-limiter/ral/cmd/rald/internal/admin"
	"github.com/ral-limiter/ral/cmd/rald/internal/limitfile"
	"github.com/ral-limiter/ral/cmd/rald/internal/redisdoor"
	"github.com/ral-limiter/ral/cmd/rald/internal/spaces"
	"github.com/ral-limiter/ral/eventlog"
	"github.com/ral-limiter/ral/policy"
)

// spare is memory that is reserved and never touched, so the kernel provides none of it. The
// garbage collector counts it as live, and so waits for at least as many bytes of garbage. With
// few keys and many requests it would otherwise run 70 times a second, and shrink the stacks of goroutines
// that are about to grow again.
const spare = 32 << 20

// serve serves clients until it is asked to end, and then lets them finish and saves the state.
func serve(asked context.Context, s settings, log *slog.Logger) (err error) {
	reserved := make([]byte, spare)
	defer runtime.KeepAlive(reserved)
	named, err := names(s.dir)
	if err != nil {
		return err
	}
	of := spaces.Config{MaxKeys: s.maxKeys, Dir: s.state, Every: s.every, OnEvent: eventlog.New(log).Engine}
	keep, err := spaces.New(s.fleet.spaces(of, "", log))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, keep.Close()) }()
	if err := s.fleet.prepare(keep, named); err != nil {
		return err
	}
	operators, err := listenAdmin(s, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, operators.close()) }() // after the doors
	server, err := redisdoor.New(redisdoor.Config{
		Spaces: keep, Password: s.password, Rounding: s.rounding, Clients: s.clients, Idle: s.idle, Log: log,
		Limits: func(name string) (redisdoor.Named, bool) {
			limit, ok := named[name]
			return limit, ok
		},
	})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(asked)
	defer stop(nil)
	told := admin.Config{
		Redis: server, Keys: keep, Draining: func() bool { return ctx.Err() != nil },
		Limits: func() map[string]policy.Policy { return policies(named) },
		Tokens: s.admin.tokens, Guarded: s.admin.guarded, ShowKeys: s.admin.showKeys, Log: log,
	}
	if s.envoy.dir != "" {
		e, wrong := startEnvoy(s, of, log, stop)
		if wrong != nil {
			return wrong
		}
		defer func() {
			stop(nil)
			err = errors.Join(err, e.close())
		}()
		e.run(ctx, s.drain)
		told.Envoy, told.EnvoyKeys = e.service, e.keep
		told.Reloads = map[string]func() admin.Reloads{"rules": func() (r admin.Reloads) {
			r.Good, r.Bad, r.Failing = e.service.Reads()
			return r
		}}
	}
	c, err := startCheck(s, named, keep, log, stop)
	if err != nil {
		return err
	}
	if c != nil {
		defer func() {
			stop(nil)
			c.close()
		}()
		c.run(ctx, s.drain)
		told.Check = c.door
	}
	if err := operators.run(told, log, stop); err != nil {
		return err
	}
	l, err := listen("-listen", s.listen, s.tls)
	if err != nil {
		return err
	}
	if err := passed().check(); err != nil {
		_ = l.Close()
		return err
	}
	log.Info("rald listens", "address", l.Addr().String(), "limits", len(named), "state", s.state)
	go func() {
		if err := server.Serve(l); err != nil {
			stop(err)
		}
	}()
	tell(log, daemon.SdNotifyReady)
	<-ctx.Done()
	tell(log, daemon.SdNotifyStopping)
	drained, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.drain)
	defer cancel()
	if server.Shutdown(drained) != nil {
		log.Warn("rald cut off clients that did not end in time", "drain", s.drain)
	}
	log.Info("rald saves its state and ends")
	if asked.Err() == nil {
		return context.Cause(ctx)
	}
	return nil
}

// tell tells systemd how far the server is, if that started it.
func tell(log *slog.Logger, state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		log.Warn("rald cannot tell systemd", "state", state, "error", err)
	}
}

// names returns the configured limits of a directory.
func names(dir string) (map[string]redisdoor.Named, error) {
	if dir == "" {
		return nil, nil
	}
	limits, err := limitfile.Read(dir)
	if err != nil {
		return nil, err
	}
	named := make(map[string]redisdoor.Named, len(limits))
	for name, limit := range limits {
		named[name] = redisdoor.Named{Limit: limit, Prefix: redisdoor.Prefix(name)}
	}
	return named, nil
}

// policies returns the limits by their names.
func policies(of map[string]redisdoor.Named) map[string]policy.Policy {
	all := make(map[string]policy.Policy, len(of))
	for name, limit := range of {
		all[name] = limit.Limit
	}
	return all
}
