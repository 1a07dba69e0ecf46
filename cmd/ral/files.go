package main

import (
	"errors"
	"flag"
	"fmt"
	"io"

	"github.com/ral-limiter/ral/limitfile"
)

// fileCommand is a command about files of limits.
type fileCommand struct {
	usage string
	// run writes to out, and each fault of a file to problems. faults counts them.
	run func(files []string, out, problems io.Writer) (faults int)
	// minFiles and maxFiles bound the number of files.
	minFiles, maxFiles int
}

// fileCommands are the commands about files of limits, by name.
var fileCommands = map[string]fileCommand{
	"check": {checkUsage, check, 1, maxFiles},
	"diff":  {diffUsage, diff, 2, 2},
}

const maxFiles = 10_000 // of ral check

const checkUsage = `Usage: ral check file ...

Check reads files of limits, and lists all their faults, a line each, by file, line and name.

    ral check limits.conf

The exit status is 1 if there is a fault, and 2 without a file.
`

const diffUsage = `Usage: ral diff old new

Diff lists the limits that change if a running program follows the new file, and the reasons that
it would refuse the new file.

    ral diff limits.conf limits.conf.new

The exit status is 1 if there is a reason to refuse it, or a fault, and 2 without two files.
`

// errUsage makes the exit status 2.
var errUsage = errors.New("the command line is not accepted")

// runOnFiles runs a command about files of limits.
func runOnFiles(name string, args []string, out, problems io.Writer) error {
	c := fileCommands[name]
	flags := flag.NewFlagSet("ral "+name, flag.ContinueOnError)
	flags.SetOutput(problems)
	flags.Usage = func() { fmt.Fprint(problems, c.usage) }
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return err
	case err != nil:
		return fmt.Errorf("%s: %w: %w", name, errUsage, err)
	case flags.NArg() < c.minFiles || flags.NArg() > c.maxFiles:
		flags.Usage()
		return fmt.Errorf("%s: %w: %s given", name, errUsage, many(flags.NArg(), "file"))
	}
	if faults := c.run(flags.Args(), out, problems); faults > 0 {
		return fmt.Errorf("%s: %s", name, many(faults, "fault"))
	}
	return nil
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
		fmt.Fprintf(problems, "%s: it has no limits, and %s were there\n", files[1], many(len(before), "limit"))
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
