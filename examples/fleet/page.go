package main

import (
	_ "embed"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

//go:embed page.html
var page []byte

// page shows the stage, and has buttons to break it. Other sites' pages may not press
// them.
func (g *stage) page() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h.Set("Content-Type", "text/html; charset=utf-8")
		h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; img-src data:; frame-ancestors 'none'")
		_, _ = w.Write(page) // a client that has left misses nothing
	})
	mux.HandleFunc("GET /state", func(w http.ResponseWriter, r *http.Request) {
		after, err := strconv.Atoi(r.FormValue("after"))
		if err != nil {
			after = -1
		}
		writeJSON(w, g.state(after))
	})
	// For the http_sd_configs of a Prometheus: the servers that run have other ports each time.
	mux.HandleFunc("GET /targets", func(w http.ResponseWriter, _ *http.Request) {
		group := map[string][]string{"targets": {}}
		for _, s := range g.servers {
			group["targets"] = append(group["targets"], *s.addr.Load())
		}
		writeJSON(w, []map[string][]string{group})
	})
	mux.HandleFunc("POST /redis", func(w http.ResponseWriter, r *http.Request) {
		done(w, g.redis.do(r.FormValue("do")))
	})
	mux.HandleFunc("POST /server", func(w http.ResponseWriter, r *http.Request) {
		n, err := strconv.Atoi(r.FormValue("number"))
		if err != nil || n < 1 || n > servers {
			done(w, fmt.Errorf("there is no server %q", r.FormValue("number")))
			return
		}
		done(w, g.servers[n-1].do(r.FormValue("do")))
	})
	mux.HandleFunc("POST /load", func(w http.ResponseWriter, r *http.Request) {
		demand, err := strconv.ParseFloat(r.FormValue("demand"), 64)
		if err == nil {
			err = g.load.set(plan{r.FormValue("pattern"), demand})
		}
		done(w, err)
	})
	return http.NewCrossOriginProtection().Handler(mux)
}

// done answers what was asked to be done.
func done(w http.ResponseWriter, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusConflict)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// state is what the page shows.
type state struct {
	Settings settings             `json:"settings"`
	Capacity float64              `json:"capacity"`
	Rate     float64              `json:"rate"` // a second
	Ways     []string             `json:"ways"`
	Now      int64                `json:"now"` // in milliseconds since the beginning
	Redis    redisState           `json:"redis"`
	Servers  [servers]serverState `json:"servers"`
	Load     plan                 `json:"load"`
	Total    total                `json:"total"`
	Samples  []sample             `json:"samples"`
	Notes    []note               `json:"notes"`
}

type redisState struct {
	State string  `json:"state"`
	Addr  string  `json:"addr"`
	PID   int     `json:"pid"`
	Ping  float64 `json:"ping"` // in milliseconds, 0 if it does not answer
}

type serverState struct {
	State string `json:"state"`
	Addr  string `json:"addr"`
	PID   int    `json:"pid"`
	Stats *stats `json:"stats"` // nil if it does not answer
}

// state returns how things are, with the samples that come after the one of that number.
func (g *stage) state(after int) state {
	s := state{
		Settings: g.settings, Capacity: g.load.counts.redis.capacity, Rate: g.load.counts.redis.rate, Ways: ways[:],
		Redis: redisState{
			g.redis.state(), g.redis.Addr(), g.redis.PID(),
			float64(g.redis.ping.Load()) / float64(time.Millisecond),
		},
		Total: g.load.counts.sum(),
	}
	s.Load, _ = g.load.now()
	for i, from := range g.servers {
		s.Servers[i] = serverState{from.state(), *from.addr.Load(), from.process.Load().PID(), from.stats.Load()}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	s.Now = time.Since(g.began).Milliseconds()
	for _, each := range g.samples {
		if each.Seq > after {
			s.Samples = append(s.Samples, each)
		}
	}
	s.Notes = append(s.Notes, g.notes...)
	return s
}
