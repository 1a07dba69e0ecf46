package main

import (
	"fmt"
	"io"

	"github.com/ral-limiter/ral/bench"
)

// help explains the command.
func help(w io.Writer) {
	fmt.Fprint(w, `ralbench measures Ral on this machine, and audits what it lets pass.

Usage: go run ./cmd/ralbench [flags]

Side by side, in the same rounds:

`)
	for _, c := range contenders() {
		fmt.Fprintf(w, "  %-10s   %s\n", c.Name, c.About)
	}
	fmt.Fprint(w, "\nWorkloads:\n\n")
	for _, wl := range bench.Standard(1) {
		fmt.Fprintf(w, "  %-11s  %s\n", wl.Name, wl.About)
	}
	fmt.Fprintf(w, `
Flags:

  -workloads a,b   only these workloads (default: all)
  -duration %-6v how long a contender is asked in each round, in the workloads
                   on known keys; those on new keys end with the keys
  -rounds %-8d rounds of each workload; growth has one, because it is long
  -cpu %-11s GOMAXPROCS, and how many goroutines ask (default: what Go
                   uses here); the audits have 64 goroutines in any case
  -budget %-8v how long all should take at the most: rounds after the first are
                   left out when the machine is too slow or too busy, and the
                   table says so; 0 for no bound, which is also the default if
                   -rounds or -duration is given
  -scale 1         how many keys the workloads of many keys have, as a multiple:
                   0.01 gives a quick look, and figures that say less
  -json            JSON on standard output; the table goes to standard error
  -json file       JSON in the file, besides the table on standard output
  -h               this text

Columns:

  ops/s     calls a second of all callers together, by the clock; in the floods
            and in growth, that is new keys a second, their filing included
  cpus      processors that the process had on average: fewer than -cpu says that
            other processes were busy, or that callers had to wait
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
  audit     what was admitted, and the most that the limit allowed: for each key
            the lesser of how often it was asked and capacity + rate x time,
            summed up. "cannot bind" says that no key was asked more often than
            its limit, so that the audit cannot find anything. What the limiter
            has counted itself follows, if it is not 0

Method: keys are prepared before the clock starts. The contenders take turns,
round by round, each round beginning with another; the garbage collector runs
before each round. No round is dropped once it was begun, but for the one that
Ctrl-C ends. On a busy machine figures of different runs compare badly, ratios
within a run well; but where cpus is near 1, callers hardly met, and a hot key
costs less than it would.

Ctrl-C ends the run and shows what was measured so far; a second one ends it at
once. Exit codes: 0 done, 1 something failed, 2 bad flags, 130 interrupted.

Examples:

  go run ./cmd/ralbench                                   everything, under a minute
  go run ./cmd/ralbench -workloads hot-refused,uniform    only these two
  go run ./cmd/ralbench -rounds 15 -duration 500ms        calmer figures
  go run ./cmd/ralbench -cpu 1 -json one.json             one processor, JSON as well
  go run ./cmd/ralbench -json | jq '.workloads[].name'    JSON only
`, defaultDuration, defaultRounds, "N", defaultBudget)
}
