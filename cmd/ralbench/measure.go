package main

import (
	"context"
	"io"
	"slices"

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
		d.Report, d.Redis, err = fleetbench.Run(ctx, fleetbench.Options{Server: redis, Workloads: s.workloads, Bench: s.options(show), Share: s.share})
	case s.serve:
		d.Report, d.Redis, err = servebench.Run(ctx, s.workloads, s.options(show))
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
	parts := 0
	for _, w := range s.workloads {
		if w.Draw == bench.DrawElsewhere {
			parts++
		} else {
			parts += len(s.cpus)
		}
	}
	budget := s.budget
	if s.fleet {
		budget = 0 // it does not bound memory and shares
	}
	return terminal.NewProgress(out, parts, len(s.cpus) > 1, budget)
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
