package main

import (
	"context"
	"time"

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/cmd/ralbench/fleetbench"
	"github.com/ral-limiter/ral/cmd/ralbench/report"
	"github.com/ral-limiter/ral/cmd/ralbench/terminal"
)

// Usable shares are measured under these limits, under the small one with -full only.
var (
	shareLimit      = bench.Limit{Capacity: 1000, Count: 1000, Per: time.Second}
	smallShareLimit = bench.Limit{Capacity: 50, Count: 50, Per: time.Second}
)

// memoryKeys is the number of keys that memory in Redis is measured with.
const memoryKeys = 10_000

// measureFleet measures fleet mode on a Redis that it starts.
func (s settings) measureFleet(ctx context.Context, d *report.Document, redis string, show *terminal.Progress) (err error) {
	var more fleetbench.Report
	d.Report, more, err = fleetbench.Run(ctx, s.fleetOptions(redis, show))
	d.Fleet = &more
	return err
}

// fleetOptions returns the settings as package fleetbench takes them.
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
