package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/ral-limiter/ral/cmd/rald/internal/checkserver"
	"github.com/ral-limiter/ral/cmd/rald/internal/envoyserver"
	"github.com/ral-limiter/ral/cmd/rald/internal/families"
	"github.com/ral-limiter/ral/cmd/rald/internal/rules"
	"github.com/ral-limiter/ral/cmd/rald/internal/xds"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

const (
	// maxHeaderBytes bounds the header of a request. Proxies pass on their clients', up to 32 KiB in
	// nginx.
	maxHeaderBytes = 64 << 10
	// slowest bounds an HTTP answer, and so a check's wait in a queue.
	slowest = time.Minute
)

type doors struct {
	settings
	log *slog.Logger
	// fail is told if a door ends by itself.
	fail    context.CancelCauseFunc
	running sync.WaitGroup
	ends    []func() error
	// xds is nil without a management server.
	xds *xds.Client
}

// open serves until the context ends. Requests then have the time drain before shutdown.
func (d *doors) open(ctx context.Context, drain time.Duration, serve func() error, shutdown func(ctx context.Context)) {
	d.running.Go(func() {
		if err := serve(); err != nil && !errors.Is(err, http.ErrServerClosed) {
			d.fail(err)
		}
	})
	d.running.Go(func() {
		<-ctx.Done()
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), drain)
		defer cancel()
		shutdown(late)
	})
}

func (d *doors) openHTTP(ctx context.Context, drain time.Duration, listener net.Listener, handler http.Handler) {
	server := &http.Server{
		Handler: handler, MaxHeaderBytes: maxHeaderBytes, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: slowest,
		WriteTimeout: slowest, IdleTimeout: d.redis.Idle, ErrorLog: slog.NewLogLogger(d.log.Handler(), slog.LevelWarn),
	}
	d.open(ctx, drain, func() error { return server.Serve(listener) }, func(ctx context.Context) {
		if server.Shutdown(ctx) != nil {
			_ = server.Close()
		}
	})
}

// openEnvoy answers Envoy's rate limit service by a set of rules, or if that is nil by a management
// server's. Its counts are apart from Redis clients' keys.
func (d *doors) openEnvoy(ctx context.Context, set *rules.Set) (*families.Families, *envoyserver.Service, error) {
	config := d.keys
	config.Name = "rald envoy"
	if config.Dir != "" {
		config.Dir = filepath.Join(config.Dir, "envoy")
	}
	keep, err := families.New(d.fleet.families(config, ".envoy", d.log))
	if err != nil {
		return nil, nil, err
	}
	d.ends = append(d.ends, keep.Close)
	d.envoy.service.Families = keep
	service, err := envoyserver.New(d.envoy.service, set)
	if err != nil {
		return nil, nil, err
	}
	var options []grpc.ServerOption
	if d.tls != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(d.tls.Clone())))
	}
	server := service.GRPC(options...)
	// gRPC has TLS of its own.
	listener, err := listen("-envoy-listen", d.envoy.listen, nil, d.envoy.clients, d.log)
	if err != nil {
		return nil, nil, err
	}
	d.open(ctx, d.drain, func() error { return server.Serve(listener) }, func(ctx context.Context) {
		service.Drain()
		defer context.AfterFunc(ctx, server.Stop)()
		server.GracefulStop()
	})
	if d.envoy.http != "" {
		pages, err := listen("-envoy-http", d.envoy.http, d.tls, d.envoy.clients, d.log)
		if err != nil {
			return nil, nil, err
		}
		d.openHTTP(ctx, d.drain, pages, service.HTTP())
	}
	from := slog.String("rules_from", d.envoy.xds.server)
	if set == nil {
		d.follow(ctx, service)
	} else {
		from = slog.Int("rules", len(set.Rules()))
	}
	d.log.Info("rald answers Envoy's rate limit service", "address", listener.Addr().String(), from)
	return keep, service, nil
}

// follow puts the management server's rules in force, until the context ends.
func (d *doors) follow(ctx context.Context, service *envoyserver.Service) {
	d.xds = &xds.Client{
		Server: d.envoy.xds.server, Node: d.envoy.xds.node, Credentials: d.envoy.xds.credentials, Options: d.envoy.rules, Log: d.log,
		Set: func(set *rules.Set) error {
			defer release(service, d.log)
			commit, err := service.Prepare(set)
			if err == nil {
				commit()
			}
			return err
		},
	}
	d.running.Go(func() { d.xds.Run(ctx) })
}

func (d *doors) openCheck(ctx context.Context, rules *checkserver.Rules, config checkserver.Config) (*checkserver.Door, error) {
	switch {
	case rules == nil && d.check.wanted:
		return nil, fmt.Errorf("-check-listen needs the file %s", filepath.Join(d.dir, checkserver.Name))
	case rules == nil:
		return nil, nil
	}
	door, err := checkserver.New(config, rules)
	if err != nil {
		return nil, err
	}
	listener, err := listen("-check-listen", d.check.listen, d.tls, d.check.clients, d.log)
	if err != nil {
		return nil, err
	}
	d.openHTTP(ctx, d.drain, listener, door)
	d.log.Info("rald answers HTTP checks", "address", listener.Addr().String(), "rules", rules.Len())
	return door, nil
}

func (d *doors) close() (err error) {
	d.running.Wait()
	for _, end := range slices.Backward(d.ends) {
		err = errors.Join(err, end())
	}
	d.ends = nil
	return err
}
