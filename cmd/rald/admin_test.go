package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

const operatorToken = "0123456789abcdef"

func fetch(t *testing.T, c *http.Client, url, token string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(context.Background(), http.MethodGet, url, nil)
	require.NoError(t, err)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	a, err := c.Do(r)
	require.NoError(t, err)
	defer a.Body.Close()
	text, err := io.ReadAll(a.Body)
	require.NoError(t, err)
	return a.StatusCode, string(text)
}

// promtool accepts the metrics, and the page has configured limits.
func TestAdmin(t *testing.T) {
	addr := freeAddr(t)
	s := start(t, "-state", "none", "-admin", addr, withLimits(t))
	tool(t, s, "redis-cli", "CL.THROTTLE", "ann", "1", "1", "60")
	tool(t, s, "redis-cli", "RAL.TAKE", "ann", "api")
	url := "http://" + addr
	status, text := fetch(t, http.DefaultClient, url+"/metrics", "")
	require.Equal(t, http.StatusOK, status)
	assert.True(t, strings.Contains(text, `rald_resp_commands_total{command="cl.throttle",result="ok"} 1`))
	assert.True(t, strings.Contains(text, `ral_calls_total{limit="rald funnel",result="admitted"} 2`))
	promtool, err := exec.LookPath("promtool")
	require.NoError(t, err, "install it by tools/need prometheus")
	check := exec.Command(promtool, "check", "metrics")
	check.Stdin = strings.NewReader(text)
	out, err := check.CombinedOutput()
	assert.NoError(t, err, "%s", out)
	assert.Empty(t, string(out))
	_, text = fetch(t, http.DefaultClient, url+"/debug/ral/limits", "")
	assert.Contains(t, text, `"name":"api"`)
	status, text = fetch(t, http.DefaultClient, url+"/healthz", "")
	assert.Equal(t, http.StatusOK, status, text)
	s.end(t)
	_, err = net.Dial("tcp", addr)
	assert.Error(t, err)
}

// Promise: `/healthz` fails while the server drains.
func TestHealthWhileDraining(t *testing.T) {
	rules, addr, envoy := t.TempDir(), freeAddr(t), freeAddr(t)
	require.NoError(t, os.WriteFile(filepath.Join(rules, "shop.yaml"), []byte(rulesOf(2)), 0o600))
	s := start(t, "-state", "none", "-admin", addr, "-drain", "5m", "-envoy", rules, "-envoy-listen", envoy)
	c, err := grpc.NewClient(envoy, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer c.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	watch, err := healthpb.NewHealthClient(c).Watch(ctx, &healthpb.HealthCheckRequest{Service: "ratelimit"}, grpc.WaitForReady(true))
	require.NoError(t, err)
	_, err = watch.Recv()
	require.NoError(t, err)
	require.NoError(t, s.Signal(syscall.SIGTERM)) // the server waits for the stream
	s.until(t, func() bool {
		status, text := fetch(t, http.DefaultClient, "http://"+addr+"/healthz", "")
		return status == http.StatusServiceUnavailable && assert.Equal(t, "draining\n", text)
	})
	cancel()
	<-s.Ended()
}

// Other machines need TLS and tokens, in each request.
func TestAdminIsGuarded(t *testing.T) {
	cert, key := certificates(t)
	file := filepath.Join(t.TempDir(), "tokens")
	require.NoError(t, os.WriteFile(file, []byte("# operators\n\nanna "+operatorToken+"\n"), 0o600))
	for _, open := range []string{":7381", "0.0.0.0:7381", "example.com:7381"} {
		for _, args := range [][]string{{}, {"-tls-cert", cert, "-tls-key", key}, {"-admin-tokens-file", file}} {
			_, err := parse(append(args, "-admin", open), noEnv, &bytes.Buffer{})
			assert.ErrorContains(t, err, `-admin is "`+open+`", which other machines may reach: set -tls-cert and -admin-tokens-file`)
		}
		_, err := parse([]string{"-admin", open, "-tls-cert", cert, "-tls-key", key, "-admin-tokens-file", file}, noEnv, &bytes.Buffer{})
		assert.NoError(t, err)
	}

	addr := freeAddr(t)
	_, port, err := net.SplitHostPort(addr)
	require.NoError(t, err)
	start(t, "-state", "none", "-admin", "0.0.0.0:"+port, "-tls-cert", cert, "-tls-key", key, "-admin-tokens-file", file)
	pem, err := os.ReadFile(cert)
	require.NoError(t, err)
	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(pem))
	c := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	defer c.CloseIdleConnections()
	for path, want := range map[string]int{"/metrics": 401, "/debug/ral/": 401, "/debug/pprof/": 401, "/healthz": 200} {
		status, _ := fetch(t, c, "https://"+addr+path, "")
		assert.Equal(t, want, status, path)
		status, _ = fetch(t, c, "https://"+addr+path, operatorToken)
		assert.Equal(t, 200, status, path)
	}
}

func TestOperators(t *testing.T) {
	env := func(text string) environment { return environment{"RALD_ADMIN_TOKENS=" + text} }
	s, err := parse(nil, env("anna one\n# none\n\n ben\ttwo\n"), &bytes.Buffer{})
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"anna": "one", "ben": "two"}, s.admin.tokens)
	assert.Equal(t, defaultAdmin, s.admin.listen)
	s, err = parse([]string{"-admin", "none"}, noEnv, &bytes.Buffer{})
	require.NoError(t, err)
	assert.Empty(t, s.admin.listen)
	for text, want := range map[string]string{
		"anna":             "RALD_ADMIN_TOKENS: line 1 has 1 words: a name and a token are accepted",
		"\nanna a b":       "RALD_ADMIN_TOKENS: line 2 has 3 words",
		"anna a\nanna b\n": `RALD_ADMIN_TOKENS: line 2: "anna" has a token already`,
	} {
		_, err := parse(nil, env(text), &bytes.Buffer{})
		assert.ErrorContains(t, err, want)
	}
	_, err = parse([]string{"-admin-tokens-file", "/none/x"}, noEnv, &bytes.Buffer{})
	assert.ErrorContains(t, err, "-admin-tokens-file: open /none/x")
	err = run(context.Background(), []string{"-state", "none", "-listen", "127.0.0.1:0", "-admin", "127.0.0.1:0"}, env("anna short"), &bytes.Buffer{}, &bytes.Buffer{})
	assert.ErrorContains(t, err, `-admin-tokens-file: ral: inspect.Config: Tokens["anna"]`)
}

// A second rald goes on without the default address, and fails with a given address.
func TestAdminAddressThatIsTaken(t *testing.T) {
	if l, err := net.Listen("tcp", defaultAdmin); err == nil {
		defer l.Close()
	} // otherwise another program has it
	s := start(t, "-state", "none", "-admin", defaultAdmin)
	assert.Contains(t, s.log.String(), "goes on without an address for operators")
	s.end(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	err = run(context.Background(), []string{"-state", "none", "-listen", "127.0.0.1:0", "-admin", l.Addr().String()}, noEnv, &bytes.Buffer{}, &bytes.Buffer{})
	assert.ErrorContains(t, err, "-admin: ")
}
