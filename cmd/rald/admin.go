package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/ral-limiter/ral/cmd/rald/internal/admin"
)

const defaultAdmin = "127.0.0.1:7381" // a second rald on a machine goes on without it

type adminSettings struct {
	listen   string            // "" is none
	tokens   map[string]string // by operator
	showKeys bool
	file     string // of tokens
	guarded  bool   // each request needs a token

	metrics string // the address for metrics and health alone; "" is none
	clients networks
}

func (a *adminSettings) define(flags *flag.FlagSet) {
	flags.StringVar(&a.listen, "admin", defaultAdmin, "the `address` for operators, or unix: and the path of a socket: metrics, limits, profiles, health; other than loopback needs TLS and tokens; none turns it off")
	flags.StringVar(&a.metrics, "metrics", "", "an `address` for /metrics and /healthz alone, which show no keys and change nothing; other than loopback needs TLS or -metrics-clients")
	flags.Var(&a.clients, "metrics-clients", "the `networks` whose clients -metrics accepts")
	flags.StringVar(&a.file, "admin-tokens-file", "", "a `file` with a line of name and token for each operator that may change keys; default the environment's RALD_ADMIN_TOKENS, or none")
	flags.BoolVar(&a.showKeys, "admin-keys", false, "show operators the keys, rather than hashes of them")
}

func (a *adminSettings) complete(env environment) (err error) {
	if a.listen == "none" {
		a.listen = ""
	}
	a.guarded = !isLoopback(a.listen)
	if at, ok := passed().address("-admin"); ok {
		a.guarded = at.Network() != "unix" && !isLoopback(at.String())
	}
	from, text := "RALD_ADMIN_TOKENS", env.get("RALD_ADMIN_TOKENS")
	if a.file != "" {
		bytes, err := os.ReadFile(a.file)
		if err != nil {
			return fmt.Errorf("-admin-tokens-file: %w", err)
		}
		from, text = "-admin-tokens-file: "+a.file, string(bytes)
	}
	a.tokens, err = operators(from, text)
	return err
}

// operators parses lines of a name and a token from a source named in errors.
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

func listenAdmin(s settings, log *slog.Logger) (net.Listener, error) {
	if s.admin.listen == "" {
		return nil, nil
	}
	l, err := listen("-admin", s.admin.listen, s.tls, nil, log)
	if err != nil && s.admin.listen == defaultAdmin && errors.Is(err, syscall.EADDRINUSE) {
		log.Warn("rald goes on without an address for operators", "error", err)
		return nil, nil
	}
	return l, err
}

// openAdmin serves operators on l, unless it is nil, and metrics and health at their address. At
// the end requests under way have a second.
func (d *doors) openAdmin(ctx context.Context, l net.Listener, config admin.Config) error {
	if l == nil && d.admin.metrics == "" {
		return nil
	}
	config.Guarded = config.Guarded && l != nil
	handler, err := admin.New(config)
	if err != nil {
		return fmt.Errorf("-admin-tokens-file: %w", err)
	}
	d.ends = append(d.ends, handler.Close)
	if l != nil {
		d.openHTTP(ctx, time.Second, l, handler)
		d.log.Info("rald serves operators", "address", l.Addr().String(), "operators", len(config.Tokens))
	}
	if d.admin.metrics == "" {
		return nil
	}
	certificate := d.tls
	if certificate != nil { // kubelet and Prometheus have no certificates of clients
		certificate = certificate.Clone()
		certificate.ClientAuth = tls.NoClientCert
	}
	l, err = listen("-metrics", d.admin.metrics, certificate, d.admin.clients, d.log)
	if err != nil {
		return err
	}
	d.openHTTP(ctx, time.Second, l, handler.Metrics())
	d.log.Info("rald serves metrics and health", "address", l.Addr().String())
	return nil
}

// healthAt returns the URL of /healthz under RALD_ADMIN, and a client that reaches it. If that is
// none, or demands certificates of clients, it is under RALD_METRICS.
func healthAt(env environment) (url string, client *http.Client) {
	addr, metrics := cmp.Or(env.get("RALD_ADMIN"), defaultAdmin), env.get("RALD_METRICS")
	if metrics != "" && (addr == "none" || env.get("RALD_TLS_CLIENTS") != "") {
		addr = metrics
	}
	// It asks its own machine, tells nothing, and the certificate may be for other names.
	to := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	if path, ok := strings.CutPrefix(addr, onSocket); ok {
		to.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}
		addr = "localhost:80"
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		host, port, _ = net.SplitHostPort(defaultAdmin)
	}
	if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	scheme := "http://"
	if env.get("RALD_TLS_CERT") != "" {
		scheme = "https://"
	}
	return scheme + net.JoinHostPort(host, port) + "/healthz", &http.Client{Transport: to, Timeout: time.Minute}
}

// health asks a rald for its health, by default at the address that env names.
func health(args []string, env environment, out io.Writer) error {
	url, client := healthAt(env)
	switch {
	case len(args) == 0:
	case len(args) == 1 && !strings.HasPrefix(args[0], "-"):
		url, client = args[0], &http.Client{Timeout: time.Minute}
	default:
		return fmt.Errorf("rald health takes one URL, not %q", args)
	}
	defer client.CloseIdleConnections()
	a, err := client.Get(url)
	if err != nil {
		return err
	}
	defer a.Body.Close()
	text, err := io.ReadAll(io.LimitReader(a.Body, 1<<16))
	if err == nil && a.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", url, a.Status, bytes.TrimSpace(text))
	}
	if err != nil {
		return err
	}
	_, err = out.Write(text)
	return err
}
