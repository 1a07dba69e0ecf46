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
	settings, err := parse(args, problems)
	if err != nil {
		return err
	}
	client, err := newClient(settings.url)
	if err != nil {
		return err
	}
	if settings.once {
		if err := once(ctx, client, settings, out); ctx.Err() == nil {
			return err
		}
		return nil // Ctrl-C
	}
	return watch(ctx, client, settings, out)
}

const (
	minRows = 10
	maxRows = 200 // that package inspect answers
)

// maxLooks bounds the looks of -once at a pending list, for about a minute.
const maxLooks = 240

// once writes a view as text. It asks again for a pending list.
func once(ctx context.Context, client *client, settings settings, out io.Writer) error {
	for range maxLooks {
		view, err := client.look(ctx, settings.limit, settings.rows)
		if err != nil {
			return err
		}
		if !view.owed.Pending {
			_, err = io.WriteString(out, view.text(0, 0))
			return err
		}
		select {
		case <-time.After(settings.pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return fmt.Errorf("the keys are still being gone through after %d looks: try again later", maxLooks)
}

func topFlags(settings *settings, problems io.Writer) *flag.FlagSet {
	flags := newFlags("top", problems)
	flags.StringVar(&settings.limit, "limit", "", "the `name` of the limit whose keys are shown; default the first that lists keys")
	flags.IntVar(&settings.rows, "n", 0, "the number of keys of each list, at most 200; 0 is as many as fit, or 10 with -once")
	flags.DurationVar(&settings.every, "every", 2*time.Second, "the time between two looks, 100ms or more")
	flags.BoolVar(&settings.once, "once", false, "look once, and write plain text")
	return flags
}

func parse(args []string, problems io.Writer) (settings settings, err error) {
	urls, err := parseArgs(topFlags(&settings, problems), args)
	settings.url, settings.pause = defaultURL, time.Second/4
	if len(urls) > 0 {
		settings.url = urls[0]
	}
	switch {
	case err != nil:
		return settings, err
	case len(urls) > 1:
		return settings, fmt.Errorf("%.200q follows the URL, want one URL", urls[1])
	case settings.rows < 0 || settings.rows > maxRows:
		return settings, fmt.Errorf("-n is %d, want 0 to %d", settings.rows, maxRows)
	case settings.every < 100*time.Millisecond:
		return settings, fmt.Errorf("-every is %v, want 100ms or more", settings.every)
	}
	if settings.once && settings.rows == 0 {
		settings.rows = minRows
	}
	return settings, nil
}
