package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ral-limiter/ral/internal/testkit/child"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// documented returns the code in a language from a section of docs/serving.md.
func documented(t *testing.T, section, language string) (blocks []string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/serving.md")
	require.NoError(t, err)
	_, rest, ok := strings.Cut(string(text), "\n"+section+"\n")
	require.True(t, ok, section)
	rest, _, _ = strings.Cut(rest, "\n## ")
	for {
		var block string
		if _, rest, ok = strings.Cut(rest, "\n```"+language+"\n"); !ok {
			return blocks
		}
		block, rest, ok = strings.Cut(rest, "```")
		require.True(t, ok)
		blocks = append(blocks, block)
	}
}

// checks writes the documented limits and rules into a directory, for a proxy.
func checks(t *testing.T, proxy string, more ...string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	rules := strings.Replace(documented(t, "## HTTP check", "yaml")[0], "proxy: nginx\n", "proxy: "+proxy+"\n", 1)
	for name, text := range map[string]string{
		"limits.yaml": documented(t, "## Configured limits", "yaml")[0],
		"check.yaml":  rules + strings.Join(more, ""),
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return dir
}

// nginxConfig is deploy's, with the addresses of the documented configurations.
func nginxConfig(t *testing.T) string {
	t.Helper()
	return strings.NewReplacer("rald:7380", "127.0.0.1:7380", "app:80", "127.0.0.1:3000").Replace(deployedText(t, "nginx.conf"))
}

// startProxy starts a program for the test, and waits until it answers.
func startProxy(t *testing.T, addr string, cmd *exec.Cmd) {
	t.Helper()
	p := &server{addr: addr, log: &logged{}}
	cmd.Stdout, cmd.Stderr = p.log, p.log
	var err error
	p.Process, err = child.Start(cmd)
	require.NoError(t, err, "make needs installs it")
	t.Cleanup(p.Kill)
	p.untilListens(t, "tcp")
}

type site struct {
	addr    string
	reached atomic.Int64 // the backend's requests
}

// served puts addresses into a documented configuration, and starts the backend.
func served(t *testing.T, check, config string) (s *site, text string) {
	t.Helper()
	s = &site{addr: freeAddr(t)}
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.reached.Add(1)
		_, _ = io.Copy(w, r.Body)
	}))
	t.Cleanup(backend.Close)
	for from, to := range map[string]string{
		"127.0.0.1:7380": check, "127.0.0.1:3000": backend.Listener.Addr().String(),
		"listen 8080": "listen " + s.addr, ":8080 {": "http://" + s.addr + " {",
	} {
		config = strings.ReplaceAll(config, from, to)
	}
	require.NotContains(t, config, "8080")
	return s, config
}

func nginx(t *testing.T, check, config string) *site {
	t.Helper()
	s, config := served(t, check, config)
	dir := t.TempDir()
	config = "events {}\nhttp {\naccess_log off;\n" + config + "}\n"
	for _, of := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		config = strings.Replace(config, "http {\n", "http {\n"+of+"_temp_path "+filepath.Join(dir, of)+";\n", 1)
	}
	file := filepath.Join(dir, "nginx.conf")
	require.NoError(t, os.WriteFile(file, []byte(config), 0o600))
	program, err := exec.LookPath("nginx")
	if err != nil {
		program = "/usr/sbin/nginx" // not in the PATH of every user
	}
	startProxy(t, s.addr, exec.Command(program, "-p", dir, "-c", file,
		"-g", "daemon off; master_process off; error_log stderr; pid "+filepath.Join(dir, "pid")+";"))
	return s
}

func caddy(t *testing.T, check, config string) *site {
	t.Helper()
	s, config := served(t, check, config)
	dir := t.TempDir()
	file := filepath.Join(dir, "Caddyfile")
	require.NoError(t, os.WriteFile(file, []byte("{\n\tadmin off\n\tdefault_bind 127.0.0.1\n}\n"+config), 0o600))
	cmd := exec.Command("caddy", "run", "--config", file, "--adapter", "caddyfile")
	cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_DATA_HOME="+dir, "XDG_CONFIG_HOME="+dir)
	startProxy(t, s.addr, cmd)
	return s
}

// do sends a request with header fields, and returns the answer's status and header.
func (s *site) do(t *testing.T, method, path string, fields ...string) (int, http.Header) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://"+s.addr+path, strings.NewReader("body"))
	require.NoError(t, err)
	for i := 0; i < len(fields); i += 2 {
		r.Header.Set(fields[i], fields[i+1])
	}
	a, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer a.Body.Close()
	body, err := io.ReadAll(a.Body)
	require.NoError(t, err)
	if a.StatusCode == http.StatusOK {
		assert.Equal(t, "body", string(body), "the backend gets the body")
	}
	return a.StatusCode, a.Header
}

func (s *site) get(t *testing.T, path string, fields ...string) int {
	t.Helper()
	status, _ := s.do(t, "GET", path, fields...)
	return status
}

// forged are fields by which a client may pretend another request or client.
var forged = [][]string{
	{"X-Original-URI", "/other"}, {"X-Original-URL", "/other"}, {"X-Original-Method", "GET"}, {"X-Original-Host", "free.example"},
	{"X-Forwarded-Uri", "/other"}, {"X-Forwarded-Method", "GET"}, {"X-Forwarded-Host", "free.example"},
	{"X-Forwarded-For", "192.0.2.1"}, {"X-Real-IP", "192.0.2.1"}, {"Forwarded", "for=192.0.2.1"},
	{"Connection", "X-Original-URI, X-Real-IP, X-Forwarded-Uri, X-Forwarded-For, X-Forwarded-Method"},
}

const moreRules = `
  - {match: free.example/, unlimited: true}
`

// tryLimits checks the documented limits at a proxy: 5 log-ins in 10 minutes.
func tryLimits(t *testing.T, s *site, rald *server, passesTell bool) {
	t.Helper()
	for n := range 5 {
		status, h := s.do(t, "POST", "/login")
		assert.Equal(t, http.StatusOK, status)
		if passesTell {
			assert.True(t, strings.HasPrefix(h.Get("RateLimit"), `"login";r=`+strconv.Itoa(4-n)+";t="), h)
			assert.Equal(t, `"login";q=5;w=600`, h.Get("RateLimit-Policy"))
		}
		assert.Empty(t, h.Get("Retry-After"))
	}
	refused := func(path string, fields ...string) {
		t.Helper()
		status, h := s.do(t, "POST", path, fields...)
		assert.Equal(t, http.StatusTooManyRequests, status, "%s %s", path, fields)
		retry, err := strconv.Atoi(h.Get("Retry-After"))
		assert.NoError(t, err)
		assert.True(t, 0 < retry && retry <= 1200, retry) // AtMost rounds up to a part of its period
		assert.True(t, strings.HasPrefix(h.Get("RateLimit"), `"login";r=0;t=`), h)
		assert.Equal(t, `"login";q=5;w=600`, h.Get("RateLimit-Policy"))
	}
	for _, path := range []string{"/login", "/./login", "/%6cogin", "/login/", "/login?a"} {
		refused(path)
	}
	for _, fields := range forged {
		refused("/login", fields...)
	}
	var status int
	for _, path := range []string{"/login/../other", "/%2flogin", "/login;a=b", "//login", "/login%5c"} { // backends read these differently
		status, _ = s.do(t, "POST", path)
		assert.Contains(t, []int{http.StatusBadRequest, http.StatusForbidden}, status, path)
	}
	assert.EqualValues(t, 5, s.reached.Load(), "what is refused does not reach the backend")
	assert.Contains(t, tool(t, rald, "redis-cli", "RAL.PEEK", "127.0.0.1", "login"), "remaining\n0\n", "clients of Redis share the key")

	status, h := s.do(t, "GET", "/other", "RateLimit", "of the client")
	assert.Equal(t, http.StatusOK, status)
	assert.Empty(t, h.Get("RateLimit"), "there is no rule")
}

func startChecked(t *testing.T, proxy string) (s *server, check string) {
	t.Helper()
	check = freeAddr(t)
	return start(t, "-state", "none", "-check-listen", check, checks(t, proxy, moreRules)), check
}

// Promise: Documented configurations hold real nginx and Caddy to the limits.
func TestNginx(t *testing.T) {
	rald, check := startChecked(t, "nginx")
	s := nginx(t, check, nginxConfig(t))
	tryLimits(t, s, rald, true)

	require.Equal(t, http.StatusOK, s.get(t, "/api/x", "X-Api-Key", "ann"))
	assert.Equal(t, http.StatusOK, s.get(t, "/api/health"))
}

// It refuses requests, or passes them as documented.
func TestNginxWithoutRald(t *testing.T) {
	away := freeAddr(t)
	config, blocks := nginxConfig(t), documented(t, "### nginx", "nginx")
	require.Len(t, blocks, 1)
	assert.Equal(t, http.StatusInternalServerError, nginx(t, away, config).get(t, "/"))

	inner, beside, ok := strings.Cut(blocks[0], "\n\n")
	require.True(t, ok)
	config = strings.Replace(config, "        internal;\n", "        internal;\n"+inner+"\n", 1)
	config = strings.Replace(config, "    location = /_limit {\n", beside+"    location = /_limit {\n", 1)
	assert.Equal(t, http.StatusOK, nginx(t, away, config).get(t, "/"))
}

// With another status than over the limit.
func TestNginxRefusesRequestsWithoutAKey(t *testing.T) {
	dir, check := t.TempDir(), freeAddr(t)
	text := "proxy: nginx\nrules:\n  - {match: /, limit: \"funnel 1, 1/h\", key: header X-Api-Key}\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "check.yaml"), []byte(text), 0o600))
	start(t, "-state", "none", "-check-listen", check, dir)
	s := nginx(t, check, nginxConfig(t))
	assert.Equal(t, http.StatusForbidden, s.get(t, "/"))
	assert.Equal(t, http.StatusOK, s.get(t, "/", "X-Api-Key", "ann"))
	assert.Equal(t, http.StatusTooManyRequests, s.get(t, "/", "X-Api-Key", "ann"))
}

// The documented configuration, and deploy's.
func TestCaddy(t *testing.T) {
	configs := documented(t, "### Caddy", "caddyfile")
	require.Len(t, configs, 1)
	for i, config := range append(configs, deployedText(t, "Caddyfile")) {
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			rald, check := startChecked(t, "caddy")
			tryLimits(t, caddy(t, check, config), rald, i == 1)
		})
	}
}

// The header fields in Traefik's documentation, at the documented address.
func TestTraefik(t *testing.T) {
	rald, check := startChecked(t, "traefik")
	var config struct {
		HTTP struct {
			Middlewares map[string]struct {
				ForwardAuth struct {
					Address            string
					TrustForwardHeader bool `yaml:"trustForwardHeader"`
				} `yaml:"forwardAuth"`
			}
		}
	}
	require.NoError(t, yaml.Unmarshal([]byte(deployedText(t, "traefik.yaml")), &config))
	auth := config.HTTP.Middlewares["limits"].ForwardAuth
	assert.False(t, auth.TrustForwardHeader)
	url := strings.Replace(auth.Address, "127.0.0.1:7380", check, 1)
	require.NotEqual(t, auth.Address, url)
	for _, want := range []int{204, 204, 204, 204, 204, 429} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		require.NoError(t, err)
		r.Header = http.Header{
			"X-Forwarded-Method": {"POST"}, "X-Forwarded-Proto": {"https"}, "X-Forwarded-Host": {"example.org"},
			"X-Forwarded-Uri": {"/login?a=b"}, "X-Forwarded-For": {"192.0.2.1"}, "X-Forwarded-Port": {"443"},
		}
		a, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		_ = a.Body.Close()
		assert.Equal(t, want, a.StatusCode)
		assert.Contains(t, a.Header.Get("RateLimit"), `"login"`)
		assert.Equal(t, want == 429, a.Header.Get("Retry-After") != "")
	}
	assert.Contains(t, tool(t, rald, "redis-cli", "RAL.PEEK", "192.0.2.1", "login"), "remaining\n0\n")
}

// The error names the fault.
func TestCheckThatCannotStart(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	busy, dir := taken.Addr().String(), checks(t, "caddy")
	try := func(args ...string) error {
		return run(context.Background(), append([]string{"-state", "none"}, args...), noEnv, &bytes.Buffer{}, &bytes.Buffer{})
	}
	assert.ErrorContains(t, try("-listen", "127.0.0.1:0", "-check-listen", busy, dir), "-check-listen: ")
	assert.ErrorContains(t, try("-listen", busy, "-check-listen", "127.0.0.1:0", dir), "-listen: ")
	assert.ErrorContains(t, try("-listen", "127.0.0.1:0", "-check-listen", "127.0.0.1:0"), "-check-listen needs the file check.yaml")
	assert.ErrorContains(t, try("-check-listen", ":7380"), `-check-listen is ":7380", which other machines may reach: set -tls-cert`)

	var out bytes.Buffer
	require.NoError(t, run(context.Background(), []string{"check", dir}, noEnv, &out, &out))
	assert.Equal(t, fmt.Sprintf("%s: 2 limits, 3 rules of the HTTP check\n", dir), out.String())
	file := filepath.Join(dir, "check.yaml")
	require.NoError(t, os.WriteFile(file, []byte("proxy: caddy\nrules:\n  - {match: /, limit: logins, key: address}\n"), 0o600))
	want := file + `:3: rules[0].limit: "logins": the name of a limit of limits.yaml is accepted`
	assert.ErrorContains(t, run(context.Background(), []string{"check", dir}, noEnv, &out, &out), want)
	assert.ErrorContains(t, try("-listen", "127.0.0.1:0", "-check-listen", "127.0.0.1:0", dir), want)
}

// A check in a queue is answered before the end. An unbounded header is refused.
func TestCheckDrains(t *testing.T) {
	dir, check := t.TempDir(), freeAddr(t)
	for name, text := range map[string]string{
		"limits.yaml": "limits:\n  line: queue 9, 1/s\n",
		"check.yaml":  "proxy: caddy\nrules:\n  - {match: /, limit: line, key: everybody}\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	rald := start(t, "-state", "none", "-check-listen", check, dir)
	ask := func(more string) (int, error) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+check+"/check", nil)
		if err != nil {
			return 0, err
		}
		r.Header = http.Header{"X-Forwarded-Method": {"GET"}, "X-Forwarded-Uri": {"/"}, "X-Forwarded-For": {"192.0.2.1"}, "More": {more}}
		a, err := http.DefaultClient.Do(r)
		if err != nil {
			return 0, err
		}
		return a.StatusCode, a.Body.Close()
	}
	status, err := ask(strings.Repeat("a", 2*mostHeader))
	require.NoError(t, err)
	assert.Equal(t, http.StatusRequestHeaderFieldsTooLarge, status)
	status, err = ask(strings.Repeat("a", mostHeader/2))
	require.NoError(t, err)
	require.Equal(t, http.StatusNoContent, status)

	type answer struct {
		status int
		err    error
	}
	answers := make(chan answer, 1)
	go func() {
		status, err := ask("")
		answers <- answer{status, err}
	}()
	// The check has come when it has taken its turn.
	rald.until(t, func() bool {
		return len(answers) > 0 || strings.Contains(tool(t, rald, "redis-cli", "RAL.PEEK", "everybody", "line"), "remaining\n7\n")
	})
	rald.end(t)
	assert.Equal(t, answer{status: http.StatusNoContent}, <-answers)
}

func TestCheckOverTLS(t *testing.T) {
	cert, key := certificates(t)
	check := freeAddr(t)
	start(t, "-state", "none", "-tls-cert", cert, "-tls-key", key, "-check-listen", check, checks(t, "caddy"))
	pem, err := os.ReadFile(cert)
	require.NoError(t, err)
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(pem))
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
	defer client.CloseIdleConnections()
	for scheme, want := range map[string]int{"https": http.StatusOK, "http": http.StatusBadRequest} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, scheme+"://"+check+"/healthz", nil)
		require.NoError(t, err)
		a, err := client.Do(r)
		require.NoError(t, err)
		_ = a.Body.Close()
		assert.Equal(t, want, a.StatusCode, scheme)
	}
}
