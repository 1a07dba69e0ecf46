// Command ralbench measures Ral on this machine beside other limiters, and audits
// what each lets pass.
//
// Run it with -h for the workloads, the columns and the flags:
//
//	go run ./cmd/ralbench -h
//
// The measuring is done by package bench, and package peers drives the other
// limiters; this command chooses what to measure and shows it. Start reading at
// [run].
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/internal/redisd"
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

	redis := ""
	if s.fleet && s.shown == "" {
		if redis, err = redisd.Find(""); err != nil {
			fmt.Fprintf(stderr, "ralbench: -fleet measures on a Redis that it starts: %v\n", err)
			return exitFailed
		}
	}

	// Read and opened first: a file that is of no use should not cost a run.
	in, err := s.read()
	var out outputs
	if err == nil {
		out, err = s.create()
	}
	if err != nil {
		fmt.Fprintf(stderr, "ralbench: %v\n", err)
		return exitUsage
	}
	if in.shown != nil {
		if err := out.write(in, *in.shown, stdout, stderr); err != nil {
			fmt.Fprintf(stderr, "ralbench: %v\n", err)
			return exitFailed
		}
		return exitOK
	}

	for _, name := range s.missing {
		fmt.Fprintf(stderr, "ralbench: %s is left out: redis-server is not installed\n", name)
	}
	d := document{Schema: schema, Time: time.Now().UTC().Truncate(time.Second), Machine: thisMachine(), Settings: s.record()}
	show := newProgress(stderr, s)
	if s.fleet {
		err = s.measureFleet(ctx, &d, redis, show)
	} else {
		d.Report, err = bench.Run(ctx, s.workloads, s.contenders, s.options(show))
	}
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
	fail(out.write(in, d, stdout, stderr))
	return code
}

// options are the settings as package bench takes them.
func (s settings) options(show *progress) bench.Options {
	return bench.Options{
		Duration:    s.duration,
		Rounds:      s.rounds,
		CPUs:        s.cpus,
		Budget:      s.budget,
		NewRecorder: newHistogram,
		Progress:    show.step,
		Finished:    show.finished,
	}
}
