package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

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
	parts := strings.Split(rest, "\n```")
	for i := 1; i < len(parts); i += 2 {
		if block, ok := strings.CutPrefix(parts[i], language+"\n"); ok {
			blocks = append(blocks, block+"\n")
		}
	}
	require.NotEmpty(t, blocks, section)
	return blocks
}

// site is a proxy with a backend that counts requests, and repeats their bodies.
type site struct {
	addr string
	// log is the file of the access log, if deploy's nginx.conf has one.
	log      string
	requests atomic.Int64
}

// served starts the backend, and puts addresses into a documented configuration.
func served(t *testing.T, check, config string) (s *site, text string) {
	t.Helper()
	s = &site{addr: freeAddr(t)}
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.requests.Add(1)
		_, _ = io.Copy(w, r.Body)
	}))
	t.Cleanup(backend.Close)
	at := backend.Listener.Addr().String()
	text = strings.NewReplacer("rald:7380", check, "127.0.0.1:7380", check, "app:80", at, "127.0.0.1:3000", at,
		"listen 8080", "listen "+s.addr, ":8080 {", "http://"+s.addr+" {").Replace(config)
	require.NotContains(t, text, "8080")
	return s, text
}

func nginx(t *testing.T, check, config string) *site {
	t.Helper()
	s, config := served(t, check, config)
	dir := t.TempDir()
	head := "events {}\nhttp {\naccess_log off;\n"
	for _, of := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		head += of + "_temp_path " + filepath.Join(dir, of) + ";\n"
	}
	s.log = filepath.Join(dir, "access.log")
	write(t, dir, "nginx.conf", head+strings.ReplaceAll(config, "/var/log/nginx/access.log", s.log)+"}\n")
	program, err := exec.LookPath("nginx")
	if err != nil {
		// The program is not in the PATH of every user.
		program = "/usr/sbin/nginx"
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

// logs checks how many requests nginx has logged that way, without the last.
func (s *site) logs(t *testing.T, request string, n int, status string) {
	t.Helper()
	text, err := os.ReadFile(s.log)
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, `"`+request) && strings.HasSuffix(line, ` "`+status+"\"\n") {
			n--
		}
	}
	assert.Zero(t, n, "%s%q: %s", request, status, text)
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

// The configurations of the document and of deploy. The documented rules admit 5 log-ins in 10
// minutes.
//
// Promise: Documented configurations hold real nginx and Caddy to the limits.
func TestDocumentedRulesBehindProxies(t *testing.T) {
	needs(t, "nginx and Caddy")
	rules := documented(t, "## HTTP check", "yaml")[0] +
		"  - {match: free.example/, unlimited: true}\n  - {match: /key, limit: 'funnel 1, 1/h', name: keys, key: header X-Api-Key}\n"
	for name, proxy := range map[string]struct {
		kind, config string
		open         func(t *testing.T, check, config string) *site
	}{
		"nginx":            {"nginx", deployedText(t, "nginx.conf"), nginx},
		"caddy":            {"caddy", documented(t, "### Caddy", "caddyfile")[0], caddy},
		"caddy, of deploy": {"caddy", deployedText(t, "Caddyfile"), caddy},
	} {
		t.Run(name, func(t *testing.T) {
			rald, check := startChecked(t, "limits.yaml", documented(t, "## Configured limits", "yaml")[0],
				"check.yaml", strings.Replace(rules, "proxy: nginx\n", "proxy: "+proxy.kind+"\n", 1))
			s := proxy.open(t, check, proxy.config)
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
				// AtMost rounds up to a part of its period.
				assert.True(t, 0 < retry && retry <= 1200, retry)
				assert.True(t, strings.HasPrefix(h.Get("RateLimit"), `"login";r=0;t=`), h)
				assert.Equal(t, `"login";q=5;w=600`, h.Get("RateLimit-Policy"))
			}
			for _, path := range []string{"/login", "/./login", "/%6cogin", "/login/", "/login?a"} {
				refused(path)
			}
			for _, fields := range forged {
				refused("/login", fields...)
			}
			// Backends read these paths differently.
			for _, path := range []string{"/login/../other", "/%2flogin", "/login;a=b", "//login", "/login%5c"} {
				status, _ := s.post(t, path)
				assert.Contains(t, []int{http.StatusBadRequest, http.StatusForbidden}, status, path)
			}
			assert.EqualValues(t, 5, s.requests.Load(), "what is refused does not reach the backend")
			assert.Zero(t, remaining(t, rald.client(t, redis.Options{Protocol: 2}), "127.0.0.1", "login"), "clients of Redis share the key")

			status, h := s.post(t, "/other", "RateLimit", "of the client")
			assert.Equal(t, http.StatusOK, status)
			assert.Empty(t, h.Get("RateLimit"), "there is no rule")
			noKey := map[string]int{"nginx": http.StatusForbidden, "caddy": http.StatusBadRequest}[proxy.kind]
			status, _ = s.post(t, "/key")
			assert.Equal(t, noKey, status, "another status than over the limit")
			for _, want := range []int{http.StatusOK, http.StatusTooManyRequests} {
				status, _ := s.post(t, "/key", "X-Api-Key", "ann")
				assert.Equal(t, want, status)
			}
			if proxy.kind == "nginx" {
				s.logs(t, "POST /login ", 5, "passed")
				s.logs(t, "POST /login ", 1+len(forged), "limited")
				s.logs(t, "POST /login?a ", 1, "limited")
				s.logs(t, "POST /other ", 1, "")
			}
		})
	}
}

// nginx refuses requests, or passes them as documented.
func TestRaldIsAwayBehindProxies(t *testing.T) {
	needs(t, "nginx")
	away, config := freeAddr(t), deployedText(t, "nginx.conf")
	status, _ := nginx(t, away, config).post(t, "/")
	assert.Equal(t, http.StatusInternalServerError, status)

	inner, beside, ok := strings.Cut(documented(t, "### nginx", "nginx")[0], "\n\n")
	require.True(t, ok)
	config = strings.Replace(config, "        internal;\n", "        internal;\n"+inner+"\n", 1)
	config = strings.Replace(config, "    location = /_limit {\n", beside+"    location = /_limit {\n", 1)
	status, _ = nginx(t, away, config).post(t, "/")
	assert.Equal(t, http.StatusOK, status)
}

// nginx asks for /pages/ and again for its index.
func TestInternalRedirectCountsOnceBehindProxies(t *testing.T) {
	needs(t, "nginx")
	pages := directory(t, "pages/index.html", "body")
	config := strings.Replace(deployedText(t, "nginx.conf"), "    location / {\n",
		"    location /pages/ {\n        auth_request /_limit;\n        error_page   403 = @limited;\n        root         "+pages+";\n    }\n    location / {\n", 1)
	for once, passes := range map[string]int{"": 5, "once: X-Original-Id\n": 10} {
		_, check := startChecked(t, "check.yaml", "proxy: nginx\n"+once+"rules:\n  - {match: /, limit: \"funnel 10, 1/h\", key: address}\n")
		s := nginx(t, check, config)
		status, passed := http.StatusOK, -1
		for ; status == http.StatusOK; passed++ {
			status, _ = fetch(t, http.DefaultClient, "http://"+s.addr+"/pages/")
		}
		assert.Equal(t, passes, passed, once)
	}
}
