package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/ral-limiter/ral/fleet"
	"github.com/ral-limiter/ral/httplimit"
	"github.com/ral-limiter/ral/inspect"
	"github.com/ral-limiter/ral/internal/redisd"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// servers is how many there are. They are one process here. They meet in Redis alone.
const servers = 2

// run serves until the context ends, and then waits for requests under way.
func run(ctx context.Context, args []string, out, problems io.Writer) (err error) {
	flags := flag.NewFlagSet("webserver", flag.ContinueOnError)
	flags.SetOutput(problems)
	addr := flags.String("addr", "localhost:8080", "host and port to listen on; port 0 is any that is free")
	proxies := flags.String("proxies", "", "prefixes of the proxies in front, whose X-Forwarded-For is trusted, such as 10.0.0.0/8,192.0.2.7/32")
	state := flags.String("state", "", "an existing directory in which the quotas of addresses are kept, so that a restart forgives nothing")
	redis := flags.String("redis", "", "host and port of the Redis that keeps the quotas of API keys; the default is one of its own, if redis-server is installed")
	budget := flags.Duration("budget", 50*time.Millisecond, "how long a request may wait for Redis")
	token := flags.String("token", "", "a token of 16 characters or more, with which an operator may change keys at /debug/ral/")
	if err := flags.Parse(args); err != nil {
		return err
	}
	client, err := clientAddr(*proxies)
	if err != nil {
		return err
	}
	s := &site{addr: *redis}
	defer func() { err = errors.Join(err, s.close()) }()
	if s.addr == "" {
		if err := s.openRedis(); err != nil {
			s.problem = "Nothing is limited over the fleet: " + err.Error() + ". Or name a Redis that runs: -redis host:port"
			_, _ = fmt.Fprintln(problems, "webserver:", s.problem)
		}
	}
	for i := range s.servers {
		c := config{client: client, redis: s.addr, budget: *budget}
		if *state != "" {
			c.state.Path = filepath.Join(*state, fmt.Sprintf("webserver-%d.state", i+1))
		}
		if s.servers[i], err = newServer(c); err != nil {
			return err
		}
	}
	if err := s.inspected(*token); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", *addr)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(out, "See the limits at http://%s/ and inside them at /debug/ral/ (Ctrl-C ends it)\n", listener.Addr())

	web := &http.Server{Handler: s.routes(), ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute}
	ended := make(chan error, 1)
	go func() { ended <- web.Serve(listener) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return web.Shutdown(ctx)
}

func clientAddr(proxies string) (*httplimit.ClientAddr, error) {
	var config httplimit.AddrConfig
	for text := range strings.SplitSeq(proxies, ",") {
		if text == "" {
			continue
		}
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("-proxies: %w", err)
		}
		config.Header = httplimit.XForwardedFor
		config.Trusted = append(config.Trusted, prefix)
	}
	return httplimit.NewClientAddr(config)
}

// site is the page, the servers behind it, and their Redis.
type site struct {
	servers [servers]*server
	addr    string         // of Redis, "" if there is none
	own     *redisd.Server // the Redis that was started, or nil
	problem string         // why there is none
	inspect *inspect.Handler
}

// inspected makes the page on which an operator looks inside the limits. The servers have the
// limit over the fleet in common: its keys are shown once, with the counters of the first.
func (s *site) inspected(token string) (err error) {
	var config inspect.Config
	if token != "" {
		config.Tokens = map[string]string{"operator": token}
	}
	var all []inspect.AnyLimit
	for i, each := range s.servers {
		all = append(all, inspect.Limit[netip.Addr]{Name: fmt.Sprintf("address, server %d", i+1), Limiter: each.addresses})
	}
	if keys := s.servers[0].keys; keys != nil {
		all = append(all, inspect.Limit[string]{Name: "key, server 1", Limiter: keys, Stats: func() any { return keys.Stats() }})
	}
	s.inspect, err = inspect.New(config, all...)
	return err
}

// openRedis starts a Redis, which ends with the site.
func (s *site) openRedis() (err error) {
	if s.own, err = redisd.Open(redisd.Config{}); err == nil {
		s.addr = s.own.Addr()
	}
	return err
}

func (s *site) close() (err error) {
	if s.inspect != nil {
		err = s.inspect.Close()
	}
	for _, each := range s.servers {
		if each != nil {
			err = errors.Join(err, each.close())
		}
	}
	if s.own != nil {
		err = errors.Join(err, s.own.Close())
	}
	return err
}

// routes are those of the page and, below /1 and /2, of the servers.
func (s *site) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", front)
	mux.HandleFunc("GET /live", s.live)
	mux.Handle("/debug/ral/", s.servers[0].atHome(s.inspect.ServeHTTP)) // for operators on this machine
	for i, each := range s.servers {
		prefix := "/" + strconv.Itoa(i+1)
		mux.Handle(prefix+"/", http.StripPrefix(prefix, each.routes()))
	}
	return mux
}

//go:embed page.html
var page []byte

func front(w http.ResponseWriter, _ *http.Request) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; img-src data:; frame-ancestors 'none'")
	_, _ = w.Write(page)
}

// atHome passes on requests of clients on this machine that also name it as the host. A page of
// another site whose name was made to resolve to this machine names another host.
func (s *server) atHome(next http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = r.Host
		}
		addr, _ := netip.ParseAddr(strings.Trim(host, "[]"))
		if !s.client.Addr(r).IsLoopback() || host != "localhost" && !addr.IsLoopback() {
			http.Error(w, "this is only for clients on the machine itself", http.StatusForbidden)
			return
		}
		next(w, r)
	})
}

// live is what the page shows of a visitor and of all requests. Looking takes nothing.
type live struct {
	Now       int64           `json:"now"` // in seconds of Unix time
	Candidate string          `json:"candidate"`
	Redis     string          `json:"redis"`   // its address
	Own       bool            `json:"own"`     // whether it was started for this
	Problem   string          `json:"problem"` // why there is no limit over the fleet, or no Redis that answers
	Servers   []serverOfVisit `json:"servers"`
}

// serverOfVisit is what one server knows of a visitor, and has done.
type serverOfVisit struct {
	Address *quota            `json:"address"` // nil if the visitor has no address
	Key     *quota            `json:"key"`     // nil without a key, or without a Redis
	Trial   limits.TrialStats `json:"trial"`
	Seconds []second          `json:"seconds"`
}

// quota is what a visitor has left.
type quota struct {
	Key       string  `json:"key"`
	Limit     int64   `json:"limit"`
	Remaining int64   `json:"remaining"`
	Full      float64 `json:"full"`    // seconds until all of it is back
	Window    float64 `json:"window"`  // seconds in which all of it comes back
	Blocked   float64 `json:"blocked"` // seconds until a block ends
	By        string  `json:"by"`      // what says so: "process", "exact" for Redis, or what stands in for it
}

func quotaOf(key string, a limits.Answer, of policy.Policy) *quota {
	return &quota{
		Key: key, Limit: a.Limit, Remaining: a.Remaining, Full: a.ResetAfter.Seconds(),
		Window: of.(policy.Windowed).Window().Seconds(), By: a.Source().String(),
	}
}

func (s *site) live(w http.ResponseWriter, r *http.Request) {
	answer := live{Now: time.Now().Unix(), Candidate: candidateLimit.String(), Redis: s.addr, Own: s.own != nil, Problem: s.problem}
	for _, each := range s.servers {
		of := serverOfVisit{Trial: each.trial.Stats(), Seconds: each.seen.last()}
		if addr := each.client.Key(r); addr.IsValid() {
			a, _ := each.addresses.Ask(r.Context(), addr, 0) // an engine that is open returns no error
			of.Address = quotaOf(addr.String(), a, each.addresses.LimitFor(addr))
			of.Address.Blocked = each.addresses.Blocked(addr).Seconds()
		}
		if key := each.key(r); key != "" && each.keys != nil {
			if a, err := each.keys.Ask(r.Context(), key, 0); err == nil {
				of.Key = quotaOf("", a, each.keys.LimitFor(key))
			}
			if err := each.keys.Health(); err != nil && answer.Problem == "" {
				answer.Problem = "Redis does not answer, and each server keeps a share of the limit: " + err.Error()
			}
		}
		answer.Servers = append(answer.Servers, of)
	}
	writeJSON(w, answer)
}

// stats are a server's counters.
type stats struct {
	Requests  httplimit.Stats
	Candidate limits.TrialStats
	Keys      *fleet.Stats `json:",omitempty"`
}

func (s *server) stats(w http.ResponseWriter, _ *http.Request) {
	all := stats{Requests: s.limit.Stats(), Candidate: s.trial.Stats()}
	if s.keys != nil {
		of := s.keys.Stats()
		all.Keys = &of
	}
	writeJSON(w, all)
}

func writeJSON(w http.ResponseWriter, value any) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(value) // an error means that the visitor has left
}
