package main

import (
	"context"
	"io"
	"slices"
	"time"

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/cmd/ralbench/fleetbench"
	"github.com/ral-limiter/ral/cmd/ralbench/report"
	"github.com/ral-limiter/ral/cmd/ralbench/servebench"
	"github.com/ral-limiter/ral/cmd/ralbench/terminal"
)

// measure adds the measurements to the document. redis is the server that fleet mode starts.
func (s settings) measure(ctx context.Context, d *report.Document, redis string, show *terminal.Progress) (err error) {
	switch {
	case s.fleet:
		d.Fleet = new(fleetbench.Report)
		d.Report, *d.Fleet, err = fleetbench.Run(ctx, s.fleetOptions(redis, show))
	case s.serve:
		begun := time.Now()
		d.Serve = new(servebench.Report)
		*d.Serve, err = servebench.Run(ctx, servebench.Options{
			Workloads: s.workloads, Duration: s.duration, Rounds: s.rounds, Progress: show.Step, Finished: show.Finished,
		})
		d.Interrupted, d.Took = d.Serve.Interrupted, time.Since(begun)
	default:
		d.Report, err = bench.Run(ctx, s.workloads, s.contenders, s.options(show))
	}
	return err
}

func (s settings) record() report.Settings {
	var names []string
	for _, c := range s.contenders {
		if !slices.Contains(names, c.Name) {
			names = append(names, c.Name)
		}
	}
	return report.Settings{
		Duration: s.duration, Rounds: s.rounds, CPU: s.cpus[0], CPUs: s.cpus, Scale: s.scale,
		Budget: s.budget, Full: s.full, Brief: s.brief, Fleet: s.fleet, Serve: s.serve, Share: s.share, Workloads: bench.Names(s.workloads), Contenders: names,
	}
}

func (s settings) progress(out io.Writer) *terminal.Progress {
	parts := len(s.workloads) * len(s.cpus)
	if s.fleet {
		parts++ // memory
		if s.share > 0 {
			parts++
		}
	}
	most := s.budget
	if s.fleet {
		most = 0 // it bounds the throughput alone
	}
	return terminal.NewProgress(out, parts, len(s.cpus) > 1, most)
}

func (s settings) options(show *terminal.Progress) bench.Options {
	return bench.Options{
		Duration:    s.duration,
		Rounds:      s.rounds,
		CPUs:        s.cpus,
		Budget:      s.budget,
		NewRecorder: newHistogram,
		Progress:    show.Step,
		Finished:    show.Finished,
	}
}

// The small limit is for -full only.
var (
	shareLimit      = bench.Limit{Capacity: 1000, Count: 1000, Per: time.Second}
	smallShareLimit = bench.Limit{Capacity: 50, Count: 50, Per: time.Second}
)

// memoryKeys is the number of keys that memory in Redis is measured with.
const memoryKeys = 10_000

func (s settings) fleetOptions(redis string, show *terminal.Progress) fleetbench.Options {
	o := fleetbench.Options{
		Server: redis, Workloads: s.workloads, Bench: s.options(show),
		Keys: max(int(memoryKeys*s.scale), 1), Share: s.share, Limits: []bench.Limit{shareLimit},
	}
	if s.full {
		o.Limits = append(o.Limits, smallShareLimit)
	}
	return o
}
