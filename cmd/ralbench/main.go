// Command ralbench measures Ral on this machine and audits what it lets pass.
//
// Run it with -h for the workloads, the columns and the flags:
//
//	go run ./cmd/ralbench -h
//
// The measuring is done by package bench; this command chooses what to measure
// and shows it. Start reading at [run].
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/cell"
)

// Exit codes.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitInterrupted = 130 // as a shell reports a process that SIGINT ended
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// Who interrupts a second time does not want to wait for the first.
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run is the command: it returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	s, err := parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		help(stdout)
		return exitOK
	case err != nil:
		fmt.Fprintf(stderr, "ralbench: %v\nRun ralbench -h for all flags and workloads.\n", err)
		return exitUsage
	}

	// Opened first: a file that cannot be written should not cost a run.
	var file *os.File
	if s.json != "" && s.json != "-" {
		if file, err = os.Create(s.json); err != nil {
			fmt.Fprintf(stderr, "ralbench: -json %s: cannot be written: %v\n", s.json, err)
			return exitUsage
		}
	}

	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(s.cpu))
	d := document{Schema: schema, Time: time.Now().UTC().Truncate(time.Second), Machine: thisMachine(), Settings: s.record()}
	show := newProgress(stderr, s)
	d.Report, err = bench.Run(ctx, s.workloads, contenders(), bench.Options{
		Duration:    s.duration,
		Rounds:      s.rounds,
		Callers:     s.cpu,
		Budget:      s.budget,
		NewRecorder: newHistogram,
		Progress:    show.step,
		Finished:    show.finished,
	})
	show.end()

	code := exitOK
	if d.Interrupted {
		fmt.Fprintln(stderr, "ralbench: interrupted; this is what was measured so far")
		code = exitInterrupted
	}
	fail := func(err error) {
		if err != nil {
			fmt.Fprintf(stderr, "ralbench: %v\n", err)
			code = exitFailed
		}
	}
	fail(err)
	switch {
	case s.json == "-":
		// The table goes where it does not get mixed with the JSON.
		fail(d.writeJSON(stdout))
		fail(d.writeTable(stderr))
	case file != nil:
		fail(errors.Join(d.writeJSON(file), file.Close()))
		fallthrough
	default:
		fail(d.writeTable(stdout))
	}
	return code
}

// contenders returns what is measured side by side.
func contenders() []bench.Contender {
	return []bench.Contender{bench.Floor(), bench.Ral(cell.Exact), bench.Ral(cell.Queued)}
}
