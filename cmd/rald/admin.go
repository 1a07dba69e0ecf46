package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
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

// listenAdmin opens the listener for operators, or returns nil if there is none.
func listenAdmin(s settings, log *slog.Logger) (net.Listener, error) {
	if s.admin.listen == "" {
		return nil, nil
	}
	l, err := listen("-admin", s.admin.listen, s.tls)
	if err != nil && s.admin.listen == defaultAdmin && errors.Is(err, syscall.EADDRINUSE) {
		log.Warn("rald goes on without an address for operators", "error", err)
		return nil, nil
	}
	return l, err
}

// openAdmin serves operators on a listener, and gives requests under way a second at the end.
func (d *doors) openAdmin(ctx context.Context, l net.Listener, config admin.Config) error {
	handler, err := admin.New(config)
	if err != nil {
		return fmt.Errorf("-admin-tokens: %w", err)
	}
	d.ends = append(d.ends, handler.Close)
	d.openHTTP(ctx, time.Second, l, handler)
	d.log.Info("rald serves operators", "address", l.Addr().String(), "operators", len(config.Tokens))
	return nil
}
