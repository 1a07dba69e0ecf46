package ralprom_test

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/observe/metrics"
	"github.com/ral-limiter/ral/observe/ralprom"
	"github.com/ral-limiter/ral/policy"
)

func BenchmarkScrapeOneKey(b *testing.B) { scrape(b, 1) }

// A scrape is to take less than 5 ms.
func BenchmarkScrapeMillionKeys(b *testing.B) { scrape(b, 1_000_000) }

func scrape(b *testing.B, keys int) {
	e, err := engine.New[int](engine.Config{Policy: policy.Must(policy.Funnel(1, 1, time.Hour))})
	require.NoError(b, err)
	defer e.Close()
	for key := range keys {
		e.Choke(key)
	}
	registry := prometheus.NewRegistry()
	require.NoError(b, ralprom.Register(registry, metrics.Engine(e)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := registry.Gather(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkWatched is Choke on a known key, admitted and refused: plain, and watched by a scrape
// and a list of the most refused keys, ten times a second. The two are to differ by at most 1% for
// admitted calls and 2% for refused calls. That takes ten runs of each in turn, on a quiet machine:
//
//	go test -c -o watched.test ./observe/ralprom
//	for i in 1 2 3 4 5 6 7 8 9 10; do for of in plain watched; do
//	    ./watched.test -test.run '^$' -test.bench "Watched/.*/$of\$" | sed "s,/$of,," >> $of.txt
//	done; done
//	benchstat plain.txt watched.txt
func BenchmarkWatched(b *testing.B) {
	for _, of := range []struct {
		calls string
		limit policy.Policy
	}{
		{"admitted", policy.Must(policy.Funnel(1_000_000_000, 1_000_000_000, time.Second))},
		{"refused", policy.Must(policy.Funnel(1, 1, 1000*time.Hour))},
	} {
		for _, watched := range []bool{false, true} {
			name := of.calls + "/plain"
			if watched {
				name = of.calls + "/watched"
			}
			b.Run(name, func(b *testing.B) {
				e, err := engine.New[int](engine.Config{Policy: of.limit, NoRefusedKeys: !watched})
				require.NoError(b, err)
				defer e.Close()
				if watched {
					defer watch(b, e)()
				}
				e.Choke(1)
				b.ReportAllocs()
				for b.Loop() {
					e.Choke(1)
				}
			})
		}
	}
}

// watch scrapes the engine and asks for its list, until end is called.
func watch(b *testing.B, e *engine.Engine[int]) (end func()) {
	registry := prometheus.NewRegistry()
	require.NoError(b, ralprom.Register(registry, metrics.Engine(e)))
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		ticks := time.NewTicker(time.Second / 10)
		defer ticks.Stop()
		for {
			select {
			case <-stop:
				return
			case <-ticks.C:
				_, _ = registry.Gather()
				e.MostRefused(10)
			}
		}
	}()
	return func() { close(stop); <-ended }
}
