package main

import (
	"fmt"
	"io"
	"time"

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/cmd/ralbench/fleetbench"
	"github.com/ral-limiter/ral/cmd/ralbench/format"
	"github.com/ral-limiter/ral/cmd/ralbench/peers"
	"github.com/ral-limiter/ral/cmd/ralbench/report"
	"github.com/ral-limiter/ral/cmd/ralbench/servebench"
	"github.com/ral-limiter/ral/cmd/ralbench/terminal"
)

func help(w io.Writer) {
	fmt.Fprint(w, `ralbench measures Ral on this machine beside other limiters, and audits whether
each keeps its promise.

Usage: go run ./cmd/ralbench [flags]           measure
       go run ./cmd/ralbench [flags] run.json  show a run that -json wrote;
                                               -html, -o and -goals go with it
       go run ./cmd/ralbench version           name the version

Side by side, in the same rounds, in any case:

`)
	for _, c := range always() {
		describe(w, 15, c.Name, c.About)
	}
	fmt.Fprint(w, "\nand beside them, unless -peers says otherwise:\n\n")
	for _, c := range candidates()[:peers.Nearest] {
		describe(w, 15, c.Name, c.About)
	}
	fmt.Fprint(w, "\nothers, for -peers and -full:\n\n")
	for _, c := range candidates()[peers.Nearest:] {
		describe(w, 15, c.Name, c.About)
	}
	fmt.Fprint(w, "\nWorkloads:\n\n")
	for _, wl := range bench.All(1) {
		if !wl.Apart {
			describe(w, 11, wl.Name, wl.About)
		}
	}
	fmt.Fprint(w, `
Ral's other limits and verbs, each beside a funnel's Choke on the same keys, and
beside peers that do the same. They are cut short unless -full, -rounds or
-duration is given:

`)
	for _, wl := range bench.Calls(1) {
		describe(w, 15, wl.Name, wl.About)
	}
	fmt.Fprintln(w)
	for _, c := range peers.Calls() {
		describe(w, 15, c.Name, "beside "+c.Like+": "+c.About)
	}
	fmt.Fprint(w, "\nFleet mode (-fleet): in place of these, on a redis-server of its own:\n\n")
	for _, c := range fleetbench.Contenders("", "") {
		describe(w, 22, c.Name, c.About)
	}
	fmt.Fprintln(w)
	for _, wl := range fleetbench.Workloads(1) {
		describe(w, 13, wl.Name, wl.About)
	}
	fmt.Fprint(w, `
and bytes a key in Redis, and the share of a limit that 4 servers can use.
-workloads, -duration, -rounds, -cpu, -budget and -scale go with it, -peers does
not.
`)
	fmt.Fprint(w, "\nServers (-serve): in place of these, rald as a process beside others, and the\nprograms that ask them:\n\n")
	for _, wl := range servebench.Workloads(1) {
		describe(w, 16, wl.Name, wl.About)
	}
	fmt.Fprint(w, `
The others are a Redis with a short script of the same limit, its PING, and
envoyproxy/ratelimit with its Redis. -workloads, -duration, -rounds and -scale
go with it. It needs a clone of the repository, redis-server, redis-benchmark
and h2load, and builds the rest; the first time takes minutes.
`)
	fmt.Fprintf(w, `
Flags:

  -full            all peers and all workloads, %d rounds of %v a turn:
                   about %s here, on a quiet machine
  -goals           only the goals of Ral, met or missed, and only the workloads
                   that they need. A goal that is missed does not change the
                   exit code
  -fleet           fleet mode; about a minute, -full about four. The exit code
                   is 1 if one of its modes admitted more than its limit
  -share %-9v time for which the usable share of a limit is measured with
                   -fleet, 0 for not at all; %v with -full
  -serve           rald beside other servers; about two minutes, -full eight
  -peers a,b       only these peers; all, or none. Names are those above in
                   small letters, with - for a space: ral-queued
  -workloads a,b   only these workloads (default: all)
  -duration %-6v time for which a contender is asked in each round, in the
                   workloads on known keys; those on new keys end with the keys
  -rounds %-8d rounds of each workload; growth and memory have one, because
                   they are long
  -cpu 1,2,...     values of GOMAXPROCS, one after the other in each workload,
                   and numbers of goroutines that ask (default: what Go uses
                   here); the audits have 64 goroutines in any case
  -budget %-8v most time that the run takes: when the machine is too slow or
                   too busy, rounds after the first are left out, and then
                   contenders, and the output says so; 0 for no bound, which is
                   also the default if -rounds, -duration or -full is given
  -scale 1         multiple of the number of keys, in workloads of many keys:
                   0.01 gives a quick look, and figures that say less
  -json            JSON on standard output; the table goes to standard error
  -json file       JSON in the file, as well as the table on standard output
  -html file       a page with a verdict, charts and tables in the file: it
                   needs nothing else, and no network
  -o file          the figures of all rounds in the format of go test -bench:
                   benchstat compares two of these files
  -h               this text

`, fullRounds, fullDuration, fullTime(), fleetShare, fleetFullShare, defaultDuration, defaultRounds, defaultBudget)
	fmt.Fprint(w, "\nColumns:\n\n"+report.Glossary)
	fmt.Fprint(w, `
On a terminal a bar shows how much of the run is over, and [time passed:time
left]. Ctrl-C ends the run and shows the figures so far; a second one ends it at
once. Tables fit the terminal's width. Exit codes: 0 done, 1 something failed,
2 bad flags, 130 interrupted.

Examples:

  go run ./cmd/ralbench                                 in under two minutes
  go run ./cmd/ralbench -full -json full.json           everything
  go run ./cmd/ralbench -workloads hot-refused,uniform  only these two
  go run ./cmd/ralbench -peers throttled,ulule          beside these two
  go run ./cmd/ralbench -rounds 15 -duration 500ms      calmer figures
  go run ./cmd/ralbench -cpu 1,2,4 -json sweep.json     how it scales, also JSON
  go run ./cmd/ralbench -json new.json -html new.html   to keep, and to look at
  go run ./cmd/ralbench -rounds 10 -o new.txt           for benchstat
  go run ./cmd/ralbench -goals                          goals, met or missed
  go run ./cmd/ralbench -json | jq '.workloads[].name'  JSON only
  go run ./cmd/ralbench -fleet -html fleet.html         fleet mode on a Redis
  go run ./cmd/ralbench -serve -json serve.json         rald beside others
`)
}

const width = 80

// describe writes a padded name and its description.
func describe(w io.Writer, columns int, name, about string) {
	fmt.Fprint(w, terminal.Wrapped(fmt.Sprintf("  %-*s  ", columns, name), about, width))
}

func fullTime() string {
	s, err := parse([]string{"-full"})
	if err != nil {
		return "long"
	}
	return format.Minutes(max(bench.Estimate(s.workloads, s.contenders, s.options(s.progress(io.Discard))), time.Second))
}
