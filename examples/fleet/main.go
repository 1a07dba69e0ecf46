// Command fleet shows one limit over three servers that share a Redis, which stop and come back:
//
//	go run ./examples/fleet
//	go run ./examples/fleet -mode leased -outage closed -limit funnel_500,500/s
//
// It prints the address of its page. It runs a redis-server on its own port and folder, and the
// servers as limiters that share only Redis. Read stage.go first, then load.go for the calls.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/ral-limiter/ral/fleet"
	"github.com/ral-limiter/ral/policy"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "fleet:", err)
		os.Exit(1)
	}
}

// run shows the fleet until the context ends, and then ends all of it.
func run(ctx context.Context, args []string, out, problems io.Writer) (err error) {
	flags := flag.NewFlagSet("fleet", flag.ContinueOnError)
	flags.SetOutput(problems)
	addr := flags.String("addr", "localhost:8083", "host and port of the page; port 0 is any that is free")
	program := flags.String("redis", "redis-server", "the program to start as Redis")
	var s settings
	flags.StringVar(&s.Mode, "mode", "exact", "where calls are decided: exact (each in Redis) or leased (by each server, on units taken ahead)")
	flags.StringVar(&s.Outage, "outage", "share", "how calls are answered without Redis: share (of the limit, to each server), open or closed")
	flags.StringVar(&s.Limit, "limit", "funnel 100, 100/s", "the limit of all servers together: a funnel")
	flags.DurationVar(&s.Budget, "budget", 5*time.Millisecond, "how long a call waits for Redis at most")
	if err := flags.Parse(args); err != nil {
		return err
	}
	config, err := s.config()
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", *addr)
	if err != nil {
		return fmt.Errorf("%w (-addr says where to listen)", err)
	}
	defer func() { _ = listener.Close() }()
	show, err := open(ctx, s, config, *program)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, show.close()) }()
	_, _ = fmt.Fprintf(out, "See the fleet at http://%s/ (Ctrl-C ends it)\n", listener.Addr())
	web := &http.Server{Handler: show.page(), ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute}
	context.AfterFunc(ctx, func() { _ = web.Close() })
	if err = web.Serve(listener); errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

type settings struct {
	Mode   string        `json:"mode"`
	Outage string        `json:"outage"`
	Limit  string        `json:"limit"`
	Budget time.Duration `json:"budget"` // in nanoseconds
}

// config returns an error for the first bad flag.
func (s settings) config() (config fleet.Config, err error) {
	config.Name, config.Servers, config.Budget = "example", servers, s.Budget
	var known bool
	if config.Mode, known = map[string]fleet.Mode{"exact": fleet.Exact, "leased": fleet.Leased}[s.Mode]; !known {
		return config, fmt.Errorf("-mode %q is neither exact nor leased", s.Mode)
	}
	outages := map[string]fleet.Fallback{"share": fleet.FallbackShare, "open": fleet.FallbackOpen, "closed": fleet.FallbackClosed}
	if config.Outage, known = outages[s.Outage]; !known {
		return config, fmt.Errorf("-outage %q is none of share, open, closed", s.Outage)
	}
	if config.Policy, err = policy.Parse(s.Limit); err != nil {
		return config, fmt.Errorf("-limit: %w", err)
	}
	if !strings.HasPrefix(config.Policy.String(), "funnel ") { // the audit is a funnel's
		return config, fmt.Errorf("-limit %q is not a funnel, such as funnel 100, 100/s", s.Limit)
	}
	return config, nil
}
