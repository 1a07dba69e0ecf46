package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

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
	told := func() string {
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
	assert.Equal(t, "READY=1", told(), "%s", &s.log)
	assert.NoError(t, s.client(t, redis.Options{}).Ping(t.Context()).Err())
	c := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", admin)
	}}}
	defer c.CloseIdleConnections()
	status, text := fetch(t, c, "http://rald/metrics")
	assert.Equal(t, http.StatusOK, status, "%.100s", text)
	conn, err := net.Dial("tcp", envoy)
	require.NoError(t, err)
	_, err = io.ReadFull(conn, make([]byte, 1)) // the settings of HTTP/2
	assert.NoError(t, err)
	_ = conn.Close()
	s.end(t)
	assert.Equal(t, "STOPPING=1", told())
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

// Without a door, or more than one.
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
