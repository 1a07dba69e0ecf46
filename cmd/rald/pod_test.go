package main

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"flag"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Promise: Every flag has a variable and wins over it; unknown RALD_... variables are refused.
func TestEnvironment(t *testing.T) {
	env := environment{"RALD_MAX_KEYS=5", "RALD_MAX_CLIENTS=6", "RALD_DRAIN=", "RALD_ENVOY_SHADOW=true", "HOME=/", "RALD_ENVOY=/rules"}
	s, err := parse([]string{"-max-keys", "7"}, env, io.Discard)
	require.NoError(t, err)
	assert.Equal(t, 7, s.keys.MaxKeys)
	assert.Equal(t, 6, s.redis.Clients)
	assert.Equal(t, "10s", s.drain.String())
	assert.Equal(t, "/rules", s.envoy.dir)
	assert.True(t, s.envoy.service.Shadow)

	for text, want := range map[string]string{
		"RALD_MAX_KEY=5":          "the environment has RALD_MAX_KEY, which is no setting: rald -h names all",
		"RALD_MAX_KEYS=many":      `RALD_MAX_KEYS is "many", the environment's -max-keys: a whole number is accepted`,
		"RALD_DRAIN=soon":         `RALD_DRAIN is "soon", the environment's -drain: a time such as 1m30s is accepted`,
		"RALD_ENVOY_QUOTA=maybe":  "the environment's -envoy-quota: true or false is accepted",
		"RALD_MAX_KEYS=0":         "-max-keys is 0: 1 or more is accepted",
		"RALD_FLEET=leased":       "-fleet needs -redis",
		"RALD_ENVOY_CLIENTS=what": `the environment's -envoy-clients: "what" is no network`,
		"RALD_LOG_LEVEL=loud":     "the environment's -log-level: debug, info, warn or error is accepted",
	} {
		_, err := parse(nil, environment{text}, io.Discard)
		assert.ErrorContains(t, err, want, text)
	}

	links := environment{
		"RALD_SERVICE_HOST=10.0.0.1", "RALD_SERVICE_PORT=7379", "RALD_SERVICE_PORT_RESP=7379", "RALD_PORT=tcp://10.0.0.1:7379",
		"RALD_PORT_7379_TCP=tcp://10.0.0.1:7379", "RALD_PORT_7379_TCP_ADDR=10.0.0.1", "RALD_ENVOY_PORT_8081_TCP_PROTO=tcp", "RALD_FLAGS=-idle 1m",
	}
	_, err = parse(nil, links, io.Discard)
	require.NoError(t, err)
	var help bytes.Buffer
	_, err = parse([]string{"-h"}, environment{"RALD_NONE=1"}, &help)
	require.ErrorIs(t, err, flag.ErrHelp)
	new(settings).flags(nil).VisitAll(func(f *flag.Flag) {
		assert.False(t, serviceLink.MatchString(variable(f.Name)), f.Name)
		assert.Contains(t, help.String(), variable(f.Name))
	})
}

func TestHealthURL(t *testing.T) {
	for _, c := range []struct {
		env  environment
		want string
	}{
		{noEnv, "http://127.0.0.1:7381/healthz"},
		{environment{"RALD_ADMIN=unix:/run/rald"}, "http://127.0.0.1:7381/healthz"},
		{environment{"RALD_ADMIN=localhost:1", "RALD_METRICS=:9379"}, "http://localhost:1/healthz"},
		{environment{"RALD_ADMIN=none", "RALD_METRICS=:9379"}, "http://127.0.0.1:9379/healthz"},
		{environment{"RALD_ADMIN=none"}, "http://127.0.0.1:7381/healthz"},
		{environment{"RALD_ADMIN=[::]:1", "RALD_TLS_CERT=/cert"}, "https://127.0.0.1:1/healthz"},
	} {
		assert.Equal(t, c.want, healthURL(c.env), c.env)
	}
}

func TestNetworks(t *testing.T) {
	var n networks
	require.NoError(t, n.Set("10.1.2.3/8, 192.0.2.7,2001:db8::/32"))
	assert.Equal(t, "10.0.0.0/8,192.0.2.7/32,2001:db8::/32", n.String())
	for addr, want := range map[string]bool{
		"10.255.0.1:1": true, "[::ffff:10.0.0.1]:1": true, "192.0.2.7:1": true, "[2001:db8::1]:1": true, "127.0.0.1:1": true, "[::1]:1": true,
		"11.0.0.1:1": false, "192.0.2.8:1": false, "[2001:db9::1]:1": false,
	} {
		at, err := net.ResolveTCPAddr("tcp", addr)
		require.NoError(t, err)
		assert.Equal(t, want, n.has(at), addr)
	}
	assert.True(t, n.has(&net.UnixAddr{Name: "x"}))
	for _, text := range []string{"", "10.0.0.0/33", "10.0.0.0/8,", "host", "fe80::1%eth0", "10.0.0.0/8 10.0.0.1"} {
		assert.ErrorContains(t, n.Set(text), "is no network: networks such as 10.0.0.0/8 and addresses are accepted", text)
	}
}

// strangers accepts a connection for each address, and then fails.
type strangers struct {
	net.Listener
	addrs []string
	gone  []*stranger
}

type stranger struct {
	net.Conn
	at     net.Addr
	closed bool
}

func (s *stranger) RemoteAddr() net.Addr { return s.at }
func (s *stranger) Close() error         { s.closed = true; return nil }

func (s *strangers) Accept() (net.Conn, error) {
	if len(s.gone) == len(s.addrs) {
		return nil, net.ErrClosed
	}
	at, err := net.ResolveTCPAddr("tcp", s.addrs[len(s.gone)])
	c := &stranger{at: at}
	s.gone = append(s.gone, c)
	return c, err
}

// Promise: An address for named networks closes connections from elsewhere.
func TestStrangersAreClosed(t *testing.T) {
	from := &strangers{addrs: append(strings.Fields(strings.Repeat("11.0.0.1:1 ", 20)), "10.0.0.1:2")}
	var out bytes.Buffer
	var n networks
	require.NoError(t, n.Set("10.0.0.0/8"))
	l := guard(from, "-check-listen", n, slog.New(slog.NewTextHandler(&out, nil)))
	c, err := l.Accept()
	require.NoError(t, err)
	assert.Equal(t, "10.0.0.1:2", c.RemoteAddr().String())
	for i, c := range from.gone {
		assert.Equal(t, i < 20, c.closed, i)
	}
	assert.Equal(t, 10, strings.Count(out.String(), "\n"), "lines of the log are bounded")
	assert.Contains(t, out.String(), "address=11.0.0.1:1 flag=-check-listen")
	_, err = l.Accept()
	assert.ErrorIs(t, err, net.ErrClosed)
	assert.Equal(t, net.Listener(from), guard(from, "", nil, nil))
}

// By networks of clients, or by -insecure-network; except the operators' address.
func TestAddressesAreOpened(t *testing.T) {
	dir := t.TempDir()
	for _, args := range []string{"-check-listen :1", "-metrics :1", "-envoy-listen :1 -envoy " + dir, "-envoy-http :1 -envoy " + dir} {
		name, _, _ := strings.Cut(strings.TrimPrefix(args, "-"), "-")
		clients := "-" + strings.Fields(name)[0] + "-clients"
		_, err := parse(strings.Fields(args), noEnv, io.Discard)
		assert.ErrorContains(t, err, clients)
		assert.ErrorContains(t, err, "-insecure-network")
		_, err = parse(append(strings.Fields(args), clients, "10.0.0.0/8"), noEnv, io.Discard)
		assert.NoError(t, err)
		_, err = parse(append(strings.Fields(args), "-insecure-network"), noEnv, io.Discard)
		assert.NoError(t, err)
	}
	_, err := parse([]string{"-listen", ":1", "-insecure-network"}, noEnv, io.Discard)
	require.NoError(t, err)
	_, err = parse([]string{"-admin", ":1", "-insecure-network"}, noEnv, io.Discard)
	require.ErrorContains(t, err, "set -tls-cert and -admin-tokens-file, or -metrics")
	_, err = parse([]string{"-admin", ":1", "-insecure-network"}, environment{"RALD_ADMIN_TOKENS=ann " + operatorToken}, io.Discard)
	require.NoError(t, err)
	_, err = parse([]string{"-envoy-clients", "10.0.0.0/8"}, noEnv, io.Discard)
	require.ErrorContains(t, err, "-envoy-clients needs -envoy")
}

// Promise: The address for metrics and health shows no keys and changes nothing.
func TestMetricsAlone(t *testing.T) {
	addr := freeAddr(t)
	s := start(t, "-state", "none", "-metrics", addr, "-metrics-clients", "10.0.0.0/8", "-log", "json", "-insecure-network")
	for path, want := range map[string]int{"/metrics": 200, "/healthz": 200, "/": 404, "/debug/ral/": 404, "/debug/pprof/": 404} {
		status, text := fetch(t, http.DefaultClient, "http://"+addr+path, "")
		assert.Equal(t, want, status, path)
		if path == "/metrics" {
			assert.Contains(t, text, "rald_resp_connections")
		}
	}
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), []string{"health", "http://" + addr + "/healthz"}, noEnv, &out, io.Discard))
	out.Reset()
	require.NoError(t, run(t.Context(), []string{"health"}, environment{"RALD_ADMIN=none", "RALD_METRICS=" + addr}, &out, io.Discard))
	assert.Equal(t, "ok\n", out.String())
	assert.ErrorContains(t, run(t.Context(), []string{"health", "http://" + addr}, noEnv, &out, io.Discard), "404 Not Found: 404 page not found")
	s.end(t)
	assert.Error(t, run(t.Context(), []string{"health", "http://" + addr + "/healthz"}, noEnv, &out, io.Discard))
	for _, args := range [][]string{{"health", "a", "b"}, {"health", "-h"}} {
		assert.ErrorContains(t, run(t.Context(), args, noEnv, &out, io.Discard), "rald health takes one URL")
	}
	assert.Contains(t, s.log.String(), `"rald ends"`)
	var texts []string
	for line := range strings.Lines(s.log.String()) {
		var fields struct{ Level, Msg string }
		require.NoError(t, json.Unmarshal([]byte(line), &fields), line)
		texts = append(texts, fields.Level+" "+fields.Msg)
	}
	assert.Contains(t, texts, "WARN rald trusts its network: -insecure-network opens every address to all that reach it")
	assert.Contains(t, texts, "INFO rald serves metrics and health")

	quiet := start(t, "-state", "none", "-log-level", "error")
	quiet.end(t)
	assert.Empty(t, quiet.log.String())
	assert.EqualError(t, run(t.Context(), []string{"-log", "xml"}, noEnv, io.Discard, io.Discard), `-log is "xml": text or json is accepted`)
}

// Promise: With `-tls-clients` every address except metrics demands client certificates.
func TestClientCertificates(t *testing.T) {
	cert, key := certificates(t)
	admin, metrics := freeAddr(t), freeAddr(t)
	start(t, "-state", "none", "-admin", admin, "-metrics", metrics, "-tls-cert", cert, "-tls-key", key, "-tls-clients", cert)
	pair, err := tls.LoadX509KeyPair(cert, key)
	require.NoError(t, err)
	for _, has := range []bool{false, true} {
		config := &tls.Config{InsecureSkipVerify: true} // the test is about the client's
		if has {
			config.Certificates = []tls.Certificate{pair}
		}
		c := &http.Client{Transport: &http.Transport{TLSClientConfig: config}}
		status, _ := fetch(t, c, "https://"+metrics+"/healthz", "")
		assert.Equal(t, http.StatusOK, status)
		a, err := c.Get("https://" + admin + "/healthz")
		if has {
			require.NoError(t, err)
			assert.Equal(t, http.StatusOK, a.StatusCode)
			_ = a.Body.Close()
		} else {
			assert.ErrorContains(t, err, "certificate required")
		}
		c.CloseIdleConnections()
	}
	for args, want := range map[string]string{
		"-tls-clients x": "-tls-clients needs -tls-cert and -tls-key",
		"-tls-clients " + key + " -tls-cert " + cert + " -tls-key " + key: "has no certificate in PEM",
		"-tls-clients /none -tls-cert " + cert + " -tls-key " + key:       "-tls-clients: open /none",
	} {
		_, err := parse(strings.Fields(args), noEnv, io.Discard)
		assert.ErrorContains(t, err, want)
	}
}

// They have every flag and command. bash reads its own.
func TestManualAndCompletion(t *testing.T) {
	texts := map[string]string{}
	for _, args := range []string{"man", "completion bash", "completion zsh", "completion fish"} {
		var out bytes.Buffer
		require.NoError(t, run(t.Context(), strings.Fields(args), noEnv, &out, io.Discard))
		texts[args] = strings.ReplaceAll(out.String(), `\-`, "-")
		new(settings).flags(nil).VisitAll(func(f *flag.Flag) {
			assert.Contains(t, strings.ReplaceAll(texts[args], "-o ", "-"), "-"+f.Name, args)
		})
		assert.Contains(t, texts[args], "completion", args)
	}
	assert.Contains(t, texts["man"], "In the environment: RALD_MAX_KEYS.")
	bash := exec.Command("bash", "-c", "eval \"$0\" && complete -p rald", texts["completion bash"])
	out, err := bash.CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Contains(t, string(out), "-o default -W 'check completion")
	for _, args := range []string{"completion", "completion csh", "completion bash zsh"} {
		err := run(t.Context(), strings.Fields(args), noEnv, io.Discard, io.Discard)
		assert.ErrorContains(t, err, "bash, zsh or fish is accepted, not", args)
	}
	assert.ErrorIs(t, manual(failing{}, nil), os.ErrClosed)
	assert.ErrorIs(t, completion(failing{}, "fish", nil), os.ErrClosed)
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, os.ErrClosed }
