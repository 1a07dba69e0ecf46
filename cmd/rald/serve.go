package main

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"runtime"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/ral-limiter/ral/cmd/rald/internal/admin"
	"github.com/ral-limiter/ral/cmd/rald/internal/checkserver"
	"github.com/ral-limiter/ral/cmd/rald/internal/configdir"
	"github.com/ral-limiter/ral/cmd/rald/internal/configfile"
	"github.com/ral-limiter/ral/cmd/rald/internal/configured"
	"github.com/ral-limiter/ral/cmd/rald/internal/families"
	"github.com/ral-limiter/ral/cmd/rald/internal/limitfile"
	"github.com/ral-limiter/ral/cmd/rald/internal/redisserver"
	"github.com/ral-limiter/ral/observe/eventlog"
)

// spare is reserved memory that is never touched, so the kernel provides none of it. The garbage
// collector counts it as live, and waits for as much garbage. Otherwise, with few keys and many
// requests, it runs 70 times a second, and shrinks stacks that grow again.
const spare = 32 << 20

// serve serves clients until it is asked to end, lets them finish, and saves the state.
func serve(asked context.Context, settings settings, log *slog.Logger) (err error) {
	if settings.insecureNetwork {
		log.Warn("rald trusts its network: -insecure-network opens every address to all that reach it")
	}
	reserved := make([]byte, spare)
	defer runtime.KeepAlive(reserved)
	dirs := configdir.Dirs{Dir: settings.dir, File: settings.limits, Envoy: settings.envoy.dir, Rules: settings.envoy.rules}
	reloads, stopAsking := hangups(dirs)
	defer stopAsking()
	config, err := readUntil(asked, dirs.Read)
	if asked.Err() != nil {
		return nil
	}
	if err != nil {
		return err
	}
	settings.keys.OnEvent = eventlog.New(log).Engine
	keep, err := families.New(settings.fleet.families(settings.keys, "", log))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, keep.Close()) }()
	limits, err := limitsOf(asked, settings.keys.Dir, keep, config.Limits, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, limits.Close()) }()
	adminOn, err := listenAdmin(settings, log)
	if err != nil {
		return err
	}
	if adminOn != nil {
		defer func() { _ = adminOn.Close() }()
	}
	reads := configfile.Reloads{}
	settings.redis.Families, settings.redis.Limits, settings.redis.Log, settings.redis.Reloads = keep, limits, log, reads
	server, err := redisserver.New(settings.redis)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(asked)
	afterClients, stopOperators := context.WithCancel(context.WithoutCancel(asked))
	clients, operators := &doors{settings: settings, log: log, fail: stop}, &doors{settings: settings, log: log, fail: stop}
	defer func() {
		stop(nil)
		err = errors.Join(err, clients.close())
		stopOperators()
		err = errors.Join(err, operators.close())
	}()
	told := admin.Config{
		Redis: server, Keys: keep, Draining: func() bool { return ctx.Err() != nil },
		Limits: limits, Reloads: reads,
		Tokens: settings.admin.tokens, Guarded: settings.admin.guarded, ShowKeys: settings.admin.showKeys, Log: log,
	}
	follow := &reloader{dirs: dirs, limits: limits, log: log, inForce: config}
	follow.reads.Good.Add(1)
	reads["configuration"] = &follow.reads
	if settings.envoy.isOn() {
		told.EnvoyKeys, told.Envoy, err = clients.openEnvoy(ctx, config.Rules)
		if err != nil {
			return err
		}
	}
	if clients.xds == nil {
		follow.envoy = told.Envoy
	} else {
		reads["xds"] = &clients.xds.Reads
	}
	follow.check, err = clients.openCheck(ctx, config.Checks, checkserver.Config{Families: keep, Limits: limits, Log: log})
	if err != nil {
		return err
	}
	told.Check = follow.check
	if err := operators.openAdmin(afterClients, adminOn, told); err != nil {
		return err
	}
	listener, err := listen("-listen", settings.listen, settings.tls, nil, log)
	if err != nil {
		return err
	}
	if err := passed().check(); err != nil {
		_ = listener.Close()
		return err
	}
	log.Info("rald listens", "address", listener.Addr().String(), "limits", limits.Len(), "state", settings.keys.Dir)
	clients.open(ctx, settings.drain, func() error { return server.Serve(listener) }, func(ctx context.Context) {
		if server.Shutdown(ctx) != nil {
			log.Warn("rald cut off clients that did not end in time", "drain", settings.drain)
		}
	})
	tell(log, daemon.SdNotifyReady)
	// The loop may outlast the server while a file is read.
	go follow.follow(ctx, config, reloads)
	<-ctx.Done()
	follow.end()
	tell(log, daemon.SdNotifyStopping)
	clients.running.Wait()
	if settings.keys.Dir == "" {
		log.Info("rald ends")
	} else {
		log.Info("rald saves its state and ends")
	}
	if asked.Err() == nil {
		return context.Cause(ctx)
	}
	return nil
}

func tell(log *slog.Logger, state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		log.Warn("rald cannot tell systemd", "state", state, "error", err)
	}
}

// limitsOf returns the limits of a file, with the keys' usage before the start.
func limitsOf(ctx context.Context, state string, keep *families.Families, file *limitfile.File, log *slog.Logger) (*configured.Limits, error) {
	if state != "" {
		state = filepath.Join(state, configured.FileName)
	}
	limits, err := configured.New(configured.Config{Families: keep, File: state, Log: log})
	if err != nil {
		return nil, err
	}
	return limits, limits.Set(ctx, file, nil)
}
