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
	"syscall"

	"github.com/ral-limiter/ral/cmd/internal/version"
	"github.com/ral-limiter/ral/cmd/ralbench/internal/report"
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
	code, err := settings.execute(ctx, stdout, stderr)
	if err != nil {
		fmt.Fprintf(stderr, "ralbench: %v\n", err)
	}
	return code
}

// execute measures, or shows an earlier run, and returns the exit code.
func (s settings) execute(ctx context.Context, stdout, stderr io.Writer) (code int, err error) {
	if s.shown == "" && s.needs != nil {
		if err := s.needs(s.workloads); err != nil {
			return exitFailed, fmt.Errorf("%s: %w", s.name, err)
		}
	}
	// Read and opened first: a useless file should not cost a run.
	var document report.Document
	if s.shown != "" {
		if document, err = report.Read(s.shown); err != nil {
			return exitUsage, fmt.Errorf("the run to show: %w", err)
		}
	}
	files, err := s.create()
	if err != nil {
		return exitUsage, err
	}
	if s.shown == "" {
		document, err = s.measure(ctx, stderr)
		err = errors.Join(err, s.breach(document))
	}
	if err = errors.Join(err, s.write(files, document, stdout, stderr)); err != nil {
		return exitFailed, err
	}
	if s.shown == "" && document.Interrupted {
		return exitInterrupted, nil
	}
	return exitOK, nil
}

// breach returns an error if a mode of package fleet admitted more than its limit.
func (s settings) breach(document report.Document) error {
	if broken := report.Audits(document).Broken; s.Fleet && len(broken) > 0 {
		return errors.New(report.Breaches(broken))
	}
	return nil
}
