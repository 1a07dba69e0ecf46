package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/ral-limiter/ral/fleet"
	"github.com/ral-limiter/ral/observe/ralprom"
)

// serveCommand, as the first argument, has the program be one of the servers.
const serveCommand = "serve"

// Header fields of the servers' answers, for the load that counts them.
const (
	byField     = "Ral-By"        // how the answer was reached
	timingField = "Server-Timing" // how long the limiter took for it
)

// serve is the life of a web server that admits what the fleet's limit lets pass. It
// prints its address first, and then what happens to it, a line each. It ends with the
// context. It also ends when its standard input does: the process that started it is
// gone then.
func serve(ctx context.Context, args []string, out, problems io.Writer) error {
	flags := flag.NewFlagSet(serveCommand, flag.ContinueOnError)
	flags.SetOutput(problems)
	redis := flags.String("at", "", "host and port of Redis")
	var s settings
	s.define(flags)
	if err := parse(flags, args); err != nil {
		return err
	}
	config, err := s.config(*redis)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		// Nothing is written to it: it ends, or is not there.
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()

	// If the output is not read any more, the server is about to end.
	config.OnEvent = func(e fleet.Event) { _, _ = fmt.Fprintln(out, tell(e)) }
	limiter, err := fleet.New(config)
	if err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	if err := ralprom.Register(registry, limiter.Metrics()); err != nil {
		return errors.Join(err, limiter.Close())
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return errors.Join(err, limiter.Close())
	}
	if _, err := fmt.Fprintln(out, addressLine+listener.Addr().String()); err != nil {
		return errors.Join(err, listener.Close(), limiter.Close())
	}
	var late lateness
	go late.watch(ctx)
	return errors.Join(answer(ctx, listener, limited(limiter, &late, registry)), limiter.Close())
}

// lateness is the longest time of late by which a timer of this process came too late. A call
// returns as late as that after its budget, because a goroutine has to wait for a processor.
type lateness struct {
	now, before atomic.Int64 // in nanoseconds, of this second and of the one before
}

// watch measures until the context ends.
func (l *lateness) watch(ctx context.Context) {
	const each = 5 * time.Millisecond
	began := time.Now()
	for ctx.Err() == nil {
		if time.Since(began) > time.Second {
			l.before.Store(l.now.Swap(0))
			began = time.Now()
		}
		due := time.Now().Add(each)
		time.Sleep(each)
		l.now.Store(max(l.now.Load(), int64(time.Since(due))))
	}
}

// longest returns it in milliseconds.
func (l *lateness) longest() float64 {
	return float64(max(l.now.Load(), l.before.Load())) / float64(time.Millisecond)
}

// addressLine begins the line that tells a server's address.
const addressLine = "listening at "

// tell says in words what happened.
func tell(e fleet.Event) string {
	switch {
	case e.Kind == fleet.ChargedLocal:
		return fmt.Sprintf("charged %d calls to Redis that it had let pass without", e.Units)
	case e.Err != nil:
		// That Redis could not be asked, and is not for now, is what the word says.
		why := strings.TrimPrefix(e.Err.Error(), fleet.ErrOutage.Error()+": ")
		return fmt.Sprintf("%v: %v", e.Kind, strings.TrimPrefix(why, fleet.ErrBreakerOpen.Error()+": "))
	}
	return e.Kind.String()
}

// stats is what a server tells about its limiter.
type stats struct {
	fleet.Stats
	Health string  // "" if Redis is asked
	Late   float64 // see lateness
}

// limited is a web server that does nothing but limit. All its visitors share the limit.
func limited(limiter *fleet.Limiter, late *lateness, registry prometheus.Gatherer) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		a, err := limiter.Take(r.Context(), "everybody", 1)
		took := time.Since(began)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		h := w.Header()
		h.Set(byField, a.Source.String())
		h.Set(timingField, "limit;dur="+strconv.FormatFloat(1e3*took.Seconds(), 'f', 3, 64))
		if !a.Allowed {
			// Whole seconds, rounded up.
			h.Set("Retry-After", strconv.FormatInt(int64((a.RetryAfter+time.Second-1)/time.Second), 10))
			http.Error(w, "slow down", http.StatusTooManyRequests)
			return
		}
		_, _ = io.WriteString(w, "hello\n") // a client that has left misses nothing
	})
	mux.HandleFunc("GET /stats", func(w http.ResponseWriter, _ *http.Request) {
		s := stats{Stats: limiter.Stats(), Late: late.longest()}
		if err := limiter.Health(); err != nil {
			s.Health = err.Error()
		}
		writeJSON(w, s)
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{})) // for Prometheus
	return mux
}

func writeJSON(w http.ResponseWriter, value any) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(value) // a client that has left misses nothing
}
