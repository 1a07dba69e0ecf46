package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/cmd/ralbench/internal/peers"
	"github.com/ral-limiter/ral/cmd/ralbench/internal/report"
	"github.com/ral-limiter/ral/cmd/ralbench/internal/terminal"
)

// measure measures, and tells its progress.
func (s settings) measure(ctx context.Context, out io.Writer) (document report.Document, err error) {
	isCFloor := func(contender bench.Contender) bool { return contender.Name == bench.CFloorName }
	if slices.ContainsFunc(s.contenders, isCFloor) {
		if err := peers.BuildCFloor(); err != nil {
			fmt.Fprintf(out, "ralbench: %s is left out: %v\n", bench.CFloorName, err)
			s.contenders = slices.DeleteFunc(s.contenders, isCFloor)
		}
	}
	for _, name := range s.missing {
		fmt.Fprintf(out, "ralbench: %s is left out: redis-server is not installed\n", name)
	}
	document = report.Document{Schema: report.Schema, Time: time.Now().UTC().Truncate(time.Second), Machine: report.ThisMachine(), Settings: s.record()}
	if s.Cores {
		document.Transfer = transferTime()
		fmt.Fprintf(out, "ralbench: %s and %s will have the run: a file to send, and a page\n", s.json, s.html)
	}
	options := s.options(s.progress(out))
	if s.run == nil {
		document.Report, err = bench.Run(ctx, s.workloads, s.contenders, options)
	} else {
		document.Report, document.Redis, err = s.run(ctx, s.workloads, options)
	}
	if document.Interrupted {
		fmt.Fprintln(out, "ralbench: interrupted; these are the figures so far")
	}
	return document, err
}

// record returns the settings with the names of the workloads and of the contenders.
func (s settings) record() report.Settings {
	settings := s.Settings
	settings.Workloads = bench.Names(s.workloads)
	for _, contender := range s.contenders {
		if !slices.Contains(settings.Contenders, contender.Name) {
			settings.Contenders = append(settings.Contenders, contender.Name)
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
	}
}
