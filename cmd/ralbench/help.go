package main

import (
	"fmt"
	"io"
	"time"

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/cmd/ralbench/fleetbench"
)

// help explains the command.
func help(w io.Writer) {
	fmt.Fprint(w, `ralbench measures Ral on this machine beside other limiters, and audits what
each lets pass.

Usage: go run ./cmd/ralbench [flags]             measure
       go run ./cmd/ralbench [flags] run.json    show a run that -json has kept;
                                                 only -html and -compare go with it

Side by side, in the same rounds, in any case:

`)
	for _, c := range always() {
		describe(w, c)
	}
	fmt.Fprint(w, "\nand beside them, if -peers does not say otherwise:\n\n")
	for _, c := range nearest() {
		describe(w, c)
	}
	fmt.Fprint(w, "\nothers, for -peers and -full:\n\n")
	for _, c := range candidates()[len(nearest()):] {
		describe(w, c)
	}
	fmt.Fprint(w, "\nWorkloads:\n\n")
	for _, wl := range bench.Standard(1) {
		fmt.Fprintf(w, "  %-11s  %s\n", wl.Name, wl.About)
	}
	fmt.Fprint(w, "\nFleet mode (-fleet): in place of these, on one redis-server that is started for it:\n\n")
	for _, c := range fleetbench.Contenders("", "") {
		fmt.Fprintf(w, "  %-16s  %s\n", c.Name, c.About)
	}
	fmt.Fprintln(w)
	for _, wl := range fleetbench.Workloads(1) {
		fmt.Fprintf(w, "  %-13s  %s\n", wl.Name, wl.About)
	}
	fmt.Fprint(w, `
and bytes a key in Redis, and how much of a limit 4 servers can use. -workloads,
-duration, -rounds, -cpu, -budget and -scale go with it, -peers does not.
`)
	fmt.Fprintf(w, `
Flags:

  -full            all peers and all workloads, %d rounds of %v a turn: about
                   %s here, with nothing else to do
  -fleet           fleet mode; about a minute, -full about four. The exit code is 1 if
                   one of its modes admitted more than its limit
  -share %-9v how long the usable share of a limit is measured with -fleet, 0 for
                   not at all; %v with -full
  -peers a,b       only these peers; all, or none. Names are those above in small
                   letters, with - for a space: ral-queued
  -workloads a,b   only these workloads (default: all)
  -duration %-6v how long a contender is asked in each round, in the workloads
                   on known keys; those on new keys end with the keys
  -rounds %-8d rounds of each workload; growth and memory have one, because they
                   are long
  -cpu 1,2,...     values of GOMAXPROCS, one after the other in each workload, and
                   how many goroutines ask (default: what Go uses here); the audits
                   have 64 goroutines in any case
  -budget %-8v how long all should take at the most: rounds after the first are
                   left out when the machine is too slow or too busy, and the
                   table says so; 0 for no bound, which is also the default if
                   -rounds, -duration or -full is given
  -scale 1         how many keys the workloads of many keys have, as a multiple:
                   0.01 gives a quick look, and figures that say less
  -json            JSON on standard output; the table goes to standard error
  -json file       JSON in the file, besides the table on standard output
  -html file       a page with charts and tables in the file: it needs nothing
                   else, no network either
  -compare file    what became better or worse since an earlier run, of which
                   -json wrote the file; judged by the values of the rounds
  -h               this text

Columns:

  ops/s     calls a second of all callers together, by the clock; in the floods
            and in growth, that is new keys a second, their filing included
  cpus      processors that the process had on average: fewer than GOMAXPROCS says
            that other processes were busy, or that callers had to wait
  ns/op     processor time of a call, whichever goroutine of the process used it
            (callers, limiter, garbage collector); waiting is not in it
  spread    how far the round that is farthest from the median is from it
  x floor   ns/op as a multiple of the floor's: the median of the ratios in each
            round. The floor is what a map lookup, a clock read and a
            compare-and-swap cost here; refused calls need no compare-and-swap,
            and new keys a LoadOrStore. It is no limiter
  allocs    allocations a call, and B/op bytes a call, of the whole process: the
            limiter's background goroutines are in it
  p50 ...   latencies of single calls. Each is timed by two clock reads, of which
            about one is in the figure. They come from passes of their own, so
            that timing does not slow down what ops/s and ns/op say; growth,
            being long, has one pass only, and says so
  worst     includes the pauses of the machine and of the garbage collector: the
            floor's tells how long those were
  refused   share of the calls that were refused
  B/key     of the heap by key, the names of the keys apart; heap is all of it
  full GC   how long a full garbage collection takes with all keys there, and
            before it took without them
  idle heap share of the heap that is left when no key was asked for an idle time
  audit     what was admitted, the most that the limit allowed, and what was
            possible. Allowed is, for each key, the lesser of how often it was
            asked and capacity + rate x time, summed up. Possible is what an ideal
            limiter would have let pass of the same calls. "cannot bind" says that
            no key was asked more often than its limit, so that the audit cannot
            find too many. What the limiter has counted itself follows, if it is
            not 0
  Redis ns/op   processor time of redis-server by call, with -fleet; "with ns/op" is the
            sum of both processes. MEMORY USAGE and used_memory: bytes a key, as Redis
            tells them; the latter with the tables of all keys
  share     what 4 servers admitted together of capacity + rate x time, when they are
            asked for three times the rate: evenly, or one for 85%% of it, or each
            second another one. The audit is over every window of time
  %s ~ !     %s is the best of its column among limiters that are exact by their own
            design, that let no more pass than their limit, and that do all of
            their work in this process; ~ is not exact by design, ! let more pass

Method: keys are prepared before the clock starts. The contenders take turns,
round by round, each round beginning with another; the garbage collector runs
before each round. A pass that other load disturbed is done again if there is time,
and counted as disturbed if that was no better. Apart from that, no round is
dropped once it was begun, but for the one that Ctrl-C ends. On a busy machine
figures of different runs compare badly, ratios within a run well; but where cpus
is near 1, callers hardly met, and a hot key costs less than it would.
docs/benchmarking.md has more of it, and what each figure does not say.

Ctrl-C ends the run and shows what was measured so far; a second one ends it at
once. Exit codes: 0 done, 1 something failed, 2 bad flags, 130 interrupted.

Examples:

  go run ./cmd/ralbench                                   in under two minutes
  go run ./cmd/ralbench -full -json full.json             everything
  go run ./cmd/ralbench -workloads hot-refused,uniform    only these two
  go run ./cmd/ralbench -peers throttled,ulule            beside these two
  go run ./cmd/ralbench -rounds 15 -duration 500ms        calmer figures
  go run ./cmd/ralbench -cpu 1,2,4 -json sweep.json       how it scales, JSON as well
  go run ./cmd/ralbench -json new.json -html new.html     to keep, and to look at
  go run ./cmd/ralbench -compare old.json                 measure, and compare
  go run ./cmd/ralbench -compare old.json new.json        compare two earlier runs
  go run ./cmd/ralbench -json | jq '.workloads[].name'    JSON only
  go run ./cmd/ralbench -fleet -html fleet.html           fleet mode on a Redis
`, fullRounds, fullDuration, fullTime(), fleetShare, fleetFullShare, defaultDuration, defaultRounds, defaultBudget, mark, mark)
}

func describe(w io.Writer, c bench.Contender) {
	fmt.Fprintf(w, "  %-15s  %s\n", c.Name, c.About)
}

// fullTime returns how long -full takes here, by estimate.
func fullTime() string {
	s, err := parse([]string{"-full"})
	if err != nil {
		return "long"
	}
	return minutes(max(bench.Estimate(s.workloads, s.contenders, s.options(newProgress(io.Discard, s))), time.Second))
}
