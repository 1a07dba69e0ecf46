package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"

	"github.com/ral-limiter/ral/limitfile"
)

const maxFiles = 10_000 // of ral check

// onFiles returns a command about so many files of limits. run writes to out, and each fault to problems, which it counts.
func onFiles(name string, minFiles, maxFiles int, run func(files []string, out, problems io.Writer) (faults int)) command {
	return func(_ context.Context, args []string, _ io.Reader, out, problems io.Writer) error {
		flags := newFlags(name, problems)
		files, err := parseArgs(flags, args)
		switch {
		case errors.Is(err, flag.ErrHelp):
			return err
		case err != nil:
			return fmt.Errorf("%w: %w", errUsage, err)
		case len(files) < minFiles || len(files) > maxFiles:
			flags.Usage()
			return fmt.Errorf("%w: %s given", errUsage, many(len(files), "file"))
		}
		if faults := run(files, out, problems); faults > 0 {
			return errors.New(many(faults, "fault"))
		}
		return nil
	}
}

// check reads files of limits.
func check(files []string, out, problems io.Writer) (faults int) {
	for _, file := range files {
		limits, err := limitfile.Read(file)
		faults += listFaults(problems, err)
		if err == nil {
			fmt.Fprintf(out, "%s: %s, no fault\n", file, many(len(limits), "limit"))
		}
	}
	return faults
}

// diff compares two files of limits.
func diff(files []string, out, problems io.Writer) (faults int) {
	before, err := limitfile.Read(files[0])
	faults = listFaults(problems, err)
	after, err := limitfile.Read(files[1])
	if faults += listFaults(problems, err); faults > 0 {
		return faults
	}
	changes, err := limitfile.Compare(before, after)
	for _, change := range changes {
		fmt.Fprintln(out, change)
	}
	if len(changes) == 0 {
		fmt.Fprintln(out, "no limit changes")
	}
	faults = listFaults(problems, err)
	if len(after) == 0 && len(before) > 0 {
		fmt.Fprintf(problems, "%s: it has no limits, and the file before had %d\n", files[1], len(before))
		faults++
	}
	return faults
}

// listFaults writes the faults that an error joins, a line each, and counts them.
func listFaults(to io.Writer, err error) int {
	list, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return 0
	}
	fmt.Fprintln(to, err)
	return len(list.Unwrap())
}
