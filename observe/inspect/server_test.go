package inspect_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/observe/inspect"
)

// pipes listens for connections in memory that seem to come over addr.
type pipes struct {
	addr   net.Addr
	coming chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newPipes(ip string) *pipes {
	return &pipes{addr: &net.TCPAddr{IP: net.ParseIP(ip), Port: 7725}, coming: make(chan net.Conn), closed: make(chan struct{})}
}

type pipe struct {
	net.Conn
	addr net.Addr
}

func (p pipe) LocalAddr() net.Addr { return p.addr }

func (p *pipes) Addr() net.Addr { return p.addr }
func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.coming:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) dial() net.Conn {
	client, server := net.Pipe()
	p.coming <- pipe{server, p.addr}
	return client
}

func listening(t *testing.T, config inspect.Config, ip string) *pipes {
	p := newPipes(ip)
	h := newHandler(t, config, inspect.Limit[string]{Limiter: newEngine[string](t, engine.Config{Name: "api"})})
	ended := make(chan error, 1)
	go func() { ended <- h.Serve(p) }()
	t.Cleanup(func() {
		require.NoError(t, h.Close())
		assert.ErrorIs(t, <-ended, http.ErrServerClosed)
	})
	return p
}

// The address makes no difference: a foreign name may resolve there.
func TestOwnServerChecksItsName(t *testing.T) {
	for _, c := range []struct {
		hosts   []string
		host    string
		allowed bool
	}{
		{nil, "localhost:7725", true},
		{nil, "evil.example:7725", false},
		{[]string{"ops.example"}, "ops.example:7725", true},
		{nil, "", false},
	} {
		synctest.Test(t, func(t *testing.T) {
			conn := listening(t, inspect.Config{Hosts: c.hosts}, "192.0.2.7").dial()
			defer conn.Close()
			_, err := fmt.Fprintf(conn, "GET /limits HTTP/1.1\r\nHost: %s\r\n\r\n", c.host)
			require.NoError(t, err)
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			require.NoError(t, err)
			defer resp.Body.Close()
			assert.Equal(t, c.allowed, resp.StatusCode == http.StatusOK, "%q of %q: %d", c.host, c.hosts, resp.StatusCode)
		})
	}
	// The listening host is a valid name.
	name := "localhost.localdomain"
	if _, err := net.LookupHost(name); err != nil {
		name = "ip6-localhost"
	}
	l, err := inspect.Listen(name + ":0")
	if err != nil {
		t.Skip("this machine has one name for itself alone:", err)
	}
	h := newHandler(t, inspect.Config{}, inspect.Limit[string]{Limiter: newEngine[string](t, engine.Config{Name: "api"})})
	go func() { _ = h.Serve(l) }()
	at := l.Addr().String()
	c := &client{t: t, url: "http://" + at + "/"}
	assert.Equal(t, http.StatusOK, c.send(http.MethodGet, "limits", "", "Host", name).status)
	assert.Equal(t, http.StatusForbidden, c.send(http.MethodGet, "limits", "", "Host", "evil.example").status)
}

// Slow to ask, to send a body, to read or to ask again.
func TestSlowClientsAreDropped(t *testing.T) {
	body := `{"limit":"api","key":"k"}`
	post := fmt.Sprintf("POST /key HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", len(body))
	get := "GET /uplot.min.js HTTP/1.1\r\nHost: localhost\r\n\r\n"
	for name, c := range map[string]struct {
		sends string // a byte a second, after first
		first string
		reads bool
		most  time.Duration
	}{
		"nothing":         {most: 11 * time.Second, reads: true},
		"a slow field":    {first: "GET /limits HTTP/1.1\r\nX: ", sends: strings.Repeat("x", 100), most: 11 * time.Second, reads: true},
		"a slow body":     {first: post, sends: strings.Repeat(" ", 100), most: 16 * time.Second, reads: true},
		"reads nothing":   {first: get, most: 61 * time.Second},
		"asks once":       {first: get, reads: true, most: 71 * time.Second},
		"no more follows": {first: post + body[:3], reads: true, most: 16 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				conn := listening(t, inspect.Config{}, "127.0.0.1").dial()
				defer conn.Close()
				began := time.Now()
				ended := make(chan struct{})
				if c.reads {
					go func() {
						_, _ = io.Copy(io.Discard, conn)
						close(ended)
					}()
				}
				_, _ = io.WriteString(conn, c.first)
				for i := range c.sends {
					time.Sleep(time.Second)
					if _, err := io.WriteString(conn, c.sends[i:i+1]); err != nil {
						break
					}
				}
				if !c.reads {
					time.Sleep(c.most) // the connection ends meanwhile
					n, err := io.Copy(io.Discard, conn)
					assert.NoError(t, err)
					assert.Less(t, n, int64(10_000), "the connection has ended")
					return
				}
				<-ended
				assert.LessOrEqual(t, time.Since(began), c.most)
			})
		})
	}
}
