// Command ralbench measures Ral on this machine beside other limiters, and audits their admitted
// calls. Run it with -h for the most used flags, and with -h all for everything:
//
//	go run ./cmd/ralbench -h all
//
// Package bench measures, and peers drives the other limiters. fleetbench has the workloads and
// contenders of fleet mode, and servebench has rald beside other servers. report evaluates a run:
// its columns describe each figure once, and terminal and page show them.
// This package reads the flags. Start reading at [execute].
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/cmd/internal/version"
	"github.com/ral-limiter/ral/cmd/ralbench/internal/peers"
	"github.com/ral-limiter/ral/cmd/ralbench/internal/report"
	"github.com/ral-limiter/ral/cmd/ralbench/internal/servebench"
	"github.com/ral-limiter/ral/internal/testkit/child"
)

const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitInterrupted = 130 // as a shell reports a process that SIGINT ended
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A second interrupt ends the process at once.
	context.AfterFunc(ctx, stop)
	os.Exit(execute(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// execute is the command: it returns the exit code.
func execute(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if version.Asked(args) {
		_, _ = io.WriteString(stdout, version.Line("ralbench"))
		return exitOK
	}
	settings, err := parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		_ = help(stdout, args[len(args)-1] == "all")
		return exitOK
	case err != nil:
		fmt.Fprintf(stderr, "ralbench: %v\nRun ralbench -h all for all flags and workloads.\n", err)
		return exitUsage
	}
	code, err := settings.run(ctx, stdout, stderr)
	if err != nil {
		fmt.Fprintf(stderr, "ralbench: %v\n", err)
	}
	return code
}

// run measures, or shows an earlier run, and returns the exit code.
func (s settings) run(ctx context.Context, stdout, stderr io.Writer) (code int, err error) {
	redis := ""
	switch {
	case s.shown != "":
	case s.Fleet:
		if redis, err = child.FindRedis(""); err != nil {
			return exitFailed, fmt.Errorf("-fleet measures on a Redis that it starts: %w", err)
		}
	case s.Serve:
		if err := servebench.Missing(s.workloads); err != nil {
			return exitFailed, fmt.Errorf("-serve: %w", err)
		}
	}

	// Read and opened first: a useless file should not cost a run.
	shown, err := s.read()
	if err != nil {
		return exitUsage, err
	}
	files, err := s.create()
	if err != nil {
		return exitUsage, err
	}
	if shown != nil {
		return failed(s.write(files, *shown, stdout, stderr))
	}

	if isCFloor := func(c bench.Contender) bool { return c.Name == bench.CFloorName }; slices.ContainsFunc(s.contenders, isCFloor) {
		if err := peers.BuildCFloor(); err != nil {
			fmt.Fprintf(stderr, "ralbench: %s is left out: %v\n", bench.CFloorName, err)
			s.contenders = slices.DeleteFunc(s.contenders, isCFloor)
		}
	}
	for _, name := range s.missing {
		fmt.Fprintf(stderr, "ralbench: %s is left out: redis-server is not installed\n", name)
	}
	document := report.Document{Schema: report.Schema, Time: time.Now().UTC().Truncate(time.Second), Machine: report.ThisMachine(), Settings: s.record()}
	if s.Cores {
		document.Transfer = transferTime()
		fmt.Fprintf(stderr, "ralbench: %s and %s will have the run: a file to send, and a page\n", s.json, s.html)
	}
	show := s.progress(stderr)
	err = s.measure(ctx, &document, redis, show)
	if document.Interrupted {
		fmt.Fprintln(stderr, "ralbench: interrupted; these are the figures so far")
	}
	code, err = failed(errors.Join(err, s.write(files, document, stdout, stderr)))
	if document.Interrupted && err == nil {
		code = exitInterrupted
	}
	return code, err
}

// failed returns the exit code for what a run ended with.
func failed(err error) (int, error) {
	if err != nil {
		return exitFailed, err
	}
	return exitOK, nil
}
