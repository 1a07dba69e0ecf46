package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	"github.com/ral-limiter/ral/cmd/rald/envoyserver"
	"github.com/ral-limiter/ral/cmd/rald/families"
	"github.com/ral-limiter/ral/cmd/rald/rules"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

// envoy is the rate limit service with its listeners.
type envoy struct {
	keep    *families.Families
	service *envoyserver.Service
	grpc    *grpc.Server
	pages   *http.Server // nil if there are none
	fail    context.CancelCauseFunc
	on      net.Listener
	pagesOn net.Listener
	running sync.WaitGroup
}

// startEnvoy opens the listeners. Its counts are kept apart from the keys
// of clients of Redis.
func startEnvoy(
	s settings, set *rules.Set, of families.Config, log *slog.Logger, fail context.CancelCauseFunc,
) (e *envoy, err error) {
	e = &envoy{fail: fail}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.close())
		}
	}()
	of.Name = "rald envoy"
	if of.Dir != "" {
		of.Dir = filepath.Join(of.Dir, "envoy")
	}
	if e.keep, err = families.New(s.fleet.families(of, ".envoy", log)); err != nil {
		return e, err
	}
	if e.service, err = envoyserver.New(envoyserver.Config{
		Families: e.keep, Headers: true, Shadow: s.envoy.shadow, Quota: s.envoy.quota, Metadata: s.envoy.metadata,
	}, set); err != nil {
		return e, err
	}
	var options []grpc.ServerOption
	if s.tls != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(s.tls.Clone())))
	}
	e.grpc = e.service.GRPC(options...)
	if e.on, err = listen("-envoy-listen", s.envoy.listen, nil); err != nil { // grpc has TLS of its own
		return e, err
	}
	if s.envoy.http != "" {
		if e.pagesOn, err = listen("-envoy-http", s.envoy.http, s.tls); err != nil {
			return e, err
		}
		e.pages = &http.Server{
			Handler: e.service.HTTP(), ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second,
			WriteTimeout: 30 * time.Second, IdleTimeout: s.idle,
		}
	}
	log.Info("rald answers Envoy's rate limit service", "address", e.on.Addr().String(), "rules", len(set.Rules()))
	return e, nil
}

// run serves until the context ends. Requests have the time to drain then.
func (e *envoy) run(ctx context.Context, drain time.Duration) {
	e.running.Go(func() {
		if err := e.grpc.Serve(e.on); err != nil {
			e.fail(err)
		}
	})
	if e.pages != nil {
		e.running.Go(func() {
			if err := e.pages.Serve(e.pagesOn); !errors.Is(err, http.ErrServerClosed) {
				e.fail(err)
			}
		})
	}
	e.running.Go(func() {
		<-ctx.Done()
		e.service.Drain()
		cut := time.AfterFunc(drain, e.grpc.Stop)
		defer cut.Stop()
		if e.pages != nil {
			late, cancel := context.WithTimeout(context.WithoutCancel(ctx), drain)
			defer cancel()
			if e.pages.Shutdown(late) != nil {
				_ = e.pages.Close()
			}
		}
		e.grpc.GracefulStop()
	})
}

// close waits for what run has started, and saves the counts.
func (e *envoy) close() (err error) {
	e.running.Wait()
	for _, l := range []net.Listener{e.on, e.pagesOn} {
		if l != nil {
			_ = l.Close()
		}
	}
	if e.keep != nil {
		err = e.keep.Close()
	}
	return err
}
