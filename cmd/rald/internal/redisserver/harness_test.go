package redisserver

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/ral-limiter/ral/cmd/rald/internal/configured"
	"github.com/ral-limiter/ral/cmd/rald/internal/families"
	"github.com/ral-limiter/ral/cmd/rald/internal/limitfile"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// pipes listens for connections in memory, for bubbles of synctest.
type pipes struct {
	conns chan net.Conn
	done  context.Context
	close context.CancelFunc
}

func listenPipes() *pipes {
	done, cancel := context.WithCancel(context.Background())
	return &pipes{make(chan net.Conn), done, cancel}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done.Done():
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.close(); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

func (p *pipes) dial() net.Conn {
	client, server := net.Pipe()
	p.conns <- server
	return client
}

// open starts a server on a listener, adding Families, Limits and Log to the configuration.
func open(t *testing.T, config Config) (*Server, *pipes) {
	t.Helper()
	var err error
	if config.Families == nil {
		config.Families, err = families.New(families.Config{})
		require.NoError(t, err)
	}
	if config.Limits == nil {
		config.Limits = limitsOf(t, config.Families, limitsFile)
	}
	config.Log = slog.New(slog.DiscardHandler)
	s, err := New(config)
	require.NoError(t, err)
	l := listenPipes()
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		_ = s.Shutdown(context.Background())
		assert.NoError(t, <-served)
		assert.NoError(t, config.Families.Close())
	})
	return s, l
}

// client sends commands as arrays, and reads replies as values.
type client struct {
	t      *testing.T
	server *Server
	pipes  *pipes
	conn   net.Conn
	in     *bufio.Reader
}

// connect opens a server, and connects to it.
func connect(t *testing.T, config Config) *client {
	t.Helper()
	s, l := open(t, config)
	return (&client{t: t, server: s, pipes: l}).another()
}

// inBubble calls f with a client of a new server, in a bubble of testing/synctest.
func inBubble(t *testing.T, config Config, f func(t *testing.T, c *client)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, connect(t, config)) })
}

// another connects to the client's server.
func (c *client) another() *client {
	conn := c.pipes.dial()
	c.t.Cleanup(func() { _ = conn.Close() })
	return &client{c.t, c.server, c.pipes, conn, bufio.NewReader(conn)}
}

// three changes to version 3 of the protocol.
func (c *client) three() *client {
	c.t.Helper()
	require.IsType(c.t, map[string]any{}, c.do("HELLO 3"))
	return c
}

// clients checks how many are connected.
func (c *client) clients(want int, about ...any) {
	c.t.Helper()
	synctest.Wait()
	assert.EqualValues(c.t, want, c.server.clients.Load(), about...)
}

// flood sends a text n times without reading a reply.
func (c *client) flood(text string, n int) {
	go func() { _, _ = io.WriteString(c.conn, strings.Repeat(text, n)) }()
}

func (c *client) do(command string) any { return c.send(strings.Fields(command)...) }

func (c *client) send(args ...string) any {
	c.t.Helper()
	go c.write(args...)
	return c.reply()
}

func (c *client) write(args ...string) {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, arg := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(arg), arg)
	}
	_, _ = io.WriteString(c.conn, b.String())
}

type replyError string

// reply reads a string, an int64, a bool, nil, a []any, a map[string]any, a replyError, or io.EOF.
func (c *client) reply() any {
	c.t.Helper()
	line, err := c.in.ReadString('\n')
	if err != nil {
		return io.EOF
	}
	line = strings.TrimSuffix(line, "\r\n")
	kind, text := line[0], line[1:]
	n, _ := strconv.ParseInt(text, 10, 64)
	switch kind {
	case '+':
		return text
	case '-':
		return replyError(text)
	case ':':
		return n
	case '#':
		return text == "t"
	case '_':
		return nil
	case '$':
		if n < 0 {
			return nil
		}
		bulk := make([]byte, n+2)
		_, err := io.ReadFull(c.in, bulk)
		require.NoError(c.t, err)
		return string(bulk[:n])
	case '*':
		all := make([]any, n)
		for i := range all {
			all[i] = c.reply()
		}
		return all
	case '%':
		all := map[string]any{}
		for range n {
			key := c.reply()
			all[key.(string)] = c.reply()
		}
		return all
	}
	require.Failf(c.t, "no reply", "%q", line)
	return nil
}

func ints(all ...int64) []any {
	out := make([]any, len(all))
	for i, n := range all {
		out[i] = n
	}
	return out
}

const limitsFile = "limits:\n  api: funnel 5, 1/s\n  login: window 3/10m\n  slow: funnel 9, 1/300d\n"

func limitsOf(t *testing.T, keep *families.Families, text string) *configured.Limits {
	t.Helper()
	l, err := configured.New(configured.Config{Families: keep})
	require.NoError(t, err)
	set(t, l, text)
	return l
}

func set(t *testing.T, l *configured.Limits, text string) {
	t.Helper()
	file, err := limitfile.Parse("limits.yaml", []byte(text))
	require.NoError(t, err)
	require.NoError(t, l.Set(t.Context(), file, nil))
}
