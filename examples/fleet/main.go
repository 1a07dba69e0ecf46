// Command fleet shows one limit over three web servers that share a Redis, and what
// happens to it when Redis or a server is killed and comes back. From the root of the
// repository, or from this folder with a dot for the path:
//
//	go run ./examples/fleet
//	go run ./examples/fleet -mode leased -outage closed -limit funnel_500,500/s
//
// It prints where the page is. The servers, and a redis-server on a port and in a folder
// of its own, are processes of their own: a server is this program again. Everything
// ends when the command does. If the command itself is killed, the servers notice by
// themselves; redis-server ends with it on Linux only, and its temporary folder stays.
//
// Read stage.go first, then server.go for how a server limits. It runs where
// redis-server does: on Linux, macOS and other kinds of Unix.
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
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	act, args := run, os.Args[1:]
	if len(args) > 0 && args[0] == serveCommand {
		act, args = serve, args[1:]
	}
	err := act(ctx, args, os.Stdout, os.Stderr)
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
	addr := flags.String("addr", "localhost:8080", "host and port of the page; port 0 is any that is free")
	program := flags.String("redis", "redis-server", "the program to start as Redis")
	var s settings
	s.define(flags)
	if err := parse(flags, args); err != nil {
		return err
	}
	if err := s.check(); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", *addr)
	if err != nil {
		return err
	}
	// The web server closes it, too, if that is ever started.
	defer func() { _ = listener.Close() }()

	show, err := open(ctx, s, *program)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, show.close()) }()
	fmt.Fprintf(out, "See the fleet at http://%s/ (Ctrl-C ends it)\n", listener.Addr())
	return answer(ctx, listener, show.page())
}

// parse is flags.Parse for a command that takes nothing but flags.
func parse(flags *flag.FlagSet, args []string) error {
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("%q is no flag; -h lists them", flags.Arg(0))
	}
	return nil
}

// answer serves until the context ends, and then lets requests under way end.
func answer(ctx context.Context, listener net.Listener, handler http.Handler) error {
	web := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute}
	ended := make(chan error, 1)
	go func() { ended <- web.Serve(listener) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	return web.Shutdown(ctx)
}
