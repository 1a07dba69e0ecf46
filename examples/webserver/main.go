// Command webserver is a small web server that limits its visitors by their addresses and
// by their API keys, and shows them live what they have left. From the root of the
// repository:
//
//	go run ./examples/webserver -state .
//
// It prints where the page is. See server.go for the limits.
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
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "webserver:", err)
		os.Exit(1)
	}
}

// run serves until the context ends, and then waits for requests under way.
func run(ctx context.Context, args []string, out, problems io.Writer) (err error) {
	flags := flag.NewFlagSet("webserver", flag.ContinueOnError)
	flags.SetOutput(problems)
	addr := flags.String("addr", "localhost:8080", "host and port to listen on; port 0 is any that is free")
	proxies := flags.String("proxies", "", "prefixes of the proxies in front, whose X-Forwarded-For is trusted, such as 10.0.0.0/8,192.0.2.7/32")
	state := flags.String("state", "", "an existing directory in which quotas are kept, so that a restart forgives nothing")
	if err := flags.Parse(args); err != nil {
		return err
	}
	s, err := newServer(*proxies, *state)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	listener, err := net.Listen("tcp", *addr)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "See your quota at http://%s/ (Ctrl-C ends it)\n", listener.Addr())

	web := &http.Server{Handler: s.handler, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute}
	ended := make(chan error, 1)
	go func() { ended <- web.Serve(listener) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return web.Shutdown(ctx)
}
