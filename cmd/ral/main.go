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
	"slices"
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

type settings struct {
	url   string
	limit string
	rows  int // 0 is as many as fit
	every time.Duration
	once  bool
	pause time.Duration // between looks at a list that is pending
}

var commands = map[string]command{
	"top": runTop, "replay": runReplay, "suggest": runSuggest,
	"check": onFiles("check", 1, maxFiles, check), "diff": onFiles("diff", 2, 2, diff),
}

func run(ctx context.Context, args []string, stdin io.Reader, out, problems io.Writer) error {
	if version.Asked(args) {
		_, err := io.WriteString(out, version.Line("ral"))
		return err
	}
	if len(args) > 0 && commands[args[0]] != nil {
		if err := commands[args[0]](ctx, args[1:], stdin, out, problems); err != nil {
			return fmt.Errorf("%s: %w", args[0], err)
		}
		return nil
	}
	topFlags(&settings{}, problems).Usage()
	if len(args) > 0 && slices.Contains([]string{"-h", "-help", "--help", "help"}, args[0]) {
		return flag.ErrHelp
	}
	return errors.New("want a command: top, replay, suggest, check, diff or version")
}

func runTop(ctx context.Context, args []string, _ io.Reader, out, problems io.Writer) error {
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
	return fmt.Errorf("the keys are still being gone through after %d looks: try again later", maxLooks)
}

func topFlags(s *settings, problems io.Writer) *flag.FlagSet {
	flags := newFlags("top", problems)
	flags.StringVar(&s.limit, "limit", "", "the `name` of the limit whose keys are shown; default the first that lists keys")
	flags.IntVar(&s.rows, "n", 0, "the number of keys of each list, at most 200; 0 is as many as fit, or 10 with -once")
	flags.DurationVar(&s.every, "every", 2*time.Second, "the time between two looks, 100ms or more")
	flags.BoolVar(&s.once, "once", false, "look once, and write plain text")
	return flags
}

func parse(args []string, problems io.Writer) (s settings, err error) {
	urls, err := parseArgs(topFlags(&s, problems), args)
	s.url, s.pause = defaultURL, time.Second/4
	if len(urls) > 0 {
		s.url = urls[0]
	}
	switch {
	case err != nil:
		return s, err
	case len(urls) > 1:
		return s, fmt.Errorf("%.200q follows the URL, want one URL", urls[1])
	case s.rows < 0 || s.rows > maxRows:
		return s, fmt.Errorf("-n is %d, want 0 to %d", s.rows, maxRows)
	case s.every < 100*time.Millisecond:
		return s, fmt.Errorf("-every is %v, want 100ms or more", s.every)
	}
	if s.once && s.rows == 0 {
		s.rows = minRows
	}
	return s, nil
}
