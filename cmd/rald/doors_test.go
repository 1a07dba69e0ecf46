package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	descriptor "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	xdsserver "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	config "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/ral-limiter/ral/cmd/rald/internal/redistest"
	"github.com/ral-limiter/ral/cmd/rald/internal/xds"
)

// whole is a rald with all its doors, without clients.
type whole struct {
	*server
	check, envoy, pages, admin, metrics string
}

func startWhole(t *testing.T, args ...string) *whole {
	t.Helper()
	w := &whole{check: freeAddr(t), envoy: freeAddr(t), pages: freeAddr(t), admin: freeAddr(t), metrics: freeAddr(t)}
	w.server = start(t, append([]string{
		"-check-listen", w.check, "-envoy-listen", w.envoy, "-envoy-http", w.pages, "-admin", w.admin, "-metrics", w.metrics,
	}, args...)...)
	return w
}

// traefikURL is deploy's URL of the check, with the address of the test's server.
func traefikURL(t *testing.T, check string) string {
	t.Helper()
	auth := at(documents(t, "traefik.yaml")[0], "http.middlewares.limits.forwardAuth")
	assert.NotEqual(t, "true", textAt(auth, "trustForwardHeader"))
	require.Contains(t, textAt(auth, "address"), "127.0.0.1:7380")
	return strings.Replace(textAt(auth, "address"), "127.0.0.1:7380", check, 1)
}

// asTraefik are the header fields in Traefik's documentation.
func asTraefik(path string) []string {
	return []string{
		"X-Forwarded-Method", "POST", "X-Forwarded-Proto", "https", "X-Forwarded-Host", "example.org",
		"X-Forwarded-Uri", path, "X-Forwarded-For", "192.0.2.1", "X-Forwarded-Port", "443",
	}
}

// One process answers at every door, and operators see all. SIGHUP changes all doors. Their keys
// outlive a restart, and commands under way are answered before the end.
//
// Promise: SIGHUP reads changed files at once, in all doors, and loses no unit.
// Promise: SIGTERM answers all commands read and saves everything.
// Promise: `/healthz` fails while the server drains.
// Promise: The address for metrics and health shows no keys and changes nothing.
func TestEveryDoorOfAProcess(t *testing.T) {
	const limits = "limits:\n  login: at most 5/10m\n  line: queue 9, 1/s\n  api: funnel 100, 1/h\n"
	dir := directory(t, "limits.yaml", limits, "envoy/shop.yaml", rulesOf(2), "check.yaml", "proxy: traefik\nrules:\n"+
		"  - {match: POST /login, limit: login, key: address}\n  - {match: /line, limit: line, key: everybody}\n")
	args := []string{"-state", filepath.Join(t.TempDir(), "state"), "-save-every", "1h", "-drain", "5m", "-log", "json", "-insecure-network", dir}
	s := startWhole(t, args...)

	commands := s.client(t, redis.Options{Protocol: 2})
	got, err := commands.Do(t.Context(), "CL.THROTTLE", "ann", 9, 1, 3600, 10).Int64Slice()
	require.NoError(t, err)
	assert.Equal(t, []int64{0, 10, 0, -1, 36000}, got)
	_, left := take(t, commands, "ann")
	assert.EqualValues(t, 99, left)

	url := traefikURL(t, s.check)
	for _, want := range []int{204, 204, 204, 204, 204, 429} {
		status, _ := fetch(t, http.DefaultClient, url, asTraefik("/login?a=b")...)
		assert.Equal(t, want, status)
	}
	assert.Zero(t, remaining(t, commands, "192.0.2.1", "login"), "clients of Redis share the key")
	status, _ := fetch(t, http.DefaultClient, url, append(asTraefik("/"), "More", strings.Repeat("a", maxHeaderBytes/2))...)
	assert.Equal(t, http.StatusNoContent, status)
	status, _ = fetch(t, http.DefaultClient, url, append(asTraefik("/"), "More", strings.Repeat("a", 2*maxHeaderBytes))...)
	assert.Equal(t, http.StatusRequestHeaderFieldsTooLarge, status)

	service := envoyAt(t, s.envoy)
	for _, want := range []pb.RateLimitResponse_Code{pb.RateLimitResponse_OK, pb.RateLimitResponse_OK, pb.RateLimitResponse_OVER_LIMIT} {
		assert.Equal(t, want, ask(t, service, "ann").OverallCode)
	}
	_, text := fetch(t, http.DefaultClient, "http://"+s.pages+"/rlconfig")
	assert.Contains(t, text, "shop.user: unit=YEAR requests_per_unit=2")
	size, err := commands.DBSize(t.Context()).Result()
	require.NoError(t, err)
	assert.EqualValues(t, 3, size, "without the keys of Envoy")

	_, text = fetch(t, http.DefaultClient, "http://"+s.admin+"/metrics")
	for _, line := range []string{
		`rald_resp_commands_total{command="cl.throttle",result="ok"} 1`, `ral_calls_total{limit="rald funnel",result="admitted"} 2`,
		`rald_check_requests_total{result="refused"} 1`, `rald_envoy_descriptors_total{result="refused",rule="shop.user"} 1`,
	} {
		assert.Contains(t, text, line)
	}
	_, text = fetch(t, http.DefaultClient, "http://"+s.admin+"/debug/ral/limits")
	assert.Contains(t, text, `"name":"api"`)
	for path, want := range map[string]int{"/metrics": 200, "/healthz": 200, "/": 404, "/debug/ral/": 404, "/debug/pprof/": 404} {
		status, _ := fetch(t, http.DefaultClient, "http://"+s.metrics+path)
		assert.Equal(t, want, status, path)
	}
	var ok strings.Builder
	require.NoError(t, run(t.Context(), []string{"health"}, environment{"RALD_ADMIN=none", "RALD_METRICS=" + s.metrics}, &ok, io.Discard))
	assert.Equal(t, "ok\n", ok.String())
	assert.ErrorContains(t, run(t.Context(), []string{"health", "http://" + s.admin + "/none"}, noEnv, io.Discard, io.Discard), "404 Not Found: 404 page not found")
	assert.ErrorContains(t, run(t.Context(), []string{"health", "http://a", "http://b"}, noEnv, io.Discard, io.Discard), "rald health takes one URL")

	write(t, dir, "limits.yaml", strings.Replace(limits, "funnel 100", "funnel 200", 1))
	write(t, dir, "envoy/shop.yaml", rulesOf(100))
	require.NoError(t, s.Signal(syscall.SIGHUP))
	s.until(t, func() bool { return remaining(t, commands, "bob", "api") == 200 })
	assert.EqualValues(t, 199, remaining(t, commands, "ann", "api"))
	assert.EqualValues(t, 96, ask(t, service, "ann").Statuses[0].LimitRemaining, "hits that were refused count, as in the reference")

	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	watch, err := healthpb.NewHealthClient(service).Watch(ctx, &healthpb.HealthCheckRequest{Service: "ratelimit"})
	require.NoError(t, err)
	health, err := watch.Recv()
	require.NoError(t, err)
	assert.Equal(t, healthpb.HealthCheckResponse_SERVING, health.Status)
	// The second check waits behind the first.
	waited := make(chan int, 2)
	for range 2 {
		go func() {
			status, _ := fetch(t, http.DefaultClient, url, asTraefik("/line")...)
			waited <- status
		}()
	}
	s.until(t, func() bool { return len(waited) == 2 || remaining(t, commands, "everybody", "line") == 7 })
	// The server ends when the stream has ended.
	require.NoError(t, s.Signal(syscall.SIGTERM))
	s.until(t, func() bool {
		status, text := fetch(t, http.DefaultClient, "http://"+s.admin+"/healthz")
		return status == http.StatusServiceUnavailable && assert.Equal(t, "draining\n", text)
	})
	assert.Equal(t, []int{204, 204}, []int{<-waited, <-waited})
	leave()
	<-s.Ended()
	assert.Contains(t, s.log.String(), "rald trusts its network: -insecure-network opens every address to all that reach it")
	var last struct{ Level, Msg string }
	lines := strings.Split(strings.TrimSpace(s.log.String()), "\n")
	require.NoError(t, json.Unmarshal([]byte(lines[len(lines)-1]), &last))
	assert.Equal(t, "INFO rald saves its state and ends", last.Level+" "+last.Msg)
	assert.Error(t, run(t.Context(), []string{"health", "http://" + s.admin + "/healthz"}, noEnv, io.Discard, io.Discard))

	s = startWhole(t, args...)
	commands = s.client(t, redis.Options{Protocol: 2})
	got, err = commands.Do(t.Context(), "CL.THROTTLE", "ann", 9, 1, 3600).Int64Slice()
	require.NoError(t, err)
	assert.Equal(t, []int64{1, 10, 0}, got[:3])
	assert.EqualValues(t, 199, remaining(t, commands, "ann", "api"))
	assert.EqualValues(t, 95, ask(t, envoyAt(t, s.envoy), "ann").Statuses[0].LimitRemaining)
	s.end(t)
}

// Promise: With `-tls-clients` every address except metrics demands client certificates.
func TestEveryDoorIsGuarded(t *testing.T) {
	cert, key, own := certificates(t)
	secrets := directory(t, "password", "secret\n", "tokens", "anna "+operatorToken+"\n")
	everywhere := freeAddr(t)
	s := startWhole(t, "-state", "none", "-tls-cert", cert, "-tls-key", key, "-tls-clients", cert, "-password-file", filepath.Join(secrets, "password"),
		"-admin", strings.Replace(everywhere, "127.0.0.1", "0.0.0.0", 1), "-admin-tokens-file", filepath.Join(secrets, "tokens"), wholeDirectory(t))
	// gRPC needs h2.
	own.NextProtos = []string{"h2"}
	strange := &tls.Config{RootCAs: own.RootCAs, NextProtos: own.NextProtos}
	for name, addr := range map[string]string{"resp": s.addr, "check": s.check, "envoy": s.envoy, "pages": s.pages, "admin": everywhere} {
		answer := func(c net.Conn, err error) error {
			require.NoError(t, err, name)
			defer c.Close()
			require.NoError(t, c.SetDeadline(time.Now().Add(time.Minute)))
			_, err = io.WriteString(c, "PING\r\n\r\n")
			if err == nil {
				_, err = c.Read(make([]byte, 1))
			}
			return err
		}
		assert.NoError(t, answer(tls.Dial("tcp", addr, own)), name)
		assert.ErrorContains(t, answer(tls.Dial("tcp", addr, strange)), "certificate required", name)
		plain, err := net.Dial("tcp", addr)
		require.NoError(t, err)
		defer plain.Close()
		_, err = io.WriteString(plain, "PING\r\n\r\n")
		require.NoError(t, err)
		text, _ := io.ReadAll(plain)
		assert.NotContains(t, string(text), "PONG", name)
	}
	for password, want := range map[string]string{"secret": "", "": "NOAUTH", "wrong": "WRONGPASS"} {
		err := s.client(t, redis.Options{TLSConfig: own, Password: password}).Ping(t.Context()).Err()
		assert.True(t, err == nil && want == "" || err != nil && want != "" && strings.Contains(err.Error(), want), "%q: %v", password, err)
	}
	c := &http.Client{Transport: &http.Transport{TLSClientConfig: own}}
	defer c.CloseIdleConnections()
	for path, want := range map[string]int{"/metrics": 401, "/debug/ral/": 401, "/debug/pprof/": 401, "/healthz": 200} {
		status, _ := fetch(t, c, "https://"+everywhere+path)
		assert.Equal(t, want, status, path)
		status, _ = fetch(t, c, "https://"+everywhere+path, "Authorization", "Bearer "+operatorToken)
		assert.Equal(t, 200, status, path)
	}
	env := environment{"RALD_ADMIN=" + everywhere, "RALD_METRICS=" + s.metrics, "RALD_TLS_CERT=" + cert, "RALD_TLS_CLIENTS=" + cert}
	assert.NoError(t, run(t.Context(), []string{"health"}, env, io.Discard, io.Discard), "metrics demand no certificate")
	s.end(t)
}

// Promise: A killed server's socket is replaced, and a running server's never.
func TestOnlyAKilledServersSocketIsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rald.sock")
	open := func() (net.Listener, error) { return listen("-listen", onSocket+path, nil, nil, nil) }
	l, err := open()
	require.NoError(t, err)
	_, err = open()
	assert.ErrorIs(t, err, syscall.EADDRINUSE)
	c, err := net.Dial("unix", path)
	require.NoError(t, err)
	_ = c.Close()
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	require.NoError(t, l.Close())
	require.FileExists(t, path)
	l, err = open()
	require.NoError(t, err)
	require.NoError(t, l.Close())
	assert.NoFileExists(t, path)
}

func TestSecondRaldHasNoAddressForOperators(t *testing.T) {
	if l, err := net.Listen("tcp", defaultAdmin); err == nil {
		defer l.Close()
	} // otherwise another program has it
	var log bytes.Buffer
	l, err := listenAdmin(settings{admin: adminSettings{listen: defaultAdmin}}, slog.New(slog.NewTextHandler(&log, nil)))
	require.NoError(t, err)
	assert.Nil(t, l)
	assert.Contains(t, log.String(), "goes on without an address for operators")
}

// activate starts rald like systemd, with named sockets.
func activate(t *testing.T, notify, names string, passed []*os.File, args ...string) *server {
	t.Helper()
	// LISTEN_PID must be the process's own, which a shell can tell.
	cmd := exec.Command("sh", append([]string{"-c", `LISTEN_PID=$$ exec "$@"`, "sh", os.Args[0]}, args...)...)
	cmd.Env = append(os.Environ(), beRald+"=1", "LISTEN_FDS="+string(rune('0'+len(passed))), "LISTEN_FDNAMES="+names, "NOTIFY_SOCKET="+notify)
	cmd.ExtraFiles = passed
	s := &server{}
	s.run(t, cmd)
	return s
}

// pass listens, and returns the socket as a file.
func pass(t *testing.T, network, address string) (string, *os.File) {
	l, err := net.Listen(network, address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	file, err := l.(interface{ File() (*os.File, error) }).File()
	require.NoError(t, err)
	t.Cleanup(func() { _ = file.Close() })
	return l.Addr().String(), file
}

// They replace addresses, and systemd is told.
func TestSocketActivationWithProcesses(t *testing.T) {
	needs(t, "a shell in systemd's place")
	dir := directory(t, "envoy/shop.yaml", rulesOf(2))
	notify, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "notify")})
	require.NoError(t, err)
	defer notify.Close()
	output := func() string {
		text := make([]byte, 100)
		require.NoError(t, notify.SetReadDeadline(time.Now().Add(time.Minute)))
		n, err := notify.Read(text)
		require.NoError(t, err)
		return string(text[:n])
	}
	resp, respFile := pass(t, "tcp", "127.0.0.1:0")
	admin, adminFile := pass(t, "unix", filepath.Join(t.TempDir(), "admin"))
	envoy, envoyFile := pass(t, "tcp", "127.0.0.1:0")

	// The addresses of the flags would be refused.
	s := activate(t, notify.LocalAddr().String(), "resp:admin:envoy", []*os.File{respFile, adminFile, envoyFile},
		"-state", "none", "-listen", "0.0.0.0:1", "-admin", "0.0.0.0:1", "-envoy-listen", "0.0.0.0:1", dir)
	s.addr = resp
	assert.Equal(t, "READY=1", output(), "%s", &s.log)
	assert.NoError(t, s.client(t, redis.Options{}).Ping(t.Context()).Err())
	c := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", admin)
	}}}
	defer c.CloseIdleConnections()
	status, text := fetch(t, c, "http://rald/metrics")
	assert.Equal(t, http.StatusOK, status, "%.100s", text)
	conn, err := net.Dial("tcp", envoy)
	require.NoError(t, err)
	// HTTP/2 begins with its settings.
	_, err = io.ReadFull(conn, make([]byte, 1))
	assert.NoError(t, err)
	_ = conn.Close()
	s.end(t)
	assert.Equal(t, "STOPPING=1", output())
}

// Sockets that other machines reach end rald at start.
func TestSocketsThatAreRefusedWithProcesses(t *testing.T) {
	needs(t, "a shell in systemd's place")
	for name, says := range map[string]string{
		"resp": "the socket in place of -listen is", "admin": "which other machines may reach: set -tls-cert and -admin-tokens",
	} {
		_, file := pass(t, "tcp", "0.0.0.0:0")
		s := activate(t, "", name, []*os.File{file}, "-state", "none", "-listen", "127.0.0.1:0", "-admin", "127.0.0.1:0")
		<-s.Ended()
		assert.Contains(t, s.log.String(), says, name)
	}
}

// Promise: Sockets of systemd without a door, or two for one, are refused.
func TestSocketsThatAreRefused(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	s := newSockets(map[string][]net.Listener{"rald.socket": {l}, "resp": {l, l}, "envoy": {l}, "check": {l}})
	at, ok := s.address("-check-listen")
	assert.True(t, ok)
	assert.Equal(t, l.Addr(), at)
	assert.Equal(t, l, s.take("-check-listen"))
	assert.Nil(t, s.take("-check-listen"))
	_, ok = s.address("-check-listen")
	assert.False(t, ok)
	err = s.check()
	for _, says := range []string{
		`is named "rald.socket": FileDescriptorName of ["admin" "check" "envoy" "metrics" "resp"] is accepted`,
		"2 sockets of the name resp were passed: 1 is accepted",
		"a socket of the name envoy was passed, and nothing is to be served there",
	} {
		assert.ErrorContains(t, err, says)
	}
	assert.NotContains(t, err.Error(), "check was passed")
}

// Package engine tries kills under load.
//
// Promise: A killed server forgets only unsaved state.
func TestKillForgetsOnlyUnsavedStateWithProcesses(t *testing.T) {
	needs(t, "a server that is killed")
	state, dir := filepath.Join(t.TempDir(), "state"), directory(t, "limits.yaml", limitsFile)
	s := start(t, "-state", state, "-save-every", "20ms", dir)
	c := s.client(t, redis.Options{Protocol: 2})
	for range 3 {
		take(t, c, "ann")
	}
	file := filepath.Join(state, "funnel_1%2C_1%2Fs.state")
	before, _ := os.Stat(file)
	// Saves end after the calls, so the second began after them.
	for range 2 {
		s.until(t, func() bool {
			now, err := os.Stat(file)
			if err != nil || before != nil && os.SameFile(before, now) {
				return false
			}
			before = now
			return true
		})
	}
	s.Kill()
	s = start(t, "-state", state, dir)
	assert.EqualValues(t, 97, remaining(t, s.client(t, redis.Options{Protocol: 2}), "ann", "api"))
}

// Promise: A limit that Redis cannot keep is refused by name or line.
func TestLimitThatRedisCannotKeep(t *testing.T) {
	dir := directory(t, "limits.yaml", "limits:\n  plan: window 5/month in UTC\n")
	err := run(t.Context(), []string{"-admin", "none", "-redis", "redis://" + redistest.Start(t).Addr(), dir}, noEnv, io.Discard, io.Discard)
	assert.ErrorContains(t, err, "limits.yaml:2: plan: ")
	assert.ErrorContains(t, err, "cannot be kept in Redis, want a funnel, queue")
}

// Redis knows them by the user of the URL. In an outage operators still see all. Packages fleet and
// families try more ways to die.
//
// Promise: Servers of one Redis keep limits to the unit, even if one dies.
func TestServersOfOneRedisWithProcesses(t *testing.T) {
	needs(t, "a server that is killed under load")
	r := redistest.Start(t)
	database := redis.NewClient(&redis.Options{Addr: r.Addr()})
	t.Cleanup(func() { _ = database.Close() })
	require.NoError(t, database.Do(t.Context(), "ACL", "SETUSER", "rald", "on", ">secret", "~*", "&*", "+@all").Err())
	dir, operators := directory(t, "limits.yaml", limitsFile, "envoy/shop.yaml", rulesOf(60)), freeAddr(t)
	open := func(admin string) (*server, *redis.Client) {
		s := start(t, "-admin", admin, "-redis", "redis://rald:secret@"+r.Addr(), "-redis-budget", "1m", "-fleet-servers", "2", "-envoy-listen", freeAddr(t), dir)
		return s, s.client(t, redis.Options{Protocol: 2})
	}
	first, one := open(operators)
	second, two := open("none")
	var admitted, calls atomic.Int64
	// The last call may count without an answer.
	go func() {
		for {
			state, err := two.Do(context.Background(), "RAL.TAKE", "ann", "api").Slice()
			if err != nil {
				return
			}
			admitted.Add(state[1].(int64))
			calls.Add(1)
		}
	}()
	for range 50 {
		took, _ := take(t, one, "ann")
		admitted.Add(took)
	}
	second.until(t, func() bool { return calls.Load() > 0 })
	second.Kill()
	for took := int64(1); took > 0; admitted.Add(took) {
		took, _ = take(t, one, "ann")
	}
	assert.LessOrEqual(t, admitted.Load(), int64(100))
	assert.GreaterOrEqual(t, admitted.Load()+1, int64(100))
	assert.Contains(t, database.ClientList(t.Context()).Val(), "user=rald")

	r.Kill()
	for range 20 {
		take(t, one, "bob")
	}
	first.until(t, func() bool { return strings.Contains(one.Info(t.Context()).Val(), "backend_failing:1") })
	for path, want := range map[string][]string{
		"/healthz":          {"ok\nrald:funnel: ral: Redis could not be asked"},
		"/metrics":          {`limit="rald:funnel"`, `limit="rald.envoy:window/365d_aligned"`},
		"/debug/ral/limits": {`"name":"api"`},
	} {
		status, text := fetch(t, http.DefaultClient, "http://"+operators+path)
		assert.Equal(t, http.StatusOK, status)
		for _, part := range want {
			assert.Contains(t, text, part)
		}
	}
	first.untilLogs(t, "outage began")
	first.end(t)
	assert.Contains(t, first.log.String(), "rald ends")
	assert.NotContains(t, first.log.String(), "secret")
}

// Until the first rules come the service is not healthy. Both sides have certificates.
func TestManagementServerConfiguresTheDoor(t *testing.T) {
	cert, key, trusting := certificates(t)
	both := trusting.Clone()
	both.ClientCAs, both.ClientAuth = trusting.RootCAs, tls.RequireAndVerifyClientCert
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	snapshots := cache.NewSnapshotCache(true, cache.IDHash{}, nil)
	management := grpc.NewServer(grpc.Creds(credentials.NewTLS(both)))
	discovery.RegisterAggregatedDiscoveryServiceServer(management, xdsserver.NewServer(t.Context(), snapshots, nil))
	go func() { _ = management.Serve(l) }()
	t.Cleanup(management.Stop)

	addr, metrics, pages, admin := freeAddr(t), freeAddr(t), freeAddr(t), onSocket+filepath.Join(t.TempDir(), "admin")
	s := start(t, "-state", "none", "-envoy-xds", l.Addr().String(), "-envoy-xds-node", "edge", "-envoy-xds-ca", cert,
		"-tls-cert", cert, "-tls-key", key, "-envoy-listen", addr, "-envoy-http", pages, "-metrics", metrics, "-admin", admin)
	secure := &http.Client{Transport: &http.Transport{TLSClientConfig: trusting}}
	service, err := grpc.NewClient(addr, grpc.WithTransportCredentials(credentials.NewTLS(trusting)))
	require.NoError(t, err)
	defer func() { _ = service.Close() }()
	_, err = pb.NewRateLimitServiceClient(service).ShouldRateLimit(t.Context(),
		&pb.RateLimitRequest{Domain: "shop", Descriptors: make([]*descriptor.RateLimitDescriptor, 1)}, grpc.WaitForReady(true))
	assert.Equal(t, codes.Unavailable, status.Code(err))
	healthy := func() string {
		is, err := healthpb.NewHealthClient(service).Check(t.Context(), &healthpb.HealthCheckRequest{})
		require.NoError(t, err)
		return is.Status.String()
	}
	assert.Equal(t, "NOT_SERVING", healthy())
	code, _ := fetch(t, secure, "https://"+pages+"/healthcheck")
	assert.Equal(t, http.StatusInternalServerError, code)

	rules, err := cache.NewSnapshot("1", map[string][]types.Resource{xds.TypeURL: {&config.RateLimitConfig{Domain: "shop", Descriptors: []*config.RateLimitDescriptor{
		{Key: "user", RateLimit: &config.RateLimitPolicy{Unit: config.RateLimitUnit_YEAR, RequestsPerUnit: 1}},
	}}}})
	require.NoError(t, err)
	require.NoError(t, snapshots.SetSnapshot(t.Context(), "edge", rules))
	s.untilLogs(t, "the management server's rules are in force")
	assert.Equal(t, "SERVING", healthy())
	for _, want := range []pb.RateLimitResponse_Code{pb.RateLimitResponse_OK, pb.RateLimitResponse_OVER_LIMIT} {
		assert.Equal(t, want, ask(t, service, "ann").OverallCode)
	}
	_, text := fetch(t, secure, "https://"+metrics+"/metrics")
	assert.Contains(t, text, `rald_reloads_total{of="xds",result="good"} 1`)
	assert.Contains(t, text, `rald_reload_failing{of="xds"} 0`)
	assert.NoError(t, run(t.Context(), []string{"health"}, environment{"RALD_ADMIN=" + admin, "RALD_TLS_CERT=" + cert}, io.Discard, io.Discard))
	for _, args := range [][]string{{"-admin", admin, "-tls-cert", cert}, {"-tls-cert", cert, admin}, {"-admin", "none", "-metrics", metrics, "-tls-cert", cert}} {
		var said strings.Builder
		assert.NoError(t, run(t.Context(), append([]string{"health"}, args...), noEnv, &said, io.Discard), args)
		assert.Equal(t, "ok\n", said.String(), args)
	}
	s.end(t)
	assert.Contains(t, s.log.String(), "rald ends")
}
