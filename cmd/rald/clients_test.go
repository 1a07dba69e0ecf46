package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ral-limiter/ral/internal/testkit/child"
	"github.com/ral-limiter/ral/internal/testkit/redisd"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type server struct {
	*child.Process
	addr string
	log  *logged
}

// logged is a process's output, readable while it is written.
type logged struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func start(t *testing.T, args ...string) *server {
	t.Helper()
	port, err := redisd.FreePort()
	require.NoError(t, err)
	return startOn(t, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), args...)
}

func startOn(t *testing.T, network, addr string, args ...string) *server {
	t.Helper()
	s := &server{addr: addr, log: &logged{}}
	if network == "unix" {
		addr = onSocket + addr
	}
	cmd := exec.Command(os.Args[0], append([]string{"-listen", addr, "-admin", "none"}, args...)...)
	cmd.Env = append(os.Environ(), beRald+"=1")
	cmd.Stdout, cmd.Stderr = s.log, s.log
	var err error
	s.Process, err = child.Start(cmd)
	require.NoError(t, err)
	t.Cleanup(s.Kill)
	s.untilListens(t, network)
	return s
}

// until waits for an event while the server runs.
func (s *server) until(t *testing.T, happened func() bool) {
	t.Helper()
	for !happened() {
		require.True(t, s.Runs(), "%s ended: %s", s.addr, s.log)
		time.Sleep(10 * time.Millisecond) // wall: between two looks for the event
	}
}

func (s *server) untilLogs(t *testing.T, text string) {
	t.Helper()
	s.until(t, func() bool { return strings.Contains(s.log.String(), text) })
}

func (s *server) untilListens(t *testing.T, network string) {
	t.Helper()
	s.until(t, func() bool {
		c, err := net.Dial(network, s.addr)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
}

func (s *server) end(t *testing.T) {
	t.Helper()
	require.NoError(t, s.Signal(syscall.SIGTERM))
	<-s.Ended()
}

func withLimits(t *testing.T) string {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "limits.yaml"), []byte("limits:\n  api: funnel 100, 1/h\n"), 0o600))
	return dir
}

// patient makes a client repeat nothing and wait for a busy machine: an abandoned answer is a lost
// unit.
func patient(o redis.Options) *redis.Options {
	o.MaxRetries = -1
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = time.Minute, time.Minute, time.Minute, time.Minute
	return &o
}

// Promise: Redis clients work in both protocol versions.
func TestGoRedis(t *testing.T) {
	s := start(t, "-state", "none", withLimits(t))
	ctx := context.Background()
	for protocol := 2; protocol <= 3; protocol++ {
		c := redis.NewClient(patient(redis.Options{Addr: s.addr, Protocol: protocol, ClientName: "test", DB: 0}))
		key := "go-redis " + strconv.Itoa(protocol)
		got, err := c.Do(ctx, "CL.THROTTLE", key, 15, 1, 3600, 1).Int64Slice()
		require.NoError(t, err)
		assert.Equal(t, []int64{0, 16, 15, -1, 3600}, got)
		pipe := c.Pipeline()
		var all []*redis.Cmd
		for range 100 {
			all = append(all, pipe.Do(ctx, "CL.THROTTLE", key, 15, 1, 3600))
		}
		_, err = pipe.Exec(ctx)
		require.NoError(t, err)
		admitted := 0
		for _, one := range all {
			if five, err := one.Int64Slice(); assert.NoError(t, err) && five[0] == 0 {
				admitted++
			}
		}
		assert.Equal(t, 15, admitted)
		tx := c.TxPipeline()
		inside := tx.Do(ctx, "CL.THROTTLE", key+" in a transaction", 15, 1, 3600)
		ttl := tx.TTL(ctx, key+" in a transaction")
		_, err = tx.Exec(ctx)
		require.NoError(t, err)
		got, err = inside.Int64Slice()
		require.NoError(t, err)
		assert.Equal(t, []int64{0, 16, 15, -1, 3600}, got)
		assert.Equal(t, time.Hour, ttl.Val())
		if protocol == 3 {
			state, err := c.Do(ctx, "RAL.TAKE", key, "api", 7).Result()
			require.NoError(t, err)
			assert.Equal(t, int64(93), state.(map[any]any)["remaining"])
			assert.Equal(t, true, state.(map[any]any)["allowed"])
		}
		keys, err := c.Keys(ctx, "*").Result()
		assert.Error(t, err, "%s", keys) // not a command of rald
		var found []string
		for scan := c.Scan(ctx, 0, "go-redis*", 1).Iterator(); scan.Next(ctx); {
			found = append(found, scan.Val())
		}
		assert.Contains(t, found, key)
		deleted, err := c.Del(ctx, key).Result()
		require.NoError(t, err)
		assert.EqualValues(t, 1, deleted)
		require.NoError(t, c.Close())
	}
}

func TestRueidis(t *testing.T) {
	s := start(t, "-state", "none", withLimits(t))
	ctx := context.Background()
	for name, option := range map[string]rueidis.ClientOption{
		"by default": {}, "alone": {DisableCache: true, ForceSingleClient: true}, "in RESP 2": {AlwaysRESP2: true, DisableCache: true},
	} {
		option.InitAddress = []string{s.addr}
		c, err := rueidis.NewClient(option)
		require.NoError(t, err, name)
		key := "rueidis " + name
		got, err := c.Do(ctx, c.B().Arbitrary("CL.THROTTLE").Keys(key).Args("15", "1", "3600").Build()).AsIntSlice()
		require.NoError(t, err)
		assert.Equal(t, []int64{0, 16, 15, -1, 3600}, got)
		state, err := c.Do(ctx, c.B().Arbitrary("RAL.TAKE").Keys(key).Args("api", "2").Build()).AsMap()
		require.NoError(t, err)
		remaining := state["remaining"]
		n, err := remaining.AsInt64()
		require.NoError(t, err)
		assert.EqualValues(t, 98, n)
		if !option.DisableCache {
			// rueidis would cache the read-only RAL.PEEK. No reply is older than its call.
			peek := c.B().Arbitrary("RAL.PEEK").Keys(key).Args("api").ReadOnly()
			_, err = c.DoCache(ctx, rueidis.Cacheable(peek), time.Minute).AsMap()
			assert.Error(t, err, "a reply was cached")
		}
		c.Close()
	}
}

// tool runs a program of Redis against the server.
func tool(t *testing.T, s *server, name string, args ...string) string {
	t.Helper()
	_, port, err := net.SplitHostPort(s.addr)
	require.NoError(t, err)
	out, err := exec.Command(name, append([]string{"-p", port}, args...)...).CombinedOutput()
	require.NoError(t, err, "%s: %s (make needs installs it)", name, out)
	return string(out)
}

func TestRedisTools(t *testing.T) {
	s := start(t, "-state", "none", withLimits(t))
	assert.Equal(t, "0\n16\n15\n-1\n3600\n", tool(t, s, "redis-cli", "CL.THROTTLE", "key", "15", "1", "3600"))
	assert.Contains(t, tool(t, s, "redis-cli", "-3", "RAL.TAKE", "key", "api"), "remaining 99\n")
	assert.Contains(t, tool(t, s, "redis-cli", "--scan"), "key\n")
	assert.Contains(t, tool(t, s, "redis-cli", "INFO"), "server_name:rald")
	out := tool(t, s, "redis-benchmark", "-n", "2000", "-c", "20", "-P", "16", "--csv", "CL.THROTTLE", "bench", "1000", "1", "3600")
	assert.NotContains(t, strings.ToLower(out), "error", out)
	assert.Regexp(t, "^1\n1001\n0\n", tool(t, s, "redis-cli", "CL.THROTTLE", "bench", "1000", "1", "3600"),
		"2,000 calls took more or less than the 1,001 units that there are")
}

// An abandoned socket is replaced, a running server's never.
func TestUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rald.sock")
	left := func() string { // without the seconds, which pass
		out, err := exec.Command("redis-cli", "-s", path, "CL.THROTTLE", "key", "15", "1", "3600").CombinedOutput()
		require.NoError(t, err, "%s", out)
		fields := strings.Fields(string(out))
		require.Len(t, fields, 5)
		return strings.Join(fields[:4], " ")
	}
	s := startOn(t, "unix", path, "-state", "none")
	assert.Equal(t, "0 16 15 -1", left())
	err := run(t.Context(), []string{"-listen", onSocket + path, "-state", "none"}, noEnv, io.Discard, io.Discard)
	assert.ErrorIs(t, err, syscall.EADDRINUSE)
	assert.Equal(t, "0 16 14 -1", left())
	s.Kill()

	s = startOn(t, "unix", path, "-state", "none")
	assert.Equal(t, "0 16 15 -1", left(), "a new server")
	s.end(t)
	assert.NoFileExists(t, path)

	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, []byte("precious"), 0o600))
	assert.Error(t, run(t.Context(), []string{"-listen", onSocket + file, "-state", "none"}, noEnv, io.Discard, io.Discard))
	assert.FileExists(t, file)
}

// Over real connections never more than the limit.
func TestManyClientsOfOneKey(t *testing.T) {
	s := start(t, "-state", "none")
	c := redis.NewClient(patient(redis.Options{Addr: s.addr, PoolSize: 64}))
	defer c.Close()
	var mu sync.Mutex
	admitted := 0
	var callers sync.WaitGroup
	for range 64 {
		callers.Go(func() {
			for range 50 {
				got, err := c.Do(context.Background(), "CL.THROTTLE", "hot", 999, 1, 3600).Int64Slice()
				if !assert.NoError(t, err) {
					return
				}
				mu.Lock()
				admitted += int(1 - got[0])
				mu.Unlock()
			}
		})
	}
	callers.Wait()
	assert.Equal(t, 1000, admitted)
}

// Promise: SIGTERM answers all commands read and saves everything.
func TestTermSavesTheState(t *testing.T) {
	state := filepath.Join(t.TempDir(), "state")
	s := start(t, "-state", state, "-save-every", "1h")
	c := redis.NewClient(patient(redis.Options{Addr: s.addr}))
	got, err := c.Do(context.Background(), "CL.THROTTLE", "key", 9, 1, 3600, 10).Int64Slice()
	require.NoError(t, err)
	assert.EqualValues(t, 0, got[0])
	require.NoError(t, c.Close())
	s.end(t)

	s = start(t, "-state", state)
	assert.Contains(t, tool(t, s, "redis-cli", "CL.THROTTLE", "key", "9", "1", "3600"), "1\n10\n0\n")
}

// That is the calls after a save that was seen to end.
//
// Promise: A killed server forgets only unsaved state.
func TestKillForgetsAtMostTheUnsavedUnits(t *testing.T) {
	state := filepath.Join(t.TempDir(), "state")
	s := start(t, "-state", state, "-save-every", "20ms")
	c := redis.NewClient(patient(redis.Options{Addr: s.addr}))
	defer c.Close()
	ctx := context.Background()
	file := filepath.Join(state, "funnel_1%2C_1%2Fs.state")
	saved := int64(0) // units taken before a save began that has ended
	saves := 0
	for saves < 3 {
		got, err := c.Do(ctx, "CL.THROTTLE", "key", 1_000_000, 1, 60, 1000).Int64Slice()
		require.NoError(t, err)
		before, _ := os.Stat(file)
		taken := 1_000_001 - got[2]
		// Two saves end after the call, so the second began after it.
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
		saved = taken
		saves++
	}
	load, stop := context.WithCancel(ctx)
	var callers sync.WaitGroup
	var answered atomic.Int64
	for range 4 {
		callers.Go(func() {
			for load.Err() == nil {
				if c.Do(load, "CL.THROTTLE", "key", 1_000_000, 1, 60).Err() != nil {
					return
				}
				answered.Add(1)
			}
		})
	}
	s.until(t, func() bool { return answered.Load() >= 100 })
	s.Kill()
	stop()
	callers.Wait()

	s = start(t, "-state", state)
	c2 := redis.NewClient(patient(redis.Options{Addr: s.addr}))
	defer c2.Close()
	got, err := c2.Do(ctx, "CL.THROTTLE", "key", 1_000_000, 1, 60, 0).Int64Slice()
	require.NoError(t, err)
	drained := int64(10) // far more than drains in this time at a unit a minute
	assert.GreaterOrEqual(t, saved, int64(3000))
	assert.GreaterOrEqual(t, 1_000_001-got[2], saved-drained)
	assert.LessOrEqual(t, 1_000_001-got[2], saved+answered.Load()+4, "units that were never taken")
}

func TestTLSAndPassword(t *testing.T) {
	cert, key := certificates(t)
	password := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(password, []byte("secret\n"), 0o600))
	s := start(t, "-state", "none", "-tls-cert", cert, "-tls-key", key, "-password-file", password)
	run := func(args ...string) string {
		return tool(t, s, "redis-cli", append([]string{"--tls", "--cacert", cert}, args...)...)
	}
	assert.Contains(t, run("PING"), "NOAUTH")
	assert.Contains(t, run("--no-auth-warning", "-a", "secret", "PING"), "PONG")
	assert.Contains(t, run("--no-auth-warning", "-a", "wrong", "PING"), "WRONGPASS")

	plain, err := net.Dial("tcp", s.addr)
	require.NoError(t, err)
	defer plain.Close()
	_, err = io.WriteString(plain, "PING\r\n")
	require.NoError(t, err)
	answer, err := io.ReadAll(plain)
	assert.True(t, err == nil || errors.Is(err, syscall.ECONNRESET), "%v", err)
	assert.NotContains(t, string(answer), "PONG")
}
