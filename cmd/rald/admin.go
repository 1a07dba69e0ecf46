package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/ral-limiter/ral/cmd/rald/internal/admin"
)

// defaultAdmin is where operators are served if nothing is said. A second rald on a machine goes
// on without.
const defaultAdmin = "127.0.0.1:7381"

// adminSettings are those of the address for operators.
type adminSettings struct {
	listen   string            // "" is none
	tokens   map[string]string // by operator
	showKeys bool
	file     string // of tokens
	guarded  bool   // each request needs a token
}

func (a *adminSettings) define(flags *flag.FlagSet) {
	flags.StringVar(&a.listen, "admin", defaultAdmin, "the `address` for operators, or unix: and the path of a socket: metrics, limits, profiles, health; other than loopback needs TLS and tokens; none turns it off")
	flags.StringVar(&a.file, "admin-tokens", "", "a `file` with a line of name and token for each operator that may change keys; default the environment's RALD_ADMIN_TOKENS, or none")
	flags.BoolVar(&a.showKeys, "admin-keys", false, "show operators the keys, rather than hashes of them")
}

// complete reads the tokens.
func (a *adminSettings) complete(getenv func(string) string) (err error) {
	if a.listen == "none" {
		a.listen = ""
	}
	a.guarded = !isLoopback(a.listen)
	if at, ok := passed().address("-admin"); ok {
		a.guarded = at.Network() != "unix" && !isLoopback(at.String())
	}
	from, text := "RALD_ADMIN_TOKENS", getenv("RALD_ADMIN_TOKENS")
	if a.file != "" {
		bytes, err := os.ReadFile(a.file)
		if err != nil {
			return fmt.Errorf("-admin-tokens: %w", err)
		}
		from, text = "-admin-tokens: "+a.file, string(bytes)
	}
	a.tokens, err = operators(from, text)
	return err
}

// operators reads lines of a name and a token. What was read is called from in errors.
func operators(from, text string) (map[string]string, error) {
	all := map[string]string{}
	n := 0
	for line := range strings.Lines(text) {
		n++
		words := strings.Fields(line)
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		if len(words) != 2 {
			return nil, fmt.Errorf("%s: line %d has %d words: a name and a token are accepted", from, n, len(words))
		}
		if all[words[0]] != "" {
			return nil, fmt.Errorf("%s: line %d: %q has a token already", from, n, words[0])
		}
		all[words[0]] = words[1]
	}
	return all, nil
}

// operatorsDoor serves operators.
type operatorsDoor struct {
	on      net.Listener // nil if there is none
	handler *admin.Handler
	server  *http.Server
	served  chan struct{}
}

// listenAdmin opens the listener. Nothing is served before run.
func listenAdmin(s settings, log *slog.Logger) (*operatorsDoor, error) {
	if s.admin.listen == "" {
		return &operatorsDoor{}, nil
	}
	l, err := listen("-admin", s.admin.listen, s.tls)
	if err != nil && s.admin.listen == defaultAdmin && errors.Is(err, syscall.EADDRINUSE) {
		log.Warn("rald goes on without an address for operators", "error", err)
		return &operatorsDoor{}, nil
	}
	return &operatorsDoor{on: l}, err
}

// run serves until close. fail is told if that ends before.
func (o *operatorsDoor) run(config admin.Config, log *slog.Logger, fail context.CancelCauseFunc) (err error) {
	if o.on == nil {
		return nil
	}
	if o.handler, err = admin.New(config); err != nil {
		return fmt.Errorf("-admin-tokens: %w", err)
	}
	o.server = &http.Server{
		Handler: o.handler, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second,
		WriteTimeout: time.Minute, IdleTimeout: time.Minute, MaxHeaderBytes: 64 << 10,
	}
	o.served = make(chan struct{})
	go func() {
		defer close(o.served)
		if err := o.server.Serve(o.on); !errors.Is(err, http.ErrServerClosed) {
			fail(err)
		}
	}()
	log.Info("rald serves operators", "address", o.on.Addr().String(), "operators", len(config.Tokens))
	return nil
}

// close ends it, after at most a second for requests under way.
func (o *operatorsDoor) close() (err error) {
	if o.server != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if o.server.Shutdown(ctx) != nil {
			_ = o.server.Close()
		}
		<-o.served
	}
	if o.handler != nil {
		err = o.handler.Close()
	}
	if o.on != nil {
		_ = o.on.Close()
	}
	return err
}
