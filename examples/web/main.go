// Command web limits the requests of each address, and of each API key over all servers with a
// Redis:
//
//	go run ./examples/web -redis localhost:6379
//
// Without -redis only addresses are limited. It prints the addresses for clients and operators.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/rueidis"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/fleet"
	"github.com/ral-limiter/ral/httplimit"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/observe/inspect"
	"github.com/ral-limiter/ral/observe/metrics"
	"github.com/ral-limiter/ral/observe/ralprom"
	"github.com/ral-limiter/ral/policy"
)

// Each address may send 30 requests at once, then 3 a second.
var (
	addressLimit   = policy.Must(policy.Parse("funnel 30, 3/s"))
	candidateLimit = policy.Must(policy.Parse("funnel 12, 5/s"))
	keyLimit       = policy.Must(policy.Parse("funnel 12, 1/s"))
)

func main() {
	addr := flag.String("addr", "localhost:8082", "host and port for clients")
	admin := flag.String("admin", "localhost:8081", "host and port for operators, which clients must not reach")
	redis := flag.String("redis", "", "host and port of the Redis that keeps the quotas of API keys")
	state := flag.String("state", "", "a file that keeps the quotas of addresses over a restart")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *addr, *admin, *redis, *state, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "web:", err)
		os.Exit(1)
	}
}

// run serves until the context ends.
func run(ctx context.Context, addr, admin, redis, state string, out io.Writer) (err error) {
	// A limit in process. With State, Close saves each address's use.
	addresses, err := engine.New[netip.Addr](engine.Config{Name: "address", Policy: addressLimit, State: engine.State{Path: state}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, addresses.Close()) }()

	// A candidate that refuses nothing. Metrics count its different decisions.
	candidate, err := engine.New[netip.Addr](engine.Config{Name: "candidate", Policy: candidateLimit})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, candidate.Close()) }()
	trial, err := limits.NewTrial(limits.TrialConfig[netip.Addr]{Live: addresses, Candidate: candidate})
	if err != nil {
		return err
	}
	// Behind a proxy use httplimit.ClientAddr as the Key.
	all := []httplimit.AnyLimit{httplimit.Limit[netip.Addr]{Name: "address", Limiter: trial, Key: httplimit.ByAddr}}
	shown := []inspect.AnyLimit{inspect.Limit[netip.Addr]{Name: "address", Limiter: addresses}}
	sources := []*metrics.Source{metrics.Engine(addresses), metrics.Engine(candidate), metrics.Trial("address", trial)}

	// A limit over all servers with this Name and Redis.
	if redis != "" {
		keys, err := fleet.New(fleet.Config{Name: "web-keys", Policy: keyLimit, Redis: rueidis.ClientOption{InitAddress: []string{redis}}})
		if err != nil {
			return err
		}
		defer func() { _ = keys.Close() }()
		all = append(all, httplimit.Limit[string]{Name: "key", Limiter: keys, Key: httplimit.ByHeader("X-API-Key"), WhenNoKey: limits.Skip})
		shown = append(shown, inspect.Limit[string]{Name: "key", Limiter: keys, Stats: func() any { return keys.Stats() }})
		sources = append(sources, keys.Metrics())
	}

	// A request is charged to all limits or, if any refuses, to none.
	limit, err := httplimit.NewAll(httplimit.Options{}, all...)
	if err != nil {
		return err
	}
	clients := http.NewServeMux()
	clients.Handle("GET /hello", limit.Handler(http.HandlerFunc(hello)))

	registry := prometheus.NewRegistry()
	if err := ralprom.Register(registry, append(sources, limit.Metrics("web"))...); err != nil {
		return err
	}
	inside, err := inspect.New(inspect.Config{}, shown...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, inside.Close()) }()
	operators := http.NewServeMux()
	operators.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	operators.Handle("/debug/ral/", inside)

	for _, s := range []struct {
		flag, addr, see string
		handler         http.Handler
	}{{"-admin", admin, "See inside the limits at http://%s/debug/ral/\n", operators}, {"-addr", addr, "Ask http://%s/hello\n", clients}} {
		listener, err := net.Listen("tcp", s.addr)
		if err != nil {
			return fmt.Errorf("%w (%s says where to listen)", err, s.flag)
		}
		_, _ = fmt.Fprintf(out, s.see, listener.Addr())
		web := &http.Server{Handler: s.handler, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute}
		go func() { _ = web.Serve(listener) }()
		defer func() { // requests under way end before the limits close
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			err = errors.Join(err, web.Shutdown(ctx))
		}()
	}
	<-ctx.Done()
	return nil
}

func hello(w http.ResponseWriter, _ *http.Request) {
	_, _ = fmt.Fprintf(w, "Hello! It is %s.\n", time.Now().Format("15:04:05"))
}
