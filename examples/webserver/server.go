package main

import (
	_ "embed"
	"encoding/json"
	"errors"
	"expvar"
	"fmt"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"time"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/httplimit"
	"github.com/ral-limiter/ral/policy"
)

//go:embed page.html
var page []byte

// The limits: each address may send 30 requests at once and 3 a second in the long run,
// each API key 12 at once and one a second. Requests with a key are held to both.
var (
	addressLimit = policy.Must(policy.Parse("funnel 30, 3/s"))
	keyLimit     = policy.Must(policy.Parse("funnel 12, 1/s"))
)

type server struct {
	handler   http.Handler
	addresses *engine.Engine[netip.Addr]
	keys      *engine.Engine[string]
	client    *httplimit.ClientAddr
	key       func(*http.Request) string
	limit     *httplimit.Middleware
}

// newServer returns a server. It keeps its visitors' quotas in files of the directory state,
// unless that is empty.
func newServer(proxies, state string) (*server, error) {
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
	client, err := httplimit.NewClientAddr(config)
	if err != nil {
		return nil, err
	}
	addresses, err := engine.New[netip.Addr](engine.Config{Policy: addressLimit, State: stateIn(state, "addresses")})
	if err != nil {
		return nil, err
	}
	keys, err := engine.New[string](engine.Config{Policy: keyLimit, State: stateIn(state, "keys")})
	if err != nil {
		return nil, errors.Join(err, addresses.Close())
	}
	key := httplimit.ByHeader("X-API-Key")
	limit, err := httplimit.NewAll(httplimit.Options{},
		httplimit.Limit[netip.Addr]{Name: "address", Limiter: addresses, Key: client.Key},
		httplimit.Limit[string]{Name: "key", Limiter: keys, Key: key, WhenNoKey: httplimit.Skip},
	)
	if err != nil {
		return nil, err
	}
	s := &server{addresses: addresses, keys: keys, client: client, key: key, limit: limit}

	mux := http.NewServeMux()
	mux.Handle("GET /api/hello", s.limit.Handler(http.HandlerFunc(hello)))
	// The routes below are not limited, and take nothing.
	mux.HandleFunc("GET /{$}", front)
	mux.HandleFunc("GET /quota", s.quota)
	mux.HandleFunc("GET /stats", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintln(w, expvar.Var(s.limit.Var())) // a program of its own would expvar.Publish it
	})
	s.handler = mux
	return s, nil
}

// stateIn returns where an engine keeps its state, if there is a directory.
func stateIn(folder, name string) (s engine.State) {
	if folder != "" {
		s.Path = filepath.Join(folder, "webserver-"+name+".state")
	}
	return s
}

// close saves the quotas. No request is served any more.
func (s *server) close() error { return errors.Join(s.addresses.Close(), s.keys.Close()) }

func hello(w http.ResponseWriter, _ *http.Request) {
	_, _ = fmt.Fprintf(w, "Hello! It is %s.\n", time.Now().Format("15:04:05"))
}

func front(w http.ResponseWriter, _ *http.Request) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; img-src data:; frame-ancestors 'none'")
	_, _ = w.Write(page)
}

// standing describes the quota of one limit that a visitor has left.
type standing struct {
	Key       string  `json:"key"`
	Limit     int64   `json:"limit"`
	Remaining int64   `json:"remaining"`
	Full      float64 `json:"full"`   // seconds until all of it is back
	Window    float64 `json:"window"` // seconds in which all of it comes back
}

// quota tells visitors what they have left. Looking takes nothing.
func (s *server) quota(w http.ResponseWriter, r *http.Request) {
	answer := map[string]standing{}
	if addr := s.client.Key(r); addr.IsValid() {
		answer["address"] = look(s.addresses, addr, addr.String())
	}
	if key := s.key(r); key != "" {
		answer["key"] = look(s.keys, key, "")
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(answer) // an error means that the visitor has left
}

func look[K comparable](limiter *engine.Engine[K], key K, name string) standing {
	d := limiter.Peek(key)
	limit := limiter.LimitFor(key)
	return standing{name, d.Limit, d.Remaining, d.ResetAfter.Seconds(), limit.(policy.Windowed).Window().Seconds()}
}
