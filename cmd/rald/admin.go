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

// A second rald on a machine goes on without this address.
const defaultAdmin = "127.0.0.1:7381"

type adminSettings struct {
	// listen is "" for none.
	listen string
	// tokens has the tokens by operator.
	tokens   map[string]string
	showKeys bool
	// file has the tokens.
	file string
	// guarded means that each request needs a token.
	guarded bool

	// metrics is the address for metrics and health alone, "" for none.
	metrics string
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

func listenAdmin(settings settings, log *slog.Logger) (net.Listener, error) {
	if settings.admin.listen == "" {
		return nil, nil
	}
	listener, err := listen("-admin", settings.admin.listen, settings.tls, nil, log)
	if err != nil && settings.admin.listen == defaultAdmin && errors.Is(err, syscall.EADDRINUSE) {
		log.Warn("rald goes on without an address for operators", "error", err)
		return nil, nil
	}
	return listener, err
}

// openAdmin serves operators on listener, unless it is nil, and metrics and health at their address. At
// the end requests under way have a second.
func (d *doors) openAdmin(ctx context.Context, listener net.Listener, config admin.Config) error {
	if listener == nil && d.admin.metrics == "" {
		return nil
	}
	config.Guarded = config.Guarded && listener != nil
	handler, err := admin.New(config)
	if err != nil {
		return fmt.Errorf("-admin-tokens-file: %w", err)
	}
	d.ends = append(d.ends, handler.Close)
	if listener != nil {
		d.openHTTP(ctx, time.Second, listener, handler)
		d.log.Info("rald serves operators", "address", listener.Addr().String(), "operators", len(config.Tokens))
	}
	if d.admin.metrics == "" {
		return nil
	}
	certificate := d.tls
	// kubelet and Prometheus have no certificates of clients.
	if certificate != nil {
		certificate = certificate.Clone()
		certificate.ClientAuth = tls.NoClientCert
	}
	listener, err = listen("-metrics", d.admin.metrics, certificate, d.admin.clients, d.log)
	if err != nil {
		return err
	}
	d.openHTTP(ctx, time.Second, listener, handler.Metrics())
	d.log.Info("rald serves metrics and health", "address", listener.Addr().String())
	return nil
}

// healthAt returns the URL of /healthz under -admin, and a client that reaches it. If that is none,
// or demands certificates of clients, it is under -metrics.
func healthAt(settings settings) (url string, client *http.Client) {
	addr, metrics := cmp.Or(settings.admin.listen, defaultAdmin), settings.admin.metrics
	if metrics != "" && (addr == "none" || settings.tlsClients != "") {
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
	if settings.tlsCert != "" {
		scheme = "https://"
	}
	return scheme + net.JoinHostPort(host, port) + "/healthz", &http.Client{Transport: to, Timeout: time.Minute}
}

// health asks a rald for its health, at a URL or a socket, or by default at the address that the
// server's flags and variables name.
func health(args []string, env environment, out, problems io.Writer) error {
	var s settings
	flags := s.flags(env)
	flags.SetOutput(problems)
	flags.Usage = func() {
		_, _ = fmt.Fprint(problems, "Usage: rald health [flags] [URL]\n\nHealth asks the server that has these flags, the one at a URL, or at unix: and the path of a socket.\n\n")
		flags.PrintDefaults()
	}
	unset := env.set(flags)
	if err := errors.Join(flags.Parse(args), unset); err != nil {
		return err
	}
	address := flags.Arg(0)
	if flags.NArg() > 1 {
		return fmt.Errorf("rald health takes one URL, not %q: flags come before it", flags.Args())
	}
	isSocket := strings.HasPrefix(address, onSocket)
	if isSocket {
		s.admin.listen, s.admin.metrics = address, ""
	}
	url, client := healthAt(s)
	if address != "" && !isSocket {
		url, client = address, &http.Client{Timeout: time.Minute}
	}
	defer client.CloseIdleConnections()
	response, err := client.Get(url)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, 1<<16))
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", url, response.Status, bytes.TrimSpace(text))
	}
	if err != nil {
		return err
	}
	_, err = out.Write(text)
	return err
}
