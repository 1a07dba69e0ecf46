package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/cmd/ral/internal/accesslog"
	"github.com/ral-limiter/ral/cmd/ral/internal/traffic"
	"github.com/ral-limiter/ral/internal/testkit/child"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/policy"
)

// startProxy runs a proxy until the end of the test, or until stop is called.
func startProxy(t *testing.T, addr string, cmd *exec.Cmd) (stop func()) {
	t.Helper()
	p := must.Get(child.Start(cmd))
	t.Cleanup(p.Kill)
	require.NoError(t, p.AwaitListener("tcp", addr, 10*time.Minute))
	return p.Kill
}

// startNginx runs nginx with one worker and a server at the address.
func startNginx(t *testing.T, dir, addr, http, server string) (stop func()) {
	t.Helper()
	config := "events {}\nhttp {\n"
	for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		config += kind + "_temp_path " + filepath.Join(dir, kind) + ";\n"
	}
	config += http + "\nserver {\nlisten " + addr + " reuseport;\nkeepalive_requests 1000000;\n" + server + "\n}\n}\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "nginx.conf"), []byte(config), 0o600))
	program, err := exec.LookPath("nginx")
	if err != nil {
		program = "/usr/sbin/nginx" // not in the PATH of every user
	}
	return startProxy(t, addr, exec.Command(program, "-p", dir, "-c", filepath.Join(dir, "nginx.conf"),
		"-g", "daemon off; master_process off; error_log stderr crit; pid "+filepath.Join(dir, "pid")+";"))
}

// get returns the header of an answer.
func get(client *http.Client, url string) (http.Header, error) {
	a, err := client.Get(url)
	if err != nil {
		return nil, err
	}
	_, err = io.Copy(io.Discard, a.Body)
	return a.Header, errors.Join(err, a.Body.Close())
}

// awaitLines waits until a log has so many lines, since a proxy writes a line after it has answered.
func awaitLines(t *testing.T, file string, lines int) {
	t.Helper()
	must.Await(t, func() bool {
		text, err := os.ReadFile(file)
		return err == nil && strings.Count(string(text), "\n") == lines
	}, "the log has %d lines", lines)
}

// judged is a key's state as nginx's verdicts left it.
type judged struct {
	limit    policy.Policy
	word     uint64
	requests int
	differ   int // verdicts that differ from the policy's
}

// judge compares nginx's verdict on a request with the policy's, and then follows nginx's. It returns an error
// unless the two are equal, or the key is within two milliseconds of its limit.
func (j *judged) judge(now policy.Instant, wasRefused bool) error {
	const near = 2 * time.Millisecond
	next, d := j.limit.Take(j.word, now, 1, 0)
	_, sooner := j.limit.Take(j.word, now-policy.Instant(near), 1, 0)
	var err error
	switch {
	case d.Allowed && wasRefused:
		j.differ++
		if sooner.Allowed {
			err = fmt.Errorf("nginx refused what the limit admits, also two milliseconds sooner: %v", d)
		}
	case !d.Allowed && !wasRefused:
		j.differ++
		if d.RetryAfter > near {
			err = fmt.Errorf("nginx passed what the limit refuses: %v", d)
		}
	}
	j.requests++
	switch {
	case wasRefused:
	case d.Allowed:
		j.word = next
	default:
		j.word = j.limit.(policy.Refunder).Refund(j.word, now, -1)
	}
	return err
}

// The limit of nginx judges a load of bursts, without refusing, and logs its verdicts. Each is compared from the state that
// nginx's own verdicts left, since its clock has milliseconds.
//
// Promise: Funnel(burst+1) and Queue(burst) decide on a log as the real nginx did with limit_req, with nodelay and without.
func TestReplayJudgesAsLimitReqBehindProxies(t *testing.T) {
	if testing.Short() {
		t.Skip("it needs nginx")
	}
	const rate, burst, enough, keys = 10, 10, 2_000, 40
	dir, addr := t.TempDir(), must.Get(child.FreeAddr())
	log := filepath.Join(dir, "access.log")
	const format = "$msec $request_time $uri$arg_k $limit_req_status"
	stop := startNginx(t, dir, addr, fmt.Sprintf(`
limit_req_zone $arg_k zone=nodelay:1m rate=%[1]dr/s;
limit_req_zone $arg_k zone=delayed:1m rate=%[1]dr/s;
limit_req_dry_run on;
log_format judged '%[2]s';
access_log %[3]s judged;
add_header Verdict $limit_req_status always;`, rate, format, log), fmt.Sprintf(`
location /nodelay { limit_req zone=nodelay burst=%[1]d nodelay; empty_gif; }
location /delayed { limit_req zone=delayed burst=%[1]d; empty_gif; }`, burst))

	// Several clients go through the same runs of requests on a key, until nginx has passed and refused enough.
	var verdicts [2]atomic.Int64
	var clients sync.WaitGroup
	for n := range uint64(8) {
		clients.Go(func() {
			client := &http.Client{Transport: &http.Transport{}}
			defer client.CloseIdleConnections()
			random := rand.New(rand.NewPCG(1, n/4))
			for verdicts[0].Load() < enough || verdicts[1].Load() < enough {
				url := fmt.Sprintf("http://%s/%s?k=%d", addr, []string{"nodelay", "delayed"}[random.IntN(2)], random.IntN(keys))
				for range 1 + random.IntN(40) {
					header, err := get(client, url)
					if !assert.NoError(t, err) {
						return
					}
					refused := 0
					if header.Get("Verdict") == "REJECTED_DRY_RUN" {
						refused = 1
					}
					verdicts[refused].Add(1)
				}
			}
		})
	}
	clients.Wait()
	awaitLines(t, log, int(verdicts[0].Load()+verdicts[1].Load()))
	stop()

	reader := must.Get(accesslog.NewReader(accesslog.Config{Format: strings.Replace(format, "$uri$arg_k", "$key", 1), Key: []string{"key"}, Plan: "limit_req_status"}, nil, log))
	window, numbers := traffic.Window{Span: time.Minute, Max: 1 << 20}, traffic.Keys{Max: 100}
	for e := (accesslog.Entry{}); ; {
		err := reader.Next(&e)
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		key, ok := numbers.Number(e.Key)
		require.True(t, ok)
		window.Push(traffic.Request{Arrival: e.Arrival, Duration: e.Duration, Key: key, WasRefused: string(e.Plan) == "REJECTED_DRY_RUN"})
	}
	require.Empty(t, reader.Unreadable)
	all := make([]judged, numbers.Size())
	require.Greater(t, len(all), keys, "both kinds of limits have judged")
	var zero int64
	var differ, requests int
	for q, ok := window.Pop(true); ok; q, ok = window.Pop(true) {
		if zero == 0 {
			zero = int64(q.Arrival) - int64(time.Hour)
		}
		j := &all[q.Key]
		if j.limit == nil {
			j.limit = must.Get(policy.Funnel(burst+1, rate, time.Second))
			if strings.HasPrefix(numbers.Name(q.Key), "/delayed") {
				j.limit = must.Get(policy.Queue(burst, rate, time.Second))
			}
		}
		requests++
		require.NoError(t, j.judge(policy.Instant(q.Arrival-zero), q.WasRefused), "%s, request %d", numbers.Name(q.Key), j.requests)
	}
	for i := range all {
		differ += all[i].differ
	}
	assert.Equal(t, verdicts[0].Load()+verdicts[1].Load(), int64(requests))
	assert.LessOrEqual(t, 100*differ, requests, "%d of %d verdicts differ near the limit", differ, requests)
	assert.Zero(t, window.Late)
	t.Logf("%d requests, %d passed, %d verdicts differ within two milliseconds", requests, verdicts[0].Load(), differ)
}

// Promise: `ral replay` reads the default logs of the real nginx and the real Caddy.
func TestDefaultLogsBehindProxies(t *testing.T) {
	if testing.Short() {
		t.Skip("it needs nginx and Caddy")
	}
	dir := t.TempDir()
	logFile := filepath.Join(dir, "access.log")
	for form, start := range map[string]func(addr string) (stop func()){
		"combined": func(addr string) func() {
			return startNginx(t, dir, addr, "access_log "+logFile+";", "location / { empty_gif; }")
		},
		"caddy": func(addr string) func() {
			file := filepath.Join(dir, "Caddyfile")
			require.NoError(t, os.WriteFile(file, []byte("{\n\tadmin off\n}\nhttp://"+addr+" {\n\trespond hello\n\tlog {\n\t\toutput file "+logFile+"\n\t}\n}\n"), 0o600))
			cmd := exec.Command("caddy", "run", "--config", file, "--adapter", "caddyfile")
			cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_DATA_HOME="+dir, "XDG_CONFIG_HOME="+dir)
			return startProxy(t, addr, cmd)
		},
	} {
		t.Run(form, func(t *testing.T) {
			addr := must.Get(child.FreeAddr())
			stop := start(addr)
			for range 20 {
				must.Get(get(http.DefaultClient, "http://"+addr+"/\"a\"?b=%22"))
			}
			http.DefaultClient.CloseIdleConnections()
			awaitLines(t, logFile, 20)
			stop()
			text, err := onLog(t, "", "replay", "--json", "--show-keys", "--limit", "funnel 5, 1/h", "--against", "funnel 6, 1/h", logFile)
			require.NoError(t, err)
			var d replayed
			require.NoError(t, json.Unmarshal([]byte(text), &d))
			assert.Equal(t, form, d.Source.Form)
			assert.Empty(t, d.Source.Unreadable)
			assert.EqualValues(t, 20, d.Result.Requests)
			assert.EqualValues(t, 15, d.Result.Scenarios[0].Refused)
			assert.EqualValues(t, 1, d.Result.Newly.Requests)
			require.Len(t, d.Result.Top, 1)
			assert.Equal(t, "127.0.0.1", d.Result.Top[0].Key)
			assert.Equal(t, form == "combined", d.Result.AreWhole)
			assert.Equal(t, form == "caddy", d.Source.HasDurations)
			require.NoError(t, os.Remove(logFile))
		})
	}
}
