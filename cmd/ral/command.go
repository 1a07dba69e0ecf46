package main

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"io"
	"text/template"
)

// command runs with the arguments that follow its name.
type command func(ctx context.Context, args []string, stdin io.Reader, out, problems io.Writer) error

// errUsage makes the exit status 2.
var errUsage = errors.New("the command line is not accepted")

// defaultURL is where ListenAndServe of package inspect serves by default.
const defaultURL = "http://localhost:7725/"

//go:embed usage.txt
var usageText string

var usages = template.Must(template.New("").Parse(usageText))

func newFlags(command string, problems io.Writer) *flag.FlagSet {
	flags := flag.NewFlagSet("ral "+command, flag.ContinueOnError)
	flags.SetOutput(problems)
	flags.Usage = func() {
		_ = usages.ExecuteTemplate(problems, command, defaultURL)
		flags.PrintDefaults()
	}
	return flags
}

// parseArgs reads flags and other arguments in any order, and returns the others.
func parseArgs(flags *flag.FlagSet, args []string) (others []string, err error) {
	for err = flags.Parse(args); err == nil && flags.NArg() > 0; err = flags.Parse(flags.Args()[1:]) {
		others = append(others, flags.Arg(0))
	}
	return others, err
}
