// Command ral looks at the limits of programs that mount package inspect, tries limits on access logs,
// and checks files of limits.
//
//	ral top http://localhost:7725/          # live: which keys owe most, and which are refused most
//	ral top http://localhost:7725/ -once    # the same once, as text
//	ral replay access.log --limit 'funnel 100, 10/s'    # what the limit would have refused
//	ral suggest access.log --refuse-at-most '20 keys'   # which limits would have refused few keys
//
// It only looks: changes are made on the page of package inspect.
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
	_ "time/tzdata" // limits name time zones, and images without a system have none

	"github.com/ral-limiter/ral/cmd/internal/version"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "ral:", err)
		os.Exit(exitStatus(err))
	}
}

// exitStatus returns the exit status for an error of a command.
func exitStatus(err error) int {
	switch {
	case errors.Is(err, errFailIf):
		return 3
	case errors.Is(err, errUsage):
		return 2
	}
	return 1
}

const usage = `Usage: ral top [flags] [URL]
       ral replay [flags] file ...
       ral suggest [flags] file ...
       ral check file ...
       ral diff old new
       ral version

Top shows the limits of a program that mounts package inspect at the URL, by default
` + defaultURL + `, the keys that owe most and the keys that are refused most.

`

// defaultURL is where ListenAndServe of package inspect serves by default.
const defaultURL = "http://localhost:7725/"

type settings struct {
	url   string
	limit string
	rows  int // 0 is as many as fit
	every time.Duration
	once  bool
	pause time.Duration // between looks at a list that is pending
}

// logCommands are the commands about access logs.
var logCommands = map[string]func(ctx context.Context, args []string, stdin io.Reader, out, problems io.Writer) error{
	"replay": runReplay, "suggest": runSuggest,
}

func run(ctx context.Context, args []string, stdin io.Reader, out, problems io.Writer) error {
	if version.Asked(args) {
		_, err := io.WriteString(out, version.Line("ral"))
		return err
	}
	if len(args) > 0 && logCommands[args[0]] != nil {
		if err := logCommands[args[0]](ctx, args[1:], stdin, out, problems); err != nil {
			return fmt.Errorf("%s: %w", args[0], err)
		}
		return nil
	}
	if len(args) > 0 && fileCommands[args[0]].run != nil {
		return runOnFiles(args[0], args[1:], out, problems)
	}
	s, err := parse(args, problems)
	if err != nil {
		return err
	}
	c, err := newClient(s.url)
	if err != nil {
		return err
	}
	if s.once {
		if err := once(ctx, c, s, out); ctx.Err() == nil {
			return err
		}
		return nil // Ctrl-C
	}
	return watch(ctx, c, s, out)
}

const (
	minRows = 10
	maxRows = 200 // that package inspect answers
)

// maxLooks bounds the looks of -once at a pending list, for about a minute.
const maxLooks = 240

// once writes a view as text. It asks again for a pending list.
func once(ctx context.Context, c *client, s settings, out io.Writer) error {
	for range maxLooks {
		v, err := c.look(ctx, s.limit, s.rows)
		if err != nil {
			return err
		}
		if !v.owed.Pending {
			_, err = io.WriteString(out, v.text(0, 0))
			return err
		}
		select {
		case <-time.After(s.pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return fmt.Errorf("top: the keys are still being gone through after %d looks: try again later", maxLooks)
}

func parse(args []string, problems io.Writer) (s settings, err error) {
	flags := flag.NewFlagSet("ral top", flag.ContinueOnError)
	flags.SetOutput(problems)
	flags.Usage = func() {
		fmt.Fprint(problems, usage)
		flags.PrintDefaults()
	}
	flags.StringVar(&s.limit, "limit", "", "the `name` of the limit whose keys are shown; default the first that lists keys")
	flags.IntVar(&s.rows, "n", 0, "the number of keys of each list, at most 200; 0 is as many as fit, or 10 with -once")
	flags.DurationVar(&s.every, "every", 2*time.Second, "the time between two looks, 100ms or more")
	flags.BoolVar(&s.once, "once", false, "look once, and write plain text")
	if len(args) == 0 || args[0] != "top" {
		flags.Usage()
		if len(args) > 0 && (args[0] == "-h" || args[0] == "-help" || args[0] == "--help" || args[0] == "help") {
			return s, flag.ErrHelp
		}
		return s, errors.New("want a command: top, replay, suggest, check, diff or version")
	}
	if err := flags.Parse(args[1:]); err != nil {
		return s, err
	}
	s.url, s.pause = defaultURL, time.Second/4
	if flags.NArg() > 0 { // flags may follow the URL
		s.url = flags.Arg(0)
		if err := flags.Parse(flags.Args()[1:]); err != nil {
			return s, err
		}
	}
	switch {
	case flags.NArg() > 0:
		return s, fmt.Errorf("top: %.200q follows the URL, want one URL", flags.Arg(0))
	case s.rows < 0 || s.rows > maxRows:
		return s, fmt.Errorf("top: -n is %d, want 0 to %d", s.rows, maxRows)
	case s.every < 100*time.Millisecond:
		return s, fmt.Errorf("top: -every is %v, want 100ms or more", s.every)
	}
	if s.once && s.rows == 0 {
		s.rows = minRows
	}
	return s, nil
}
