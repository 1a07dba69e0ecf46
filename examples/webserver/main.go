// Command webserver shows limits on a page while they hold. Two servers limit each address by
// itself, in process, and each API key together, over the fleet that they are. A candidate
// stands beside the limit of addresses, and an address can be blocked. From the root of the
// repository:
//
//	go run ./examples/webserver
//
// It prints where the page is. The limit over the fleet needs a Redis: it starts one of its
// own if redis-server is installed, or takes the one of -redis. Without either it says so, and
// shows the rest.
//
// This file has what a server of yours needs, in order: the limits, what makes them, the
// routes behind them, and a block. server.go has the page's side.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
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
	"github.com/ral-limiter/ral/metrics"
	"github.com/ral-limiter/ral/metrics/ralprom"
	"github.com/ral-limiter/ral/policy"
)

// Each address may send 30 requests to a server at once, and 3 a second in the long run.
// Tried beside that is a limit with a smaller burst and a higher rate. Each API key may send
// 12 requests to all servers together at once, and one a second.
var (
	addressLimit   = policy.Must(policy.Parse("funnel 30, 3/s"))
	candidateLimit = policy.Must(policy.Parse("funnel 12, 5/s"))
	keyLimit       = policy.Must(policy.Parse("funnel 12, 1/s"))
)

// server is one server of the fleet. Requests with an API key are held to both limits.
type server struct {
	client    *httplimit.ClientAddr
	key       func(*http.Request) string
	addresses *engine.Engine[netip.Addr]
	candidate *engine.Engine[netip.Addr]
	trial     *limits.Trial[netip.Addr]
	keys      *fleet.Limiter // nil without a Redis
	limit     *httplimit.Middleware
	metrics   *prometheus.Registry
	opened    []io.Closer
	seen      history // for the page
}

// config is what differs from server to server, or is a flag.
type config struct {
	client *httplimit.ClientAddr
	state  engine.State  // where the quotas of addresses are kept over a restart
	redis  string        // host and port, or "" if there is none
	budget time.Duration // how long a request may wait for Redis
}

// newServer returns a server. Call close, even if it returns an error.
func newServer(c config) (s *server, err error) {
	s = &server{client: c.client, key: httplimit.ByHeader("X-API-Key")}

	// A limit in process: an engine. It decides in memory, and is exact.
	if s.addresses, err = engine.New[netip.Addr](engine.Config{Name: "address", Policy: addressLimit, State: c.state}); err != nil {
		return s, err
	}
	s.opened = append(s.opened, s.addresses)

	// A candidate: an engine with the limit to be tried. It is asked about the same requests,
	// refuses none, and what it would have decided otherwise is counted.
	if s.candidate, err = engine.New[netip.Addr](engine.Config{Name: "candidate", Policy: candidateLimit}); err != nil {
		return s, err
	}
	s.opened = append(s.opened, s.candidate)
	if s.trial, err = limits.NewTrial(limits.TrialConfig[netip.Addr]{
		Live: s.addresses, Candidate: s.candidate, OnDifference: s.seen.differs,
	}); err != nil {
		return s, err
	}
	all := []httplimit.AnyLimit{
		httplimit.Limit[netip.Addr]{Name: "address", Limiter: s.trial, Key: s.client.Key},
	}

	// A limit over the fleet: a fleet.Limiter. All servers that give it the same Name and the
	// same Redis share it. While Redis is away each server keeps a share of it.
	if c.redis != "" {
		if s.keys, err = fleet.New(fleet.Config{
			Name: "webserver-keys", Policy: keyLimit, Servers: servers, Budget: c.budget,
			Redis: rueidis.ClientOption{InitAddress: []string{c.redis}},
		}); err != nil {
			return s, err
		}
		s.opened = append(s.opened, s.keys)
		all = append(all, httplimit.Limit[string]{Name: "key", Limiter: s.keys, Key: s.key, WhenNoKey: httplimit.Skip})
	}

	// The middleware: a request passes if all limits admit it, and is charged to all or none.
	if s.limit, err = httplimit.NewAll(httplimit.Options{OnVerdict: s.count}, all...); err != nil {
		return s, err
	}

	// What all of them count, for Prometheus.
	s.metrics = prometheus.NewRegistry()
	sources := []*metrics.Source{
		s.limit.Metrics("web"), metrics.Engine(s.addresses), metrics.Engine(s.candidate), metrics.Trial("address", s.trial),
	}
	if s.keys != nil {
		sources = append(sources, s.keys.Metrics())
	}
	return s, ralprom.Register(s.metrics, sources...)
}

// close saves the quotas. No request is served any more.
func (s *server) close() (err error) {
	for _, o := range s.opened {
		err = errors.Join(err, o.Close())
	}
	return err
}

// routes are those of the server. Only hello is limited.
func (s *server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /hello", s.limit.Handler(http.HandlerFunc(hello)))
	mux.HandleFunc("GET /stats", s.stats)
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.metrics, promhttp.HandlerOpts{}))
	// These act on the client's own address, for clients on this machine only: see atHome. Where
	// others reach the server, ask for an operator's credentials instead.
	mux.Handle("POST /block", s.atHome(s.block))
	mux.Handle("POST /lift", s.atHome(s.lift))
	return http.NewCrossOriginProtection().Handler(mux) // pages of other sites may not post
}

func hello(w http.ResponseWriter, _ *http.Request) {
	_, _ = fmt.Fprintf(w, "Hello! It is %s.\n", time.Now().Format("15:04:05"))
}

// block refuses an address for a time, whatever it has left. The candidate blocks it, too, so
// that a refusal is no difference. (With engine.Config.Penalty an engine blocks by itself.)
func (s *server) block(w http.ResponseWriter, r *http.Request) {
	addr := s.client.Key(r)
	d, err := time.ParseDuration(r.FormValue("for"))
	if err == nil {
		err = s.addresses.Block(addr, d)
	}
	if err == nil {
		err = s.candidate.Block(addr, d)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// lift ends a block. Reset also forgets what the address has used.
func (s *server) lift(w http.ResponseWriter, r *http.Request) {
	addr := s.client.Key(r)
	s.addresses.Reset(addr)
	s.candidate.Reset(addr)
	w.WriteHeader(http.StatusNoContent)
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "webserver:", err)
		os.Exit(1)
	}
}
