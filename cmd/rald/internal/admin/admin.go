package admin

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/pprof"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/ral-limiter/ral/cmd/rald/internal/browser"
	"github.com/ral-limiter/ral/cmd/rald/internal/checkserver"
	"github.com/ral-limiter/ral/cmd/rald/internal/configfile"
	"github.com/ral-limiter/ral/cmd/rald/internal/configured"
	"github.com/ral-limiter/ral/cmd/rald/internal/envoyserver"
	"github.com/ral-limiter/ral/cmd/rald/internal/families"
	"github.com/ral-limiter/ral/cmd/rald/internal/redisserver"
)

// Config configures a Handler.
type Config struct {
	// Redis serves clients of Redis, and Keys keep its keys. Both are required.
	Redis *redisserver.Server
	Keys  *families.Families
	// Limits are the configured limits of Keys. Required.
	Limits *configured.Limits

	// Envoy is the rate limit service, and EnvoyKeys keep its counts; nil for none.
	Envoy     *envoyserver.Service
	EnvoyKeys *families.Families

	// Check answers HTTP checks; nil for none.
	Check *checkserver.Door

	Reloads configfile.Reloads

	// Draining reports whether the server is about to end. nil is never.
	Draining func() bool

	// Tokens permits changes: a token for each operator's name. See inspect.Config.
	Tokens map[string]string
	// Guarded refuses all requests without a token except /healthz, if other machines reach it.
	Guarded bool
	// ShowKeys shows keys as they are, by default as hashes.
	ShowKeys bool
	// Log is told of changes by operators. The default is slog.Default.
	Log *slog.Logger
}

// Handler serves operators. New makes it.
type Handler struct {
	config  Config
	tokens  tokens
	page    *inspection
	metrics http.Handler
	mux     *http.ServeMux
}

// New returns a Handler. Close ends it. The error names a fault of the tokens.
func New(config Config) (*Handler, error) {
	switch {
	case config.Redis == nil || config.Keys == nil || config.Limits == nil:
		return nil, errors.New("admin: Redis, Keys or Limits is nil: all are required")
	case config.Guarded && len(config.Tokens) == 0:
		return nil, errors.New("admin: Guarded is set, and there are no tokens: one or more are required")
	}
	if config.Log == nil {
		config.Log = slog.Default()
	}
	h := &Handler{config: config, tokens: newTokens(config.Tokens), mux: http.NewServeMux()}
	registry := prometheus.NewRegistry()
	for _, c := range []prometheus.Collector{
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		&collector{config: config, keeps: h.families(), known: map[families.Family]prometheus.Collector{}},
	} {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("admin: %w", err)
		}
	}
	page, err := newInspection(config, h.families())
	if err != nil {
		return nil, err
	}
	h.page = page
	h.metrics = promhttp.HandlerFor(registry, promhttp.HandlerOpts{Registry: registry, MaxRequestsInFlight: 4})
	for path, handler := range map[string]http.Handler{
		"/{$}":                 http.HandlerFunc(index),
		"/metrics":             h.metrics,
		"/debug/pprof/":        http.HandlerFunc(pprof.Index),
		"/debug/pprof/cmdline": http.HandlerFunc(cmdline),
		"/debug/pprof/profile": http.HandlerFunc(pprof.Profile),
		"/debug/pprof/symbol":  http.HandlerFunc(pprof.Symbol),
		"/debug/pprof/trace":   http.HandlerFunc(pprof.Trace),
	} {
		h.mux.Handle(path, browser.OwnSite(handler))
	}
	// The page refuses other sites itself.
	h.mux.Handle("/debug/ral/", h.page)
	return h, nil
}

func (h *Handler) families() []*families.Families {
	if h.config.EnvoyKeys == nil {
		return []*families.Families{h.config.Keys}
	}
	return []*families.Families{h.config.Keys, h.config.EnvoyKeys}
}

// Close ends the page's goroutines.
func (h *Handler) Close() error { return h.page.close() }

// Metrics returns a handler for /metrics and /healthz alone, without a token.
func (h *Handler) Metrics() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/metrics", browser.Guard(h.metrics))
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { h.health(w) })
	return mux
}

// ServeHTTP serves the pages to permitted requests.
func (h *Handler) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	if request.URL.Path == "/healthz" {
		h.health(w)
		return
	}
	switch {
	case h.config.Guarded && !h.tokens.has(request):
		w.Header().Set("WWW-Authenticate", `Basic realm="rald"`)
		http.Error(w, "a token is needed: as the password of an operator, or as Authorization: Bearer TOKEN", http.StatusUnauthorized)
	case browser.KnownHost(w, request):
		h.mux.ServeHTTP(w, request)
	}
}

// cmdline leaves out the flags, which may have a password.
func cmdline(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, os.Args[0]) }

func index(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = io.WriteString(w, `<!doctype html><title>rald</title>
<ul><li><a href="/debug/ral/">limits</a><li><a href="/metrics">metrics</a><li><a href="/debug/pprof/">profiles</a><li><a href="/healthz">health</a></ul>
`)
}

// health answers whether clients should come here: not while the server ends, or if an engine
// records no new keys. Without Redis they should: -outage says how they are answered. So they should while files
// have faults, since the configuration before holds.
func (h *Handler) health(w http.ResponseWriter) {
	w.Header().Set("Cache-Control", "no-store")
	if h.config.Draining != nil && h.config.Draining() {
		http.Error(w, "draining", http.StatusServiceUnavailable)
		return
	}
	// text has the families without Redis, and whether files have faults.
	text := "ok\n"
	for _, keep := range h.families() {
		without, err := keep.Health()
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		text += without
	}
	if h.config.Reloads.Fault() != nil {
		// Requests without a token read this, and the faults have lines of files.
		text += "the last configuration is not in force, or not all of it: INFO and the operators' page say why\n"
	}
	_, _ = io.WriteString(w, text)
}
