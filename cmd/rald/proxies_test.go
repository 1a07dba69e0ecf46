package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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

// site is a proxy with a backend that records the targets of requests, and repeats their bodies.
type site struct {
	addr    string
	mu      sync.Mutex
	targets []string
}

// served starts the backend, and puts addresses into a documented configuration.
func served(t *testing.T, check, config string) (s *site, text string) {
	t.Helper()
	s = &site{addr: freeAddr(t)}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go s.answer(c)
		}
	}()
	text = strings.NewReplacer(
		"rald:7380", check, "127.0.0.1:7380", check, "app:80", l.Addr().String(), "127.0.0.1:3000", l.Addr().String(),
		"listen 8080", "listen "+s.addr, ":8080 {", "http://"+s.addr+" {",
	).Replace(config)
	require.NotContains(t, text, "8080")
	return s, text
}

// answer reads a request that package http may find malformed.
func (s *site) answer(c net.Conn) {
	defer c.Close()
	in := bufio.NewReader(c)
	var lines []string
	for len(lines) == 0 || lines[len(lines)-1] != "" {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		lines = append(lines, strings.TrimRight(line, "\r\n"))
	}
	length := 0
	for _, line := range lines {
		if name, value, _ := strings.Cut(line, ": "); strings.EqualFold(name, "Content-Length") {
			length, _ = strconv.Atoi(value)
		}
	}
	body := make([]byte, length)
	_, _ = io.ReadFull(in, body)
	_, target, _ := strings.Cut(lines[0], " ")
	s.mu.Lock()
	s.targets = append(s.targets, target[:max(0, strings.LastIndex(target, " "))])
	s.mu.Unlock()
	_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", length, body)
}

func nginx(t *testing.T, check, config string) *site {
	t.Helper()
	s, config := served(t, check, config)
	dir := t.TempDir()
	head := "events {}\nhttp {\naccess_log off;\n"
	for _, of := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		head += of + "_temp_path " + filepath.Join(dir, of) + ";\n"
	}
	write(t, dir, "nginx.conf", head+config+"}\n")
	program, err := exec.LookPath("nginx")
	if err != nil {
		program = "/usr/sbin/nginx" // not in the PATH of every user
	}
	s.listens(t, exec.Command(program, "-p", dir, "-c", filepath.Join(dir, "nginx.conf"),
		"-g", "daemon off; master_process off; error_log stderr; pid "+filepath.Join(dir, "pid")+";"))
	return s
}

func caddy(t *testing.T, check, config string) *site {
	t.Helper()
	s, config := served(t, check, config)
	dir := directory(t, "Caddyfile", "{\n\tadmin off\n\tdefault_bind 127.0.0.1\n}\n"+config)
	cmd := exec.Command("caddy", "run", "--config", filepath.Join(dir, "Caddyfile"), "--adapter", "caddyfile")
	cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_DATA_HOME="+dir, "XDG_CONFIG_HOME="+dir)
	s.listens(t, cmd)
	return s
}

// listens starts the proxy for the test, and waits until it answers.
func (s *site) listens(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	p := &server{addr: s.addr}
	p.run(t, cmd)
	p.untilListens(t)
}

// post sends a request with header fields, and returns the answer's status and header.
func (s *site) post(t *testing.T, path string, fields ...string) (int, http.Header) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+s.addr+path, strings.NewReader("body"))
	require.NoError(t, err)
	for ; len(fields) > 0; fields = fields[2:] {
		r.Header.Set(fields[0], fields[1])
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

// raw sends a request for a raw target, and waits for its end.
func (s *site) raw(t *testing.T, target string) {
	t.Helper()
	c, err := net.Dial("tcp", s.addr)
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, c.SetDeadline(time.Now().Add(time.Minute)))
	_, err = fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", target, s.addr)
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, c)
	require.NoError(t, err, "%q", target)
}

// forged are fields by which a client may pretend another request or client.
var forged = [][]string{
	{"X-Original-URI", "/other"}, {"X-Original-URL", "/other"}, {"X-Original-Method", "GET"}, {"X-Original-Host", "free.example"},
	{"X-Forwarded-Uri", "/other"}, {"X-Forwarded-Method", "GET"}, {"X-Forwarded-Host", "free.example"},
	{"X-Forwarded-For", "192.0.2.1"}, {"X-Real-IP", "192.0.2.1"}, {"Forwarded", "for=192.0.2.1"},
	{"Connection", "X-Original-URI, X-Real-IP, X-Forwarded-Uri, X-Forwarded-For, X-Forwarded-Method"},
}

func startChecked(t *testing.T, files ...string) (rald *server, check string) {
	t.Helper()
	check = freeAddr(t)
	return start(t, "-state", "none", "-check-listen", check, directory(t, files...)), check
}

// proxies start with the documented configurations, and with deploy's.
func proxies(t *testing.T) map[string]func(t *testing.T, check string) *site {
	caddyfile := documented(t, "### Caddy", "caddyfile")
	require.Len(t, caddyfile, 1)
	return map[string]func(t *testing.T, check string) *site{
		"nginx":            func(t *testing.T, check string) *site { return nginx(t, check, deployedText(t, "nginx.conf")) },
		"caddy":            func(t *testing.T, check string) *site { return caddy(t, check, caddyfile[0]) },
		"caddy, of deploy": func(t *testing.T, check string) *site { return caddy(t, check, deployedText(t, "Caddyfile")) },
	}
}

// The documented rules admit 5 log-ins in 10 minutes.
//
// Promise: Documented configurations hold real nginx and Caddy to the limits.
func TestDocumentedRulesBehindProxies(t *testing.T) {
	needs(t, "nginx and Caddy")
	rules := documented(t, "## HTTP check", "yaml")[0] +
		"  - {match: free.example/, unlimited: true}\n  - {match: /key, limit: 'funnel 1, 1/h', name: keys, key: header X-Api-Key}\n"
	for name, open := range proxies(t) {
		t.Run(name, func(t *testing.T) {
			kind, _, _ := strings.Cut(name, ",")
			rald, check := startChecked(t, "limits.yaml", documented(t, "## Configured limits", "yaml")[0],
				"check.yaml", strings.Replace(rules, "proxy: nginx\n", "proxy: "+kind+"\n", 1))
			s := open(t, check)
			for n := range 5 {
				status, h := s.post(t, "/login")
				assert.Equal(t, http.StatusOK, status)
				if name != "caddy" {
					assert.True(t, strings.HasPrefix(h.Get("RateLimit"), `"login";r=`+strconv.Itoa(4-n)+";t="), h)
					assert.Equal(t, `"login";q=5;w=600`, h.Get("RateLimit-Policy"))
				}
				assert.Empty(t, h.Get("Retry-After"))
			}
			refused := func(path string, fields ...string) {
				t.Helper()
				status, h := s.post(t, path, fields...)
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
			for _, path := range []string{"/login/../other", "/%2flogin", "/login;a=b", "//login", "/login%5c"} { // backends read these differently
				status, _ := s.post(t, path)
				assert.Contains(t, []int{http.StatusBadRequest, http.StatusForbidden}, status, path)
			}
			assert.Len(t, s.targets, 5, "what is refused does not reach the backend")
			assert.Zero(t, remaining(t, rald.client(t, redis.Options{Protocol: 2}), "127.0.0.1", "login"), "clients of Redis share the key")

			status, h := s.post(t, "/other", "RateLimit", "of the client")
			assert.Equal(t, http.StatusOK, status)
			assert.Empty(t, h.Get("RateLimit"), "there is no rule")
			noKey := map[string]int{"nginx": http.StatusForbidden, "caddy": http.StatusBadRequest}[kind]
			for _, want := range []int{noKey, http.StatusOK, http.StatusTooManyRequests} {
				fields := []string{"X-Api-Key", "ann"}
				if want == noKey {
					fields = nil
				}
				status, _ = s.post(t, "/key", fields...)
				assert.Equal(t, want, status, "another status than over the limit")
			}
		})
	}
}

// nginx refuses requests, or passes them as documented.
func TestRaldIsAwayBehindProxies(t *testing.T) {
	needs(t, "nginx")
	away := freeAddr(t)
	config, blocks := deployedText(t, "nginx.conf"), documented(t, "### nginx", "nginx")
	require.Len(t, blocks, 1)
	status, _ := nginx(t, away, config).post(t, "/")
	assert.Equal(t, http.StatusInternalServerError, status)

	inner, beside, ok := strings.Cut(blocks[0], "\n\n")
	require.True(t, ok)
	config = strings.Replace(config, "        internal;\n", "        internal;\n"+inner+"\n", 1)
	config = strings.Replace(config, "    location = /_limit {\n", beside+"    location = /_limit {\n", 1)
	status, _ = nginx(t, away, config).post(t, "/")
	assert.Equal(t, http.StatusOK, status)
}

func TestNoTargetPassesARuleBehindProxies(t *testing.T) {
	needs(t, "nginx and Caddy")
	for name, open := range proxies(t) {
		t.Run(name, func(t *testing.T) {
			kind, _, _ := strings.Cut(name, ",")
			rules := "proxy: " + kind + "\nrules:\n  - {match: /login, limit: window 1/365d, key: everybody}\n"
			_, check := startChecked(t, "check.yaml", rules)
			s := open(t, check)
			s.raw(t, "/login")
			require.Equal(t, []string{"/login"}, s.targets)
			for _, target := range targets(100) {
				if !strings.ContainsAny(target, "\r\n") { // these end the line
					s.raw(t, strings.ReplaceAll(target, "HOST", s.addr))
				}
			}
			passed := s.targets[1:]
			t.Logf("%d targets reach the backend", len(passed))
			assert.Greater(t, len(passed), 30)
			for _, b := range backends {
				for i, found := range b.paths(t, passed) {
					for _, path := range found {
						assert.False(t, isLogin(path), "%s: %q is %q", b.name, passed[i], path)
					}
				}
			}
		})
	}
}
