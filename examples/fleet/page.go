package main

import (
	_ "embed"
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/ral-limiter/ral/fleet"
	"github.com/ral-limiter/ral/observe/ralprom"
)

//go:embed page.html
var page []byte

// page shows the stage, with buttons to break it.
func (g *stage) page() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		header := w.Header()
		header.Set("Content-Type", "text/html; charset=utf-8")
		header.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; img-src data:; frame-ancestors 'none'")
		_, _ = w.Write(page) // the client may have left
	})
	mux.HandleFunc("GET /state", func(w http.ResponseWriter, request *http.Request) {
		after, err := strconv.Atoi(request.FormValue("after"))
		if err != nil {
			after = -1
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		_ = json.NewEncoder(w).Encode(g.state(after)) // likewise
	})
	mux.HandleFunc("POST /redis", func(w http.ResponseWriter, request *http.Request) {
		done(w, g.redisDo(request.FormValue("do")))
	})
	mux.HandleFunc("POST /server", func(w http.ResponseWriter, request *http.Request) {
		number, err := strconv.Atoi(request.FormValue("number"))
		if err == nil {
			err = g.serverDo(number, request.FormValue("do"))
		}
		done(w, err)
	})
	mux.HandleFunc("POST /load", func(w http.ResponseWriter, request *http.Request) {
		demand, err := strconv.ParseFloat(request.FormValue("demand"), 64)
		if err == nil {
			err = g.load.set(plan{request.FormValue("pattern"), demand})
		}
		done(w, err)
	})
	for i, server := range g.servers { // for Prometheus
		mux.HandleFunc("GET /metrics/"+strconv.Itoa(i+1), server.metrics)
	}
	return http.NewCrossOriginProtection().Handler(mux) // against posts of other sites' pages
}

func done(w http.ResponseWriter, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusConflict)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (s *server) metrics(w http.ResponseWriter, request *http.Request) {
	registry := prometheus.NewRegistry()
	if limiter := s.limiter.Load(); limiter != nil {
		if err := ralprom.Register(registry, limiter.Metrics()); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
	}
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(w, request)
}

type state struct {
	Settings settings              `json:"settings"`
	Capacity float64               `json:"capacity"`
	Rate     float64               `json:"rate"` // a second
	Redis    string                `json:"redis"`
	Servers  [servers]*fleet.Stats `json:"servers"` // nil if stopped
	Load     plan                  `json:"load"`
	Total    total                 `json:"total"`
	Samples  []sample              `json:"samples"` // new samples
	Notes    []note                `json:"notes"`
}

// state returns the state, with the samples after number after.
func (g *stage) state(after int) state {
	s := state{Settings: g.settings, Capacity: g.load.capacity, Rate: g.load.rate, Redis: g.redisState()}
	for i, from := range g.servers {
		if limiter := from.limiter.Load(); limiter != nil {
			stats := limiter.Stats()
			s.Servers[i] = &stats
		}
	}
	g.mu.Lock()
	s.Notes = append(s.Notes, g.notes...)
	g.mu.Unlock()
	g.load.mu.Lock()
	defer g.load.mu.Unlock()
	s.Load, s.Total = g.load.plan, g.load.total
	for _, each := range g.load.samples {
		if each.Seq > after {
			s.Samples = append(s.Samples, each)
		}
	}
	return s
}
