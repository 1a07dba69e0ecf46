package child

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/internal/testkit/must"
)

// start starts a Redis that ends with the test, in a folder that is empty then.
func start(t *testing.T, c RedisConfig) *Redis {
	t.Helper()
	leavesNothing(t)
	s := must.Get(OpenRedis(c))
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	return s
}

func leavesNothing(t *testing.T) {
	t.Helper()
	folder := t.TempDir()
	t.Setenv("TMPDIR", folder)
	t.Cleanup(func() {
		assert.Empty(t, must.Get(os.ReadDir(folder)))
	})
}

func get(t *testing.T, s *Redis, setting string) string {
	t.Helper()
	c, err := net.Dial(s.Network(), s.Addr())
	require.NoError(t, err)
	defer c.Close()
	fmt.Fprintf(c, "CONFIG GET %s\r\n", setting)
	r := bufio.NewScanner(c)
	var lines []string
	for len(lines) < 5 && r.Scan() {
		lines = append(lines, r.Text())
	}
	require.Len(t, lines, 5, "*2, and name and value after their lengths")
	require.Equal(t, setting, lines[2])
	return lines[4]
}

func TestServerKeepsNothing(t *testing.T) {
	for _, c := range []RedisConfig{{}, {Socket: true}} {
		t.Run(fmt.Sprintf("socket %v", c.Socket), func(t *testing.T) {
			s := start(t, c)
			assert.Equal(t, c.Socket, s.Network() == "unix")
			assert.NoError(t, s.Ping(patience))
			assert.Empty(t, get(t, s, "save"))
			assert.Equal(t, "no", get(t, s, "appendonly"))
			if c.Socket {
				assert.Equal(t, "0", get(t, s, "port"))
			} else {
				assert.Equal(t, "127.0.0.1", get(t, s, "bind"))
			}

			require.NoError(t, s.Close())
			assert.NoDirExists(t, s.folder)
			assert.Zero(t, s.PID())
			assert.Error(t, s.Ping(patience))
			assert.NoError(t, s.Close(), "a second Close is an error")
		})
	}
}

func TestArgumentWinsOverTheSettings(t *testing.T) {
	s := start(t, RedisConfig{Args: []string{"--appendonly", "yes", "--hz", "17"}, Settings: "maxclients 71\nhz 18\n"})
	assert.Equal(t, "yes", get(t, s, "appendonly"))
	assert.Equal(t, "17", get(t, s, "hz"), "an argument wins over the file")
	assert.Equal(t, "71", get(t, s, "maxclients"))
}

// All of its data on disk is there again.
func TestRestartKeepsTheDataOnDisk(t *testing.T) {
	const keys = 8_000
	for _, onDisk := range []string{"no", "yes"} {
		t.Run("on disk "+onDisk, func(t *testing.T) {
			s := start(t, RedisConfig{Args: []string{
				"--appendonly", onDisk,
				// Reading takes most of a second. Redis answers every 1,024 commands.
				"--key-load-delay", "50",
			}})
			must.Get(s.ask(`EVAL "for i = 1, ARGV[1] do redis.call('SET', i, i) end return redis.status_reply('done')" 0 `+strconv.Itoa(keys), "+done", patience))
			addr, pid := s.Addr(), s.PID()
			s.Kill()
			assert.Error(t, s.Ping(patience))
			assert.Zero(t, s.PID())

			require.NoError(t, s.Restart())
			assert.Equal(t, addr, s.Addr())
			assert.NotEqual(t, pid, s.PID())
			assert.Equal(t, 2, strings.Count(s.Said(), "Ready to accept connections"), s.Said())
			assert.Equal(t, map[string]string{"no": "0", "yes": strconv.Itoa(keys)}[onDisk], must.Get(s.ask("DBSIZE", ":", patience)))
		})
	}
}

func TestServerThatDoesNotStart(t *testing.T) {
	leavesNothing(t)
	_, err := OpenRedis(RedisConfig{Args: []string{"--maxmemory", "much"}})
	assert.ErrorContains(t, err, "ended as soon as it was started")
	assert.ErrorContains(t, err, "argument must be a memory value")

	// It is found, and is no program.
	text := filepath.Join(t.TempDir(), "text")
	require.NoError(t, os.WriteFile(text, []byte("text"), 0o700))
	_, err = OpenRedis(RedisConfig{Program: text})
	assert.ErrorContains(t, err, "starting "+text)
}

func TestMissingServerSaysHowToInstallIt(t *testing.T) {
	leavesNothing(t)
	_, err := OpenRedis(RedisConfig{Program: "/no/such/redis"})
	assert.ErrorIs(t, err, os.ErrNotExist)
	assert.ErrorContains(t, err, "there is no /no/such/redis here")

	t.Setenv("PATH", t.TempDir())
	_, err = FindRedis("")
	assert.ErrorContains(t, err, "there is no redis-server here")
	for _, how := range []string{"apt-get install redis-server", "brew install redis", "dnf install redis"} {
		assert.ErrorContains(t, err, how)
	}
}

// Another server must not be measured.
func TestPortOfAnotherServer(t *testing.T) {
	other := start(t, RedisConfig{})
	s := start(t, RedisConfig{})
	require.NoError(t, s.identify(s.process.Load()))
	s.addr = other.addr
	assert.NoError(t, s.Ping(patience))
	assert.ErrorIs(t, s.identify(s.process.Load()), errTaken)
	s.Kill()
	assert.ErrorIs(t, s.Restart(), errTaken)
	assert.Zero(t, s.PID())

	_, port, err := net.SplitHostPort(other.addr)
	require.NoError(t, err)
	_, err = OpenRedis(RedisConfig{Args: []string{"--port", port}})
	assert.ErrorIs(t, err, errTaken)
}

func TestOtherPortsAreTried(t *testing.T) {
	t.Run("where clients connect", func(t *testing.T) { triesOtherPorts(t, RedisConfig{}, "--port") })
	t.Run("where nodes of a cluster connect", func(t *testing.T) { triesOtherPorts(t, RedisConfig{Cluster: true}, "--cluster-port") })
}

// triesOtherPorts has another process hold the port after the option until the third try. Redis itself
// notices that the port is taken.
func triesOtherPorts(t *testing.T, c RedisConfig, option string) {
	held := must.Get(net.Listen("tcp", "127.0.0.1:0"))
	defer held.Close()
	folder := t.TempDir()
	program := filepath.Join(folder, "redis")
	require.NoError(t, os.WriteFile(program, []byte(`#!/bin/sh
echo "$@" >>"`+folder+`/tries"
test $(wc -l <"`+folder+`/tries") -gt 2 || exec redis-server "$@" `+option+` `+strconv.Itoa(held.Addr().(*net.TCPAddr).Port)+`
exec redis-server "$@"
`), 0o700))
	c.Program = program
	s := start(t, c)
	assert.NoError(t, s.Ping(patience))
	assert.Equal(t, c.Cluster, s.BusPort() != 0)
	tries := must.Get(os.ReadFile(filepath.Join(folder, "tries")))
	var ports []string
	for line := range strings.Lines(string(tries)) {
		words := strings.Fields(line)
		ports = append(ports, words[slices.Index(words, option)+1])
	}
	require.Len(t, ports, 3)
	assert.NotEqual(t, ports[0], ports[1])
	assert.NotEqual(t, ports[1], ports[2])
}
