package main

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/cmd/ralbench/fleetbench"
	"github.com/ral-limiter/ral/cmd/ralbench/format"
	"github.com/ral-limiter/ral/cmd/ralbench/peers"
	"github.com/ral-limiter/ral/cmd/ralbench/report"
	"github.com/ral-limiter/ral/cmd/ralbench/servebench"
	"github.com/ral-limiter/ral/cmd/ralbench/terminal"
)

// help writes the most used flags, which fit a small terminal's screen.
func help(w io.Writer) {
	fmt.Fprintf(w, `ralbench measures Ral on this machine beside other limiters, and audits all.

Usage: go run ./cmd/ralbench [flags]           measure, in at most %v
       go run ./cmd/ralbench [flags] run.json  show a run that -json wrote

  -full           all peers, and all rounds however long: about %s
  -goals          only the goals of Ral, met or missed
  -workloads a,b  only these: hot-pass, hot-refused, uniform, zipf, flood, ...
  -peers a,b      beside these only, such as throttled,ulule; all, or none
  -rounds %-7d rounds of each workload: more are calmer, and all are measured
  -budget %-7v most time of the run: 0 for none, with all rounds
  -json file      every round, to show later; without a file on standard output
  -html file      a page with a verdict, charts and tables
  -fleet          fleet mode, on a Redis of its own
  -serve          rald as a process beside other servers
  -h all          the other flags, all workloads and peers, the columns

Examples:
  go run ./cmd/ralbench -json new.json -html new.html   to keep, and to look at
  go run ./cmd/ralbench -workloads hot-refused,uniform  only these two
  go run ./cmd/ralbench -full -peers x/time+xsync       all rounds beside x/time
`, defaultBudget, fullTime(), defaultRounds, defaultBudget)
}

// helpAll explains all flags, workloads, contenders and columns.
func helpAll(w io.Writer) {
	help(w)
	fmt.Fprintf(w, `
Other flags, and more of these:

  -full            %d rounds of %v a turn, on a quiet machine
  -goals           only the workloads that they need. A goal that is missed does
                   not change the exit code
  -workloads, -peers  names are those below in small letters, with - for a
                   space: ral-queued
  -duration %-6v time for which a contender is asked in each round, on known
                   keys; new keys end a round, and growth and memory have one
  -budget          when the machine is too slow or too busy, rounds after the
                   first are left out, and then contenders, and the output says
                   so; 0 is the default if -rounds, -duration or -full is given
  -cpu 1,2,...     values of GOMAXPROCS, one after the other in each workload,
                   and numbers of goroutines that ask (default: what Go uses
                   here); the audits have 64 goroutines in any case
  -scale 1         multiple of the number of keys, in workloads of many keys:
                   0.01 gives a quick look, and figures that say less
  -json            without a file, the table goes to standard error
  -o file          the figures of all rounds in the format of go test -bench:
                   benchstat compares two of these files
  -fleet           about a minute, -full about four. The exit code is 1 if one
                   of its modes admitted more than its limit. Not with -peers
  -share %-9v time for which the usable share of a limit is measured with
                   -fleet, 0 for not at all; %v with -full
  -model           what a call costs on many cores, by a model of cache lines
  -serve           about two minutes, -full eight. It needs a clone of the
                   repository, redis-server, redis-benchmark and h2load, and
                   builds the rest; only -workloads, -duration, -rounds and
                   -scale go with it
  version          an argument: names the version
`, fullRounds, fullDuration, defaultDuration, fleetShare, fleetFullShare)
	contenders := func(title string, columns int, all []bench.Contender) {
		fmt.Fprintf(w, "\n%s:\n\n", title)
		for _, c := range all {
			about := c.About
			if c.Like != "" {
				about = "beside " + c.Like + ": " + about
			}
			describe(w, columns, c.Name, about)
		}
	}
	workloads := func(title string, columns int, all []bench.Workload) {
		fmt.Fprintf(w, "\n%s:\n\n", title)
		for _, wl := range all {
			describe(w, columns, wl.Name, wl.About)
		}
	}
	contenders("Side by side, in the same rounds, in any case", 15, always())
	contenders("and beside them, unless -peers says otherwise", 15, candidates()[:peers.Nearest])
	contenders("others, for -peers and -full", 15, candidates()[peers.Nearest:])
	workloads("Workloads", 11, slices.DeleteFunc(bench.All(1), func(wl bench.Workload) bool { return wl.Apart }))
	workloads(`Ral's other limits and verbs, each beside a funnel's Choke on the same keys, and
beside peers that do the same. They are cut short unless -full, -rounds or
-duration is given`, 15, bench.Calls(1))
	contenders("Peers of these", 15, peers.Calls())
	contenders("Fleet mode (-fleet): in place of these, on a redis-server of its own", 22, slices.DeleteFunc(fleetbench.Contenders(), func(c bench.Contender) bool { return c.For != nil }))
	workloads("and its workloads: the shares of 50 with -full only", 25, fleetbench.Workloads(1))
	workloads(`Servers (-serve): in place of these, rald beside a Redis with a short script of
the same limit, its PING, envoyproxy/ratelimit with its Redis, and Go servers
that answer the same bytes and decide nothing`, 16, servebench.Workloads(1))
	fmt.Fprint(w, "\nColumns:\n\n"+report.Glossary)
	fmt.Fprint(w, `
On a terminal a bar shows how much of the run is over, and [time passed:time
left]. Ctrl-C ends the run and shows the figures so far; a second one ends it at
once. Tables fit the terminal's width. Exit codes: 0 done, 1 something failed,
2 bad flags, 130 interrupted.
`)
}

// describe writes a padded name and its description, in 80 columns.
func describe(w io.Writer, columns int, name, about string) {
	fmt.Fprint(w, terminal.Wrapped(fmt.Sprintf("  %-*s  ", columns, name), about, 80))
}

func fullTime() string {
	s, err := parse([]string{"-full"})
	if err != nil {
		return "long"
	}
	return format.Minutes(max(bench.Estimate(s.workloads, s.contenders, s.options(s.progress(io.Discard))), time.Second))
}
