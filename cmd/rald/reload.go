package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/ral-limiter/ral/cmd/rald/internal/checkserver"
	"github.com/ral-limiter/ral/cmd/rald/internal/configdir"
	"github.com/ral-limiter/ral/cmd/rald/internal/configfile"
	"github.com/ral-limiter/ral/cmd/rald/internal/configured"
	"github.com/ral-limiter/ral/cmd/rald/internal/envoyserver"
	"github.com/ral-limiter/ral/limitfile"
)

// reloadEvery is the time between looks at the files.
const reloadEvery = time.Second

type reloader struct {
	dirs   configdir.Dirs
	limits *configured.Limits
	// check is nil if there is none.
	check *checkserver.Door
	// envoy is nil if there is none with files.
	envoy *envoyserver.Service
	log   *slog.Logger
	reads configfile.Reads

	// setting is held while configuration is put in force.
	setting sync.Mutex
	// ended is guarded by setting.
	ended bool
	// inForce is the configuration in force, guarded by setting.
	inForce *configdir.Config
	// waiting is why shares cannot follow yet, guarded by setting.
	waiting error
}

// follow reloads when files change and at each SIGHUP, until the context ends.
func (r *reloader) follow(ctx context.Context, since *configdir.Config, asked <-chan os.Signal) {
	if r.dirs != (configdir.Dirs{}) {
		r.dirs.Watch(ctx, since, reloadEvery, asked, func(config *configdir.Config, err error) bool { return r.put(ctx, config, err) })
	}
}

// hangups returns a channel of SIGHUPs, until stop. Without a directory SIGHUP ends the process.
func hangups(dirs configdir.Dirs) (asked chan os.Signal, stop func()) {
	asked = make(chan os.Signal, 1)
	if dirs != (configdir.Dirs{}) {
		signal.Notify(asked, syscall.SIGHUP)
	}
	return asked, func() { signal.Stop(asked) }
}

// end lets no further configuration come into force, after the present. It does not wait for files:
// reading from a network may block for ever.
func (r *reloader) end() {
	r.setting.Lock()
	defer r.setting.Unlock()
	r.ended = true
}

// readUntil reads the configuration, or returns the context's error when it ends.
func readUntil(ctx context.Context, read func() (*configdir.Config, error)) (*configdir.Config, error) {
	var config *configdir.Config
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		config, err = read()
	}()
	select {
	case <-done:
		return config, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// put puts all files in force at once, or nothing. It reports whether it must be called again, for shares that wait
// until what other tenants leave is no longer owed.
func (r *reloader) put(ctx context.Context, config *configdir.Config, err error) (again bool) {
	r.setting.Lock()
	defer r.setting.Unlock()
	if r.ended {
		return false
	}
	if err == nil {
		err = config.Succeeds(r.inForce)
	}
	if err == nil {
		err = r.set(ctx, config)
	}
	r.reads.Fail(err)
	if err != nil {
		r.reads.Bad.Add(1)
		r.log.Error("the configuration stays as it was", "directory", r.dirs.Dir, "envoy", r.dirs.Envoy, "error", err)
		return false
	}
	waiting := r.limits.Share()
	// The faults of a change have been found, and the limits know which shares hold as they were.
	changes, _ := limitfile.Compare(r.inForce.Limits.Limits, config.Limits.Limits)
	for _, change := range changes {
		// A warn-at and a penalty take force at once.
		isLater := change.AtStart && (change.Setting == "" || change.Setting == "reserved")
		r.log.Info("a limit has changed", "limit", change.Name, "setting", change.Setting, "from", change.From, "to", change.To, "at_the_next_start", isLater)
	}
	r.inForce = config
	if r.reads.Fail(waiting); waiting != nil && r.waiting != nil {
		return true
	}
	if r.waiting = waiting; waiting != nil {
		r.log.Error("some shares hold as they were, until they can follow the file", "error", waiting)
	}
	r.reads.Good.Add(1)
	r.log.Info("the configuration is in force", "directory", r.dirs.Dir, "envoy", r.dirs.Envoy, "limits", r.limits.Len())
	return waiting != nil
}

func (r *reloader) set(ctx context.Context, config *configdir.Config) error {
	var commits []func()
	if r.envoy != nil {
		defer release(r.envoy, r.log)
		commit, err := r.envoy.Prepare(config.Rules)
		if err != nil {
			return err
		}
		commits = append(commits, commit)
	}
	file := filepath.Join(r.dirs.Dir, checkserver.Name)
	switch {
	case r.check != nil && config.Checks == nil:
		return fmt.Errorf("%s is gone while its address is open: a file without rules is accepted", file)
	case r.check != nil:
		commit, err := r.check.Prepare(config.Checks)
		if err != nil {
			return err
		}
		commits = append(commits, commit)
	case config.Checks != nil:
		r.log.Warn("the door for this file is opened at the next start", "file", file)
	}
	return r.limits.Set(ctx, config.Limits, func() {
		for _, commit := range commits {
			commit()
		}
	})
}

func release(of *envoyserver.Service, log *slog.Logger) {
	if err := of.Release(); err != nil {
		log.Error("an engine that no rule needs any more has ended with an error", "error", err)
	}
}
