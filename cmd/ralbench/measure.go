package main

import (
	"context"
	"io"
	"slices"

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/cmd/ralbench/internal/fleetbench"
	"github.com/ral-limiter/ral/cmd/ralbench/internal/report"
	"github.com/ral-limiter/ral/cmd/ralbench/internal/servebench"
	"github.com/ral-limiter/ral/cmd/ralbench/internal/terminal"
)

// measure adds the measurements to the document. redis is the server that fleet mode starts.
func (s settings) measure(ctx context.Context, document *report.Document, redis string, show *terminal.Progress) (err error) {
	switch {
	case s.Fleet:
		document.Report, document.Redis, err = fleetbench.Run(ctx, fleetbench.Options{Server: redis, Workloads: s.workloads, Bench: s.options(show), Share: s.Share})
	case s.Serve:
		document.Report, document.Redis, err = servebench.Run(ctx, s.workloads, s.options(show))
	default:
		document.Report, err = bench.Run(ctx, s.workloads, s.contenders, s.options(show))
	}
	return err
}

// record returns the settings with the names of the workloads and of the contenders.
func (s settings) record() report.Settings {
	settings := s.Settings
	settings.Workloads = bench.Names(s.workloads)
	for _, c := range s.contenders {
		if !slices.Contains(settings.Contenders, c.Name) {
			settings.Contenders = append(settings.Contenders, c.Name)
		}
	}
	return settings
}

func (s settings) progress(out io.Writer) *terminal.Progress {
	parts := 0
	for _, w := range s.workloads {
		if w.Draw == bench.DrawElsewhere {
			parts++
		} else {
			parts += len(s.CPUs)
		}
	}
	budget := s.Budget
	if s.Fleet {
		budget = 0 // it does not bound memory and shares
	}
	return terminal.NewProgress(out, parts, len(s.CPUs) > 1, budget)
}

func (s settings) options(show *terminal.Progress) bench.Options {
	return bench.Options{
		Duration:    s.Duration,
		Rounds:      s.Rounds,
		CPUs:        s.CPUs,
		Budget:      s.Budget,
		NewRecorder: newHistogram,
		Progress:    show.Step,
		Finished:    show.Finished,
	}
}
